"""A run's folder of checkpoints as a test of the controller plays it: seals, rewinds, relaunches."""

from typing import Any

from runner.decide.decision import Decision
from runner.decide.runs.rewind import rewind
from runner.decide.state.cluster_state import Run
from runner.facts import wire
from runner.facts.actions import ActionResult, PrepareAttempt
from runner.facts.checkpoints import Rewind, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from tests.decide.controller_harness import ControllerHarness

FOLDER = "/ck"


class Folder:
    """Checkpoints as they lie on disk, whether the controller knows of them or not."""

    def __init__(self) -> None:
        self.sealed: list[tuple[int, AttemptId]] = []

    def choose(self, work: PrepareAttempt) -> dict[str, Any]:
        """Return what a survey of this folder finds."""
        rewinds = [Rewind.of_plain(each) for each in work.set_aside]
        for step, attempt in sorted(self.sealed, reverse=True):
            is_left = any(each.sets_aside(step, attempt) for each in rewinds)
            if not is_left and path_of(step, attempt) not in work.refused:
                path = path_of(step, attempt)
                chosen = {"path": path, "attempt": str(attempt), "step": step}
                unverified = path.rpartition("/")[2] not in work.verified
                return {"chosen": {**chosen, "unverified": unverified}}
        return {}


def path_of(step: int, attempt: AttemptId) -> str:
    """Return the folder of a checkpoint."""
    return f"{FOLDER}/{attempt}-{step:08d}"


def run_of(harness: ControllerHarness) -> Run:
    """Return the one run."""
    return harness.state.runs[1]


def seal(harness: ControllerHarness, folder: Folder, *steps: int) -> None:
    """Let the live attempt seal checkpoints; those of steps below 0 are not reported yet."""
    attempt = run_of(harness).attempt
    assert attempt is not None
    name = attempt.attempt
    for step in steps:
        folder.sealed.append((abs(step), name))
        path = path_of(abs(step), name)
        source: dict[str, Any] = {"node": "n1", "incarnation": 1, "attempt": name}
        if step > 0:
            harness.take(s.CheckpointSealed(**source, step=step, path=path))
            harness.take(s.Progress(**source, step=step))
            harness.settle()


def go_back(harness: ControllerHarness, before_step: int, least: Trust = Trust.COMMITTED) -> str:
    """Ask for a rewind as a rung or a request does; return why not."""
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=harness.now)
    given: dict[str, Any] = {"before_step": before_step, "least": least, "reason": "a spike"}
    refusal = rewind(decision, run_of(harness), **given)
    assert bool(refusal) != bool(decision.records)
    record(harness, *decision.records)
    return refusal


def record(harness: ControllerHarness, *records: object) -> None:
    """Apply records as they come back from the journal, and settle."""
    harness.sequence += 1
    entry = r.JournalEntry(
        sequence=harness.sequence, now=harness.now, input=r.Tick(), records=records
    )
    read = wire.decode(wire.encode(entry))
    assert isinstance(read, r.JournalEntry)
    harness.controller.apply(read)
    harness.settle()


def relaunch(harness: ControllerHarness, folder: Folder) -> tuple[AttemptId, str]:
    """Let the nodes end the ranks, and the next gang start when its time has come; return it and what it resumes from."""
    attempt = run_of(harness).attempt
    assert attempt is not None
    for node in attempt.nodes:
        gone: dict[str, Any] = {"generation": attempt.generation, "attempt": attempt.attempt}
        harness.take(
            s.RanksTerminated(node=node, incarnation=1, last_step=attempt.last_step, **gone)
        )
    harness.settle()
    if (retry_at := run_of(harness).retry_at) is not None:
        harness.now = max(harness.now, retry_at)
        harness.settle()
    for action in harness.state.open_actions("prepare_attempt"):
        detail = {"port": 1, "address": "host", **folder.choose(action.read(PrepareAttempt))}
        harness.take(ActionResult(id=action.id, outcome="done", detail=detail))
    harness.settle()
    attempt = run_of(harness).attempt
    assert attempt is not None
    for node in attempt.nodes:
        started: dict[str, Any] = {"generation": attempt.generation, "attempt": attempt.attempt}
        harness.take(s.RanksStarted(node=node, incarnation=1, **started))
    harness.settle()
    return attempt.attempt, attempt.resume
