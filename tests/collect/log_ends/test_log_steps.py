"""Steps that a process survived: a bar that it draws again below its traceback, as it exits, is none."""

import pytest

from runner.collect.log_steps import LogSteps, is_open_bar
from tests.collect.diagnosed_logs import verdicts_of

TRACEBACK = """Traceback (most recent call last):
  File "/workspace/train.py", line 85, in training
    loss = model(batch)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.
"""


def bar(step: int, total: int = 100) -> str:
    """Draw a bar with a loss."""
    return f"{step}%|███▉      | {step}/{total} [00:{step:02d}<4:20:17,  1.93it/s, Loss=0.1{step}]"


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_a_bar_that_is_drawn_once_more_below_a_traceback_is_no_recovery(end: str) -> None:
    """It shows the steps that were not drawn yet, when it is closed: after the traceback."""
    drawn = end.join(map(bar, (10, 20, 30)))
    for last in (bar(33), f"{bar(33)}\r{bar(33)}"):
        (verdict,) = verdicts_of(f"{drawn}\n{TRACEBACK}{last}\n")
        assert (verdict.cause.fault, verdict.recovered) == ("cuda_oom", False)
    (verdict,) = verdicts_of(f"{TRACEBACK}{bar(33)}\n")
    assert verdict.cause.fault == "cuda_oom"


def test_bars_that_go_on_below_a_traceback_are() -> None:
    """A batch that was skipped ends nothing; a full bar, or a step after it, shows that the process went on."""
    drawn = "\n".join(map(bar, (10, 20, 30)))
    for after in (f"{bar(33)}\n{bar(34)}\n", f"{bar(100)}\n", f"{bar(33)}\nstep 34 loss: 0.2\n"):
        assert verdicts_of(f"{drawn}\n{TRACEBACK}{after}") == []


def test_the_newest_step_that_was_survived_is_known() -> None:
    """A step of an open bar is survived once another step follows; the same bar again changes nothing."""
    steps = LogSteps("log")
    for step, line, text in ((10, 1, bar(10)), (20, 2, bar(20)), (20, 3, bar(20))):
        steps.add(step, line, text.encode())
    assert steps.furthest is not None
    assert steps.survived is not None
    assert (steps.furthest.step, steps.survived.step) == (20, 10)
    steps.add(20, 4, b"step 20 eval_loss: 1.5")
    assert steps.survived.step == 20
    assert is_open_bar(bar(10).encode())
    assert not is_open_bar(bar(100).encode())
    assert not is_open_bar(b"step 10/100 loss: 2.0")
