"""Going back: what is set aside, what is resumed from then, what counts as progress, and what is refused."""

from typing import Any

import pytest

from runner import checkpoints
from runner.checkpoints import Inspection, Manifest
from runner.decide.decision import Decision
from runner.decide.runs import checkpoint_trust
from runner.decide.runs.rewind import best_before_step
from runner.decide.state.cluster_state import Run, State
from runner.facts import wire
from runner.facts.actions import ActionResult, PruneCheckpoints
from runner.facts.checkpoints import Checkpoint, Rewind, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.records_checkpoints import RunRewound
from runner.history.phrases import record_phrase
from tests.decide.controller_harness import ControllerHarness, exited, training_harness
from tests.decide.runs.folder_harness import (
    FOLDER,
    Folder,
    go_back,
    path_of,
    relaunch,
    run_of,
    seal,
)


@pytest.fixture
def harness() -> ControllerHarness:
    """Give a run of two nodes that keeps ten checkpoints."""
    return training_harness(checkpoints=FOLDER, keep_checkpoints=10)


@pytest.fixture
def folder() -> Folder:
    """Give its folder."""
    return Folder()


def test_the_next_attempt_begins_at_the_newest_checkpoint_before_the_step(
    harness: ControllerHarness, folder: Folder
) -> None:
    """It has a configuration of its own; what has not been reported yet is passed over with the rest."""
    seal(harness, folder, 10, 20, 30, 40, -50)
    first = AttemptId(1, 1, 0)
    assert go_back(harness, 35) == ""
    attempt = run_of(harness).attempt
    assert attempt is not None
    assert (attempt.state, attempt.outcome) == ("stopping", "rewound")
    # A seal that was under way when its gang was ended is set aside, too.
    seal(harness, folder, 60)
    assert relaunch(harness, folder) == (AttemptId(1, 2, 0), path_of(30, first))
    known = {c.step: run_of(harness).is_set_aside(c) for c in run_of(harness).checkpoints}
    assert known == {10: False, 20: False, 30: False, 40: True, 60: True}
    newest = run_of(harness).newest(Trust.COMMITTED)
    assert newest is not None
    assert newest.step == 30


def test_what_later_attempts_seal_at_the_same_steps_counts(
    harness: ControllerHarness, folder: Folder
) -> None:
    """A crash after that loses no more than any other."""
    seal(harness, folder, 10, 20, 30)
    go_back(harness, 25)
    second, _ = relaunch(harness, folder)
    seal(harness, folder, 30)
    harness.take(exited(harness, node="n1", rank=0))
    assert relaunch(harness, folder)[1] == path_of(30, second)


def test_another_supervisor_and_a_later_run_of_the_folder_pass_it_over_too(
    harness: ControllerHarness, folder: Folder
) -> None:
    """From a snapshot as from the journal."""
    seal(harness, folder, 10, 20, 30)
    go_back(harness, 15)
    restored = wire.decode(wire.encode(harness.state))
    assert isinstance(restored, State)
    assert wire.encode(restored) == wire.encode(harness.state)
    harness.controller.state = restored
    assert relaunch(harness, folder)[1].endswith("-00000010")
    later = Run(run=2, spec=run_of(harness).spec)
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=0.0)
    rules = [Rewind.of_plain(each) for each in checkpoint_trust.set_aside(decision, later)]
    assert [rule.sets_aside(20, AttemptId(1, 1, 0)) for rule in rules] == [True]


def test_repeated_steps_are_progress_again(harness: ControllerHarness, folder: Folder) -> None:
    """How far the run is goes back with it; the ended gang's last words do not bring it forward again."""
    seal(harness, folder, 10, 20, 30)
    go_back(harness, 15)
    run = run_of(harness)
    assert run.best_step == 10
    name, _ = relaunch(harness, folder)
    assert (run.best_step, run.attempt and run.attempt.best_before) == (10, 10)
    for _ in range(run.spec.max_attempts_without_progress + 1):
        attempt = run.attempt
        assert attempt is not None
        step = run.best_step + 1
        harness.take(s.Progress(node="n1", incarnation=1, attempt=attempt.attempt, step=step))
        harness.take(exited(harness, node="n1", rank=0, stderr_tail=f"Error{step}: x"))
        assert run.attempts_without_progress == 0
        relaunch(harness, folder)
    assert run.state == "active"
    assert name < (run.attempt.attempt if run.attempt else name)


def test_an_incident_is_over_once_the_step_that_it_stopped_at_is_passed_again(
    harness: ControllerHarness, folder: Folder
) -> None:
    """Steps on the way there prove nothing."""
    seal(harness, folder, 10, 20)
    harness.take(s.Progress(node="n1", incarnation=1, attempt=AttemptId(1, 1, 0), step=25))
    harness.take(exited(harness, node="n1", rank=0))
    assert go_back(harness, 15) == ""
    name, resume = relaunch(harness, folder)
    assert resume.endswith("-00000010")
    (incident,) = harness.state.incidents.values()
    for step, state in ((11, "proving"), (25, "proving"), (26, "resolved")):
        harness.take(s.Progress(node="n1", incarnation=1, attempt=name, step=step))
        assert incident.state == state


def test_back_twice_and_further_each_time(harness: ControllerHarness, folder: Folder) -> None:
    """What one rewind says that another says as well is kept once; a later one that goes less far leaves the first in force."""
    seal(harness, folder, 10, 20, 30)
    go_back(harness, 25)
    relaunch(harness, folder)
    seal(harness, folder, 30, 40)
    go_back(harness, 35)
    run = run_of(harness)
    assert [(each.step, each.attempt) for each in run.rewinds] == [
        (20, AttemptId(1, 1, 0)),
        (30, AttemptId(1, 2, 0)),
    ]
    assert relaunch(harness, folder)[1] == path_of(30, AttemptId(1, 2, 0))
    go_back(harness, 15)
    assert [each.step for each in run.rewinds] == [10]
    assert relaunch(harness, folder)[1].endswith("-00000010")


def test_a_rewind_waits_for_nothing_when_no_gang_runs(
    harness: ControllerHarness, folder: Folder
) -> None:
    """An attempt that is being prepared is withdrawn: its checkpoint may be one that is set aside now."""
    seal(harness, folder, 10, 20)
    harness.take(exited(harness, node="n1", rank=0))
    attempt = run_of(harness).attempt
    assert attempt is not None
    for node in attempt.nodes:
        gone: dict[str, Any] = {"generation": attempt.generation, "attempt": attempt.attempt}
        harness.take(s.RanksTerminated(node=node, incarnation=1, **gone))
    harness.settle()
    assert run_of(harness).attempt is not attempt
    assert go_back(harness, 15) == ""
    withdrawn = [*harness.state.open_actions("prepare_attempt")]
    assert len(withdrawn) == 2
    assert relaunch(harness, folder)[1].endswith("-00000010")


def test_what_was_set_aside_is_deleted_once_the_run_has_passed_it(
    harness: ControllerHarness, folder: Folder
) -> None:
    """Until then it stays, and counts for none of those that are kept."""
    seal(harness, folder, 10, 20, 30)
    go_back(harness, 15)
    relaunch(harness, folder)
    run = run_of(harness)
    for step, deleted in ((20, [20]), (25, []), (40, [30])):
        seal(harness, folder, step)
        attempt = run.attempt
        assert attempt is not None
        known = checkpoint_trust.find(run, path_of(step, attempt.attempt))
        assert known is not None
        decision = Decision(state=harness.state, policy=harness.controller.policy, now=0.0)
        checkpoint_trust.trust(decision, run, known, stamp="s", level=Trust.FINITE)
        pruned = [
            path
            for record in decision.records
            if isinstance(record, r.ActionIssued)
            for path in record.action.read(PruneCheckpoints).paths
        ]
        assert pruned == [path_of(each, AttemptId(1, 1, 0)) for each in deleted]
        harness.sequence += 1
        entry = r.JournalEntry(
            sequence=harness.sequence,
            now=harness.now,
            input=r.Tick(),
            records=tuple(decision.records),
        )
        harness.controller.apply(entry)
        for action in harness.state.open_actions("prune_checkpoints"):
            harness.take(ActionResult(id=action.id, outcome="done"))


def test_where_there_is_nothing_to_go_back_to_it_is_refused_and_names_what_there_is(
    harness: ControllerHarness, folder: Folder
) -> None:
    """Nothing is half-done: the gang goes on."""
    assert go_back(harness, 5) == "run 'a' has no checkpoint before step 5; there is none at all"
    seal(harness, folder, 10, 20)
    assert go_back(harness, 10) == (
        "run 'a' has no checkpoint before step 10; there are step 20 (committed), step 10 (committed)"
    )
    assert go_back(harness, 15, Trust.PROVEN) == (
        "run 'a' has no checkpoint that is proven before step 15; there are step 20 (committed), "
        "step 10 (committed)"
    )
    attempt = run_of(harness).attempt
    assert attempt is not None
    assert (attempt.state, run_of(harness).rewinds) == ("running", [])
    run_of(harness).stop_requests.append("q9")
    assert go_back(harness, 15) == "run 'a' is being stopped; start it again to go back"
    run_of(harness).state = "failed"
    assert "run 'a' is failed" in go_back(harness, 15)


def test_the_best_is_the_newest_that_is_trusted_far_enough() -> None:
    """What is refused never is; of two at one step the later attempt's is newer."""
    trusts = (
        (10, 0, Trust.PROVEN),
        (20, 0, Trust.FINITE),
        (20, 1, Trust.INTACT),
        (30, 1, Trust.REFUSED),
        (40, 1, Trust.COMMITTED),
    )
    run = Run(run=1, spec=training_harness().state.runs[1].spec)
    run.checkpoints = [
        Checkpoint(
            step=step, attempt=AttemptId(1, 1, restart), path=f"{step}.{restart}", trust=trust
        )
        for step, restart, trust in trusts
    ]
    expected = {
        Trust.COMMITTED: "40.1",
        Trust.INTACT: "20.1",
        Trust.FINITE: "20.0",
        Trust.HEALTHY: "10.0",
        Trust.PROVEN: "10.0",
        Trust.REFUSED: None,
    }
    for least, path in expected.items():
        found = best_before_step(run, 50, least)
        assert (found and found.path) == path


def test_a_survey_of_real_folders_passes_over_what_is_set_aside(tmp_path: Any) -> None:
    """By names alone: no manifest of theirs is read."""
    names = ("1.1.0-00000010", "1.1.0-00000020", "1.2.0-00000020", "1.1.0-00000030")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / checkpoints.MANIFEST).write_text("{}")
    looked = []

    def look(path: Any) -> Inspection:
        looked.append(path.name)
        manifest = Manifest(run="a", attempt=AttemptId(1, 1, 0), generation=1, step=1, files={})
        return Inspection(manifest=manifest, digest="", stamp="")

    rule = Rewind(step=10, attempt=AttemptId(1, 1, 0), until=AttemptId(1, 1, 0))
    rules: dict[str, Any] = {"verified": {}, "newest_first": True, "is_set_aside": rule.sets_aside}
    chosen, _ = checkpoints.survey(tmp_path, look, skip=(), **rules)
    assert chosen is not None
    assert chosen["path"] == str(tmp_path / "1.2.0-00000020")
    again = [str(tmp_path / "1.2.0-00000020")]
    chosen, _ = checkpoints.survey(tmp_path, look, skip=again, **rules)
    assert chosen is not None
    assert looked == ["1.2.0-00000020", "1.1.0-00000010"]


def test_the_record_is_told(harness: ControllerHarness, folder: Folder) -> None:
    """Where to, what becomes of the rest, and why."""
    rule = Rewind(step=10, attempt=AttemptId(1, 1, 0), until=AttemptId(1, 3, 0))
    record = RunRewound(run=1, rewind=rule, path="/ck/1.1.0-00000010", before_step=15, reason="why")
    assert record_phrase(record) == (
        "run 1 goes back to step 10 (checkpoint 1.1.0-00000010); what was sealed after it, by 1.3.0 "
        "at the latest, is set aside: why"
    )
