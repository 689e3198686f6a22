"""Ranks that hang, in a script that knows nothing of Stoker: it detects that from outside, keeps stacks, and restarts them."""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.scripts import PLAIN, steps_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def start(
    harness: ClusterHarness, *, silent_after: int = 0, **fields: object
) -> subprocess.Popen[bytes]:
    """Start two ranks that make a step every 50 ms, and wait for the first ones."""
    harness.write_cluster(nodes=1, slots=2)
    harness.write_script(PLAIN)
    command = ["{python}", "train.py", str(silent_after)]
    harness.write_run(command=command, nodes=1, ranks_per_node=2, **fields)
    run = harness.start("run", "run.yaml")
    harness.until(lambda: all(len(steps_of(harness.folder, rank)) > 5 for rank in (0, 1)), "steps")
    return run


def next_attempt_steps(harness: ClusterHarness, before: str) -> int:
    """Wait until both ranks make steps in another attempt than `before`; return the first of them of rank 0."""

    def look() -> int | None:
        new = [
            [step.step for step in steps_of(harness.folder, rank) if step.attempt != before]
            for rank in (0, 1)
        ]
        return new[0][0] if all(len(steps) > 3 for steps in new) else None

    return harness.until(look, f"steps after {before}")


def finish(harness: ClusterHarness, run: subprocess.Popen[bytes]) -> None:
    """Let the script come to its end."""
    (harness.folder / "enough").touch()
    code, output = harness.finish(run)
    assert code == 0, output


def stacks_of(harness: ClusterHarness, attempt: str) -> dict[int, str]:
    """Read the stacks that an attempt's ranks left."""
    folder = Path(run_of(harness.view()).folder, "attempts", attempt, "stacks")
    return {rank: (folder / f"rank{rank}.txt").read_text() for rank in (0, 1)}


def test_a_stopped_rank_of_a_plain_script_is_replaced_and_its_stack_is_kept(
    harness: ClusterHarness,
) -> None:
    """SIGSTOP to rank 1: both ranks are started again, go on from their own state, and their stacks are on disk."""
    run = start(harness)
    last = steps_of(harness.folder, 0)[-1]
    stopped_at = time.monotonic()
    kill(harness.observer.gang()[1], signal.SIGSTOP)
    first = next_attempt_steps(harness, last.attempt)
    print(f"SIGSTOP to the fourth new step of both ranks: {time.monotonic() - stopped_at:.2f} s")
    assert first > last.step
    finish(harness, run)
    (incident,) = incidents_of(harness.view())
    assert (incident.fault, incident.rank, incident.node) == ("rank_stopped", 1, "n1")
    stacks = stacks_of(harness, last.attempt)
    assert "state T" in stacks[1]
    assert all("train.py" in text for text in stacks.values()), stacks
    story = harness.stoker("story", "i1").stdout
    assert "stacks of 2 written down before" in story, story
    assert f"attempts/{last.attempt}/stacks" in story, story
    assert harness.observer.starts() == {"1.1.0": 2, "1.1.1": 2}


def test_a_plain_script_without_new_lines_is_found_by_its_learned_timeout(
    harness: ClusterHarness,
) -> None:
    """It is alive, not stopped, and prints no line: the learned timeout expires, not before `progress_seconds`.

    Until then it writes for a little longer than that, which is enough to learn its timeout. On a loaded machine it may pause
    for a tenth of that.
    """
    run = start(harness, silent_after=640, progress_seconds=30)
    first = next_attempt_steps(harness, "1.1.0")
    assert first == 641
    finish(harness, run)
    (incident,) = incidents_of(harness.view())
    assert incident.fault == "no_progress"
    stacks = stacks_of(harness, "1.1.0")
    assert all("train.py:15" in text for text in stacks.values()), stacks
    story = harness.stoker("story", "i1").stdout
    gap_seconds = re.search(r"nothing written by the ranks of 1\.1\.0 for ([0-9.]+) s", story)
    assert gap_seconds is not None, story
    assert float(gap_seconds[1]) >= 30
    assert "learned: the longest of" in story, story
