"""The stamps of `train_ddp.py`, read while it writes them: which process made which step, and when."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).with_name("train_ddp.py")
# The script's own interval.
CHECKPOINT_STEPS = 10
# Of a gang before the fault: past its first checkpoint.
SETTLE_STEPS = 20
# The time of a round comes from the stamps, not from when they were read.
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Stamp:
    """One step of one process, in seconds of the monotonic clock."""

    at: float
    pid: int
    step: int


def stamps_of(folder: Path, rank: int) -> list[Stamp]:
    """Read a rank's stamps, oldest first; a line it is just writing is left out."""
    path = folder / f"steps.{rank}"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [Stamp(float(at), int(pid), int(step)) for at, pid, step in map(str.split, lines)]


def gang_of(folder: Path, num_ranks: int) -> tuple[Stamp, ...]:
    """Return the newest stamp of each rank once all have made some; else an empty tuple."""
    newest = [stamps_of(folder, rank)[-1:] for rank in range(num_ranks)]
    return tuple(stamps[0] for stamps in newest) if all(newest) else ()


def is_settled(folder: Path, num_ranks: int) -> bool:
    """Whether the processes that made the newest steps have each made `SETTLE_STEPS`."""
    for rank in range(num_ranks):
        stamps = stamps_of(folder, rank)
        if not stamps or sum(stamp.pid == stamps[-1].pid for stamp in stamps) < SETTLE_STEPS:
            return False
    return True


def first_new_step(folder: Path, before: tuple[Stamp, ...]) -> Stamp | None:
    """Return the first step that rank 0 made in a process other than the one in `before`; None as long as there is none.

    Raises RuntimeError when it is not the one after the last checkpoint: then the script did not load what it had saved.
    """
    known = before[0]
    new = [s for s in stamps_of(folder, 0) if s.at > known.at and s.pid != known.pid]
    if not new:
        return None
    # The old gang may have made steps between the reading and the fault, and until the fault is detected.
    reached = max(s.step for s in stamps_of(folder, 0) if s.pid == known.pid)
    if not reached - CHECKPOINT_STEPS < new[0].step <= reached + 1:
        raise RuntimeError(
            f"the new gang began with step {new[0].step}, the old one had reached {reached}: "
            f"expected to lose fewer than {CHECKPOINT_STEPS}"
        )
    return new[0]


def wait_until(holds: Callable[[], bool], what: str, *, seconds: float) -> None:
    """Poll until a condition holds; RuntimeError when it does not in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {seconds:g} s: {what}")
        time.sleep(POLL_SECONDS)
