"""Which checkpoints count without a code: those that the journal knows, of ranks that had no key."""

from runner.facts.actions import ActionResult, InspectCheckpoint, PrepareAttempt
from runner.facts.messages import records as r
from runner.facts.messages.signals import CheckpointSealed
from tests.decide.controller_harness import ControllerHarness, training_harness


def seal(harness: ControllerHarness, step: int, *, needs_code: bool) -> r.ActionIssued:
    """Report a checkpoint; return the order to inspect it."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    path = f"/ck/{attempt.attempt}-{step:08d}"
    sealed = CheckpointSealed(
        node="n1",
        incarnation=1,
        attempt=attempt.attempt,
        step=step,
        path=path,
        needs_code=needs_code,
    )
    harness.take(sealed)
    (issued,) = (each for each in harness.settle() if isinstance(each, r.ActionIssued))
    return issued


def test_only_ranks_of_an_earlier_release_seal_without_a_code() -> None:
    """What the agent of such ranks reports counts without one until it got one; a survey's finding never does."""
    harness = training_harness(checkpoints="/ck")
    with_key = seal(harness, 5, needs_code=True).action
    harness.take(ActionResult(id=with_key.id, outcome="failed", detail={"refused": True}))
    without = seal(harness, 6, needs_code=False).action
    assert with_key.read(InspectCheckpoint).uncoded == ()
    assert without.read(InspectCheckpoint).uncoded is None
    assert prepared(harness).uncoded == ["1.1.0-00000006"]
    detail = {"step": 6, "needs_code": True, "stamp": "st", "manifest": "ma", "size_bytes": 1}
    done = ActionResult(id=without.id, outcome="done", detail=detail)
    harness.take(done)
    assert prepared(harness).uncoded == []


def prepared(harness: ControllerHarness) -> PrepareAttempt:
    """Return what the next attempt would be prepared with."""
    from runner.decide.decision import Decision
    from runner.decide.runs import checkpoint_trust

    decision = Decision(state=harness.state, policy=harness.controller.policy, now=harness.now)
    names = checkpoint_trust.uncoded_names(decision, harness.state.runs[1])
    return PrepareAttempt(attempt="1.1.1", generation=9, folder="/ck", uncoded=names)
