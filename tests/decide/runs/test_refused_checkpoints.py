"""A rank that refuses what it was to resume from: that checkpoint is never taken again, and the one before it is."""

from typing import Any

import pytest

from runner.decide.state.cluster_state import Attempt, Incident
from runner.facts.actions import ActionResult, PageOperator, PrepareAttempt
from runner.facts.checkpoints import Trust
from runner.facts.contract import EXIT_CHECKPOINT_REFUSED
from runner.facts.messages import signals as s
from tests.decide.controller_harness import ControllerHarness, exited, training_harness

STEPS = tuple(range(80, 0, -10))
WORDS = "warning: slow\ncheckpoint refused: {path}/__0_0.distcp is damaged: sha256 1, the manifest says 2\n"


def path_of(step: int) -> str:
    """Return the folder of a step's checkpoint."""
    return f"/ck/1.1.0-{step:08d}"


def current(harness: ControllerHarness) -> Attempt:
    """Return the run's attempt."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    return attempt


def clear(harness: ControllerHarness) -> None:
    """Let the nodes end the ranks of an attempt that is stopping, and settle."""
    attempt = current(harness)
    for node in attempt.nodes:
        gone: dict[str, Any] = {"generation": attempt.generation, "attempt": attempt.attempt}
        harness.take(s.RanksTerminated(node=node, incarnation=1, **gone))
    harness.settle()


def resume(harness: ControllerHarness) -> Attempt:
    """Carry out what is asked for until the next gang is up, which resumes from the newest folder that is not refused."""
    for action in list(harness.state.actions.values()):
        detail: dict[str, Any] = {"port": 29500, "address": "127.0.0.1"}
        if action.action.action == PrepareAttempt.kind:
            refused = action.action.read(PrepareAttempt).refused
            step = next((step for step in STEPS if path_of(step) not in refused), None)
            if step is not None:
                detail["chosen"] = {"path": path_of(step), "attempt": "1.1.0", "step": step}
        harness.take(ActionResult(id=action.action.id, outcome="done", detail=detail))
    harness.settle()
    attempt = current(harness)
    for node in attempt.nodes:
        started: dict[str, Any] = {"generation": attempt.generation, "attempt": attempt.attempt}
        harness.take(s.RanksStarted(node=node, incarnation=1, **started))
    harness.settle()
    assert attempt.state == "running"
    return attempt


def resumed(**spec: Any) -> ControllerHarness:
    """Return a harness whose run was at step 85, crashed, and is up again from step 80."""
    harness = training_harness(checkpoints="/ck", **spec)
    first = current(harness)
    harness.take(s.Progress(node="n1", incarnation=1, attempt=first.attempt, step=85))
    harness.take(exited(harness, node="n1", rank=0, exit_code=-9))
    clear(harness)
    assert resume(harness).resume == path_of(80)
    return harness


def refuse(harness: ControllerHarness, *, rank: int = 0, **fields: Any) -> None:
    """Let a rank end as it does when its checkpoint is damaged."""
    given: dict[str, Any] = {
        "exit_code": EXIT_CHECKPOINT_REFUSED,
        "stderr_tail": WORDS.format(path="/ck/x"),
    }
    node = "n1" if rank < 2 else "n2"
    harness.take(exited(harness, node=node, rank=rank, **{**given, **fields}))


def incidents(harness: ControllerHarness) -> list[Incident]:
    """Return all incidents, oldest first."""
    return list(harness.state.incidents.values())


def pages(harness: ControllerHarness) -> list[str]:
    """Return the texts of the pages that were sent."""
    actions = (action.action for action in harness.state.actions.values())
    return [str(action.args) for action in actions if action.action == PageOperator.kind]


def test_a_refused_checkpoint_is_never_taken_again_and_is_no_nodes_fault() -> None:
    """The incident names file and fault and no culprit, the checkpoint is refused with the reason, the one before it is taken."""
    harness = resumed()
    refuse(harness)
    refuse(harness, rank=3)
    incident = incidents(harness)[-1]
    assert (incident.fault, incident.node, incident.rank) == ("checkpoint_refused", None, None)
    assert "is damaged: sha256 1, the manifest says 2" in incident.evidence[0]
    (known,) = harness.state.runs[1].checkpoints
    assert (known.path, known.trust) == (path_of(80), Trust.REFUSED)
    assert "__0_0.distcp is damaged" in known.reason
    assert "rank 0 on n1" in known.reason
    assert len([page for page in pages(harness) if "step 80 refused" in page]) == 1
    assert not any(hardware.faults for hardware in harness.state.hardware.values())
    attempt = current(harness)
    clear(harness)
    assert (attempt.state, attempt.outcome) == ("ended", "refused")
    assert resume(harness).resume == path_of(70)


def test_however_many_are_damaged_in_a_row_the_good_one_before_them_is_reached() -> None:
    """Refusals are bounded by the folders there are: they count neither as fruitless attempts nor as the same failure again."""
    harness = resumed(max_attempts_without_progress=2)
    for step in STEPS[:-1]:
        assert current(harness).resume == path_of(step)
        refuse(harness)
        clear(harness)
        resume(harness)
    assert current(harness).resume == path_of(STEPS[-1])
    run = harness.state.runs[1]
    assert (run.state, run.attempts_without_progress) == ("active", 0)
    refused = [known.path for known in run.checkpoints if known.trust is Trust.REFUSED]
    assert sorted(refused, reverse=True) == [path_of(step) for step in STEPS[:-1]]
    assert [i.fault for i in incidents(harness)[1:]] == ["checkpoint_refused"] * len(refused)
    name = current(harness).attempt
    for step in (11, 86):
        harness.take(s.Progress(node="n1", incarnation=1, attempt=name, step=step))
        assert any(incident.is_live for incident in incidents(harness)) == (step == 11)


def test_other_failures_count_as_before_between_refusals() -> None:
    """A refusal forgives no crash: the second fruitless one ends the run."""
    harness = resumed(max_attempts_without_progress=2)
    harness.take(exited(harness, node="n1", rank=0, stderr_tail="KeyError: 'wte'"))
    clear(harness)
    resume(harness)
    refuse(harness)
    clear(harness)
    assert resume(harness).resume == path_of(70)
    harness.take(exited(harness, node="n1", rank=0, stderr_tail="OSError: no such file"))
    # What it wrote is waited for.
    harness.settle()
    assert harness.state.runs[1].state == "failed"
    assert "2 attempts in a row ended without a new step" in harness.state.runs[1].reason


@pytest.mark.parametrize("how", ["nothing to resume from", "a step was made", "a last step"])
def test_the_code_is_a_crash_where_no_checkpoint_was_being_loaded(how: str) -> None:
    """Without a resume, or after a step, nothing is refused by it."""
    harness = training_harness() if how == "nothing to resume from" else resumed()
    name = current(harness).attempt
    if how == "a step was made":
        harness.take(s.Progress(node="n1", incarnation=1, attempt=name, step=81))
    refuse(harness, last_step=81 if how == "a last step" else None)
    assert incidents(harness)[-1].fault == "rank_crash"
    known = harness.state.runs[1].checkpoints
    assert not any(checkpoint.trust is Trust.REFUSED for checkpoint in known)


def test_a_refusal_counts_also_when_another_rank_died_before_it() -> None:
    """Its peers may fail on its end before its own is known; the checkpoint is refused all the same."""
    harness = resumed()
    harness.take(exited(harness, node="n2", rank=2, stderr_tail="Connection closed by peer"))
    refuse(harness)
    assert incidents(harness)[-1].fault == "rank_crash"
    clear(harness)
    assert resume(harness).resume == path_of(70)
