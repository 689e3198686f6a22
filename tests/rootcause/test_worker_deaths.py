"""Data workers that died: a signal says nothing about the data, the lines above it may."""

import pytest

from tests.collect.diagnosed_logs import verdicts_of

STEPS = "step 3 loss 2.25\nstep 4 loss 2.125\n"
DIED = "RuntimeError: DataLoader worker (pid 811) is killed by signal: {}. \n"
STACK = """Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1163, in _try_get_data
    data = self._data_queue.get(timeout=timeout)
  File "/env/lib/python3.11/site-packages/torch/utils/data/_utils/signal_handling.py", line 66, in handler
    _error_if_any_worker_fails()
{died}
The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/job/train.py", line 226, in main
    for batch in loader:
  File "/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1176, in _try_get_data
    raise RuntimeError(f'DataLoader worker (pid(s) {{pids_str}}) exited unexpectedly') from e
RuntimeError: DataLoader worker (pid(s) 811) exited unexpectedly
"""
TCL = "Tcl_AsyncDelete: async handler deleted by the wrong thread\n"


@pytest.mark.parametrize("signal", ["Aborted", "Segmentation fault", "Floating point exception"])
@pytest.mark.parametrize("form", [STACK, "{died}"], ids=["stack", "line"])
def test_a_signal_is_an_unknown_cause_with_little_confidence(signal: str, form: str) -> None:
    """Whether the whole traceback is there or its last line alone."""
    (verdict,) = verdicts_of(STEPS + form.format(died=DIED.format(signal)))
    assert verdict.cause.fault == "unknown"
    assert verdict.cause.confidence <= 0.5
    assert DIED.format(signal).strip() in verdict.evidence[0].text + " "


@pytest.mark.parametrize("signal", ["Terminated", "Hangup", "Interrupt"])
def test_a_worker_that_was_asked_to_end_names_no_fault_of_data(signal: str) -> None:
    """As launchers end the workers of all ranks once one is dead."""
    (verdict,) = verdicts_of(STEPS + STACK.format(died=DIED.format(signal)))
    assert verdict.cause.fault == "unknown"
    assert verdict.cause.confidence <= 0.5


def test_a_worker_that_the_kernel_killed_ran_out_of_memory() -> None:
    """Nothing else sends SIGKILL to a single worker; the exception that follows changes nothing."""
    (verdict,) = verdicts_of(STEPS + STACK.format(died=DIED.format("Killed")))
    assert verdict.cause.fault == "host_oom"


def test_an_end_without_a_word_is_unknown() -> None:
    """What is known is that a worker is gone."""
    (verdict,) = verdicts_of(
        STEPS + "RuntimeError: DataLoader worker (pid(s) 811) exited unexpectedly\n"
    )
    assert verdict.cause.fault == "unknown"
    assert verdict.cause.confidence <= 0.5


@pytest.mark.parametrize(
    ("above", "fault"),
    [
        (TCL, "config_error"),
        (
            "Fatal Python error: PyThreadState_Get: the function must be called with the GIL held, but the GIL is released\n",
            "config_error",
        ),
        (
            "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory\n",
            "host_oom",
        ),
    ],
)
def test_what_the_worker_wrote_as_it_died_is_the_cause(above: str, fault: str) -> None:
    """The rank makes steps of the batches that were ready until it needs that of the dead worker."""
    (verdict,) = verdicts_of(
        STEPS + above + "step 5 loss 2.0\n" + STACK.format(died=DIED.format("Aborted"))
    )
    assert verdict.cause.fault == fault
    assert verdict.evidence[0].line == 3


def test_what_was_far_above_or_survived_is_not_the_cause_of_a_death() -> None:
    """Steps show survival; so do those that follow after a death."""
    steps = "".join(f"step {number} loss 2.0\n" for number in range(5, 60))
    died = DIED.format("Aborted")
    (verdict,) = verdicts_of(STEPS + TCL + steps + died)
    assert verdict.cause.fault == "unknown"
    assert verdicts_of(STEPS + TCL + died + steps) == []
