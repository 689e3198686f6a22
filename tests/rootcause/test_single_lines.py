"""Single lines: what the exception of a traceback means of which only its own line is in the log."""

import pytest

from runner.rootcause.tracebacks.single_lines import finding_of_line

# Lines as libraries print them -> the fault. "unknown": it reports what happened elsewhere. None: the class shows nothing.
LINES = {
    "jax.errors.ConcretizationTypeError: Abstract tracer value encountered": "config_error",
    "[rank3]: flax.errors.ScopeParamShapeError: Initializer expected (7, 3)": "config_error",
    "torch._dynamo.exc.Unsupported: call_function zork [] {}": "config_error",
    "torch.utils.checkpoint.CheckpointError: Recomputed values have other metadata": "config_error",
    "jaxlib.xla_extension.XlaRuntimeError: INVALID_ARGUMENT: expected f32[8], got f32[9]": "config_error",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: 7 GiB": "cuda_oom",
    "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: the zork failed": None,
    "tensorflow.python.framework.errors_impl.NotFoundError: no files match /ckpt/m-8": "checkpoint_io",
    "tensorflow.python.framework.errors_impl.InvalidArgumentError: labels have shape [320]": "config_error",
    "ray.exceptions.OutOfMemoryError: Task was killed": "host_oom",
    "ray.exceptions.GetTimeoutError: Get timed out: some object(s) not ready.": "unknown",
    "ray.exceptions.RayTaskError(ZeroDivisionError): ray::f() (pid=7)": "config_error",
    "ray.exceptions.RayTaskError(RuntimeError): ray::f() (pid=7)": None,
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.": "unknown",
    "concurrent.futures.process.BrokenProcessPool: A process was terminated abruptly": "unknown",
    "mlflow.exceptions.MlflowException: request failed: Max retries exceeded": "unknown",
    "wandb.errors.UsageError: api_key not configured": "config_error",
    "botocore.exceptions.ClientError: An error occurred (SlowDown)": "filesystem",
    "safetensors_rust.SafetensorError: header too large": "checkpoint_io",
    "Error: PIL.UnidentifiedImageError: cannot identify image file 'a.jpg'": "data_error",
    "RuntimeError: received 0 items of ancdata": "unknown",
    "RuntimeError: the zork is out": None,
    "ValueError: the zork is out": None,
    "the zork is out": None,
    "": None,
}


@pytest.mark.parametrize(("line", "fault"), LINES.items())
def test_a_line_alone_has_the_fault_of_its_class(line: str, fault: str | None) -> None:
    """The class, its module, and a status at the start of its message show it; general classes show nothing."""
    found = finding_of_line(line)
    assert (found.fault if found is not None else None) == fault


def test_any_length_is_survived() -> None:
    """Thousands of names with colons cost little."""
    assert finding_of_line("a.B: " * 20_000) is None
