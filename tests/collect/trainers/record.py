"""Has trainers that need a GPU print lines by their own formatter, on any machine: `python -m tests.collect.trainers.record NAME`.

It needs the package in an environment of its own; the recorded lines lie in `recorded`, named after package and version. Lines are
those of `forms.losses()`. What measures a GPU, or is imported and not called here, is replaced.
"""

import contextlib
import math
import sys
import types
from importlib import import_module
from importlib.machinery import ModuleSpec
from typing import Any
from unittest import mock

from tests.collect.trainers.forms import At, losses

NUM_STEPS = 5000


def torchtitan() -> None:
    """Print by torchtitan's MetricsProcessor.log, with the memory of a GPU of 80 GB."""
    import_module("torchtitan.tools.logging").init_logger()
    metrics: Any = import_module("torchtitan.components.metrics")
    processor = object.__new__(metrics.MetricsProcessor)
    processor.config = metrics.MetricsProcessor.Config(log_freq=10)
    processor.logger = metrics.BaseLogger()
    processor.color = metrics.utils.Color()
    processor.parallel_dims = types.SimpleNamespace(non_data_parallel_size=1)
    processor.has_quantization = False
    processor.gpu_peak_flops, processor.num_flops_per_token = 989e12, 48_000_000_000
    processor.time_last_log = 0.0
    memory = metrics.DeviceMemStats(18.2, 22.9, 20.5, 25.9, 0, 0)
    processor.device_memory_monitor = mock.Mock(get_peak_stats=lambda: memory)
    for n, loss in enumerate(losses()):
        at = At(n, loss)
        processor.data_loading_times = [0.01]
        # 2.5 seconds for 8,125 tokens.
        processor.ntokens_since_last_log, processor.time_last_log = 8125, 0.0
        with mock.patch.object(metrics.time, "perf_counter", return_value=2.5):
            processor.log(at.step, loss, loss + 0.1, _norm(loss))
        if n % 20 == 19:
            processor.log_validation(loss + 0.2, at.step)


def megatron_bridge() -> None:
    """Print by Megatron-Bridge's training_log, which is Megatron-LM's. It leaves out a loss that is NaN."""
    sys.meta_path.append(_Missing())
    torch: Any = import_module("torch")
    utils: Any = import_module("megatron.bridge.training.utils.train_utils")
    config, state = mock.MagicMock(), mock.MagicMock()
    config.logger.log_interval, config.train.train_iters = 10, NUM_STEPS
    config.logger.log_timers_to_tensorboard = config.profiling = None
    config.logger.log_throughput, config.logger.timing_log_level = False, 0
    config.optimizer.decoupled_lr = config.model.num_moe_experts = None
    config.data_parallel_size, config.train.micro_batch_size = 8, 1
    config.model.mtp_num_layers = None
    state.tensorboard_logger = state.wandb_logger = state.mlflow_logger = state.comet_logger = None
    state.energy_monitor = None
    state.timers.return_value.elapsed.return_value = 12.505
    state.train_state.skipped_train_samples = 0
    total: dict[str, Any] = {}
    tensor = torch.tensor

    def on_cpu(*values: Any, device: object = None, **fields: Any) -> Any:
        return tensor(*values, **fields)

    names = {
        "get_num_microbatches": lambda: 4,
        "get_world_size_safe": lambda: 8,
        "num_floating_point_operations": lambda *_: 2.5e15,
        "reduce_max_stat_across_model_parallel_group": lambda value, **_: value,
        "print_rank_0": print,
        "print_rank_last": print,
    }
    with contextlib.ExitStack() as patches:
        for name, value in names.items():
            patches.enter_context(mock.patch.object(utils, name, value))
        patches.enter_context(mock.patch.object(torch, "tensor", on_cpu))
        for n, loss in enumerate(losses()):
            for step in range(At(n, loss).step - 9, At(n, loss).step + 1):
                state.train_state.step, state.train_state.consumed_train_samples = step, step * 32
                utils.training_log(
                    {"lm loss": torch.tensor(loss)},
                    total,
                    1.2e-4,
                    None,
                    1.0,
                    False,
                    0,
                    _norm(loss),
                    None,
                    None,
                    config,
                    state,
                    [],
                    [mock.MagicMock()],
                )


def _norm(loss: float) -> float:
    """Return the norm of the gradients: that of a NaN is NaN."""
    return math.nan if math.isnan(loss) else 0.873


class _Missing:
    """Finds a module for each package of GPUs that is not installed: what is imported from it is never called here."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in _GPU else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = _Stub(spec.name)
        # Megatron asks for it.
        vars(module)["__version__"] = "2.9.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Leave it empty."""


class _Stub(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


class _Anything(type):
    """A class that has whatever is asked of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {})


_GPU = ("transformer_engine",)

if __name__ == "__main__":
    {"torchtitan": torchtitan, "megatron_bridge": megatron_bridge}[sys.argv[1]]()
