"""Fingerprints: equal for the same failure, different for different ones."""

import pytest

from runner.rootcause.fingerprints import describe_fingerprint, fingerprint
from tests.rootcause.test_error_output import ADVICE, NOT_CLOSED


def _mark(line: str, *, function: str = "step", after: str = "") -> str:
    tail = (
        "Traceback (most recent call last):\n"
        f'  File "/srv/job/train.py", line 12, in {function}\n'
        "    loss.backward()\n"
        f"{line}\n{after}"
    )
    return fingerprint("rank_crash", exit_code=1, stderr_tail=tail)


@pytest.mark.parametrize("after", ["", ADVICE, NOT_CLOSED, ADVICE + NOT_CLOSED])
def test_advice_and_warnings_after_the_error_change_nothing(after: str) -> None:
    """Two errors of the GPU differ although the same advice follows both."""
    assert _mark("RuntimeError: CUDA error: device-side assert triggered", after=after) == _mark(
        "RuntimeError: CUDA error: device-side assert triggered"
    )
    assert _mark("RuntimeError: CUDA error: device-side assert triggered", after=after) != _mark(
        "RuntimeError: CUDA error: an illegal memory access was encountered", after=after
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "ValueError: step 12: loss 3.25 at 0x7f00aa",
            "ValueError: step 4096: loss 11 at 0x7f11bb",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.1 GiB, process 4711",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 3 has 78.2 GiB, process 99",
        ),
        (
            "OSError: [Errno 28] No space left on device: '/tmp/tmpab12/x'",
            "OSError: [Errno 28] No space left on device: '/tmp/tmpzz99/x'",
        ),
        (
            "RuntimeError: 2026-11-24 02:11:40,612: connect to node7:29500 timed out after 300000ms",
            "RuntimeError: 2026-11-25 12:01:02,001: connect to node7:41234 timed out after 1800000ms",
        ),
        (
            "FileNotFoundError: '/runs/a/attempts/1.1.0/rank0.json'",
            "FileNotFoundError: '/runs/a/attempts/1.1.7/rank0.json'",
        ),
    ],
)
def test_what_differs_between_occurrences_does_not_count(one: str, other: str) -> None:
    """Steps, sizes, addresses, ports, times and temporary folders."""
    assert _mark(one) == _mark(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("OSError: '/data/shard-0012.bin'", "OSError: '/data/shard-0013.bin'"),
        ("ConnectionError: node7:29500 refused", "ConnectionError: node8:29500 refused"),
        ("ConnectionError: 10.0.0.7:29500 refused", "ConnectionError: 10.0.0.8:29500 refused"),
        ("RuntimeError: NCCL error 5", "RuntimeError: NCCL error 3"),
        ("OSError: '/ckpt/1.1.0-00000300/model.pt'", "OSError: '/ckpt/1.1.0-00000400/model.pt'"),
    ],
)
def test_what_a_failure_is_about_counts(one: str, other: str) -> None:
    """The shard, the host, the code, the checkpoint."""
    assert _mark(one) != _mark(other)


def test_the_same_line_from_another_function_is_another_failure() -> None:
    """But an error of the GPU is reported wherever the program happens to be."""
    assert _mark("KeyError: 'x'", function="load") != _mark("KeyError: 'x'", function="save")
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert _mark(error, function="load") == _mark(error, function="save")


def test_without_any_line_only_the_code_counts() -> None:
    """A rank killed by a signal writes nothing."""
    assert fingerprint("rank_crash", exit_code=-9) == "rank_crash:-9:-"
    assert fingerprint("rank_crash", exit_code=-9, stderr_tail=NOT_CLOSED) == "rank_crash:-9:-"


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        (fingerprint("no_progress"), "no_progress"),
        (fingerprint("rank_crash", exit_code=1, stderr_tail="x"), "rank_crash with exit code 1"),
        (fingerprint("rank_crash", exit_code=-9), "rank_crash with exit code -9"),
        ("of an earlier release", "of an earlier release"),
        ("", ""),
    ],
)
def test_people_read_the_fault_and_the_exit_code(mark: str, text: str) -> None:
    """What only tells occurrences apart is left out of sentences."""
    assert describe_fingerprint(mark) == text
