"""Ranks that hang, in a script that knows nothing of Stoker: found from outside, stacks kept, and on it goes."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.scripts import PLAIN, steps_of
from tests.e2e.stand import RankStack, incidents_of, kill, run_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def start(stand: RankStack, *, silent_after: int = 0, **fields: object) -> subprocess.Popen[bytes]:
    """Start two ranks that make a step every 50 ms, and wait for the first ones."""
    stand.write_cluster(nodes=1, slots=2)
    stand.write_script(PLAIN)
    command = ["{python}", "train.py", str(silent_after)]
    stand.write_run(command=command, nodes=1, ranks_per_node=2, **fields)
    run = stand.start("run", "run.yaml")
    stand.until(lambda: all(len(steps_of(stand.folder, rank)) > 5 for rank in (0, 1)), "steps")
    return run


def next_attempt_steps(stand: RankStack, before: str) -> int:
    """Wait until both ranks make steps in another attempt than `before`; return the first of them of rank 0."""

    def look() -> int | None:
        new = [
            [step.step for step in steps_of(stand.folder, rank) if step.attempt != before]
            for rank in (0, 1)
        ]
        return new[0][0] if all(len(steps) > 3 for steps in new) else None

    return stand.until(look, f"steps after {before}")


def finish(stand: RankStack, run: subprocess.Popen[bytes]) -> None:
    """Let the script come to its end."""
    (stand.folder / "enough").touch()
    code, said = stand.finish(run)
    assert code == 0, said


def stacks_of(stand: RankStack, attempt: str) -> dict[int, str]:
    """Read the stacks that an attempt's ranks left."""
    folder = Path(run_of(stand.view()).folder, "attempts", attempt, "stacks")
    return {rank: (folder / f"rank{rank}.txt").read_text() for rank in (0, 1)}


def test_a_stopped_rank_of_a_plain_script_is_replaced_and_its_stack_is_kept(
    stand: RankStack,
) -> None:
    """SIGSTOP to rank 1: both ranks are started again, go on from their own state, and where they stood is on disk."""
    run = start(stand)
    last = steps_of(stand.folder, 0)[-1]
    struck_at = time.monotonic()
    kill(stand.observer.gang()[1], signal.SIGSTOP)
    first = next_attempt_steps(stand, last.attempt)
    print(f"SIGSTOP to the fourth new step of both ranks: {time.monotonic() - struck_at:.2f} s")
    assert first > last.step
    finish(stand, run)
    (incident,) = incidents_of(stand.view())
    assert (incident.fault, incident.rank, incident.node) == ("rank_stopped", 1, "n1")
    said = stacks_of(stand, last.attempt)
    assert "state T" in said[1]
    assert all("train.py" in text for text in said.values()), said
    story = stand.stoker("story", "i1").stdout
    assert "stacks of 2 written down before" in story, story
    assert f"attempts/{last.attempt}/stacks" in story, story
    assert stand.observer.starts() == {"1.1.0": 2, "1.1.1": 2}


def test_a_plain_script_that_falls_silent_is_found_by_the_pace_of_its_lines(
    stand: RankStack,
) -> None:
    """Alive, not stopped, and no line any more: found by what its lines have taught, not before `progress_seconds`.

    Until then it writes for a little longer than that, which is as much as is needed to know its pace; and it may stand still
    for a tenth of it, on a loaded machine, before there is no telling.
    """
    run = start(stand, silent_after=640, progress_seconds=30)
    first = next_attempt_steps(stand, "1.1.0")
    assert first == 641
    finish(stand, run)
    (incident,) = incidents_of(stand.view())
    assert incident.fault == "no_progress"
    said = stacks_of(stand, "1.1.0")
    assert all("train.py:15" in text for text in said.values()), said
    story = stand.stoker("story", "i1").stdout
    said_seconds = re.search(r"nothing written by the ranks of 1\.1\.0 for ([0-9.]+) s", story)
    assert said_seconds is not None, story
    assert float(said_seconds[1]) >= 30
    assert "learned: the longest of" in story, story
