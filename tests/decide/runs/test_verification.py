"""Which checkpoint is read by which node, which is trusted for what, and which is deleted."""

from typing import Any

import pytest

from runner.decide.decision import Decision
from runner.decide.runs import checkpoint_trust, verification
from runner.decide.state.cluster_state import Run
from runner.facts.actions import ActionResult, NodeTask, PruneCheckpoints
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.signals import CheckpointSealed, TaskProgressed
from tests.decide.controller_harness import ControllerHarness, training_harness

GB = 1024**3


@pytest.fixture
def harness() -> ControllerHarness:
    """Give a run of two nodes with a folder for checkpoints, which keeps two of them."""
    return training_harness(checkpoints="/ck", keep_checkpoints=2)


def seal(harness: ControllerHarness, step: int) -> str:
    """Report a checkpoint; return its folder."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    path = f"/ck/{attempt.attempt}-{step:08d}"
    source: dict[str, Any] = {"node": "n1", "incarnation": 1, "attempt": attempt.attempt}
    harness.take(CheckpointSealed(**source, step=step, path=path))
    harness.settle()
    return path


def inspected(harness: ControllerHarness, size_bytes: int = 1, **fields: Any) -> None:
    """Let the open inspection find files of so many bytes; or end otherwise."""
    (action,) = harness.state.open_actions("inspect_checkpoint")
    stamp = f"stamp of {action.args['path'].rpartition('/')[2]}"
    detail = {"stamp": stamp, "manifest": "ma", "size_bytes": size_bytes}
    harness.take(ActionResult(**{"id": action.id, "outcome": "done", "detail": detail, **fields}))
    harness.settle()


def shares(harness: ControllerHarness) -> dict[int, NodeTask]:
    """Return the shares that are being read, by their numbers."""
    works = [action.read(NodeTask) for action in harness.state.open_tasks("verify")]
    return {work.args["share"]: work for work in works}


def read(harness: ControllerHarness, share: int = 0, **fields: Any) -> list[object]:
    """Let the reader of a share end; return what was decided."""
    actions = harness.state.open_tasks("verify")
    (action,) = (each for each in actions if each.read(NodeTask).args["share"] == share)
    given = {"outcome": "done", **fields}
    return harness.take(ActionResult(id=action.id, **given)) + harness.settle()


def trusts(harness: ControllerHarness) -> dict[int, Trust]:
    """Return how far each checkpoint is trusted, by its step."""
    return {known.step: known.trust for known in harness.state.runs[1].checkpoints}


def pruned(harness: ControllerHarness) -> list[str]:
    """Let the open pruning end; return the folders that it deleted."""
    (action,) = harness.state.open_actions("prune_checkpoints")
    harness.take(ActionResult(id=action.id, outcome="done"))
    return [path.rpartition("-")[2] for path in action.read(PruneCheckpoints).paths]


def test_large_checkpoints_are_read_in_shares_by_the_nodes_that_wrote_them(
    harness: ControllerHarness,
) -> None:
    """It is intact once the last share is; small ones are one share."""
    path = seal(harness, 5)
    inspected(harness, size_bytes=100 * GB)
    works = shares(harness)
    assert [work.node for work in works.values()] == ["n1", "n2"]
    assert dict(works[1].args) == {"path": path, "manifest": "ma", "share": 1, "shares": 2}
    read(harness, 1)
    assert trusts(harness) == {5: Trust.COMMITTED}
    read(harness, 0)
    assert trusts(harness) == {5: Trust.INTACT}
    seal(harness, 6)
    inspected(harness, size_bytes=1)
    assert len(shares(harness)) == 1


def test_a_deadline_grows_with_the_bytes_and_counts_from_the_last_progress(
    harness: ControllerHarness,
) -> None:
    """Reports of another node renew nothing."""
    seal(harness, 5)
    inspected(harness, size_bytes=2 * GB)
    (action,) = harness.state.open_tasks("verify")
    least_seconds = harness.controller.policy.cluster.action_deadline_seconds
    assert action.deadline_seconds > least_seconds + 100
    issued_at = harness.state.actions[action.id].issued_at
    for node, is_renewed in (("n2", False), ("n1", True)):
        harness.take(TaskProgressed(node=node, incarnation=1, id=action.id, done_bytes=GB))
        item = harness.state.actions[action.id]
        assert (item.issued_at > issued_at) is is_renewed
    harness.now += action.deadline_seconds - 2.0
    assert harness.take(r.Tick()) == []
    harness.now += 2.0
    assert any(isinstance(record, r.ShareEnded) for record in harness.take(r.Tick()))


def test_a_damaged_share_refuses_the_checkpoint_and_pages(harness: ControllerHarness) -> None:
    """Whatever the other shares say then."""
    seal(harness, 5)
    inspected(harness, size_bytes=100 * GB)
    damaged: dict[str, Any] = {
        "outcome": "failed",
        "detail": {"damaged": True},
        "message": "sha256 differs",
    }
    decided = read(harness, 0, **damaged)
    pages = [x.action for x in decided if isinstance(x, r.ActionIssued) and x.action.run == 1]
    assert "refused: sha256 differs" in pages[0].args["message"]
    read(harness, 1)
    assert trusts(harness) == {5: Trust.REFUSED}
    assert not harness.state.open_tasks("verify")


def test_trouble_without_a_verdict_is_no_damage(harness: ControllerHarness) -> None:
    """Other nodes try; then the checkpoint stays as it was, the next is verified, and a person is pages of the first."""
    trouble: dict[str, Any] = {
        "outcome": "failed",
        "detail": {"damaged": False},
        "message": "no such folder",
    }
    pages = []
    for step in (5, 6):
        seal(harness, step)
        inspected(harness)
        readers = []
        while harness.state.open_tasks("verify"):
            readers += [shares(harness)[0].node]
            pages += [
                x.action.args["message"]
                for x in read(harness, **trouble)
                if isinstance(x, r.ActionIssued) and x.action.action == "page"
            ]
        assert readers == ["n1", "n2", "n1"]
    assert trusts(harness) == {5: Trust.COMMITTED, 6: Trust.COMMITTED}
    assert [text.partition(":")[0] for text in pages] == [
        "checkpoint at step 5 could not be verified"
    ]
    assert not harness.state.open_actions("inspect_checkpoint")


def test_the_newest_is_verified_next_where_sealing_is_faster_than_reading(
    harness: ControllerHarness,
) -> None:
    """One at a time; what is older than a verified one is never read."""
    seal(harness, 5)
    inspected(harness)
    for step in (6, 7):
        seal(harness, step)
    assert not harness.state.open_actions("inspect_checkpoint")
    read(harness)
    (action,) = harness.state.open_actions("inspect_checkpoint")
    assert action.args["path"].endswith("-00000007")
    inspected(harness)
    read(harness)
    assert not harness.state.open_actions("inspect_checkpoint")


def test_policy_counts_what_is_sealed_and_keeps_the_newest_intact_one(
    harness: ControllerHarness,
) -> None:
    """Without a single verification the disk does not fill; what is being read stays, too."""
    seal(harness, 5)
    inspected(harness)
    read(harness)
    seal(harness, 6)
    inspected(harness)
    for step in (7, 8):
        seal(harness, step)
    # Of 5 (intact), 6 (being read), 7 and 8 nothing goes.
    assert not harness.state.open_actions("prune_checkpoints")
    seal(harness, 9)
    assert pruned(harness) == ["00000007"]
    read(harness)
    assert pruned(harness) == ["00000005"]
    assert list(trusts(harness)) == [6, 8, 9]


@pytest.mark.parametrize(
    ("outcome", "detail", "trust"),
    [
        ("failed", {"refused": True}, Trust.REFUSED),
        ("failed", {"missing": True}, Trust.REFUSED),
        ("failed", {}, Trust.COMMITTED),
        ("unknown", {}, Trust.COMMITTED),
    ],
)
def test_only_what_the_manifest_contradicts_is_refused(
    harness: ControllerHarness, outcome: str, detail: dict[str, bool], trust: Trust
) -> None:
    """A store of files that does not answer in time proves nothing."""
    seal(harness, 5)
    inspected(harness, outcome=outcome, detail=detail, message="why")
    assert trusts(harness) == {5: trust}
    assert not harness.state.open_tasks("verify")


def prepared(harness: ControllerHarness, **chosen: Any) -> list[object]:
    """Let a survey choose a checkpoint; return what is recorded of it."""
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=harness.now)
    given = {"attempt": "1.1.0", "path": "/ck/1.1.0-00000005", "step": 5, **chosen}
    checkpoint_trust.record_survey(decision, harness.state.runs[1], {"chosen": given})
    return decision.records


def test_a_checkpoint_that_changed_since_is_verified_again(harness: ControllerHarness) -> None:
    """A survey that finds it as it was changes nothing."""
    seal(harness, 5)
    inspected(harness)
    read(harness)
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=harness.now)
    stamps = checkpoint_trust.verified_stamps(decision, harness.state.runs[1])
    assert stamps == {"1.1.0-00000005": "stamp of 1.1.0-00000005"}
    assert prepared(harness) == []
    recorded, page = prepared(harness, unverified=True)
    assert isinstance(recorded, r.CheckpointRecorded)
    assert recorded.checkpoint.trust is Trust.COMMITTED
    assert isinstance(page, r.ActionIssued)
    entry = r.JournalEntry(sequence=99, now=harness.now, input=r.Tick(), records=(recorded,))
    harness.controller.apply(entry)
    harness.settle()
    assert harness.state.open_actions("inspect_checkpoint")


def test_the_newest_is_taken_where_ranks_check_it_or_the_run_has_sealed_none() -> None:
    """Elsewhere the newest verified one comes first."""
    harness = training_harness(checkpoints="/ck")
    run = harness.state.runs[1]
    assert checkpoint_trust.takes_newest(run)
    seal(harness, 5)
    assert not checkpoint_trust.takes_newest(run)
    assert run.attempt is not None
    run.attempt.checks_checkpoints = True
    assert checkpoint_trust.takes_newest(run)


def test_what_an_earlier_release_verified_is_read_once_more_while_the_run_lives(
    harness: ControllerHarness,
) -> None:
    """It has no stamp. Of runs that are over only what they sealed at their end is read."""
    run = harness.state.runs[1]
    intact = Checkpoint(
        step=3, attempt=AttemptId(1, 1, 0), path="/ck/1.1.0-00000003", trust=Trust.INTACT
    )
    run.checkpoints = [intact]
    assert verification.candidate(run) is intact
    assert run.attempt is not None
    run.state, run.attempt.state = "finished", "ended"
    assert verification.candidate(run) is None


SCANNED: dict[str, Any] = {"tensors": 9, "uncovered": "", "not_finite": ""}


@pytest.mark.parametrize(
    ("found", "trust", "reason"),
    [
        (({}, {}), Trust.HEALTHY, ""),
        (({"tensors": 0}, {}), Trust.HEALTHY, ""),
        (({"tensors": 0}, {"tensors": 0}), Trust.INTACT, "no tensors were found"),
        (({"uncovered": "a: why"}, {}), Trust.INTACT, "a: why"),
        (({}, {"uncovered": "b: why"}), Trust.INTACT, "b: why"),
    ],
)
def test_a_checkpoint_is_finite_once_all_shares_are_and_all_are_covered(
    harness: ControllerHarness, found: tuple[dict[str, Any], ...], trust: Trust, reason: str
) -> None:
    """What no scan covers is intact, and says why it is no more than that."""
    seal(harness, 5)
    inspected(harness, size_bytes=100 * GB)
    for share, detail in enumerate(found):
        read(harness, share, detail={**SCANNED, **detail})
    (known,) = harness.state.runs[1].checkpoints
    assert (known.trust, known.reason) == (trust, reason)
    assert known.scan == ("not covered" if reason else "finite")
    assert not harness.state.open_actions("inspect_checkpoint")


def test_what_an_earlier_agent_has_read_is_not_finite_for_that(harness: ControllerHarness) -> None:
    """It says which agent looked for damage alone."""
    seal(harness, 5)
    inspected(harness)
    read(harness, detail={"files": 3, "size_bytes": 1})
    (known,) = harness.state.runs[1].checkpoints
    assert known.trust is Trust.INTACT
    assert "the agent of n1 is of a release that does not look for NaN" in known.reason


def test_a_nan_refuses_a_checkpoint_in_this_run_and_in_the_next_of_its_folder(
    harness: ControllerHarness,
) -> None:
    """With the tensor's name in the reason and on the page."""
    path = seal(harness, 5)
    inspected(harness)
    decided = read(harness, detail={**SCANNED, "not_finite": "a.pt: w has NaN"})
    (known,) = harness.state.runs[1].checkpoints
    assert (known.trust, known.scan) == (Trust.REFUSED, "not finite")
    pages = [x.action.reason for x in decided if isinstance(x, r.ActionIssued)]
    assert pages == ["checkpoint at step 5 refused: not finite: a.pt: w has NaN"]
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=0.0)
    run = harness.state.runs[1]
    assert checkpoint_trust.refused_paths(decision, run) == [path]
    later = Run(run=2, spec=run.spec)
    assert checkpoint_trust.refused_paths(decision, later) == [path]
