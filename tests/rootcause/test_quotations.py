"""Lines that only speak of faults: no incident; the same words of a run itself are one."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

OOM = "CUDA out of memory"


@pytest.mark.parametrize(
    "line",
    [
        f"  --offload {{none,cpu}}  where to keep the optimizer; cpu if you see {OOM}",
        f"  -m, --micro-batch SIZE  lower it after torch.OutOfMemoryError: {OOM}",
        f'src/memory.py:90:     raise torch.OutOfMemoryError("{OOM}")',
        "lib/comm.cc-118-  throw std::runtime_error(\"NCCL error: unhandled system error\");",
        f"tests/test_memory.py::test_error[{OOM}] PASSED                     [ 40%]",
        f"test_it (tests.test_memory.TestMemory.{OOM}) ... ok",
        f"[RESOLVED] n3: torch.OutOfMemoryError: {OOM}",
        '{"labels": {"alertname": "GpuLost", "text": "GPU has fallen off the bus"}, "status": "resolved"}',
    ],
)  # fmt: skip
def test_a_quotation_is_no_incident(line: str) -> None:
    """Help, code, tests that passed, alerts that are over."""
    assert verdicts_of(f"starting\n{line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        f"torch.OutOfMemoryError: {OOM}. Tried to allocate 2.00 GiB",
        f"tests/test_memory.py::test_error FAILED: torch.OutOfMemoryError: {OOM}",
        f"train.py:90: torch.OutOfMemoryError: {OOM}",
        f"[FIRING] n3: torch.OutOfMemoryError: {OOM}",
    ],
)
def test_what_a_run_reports_is_one(line: str) -> None:
    """The same words, written by what failed."""
    (verdict,) = verdicts_of(f"starting\n{line}\n")
    assert verdict.cause.fault == "cuda_oom"
