"""The writer of step histories: what leaders write, and that no disk stops a supervisor."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.decide.state.cluster_state import Node, Run, State
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.specs.run import RunSpec
from runner.facts.watch import StepsWanted
from runner.steps import read
from runner.supervisor.step_history import WRITE_SECONDS, RecalledSteps, StepHistory
from tests.small_disk import fill, small_disk

ATTEMPT = AttemptId(1, 1, 0)
LONG_SECONDS = 60.0


def state() -> State:
    """Make a state with run 1 on node n1."""
    run = Run(run=1, spec=RunSpec(name="tiny", command=("true",), nodes=1), admitted_at=7.0)
    node = Node(node="n1", index=0, instance_id="right")
    return State(runs={1: run}, nodes={"n1": node})


def heartbeat(*steps: int, instance_id: str = "right", attempt: AttemptId = ATTEMPT) -> Heartbeat:
    """Make a heartbeat of n1."""
    records = tuple(StepRecord(step=step, loss=1.0 / step) for step in steps)
    return Heartbeat(
        node="n1", incarnation=1, attempt=attempt, steps=records, instance_id=instance_id
    )


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + LONG_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def test_rows_are_written_every_two_seconds_and_at_the_end(tmp_path: Path) -> None:
    """The next leader goes on; other agents, and runs that are not known, leave no row."""
    known, history = state(), StepHistory(tmp_path, 1)
    history.start()
    assert history.due_at() > 1e9
    history.on_heartbeat(heartbeat(1, 2), known, 100.0)
    assert history.due_at() <= 100.0
    history.advance(known, 100.0)
    wait_for(lambda: [row.step for row in read(tmp_path, 1)] == [1, 2])
    history.on_heartbeat(heartbeat(3), known, 100.1)
    history.on_heartbeat(heartbeat(4, instance_id="wrong"), known, 100.2)
    history.on_heartbeat(heartbeat(5, attempt=AttemptId(2, 1, 0)), known, 100.2)
    history.on_heartbeat(replace(heartbeat(6), node="n9"), known, 100.2)
    wait_for(lambda: history.due_at() == 100.0 + WRITE_SECONDS)
    history.advance(known, 100.3)
    assert [row.step for row in read(tmp_path, 1)] == [1, 2]
    history.close(known, LONG_SECONDS)
    following = StepHistory(tmp_path, 2)
    following.start()
    following.on_heartbeat(heartbeat(4), known, 103.0)
    following.close(known, LONG_SECONDS)
    assert [row.step for row in read(tmp_path, 1)] == [1, 2, 3, 4]


def test_a_full_disk_is_told_once_and_costs_no_row(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows wait in memory until there is room; the log has one line for the failure and one for the end of it."""
    caplog.set_level(logging.INFO)
    with small_disk(tmp_path / "disk", size_bytes=64 * 1024) as disk:
        known, history = state(), StepHistory(disk / "steps", 1)
        history.start()
        history.on_heartbeat(heartbeat(1), known, 100.0)
        history.advance(known, 100.0)
        wait_for(lambda: len(read(disk / "steps", 1)) == 1)
        filler, now = fill(disk), 100.0

        def has(text: str, num_rows: int = 0) -> bool:
            nonlocal now
            now += WRITE_SECONDS
            history.advance(known, now)
            return text in caplog.text and len(read(disk / "steps", 1)) >= num_rows

        for step in range(2, 300):
            history.on_heartbeat(heartbeat(step), known, now)
            if step in (100, 200):
                wait_for(lambda: has("step histories are not written"))
        filler.unlink()
        wait_for(lambda: has("", num_rows=299))
        wait_for(lambda: "written again" in caplog.text)
        history.close(known, LONG_SECONDS)
    assert caplog.text.count("step histories are not written: [Errno 28]") == 1
    assert caplog.text.count("step histories are written again; no row is lost") == 1


def test_a_folder_of_another_cluster_is_not_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What makes the folder ready refuses; the supervisor goes on."""
    from runner.journal.archive import Archive

    Archive(tmp_path, "other").prepare()
    known, history = (
        state(),
        StepHistory(tmp_path / "steps", 1, prepare=Archive(tmp_path, "ours").prepare),
    )
    history.start()
    history.on_heartbeat(heartbeat(1), known, 100.0)
    history.close(known, LONG_SECONDS)
    assert "belongs to cluster 'other'" in caplog.text
    assert not (tmp_path / "steps").exists()


def test_steps_that_a_detector_wants_are_read_with_those_that_wait(tmp_path: Path) -> None:
    """Those that counted before the attempt, as if a mismatched one had not been, then its own; or the newest of the run."""
    known, recalled = state(), list[RecalledSteps]()
    history = StepHistory(tmp_path, 1, on_recalled=recalled.append)
    history.start()
    one, bad, two = ATTEMPT, AttemptId(1, 1, 1), AttemptId(1, 1, 2)
    for attempt, steps in ((one, range(1, 11)), (bad, range(6, 9)), (two, range(6, 8))):
        history.on_heartbeat(heartbeat(*steps, attempt=attempt), known, 100.0)
    history.recall(StepsWanted(two, 4, 9, (bad,)), known)
    history.recall(StepsWanted(two, 4, 9), known)
    history.recall(StepsWanted(two, newest=4), known)
    history.close(known, LONG_SECONDS)
    found = [[(step.attempt, step.step) for step in each.steps] for each in recalled]
    own = [(two, 6), (two, 7)]
    assert found == [
        [*((one, step) for step in range(4, 10)), *own],
        [(one, 4), (one, 5), (bad, 6), (bad, 7), (bad, 8), *own],
        [(one, 4), (one, 5), *own],
    ]
    last = recalled[-1].steps[-1]
    assert (last.loss, last.at) == (1.0 / 7, 100.0)
