"""How far a checkpoint is trusted, what takes that away, what is out, what is kept, and what is pinned."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.decide.decision import Decision
from runner.decide.runs import checkpoint_trust
from runner.decide.runs.rewind import best_before_step
from runner.facts.actions import ActionResult, PruneCheckpoints
from runner.facts.causes import Cause
from runner.facts.checkpoints import Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.history.phrases import record_phrase
from tests.decide.controller_harness import ControllerHarness, exited, training_harness
from tests.decide.runs.folder_harness import (
    FOLDER,
    Folder,
    go_back,
    path_of,
    record,
    relaunch,
    run_of,
    seal,
)

N = 10
FAULT = "replicas_disagree"


def harness_of(**spec: Any) -> ControllerHarness:
    """Return a run that keeps all its checkpoints, unless `spec` says otherwise; N steps prove one."""
    return training_harness(
        **{"checkpoints": FOLDER, "keep_checkpoints": 0, "proven_steps": N, **spec}
    )


def live_attempt(harness: ControllerHarness) -> AttemptId:
    """Return the run's attempt."""
    attempt = run_of(harness).attempt
    assert attempt is not None
    return attempt.attempt


def make_step(harness: ControllerHarness, step: int) -> None:
    """Let the gang report a step."""
    name = live_attempt(harness)
    harness.take(s.Progress(node="n1", incarnation=1, attempt=name, step=step))


def verify(harness: ControllerHarness) -> None:
    """Let nodes find all finite that is to be read."""
    harness.settle()
    while harness.state.open_actions("inspect_checkpoint"):
        for action in harness.state.open_actions("inspect_checkpoint"):
            detail: dict[str, Any] = {"stamp": "s", "manifest": "m", "size_bytes": 1}
            harness.take(ActionResult(id=action.id, outcome="done", detail=detail))
        harness.settle()
        for action in list(harness.state.open_tasks("verify")):
            detail = {"tensors": 1, "uncovered": "", "not_finite": ""}
            harness.take(ActionResult(id=action.id, outcome="done", detail=detail))
        harness.settle()


def find_onset(harness: ControllerHarness, onset: int) -> str:
    """Open an incident that is in the weights."""
    name, attempt = f"i{harness.state.next_incident}", live_attempt(harness)
    opened = r.IncidentOpened(
        incident=name, fault=FAULT, evidence="", run=1, attempt=attempt, non_fatal=True, onset=onset
    )
    record(harness, opened)
    return name


def end_incident(harness: ControllerHarness, name: str) -> None:
    """Let it be over."""
    record(harness, r.IncidentChanged(incident=name, state="resolved"))


def levels(harness: ControllerHarness) -> dict[int, str]:
    """Return how far each checkpoint is trusted, by its step."""
    return {known.step: known.trust.value for known in run_of(harness).checkpoints}


def test_a_checkpoint_is_proven_once_n_steps_were_made_after_it() -> None:
    """Not by the step before; a journal that is read again says the same."""
    harness, folder = harness_of(), Folder()
    seal(harness, folder, 20)
    assert levels(harness) == {20: "committed"}
    verify(harness)
    assert levels(harness) == {20: "healthy"}
    make_step(harness, 20 + N - 1)
    assert levels(harness) == {20: "healthy"}
    make_step(harness, 20 + N)
    assert levels(harness) == {20: "proven"}


def test_an_onset_takes_trust_away_from_what_it_may_have_spoilt() -> None:
    """At or before its step for good, less than N steps after it until N were made again; what is older stays proven."""
    harness, folder = harness_of(), Folder()
    for step in (10, 20, 30, 40):
        seal(harness, folder, step)
        verify(harness)
    assert levels(harness) == {10: "proven", 20: "proven", 30: "proven", 40: "healthy"}
    name = find_onset(harness, 31)
    assert levels(harness) == {10: "proven", 20: "proven", 30: "healthy", 40: "finite"}
    assert [best_before_step(run_of(harness), 31, least) is not None for least in Trust] == [
        *[True] * 5,
        False,
    ]
    newest = best_before_step(run_of(harness), 31, Trust.PROVEN)
    assert newest is not None
    assert newest.step == 20
    seal(harness, folder, 45)
    verify(harness)
    end_incident(harness, name)
    make_step(harness, 54)
    assert levels(harness)[30] == "healthy"
    make_step(harness, 55)
    assert levels(harness) == {10: "proven", 20: "proven", 30: "proven", 40: "finite", 45: "finite"}
    doubts = {known.step: known.doubt for known in run_of(harness).checkpoints}
    assert doubts == {10: "", 20: "", 30: "", 40: f"{name} {FAULT} from step 31 on", 45: doubts[40]}


def test_an_infrastructure_incident_goes_on_from_the_newest_finite_one_whatever_else_is_open() -> (
    None
):
    """A rewind alone leaves what is in doubt."""
    harness, folder = harness_of(), Folder()
    for step in (10, 20):
        seal(harness, folder, step)
        verify(harness)
    find_onset(harness, 15)
    harness.take(exited(harness, node="n1", rank=0))
    assert relaunch(harness, folder)[1].endswith("-00000020")
    assert go_back(harness, 15, Trust.HEALTHY) == ""
    assert relaunch(harness, folder)[1].endswith("-00000010")


def die(harness: ControllerHarness, folder: Folder, **fields: Any) -> str:
    """Let the gang die before its first step; return what the next one resumes from."""
    harness.take(exited(harness, node="n1", rank=0, **fields))
    return relaunch(harness, folder)[1]


def test_what_two_attempts_died_of_is_out_unless_it_is_the_last() -> None:
    """It is paged and told; a step in between forgives the first death."""
    harness, folder = harness_of(max_attempts_without_progress=9), Folder()
    seal(harness, folder, 10, 20)
    harness.take(exited(harness, node="n1", rank=0, stderr_tail="Error0: x"))
    assert relaunch(harness, folder)[1].endswith("-00000020")
    assert die(harness, folder, stderr_tail="Error1: x").endswith("-00000020")
    make_step(harness, 21)
    assert die(harness, folder, stderr_tail="Error2: x").endswith("-00000020")
    assert die(harness, folder, stderr_tail="Error3: x").endswith("-00000020")
    first = run_of(harness).checkpoints[-1].died
    before = live_attempt(harness)
    assert die(harness, folder, stderr_tail="Error4: x").endswith("-00000010")
    known = run_of(harness).checkpoints[-1]
    words = f"{first[0]} and {before} resumed from it and died before their first step"
    assert (known.trust, known.reason, known.died) == (Trust.REFUSED, words, (*first, before))
    pages = [item.action.reason for item in harness.state.actions.values()]
    assert f"checkpoint at step 20 refused: {words}" in pages
    for number in range(3):
        assert die(harness, folder, stderr_tail=f"Error{5 + number}: y").endswith("-00000010")
    assert levels(harness) == {10: "committed", 20: "refused"}


def test_a_death_with_a_cause_elsewhere_says_nothing_of_what_was_loaded() -> None:
    """A node's hardware, the network, the storage."""
    harness, folder = harness_of(max_attempts_without_progress=9), Folder()
    seal(harness, folder, 10, 20)
    harness.take(exited(harness, node="n1", rank=0))
    relaunch(harness, folder)
    harness.take(exited(harness, node="n1", rank=0, stderr_tail="Error1: x"))
    attempt = run_of(harness).attempt
    assert attempt is not None
    cause = Cause(
        fault="nccl_network",
        scope="fabric",
        culprit=None,
        node="n1",
        confidence=0.9,
        action_class="restart",
    )
    record(harness, r.IncidentDiagnosed(incident=str(attempt.incident), cause=cause))
    relaunch(harness, folder)
    assert run_of(harness).checkpoints[-1].died == ()


def pruned(harness: ControllerHarness) -> list[int]:
    """Let what is to be deleted be deleted; return its steps."""
    found = []
    for action in harness.state.open_actions("prune_checkpoints"):
        paths = action.read(PruneCheckpoints).paths
        found += [int(path.rpartition("-")[2]) for path in paths]
        harness.take(ActionResult(id=action.id, outcome="done"))
    return found


def pin(harness: ControllerHarness, step: int, *, remove: bool = False) -> tuple[str, str]:
    """Ask to pin; return the answer."""
    number = len(harness.state.requests)
    asked = q.PinCheckpoint(id=f"p{number}", by="ann", run="a", step=step, remove=remove)
    harness.take(asked)
    answer = harness.state.requests[asked.id]
    return answer.state, answer.message


def test_the_last_proven_ones_and_pinned_ones_are_never_deleted() -> None:
    """Beside the newest `keep_checkpoints`."""
    harness, folder = harness_of(keep_checkpoints=2, keep_proven=2), Folder()
    deleted = []
    for step in range(10, 100, 10):
        seal(harness, folder, step)
        if step == 20:
            assert pin(harness, 20) == (
                "done",
                "1.1.0-00000020 (committed): it is kept until it is unpinned",
            )
        verify(harness)
        deleted += pruned(harness)
    assert levels(harness) == {
        20: "proven",
        70: "proven",
        80: "proven",
        90: "healthy",
    }
    assert deleted == [10, 30, 40, 50, 60]
    assert pin(harness, 20, remove=True)[0] == "done"
    seal(harness, folder, 100)
    assert 20 in pruned(harness)


def test_what_a_ladder_may_go_back_to_is_not_deleted_while_its_incident_is_live() -> None:
    """A run waits for its loss to come back, and seals on: what is older than the onset stays until the incident is over."""
    harness, folder = harness_of(keep_checkpoints=2, keep_proven=1, proven_steps=100), Folder()
    for step in (10, 20, 30):
        seal(harness, folder, step)
        verify(harness)
        pruned(harness)
    name = find_onset(harness, 35)
    for step in (40, 50, 60, 70):
        seal(harness, folder, step)
        verify(harness)
        pruned(harness)
    assert list(levels(harness)) == [20, 30, 60, 70]
    end_incident(harness, name)
    seal(harness, folder, 80)
    verify(harness)
    pruned(harness)
    assert list(levels(harness)) == [70, 80]


def test_what_cannot_be_pinned_is_refused_with_what_can() -> None:
    """Nothing is half-done; a pin that is there already is done."""
    harness, folder = harness_of(), Folder()
    none = "run 'a' has no checkpoint of step 5; there is none yet"
    assert pin(harness, 5) == ("refused", none)
    seal(harness, folder, 10, 20, 30)
    assert pin(harness, 5) == (
        "refused",
        "run 'a' has no checkpoint of step 5; there are those of steps 10, 20, 30",
    )
    assert pin(harness, 10)[0] == "done"
    assert pin(harness, 10) == ("done", "the checkpoint of step 10 is pinned already, by ann")
    assert pin(harness, 20, remove=True) == ("done", "the checkpoint of step 20 is not pinned")
    go_back(harness, 25)
    assert pin(harness, 30) == (
        "refused",
        "the checkpoint of step 30 is set aside; it is never resumed from, so it cannot be pinned",
    )
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=0.0)
    path = path_of(10, AttemptId(1, 1, 0))
    checkpoint_trust.refuse(decision, run_of(harness), path, "torn")
    record(harness, *decision.records)
    assert pin(harness, 10)[1].startswith("the checkpoint of step 10 is refused: torn; it is never")


# ---- the rule, recomputed -------------------------------------------------------------------------------------------


@dataclass
class Naive:
    """What happened, and the levels worked out from all of it, each time again."""

    # (step, attempt) -> when it was sealed, and when it was found finite; times count events.
    sealed: dict[tuple[int, AttemptId], int] = field(default_factory=dict)
    finite: dict[tuple[int, AttemptId], int] = field(default_factory=dict)
    # (when, attempt, step)
    steps: list[tuple[int, AttemptId, int]] = field(default_factory=list)
    # name -> onset, begin, end, and the furthest step then.
    onsets: dict[str, list[int]] = field(default_factory=dict)
    parents: dict[AttemptId, tuple[int, AttemptId] | None] = field(default_factory=dict)

    def is_healthy(self, key: tuple[int, AttemptId], now: int) -> bool:
        """Finite, and never in doubt since its seal."""
        return key in self.finite and not any(
            onset <= key[0] and end > self.sealed[key] and begin <= now
            for onset, begin, end, _ in self.onsets.values()
        )

    def is_proven(self, key: tuple[int, AttemptId]) -> bool:
        """Whether some step proved it, and no onset since took that away."""
        return any(
            when >= self.finite.get(key, when + 1)
            and self._proves(key, attempt, step, when)
            and not any(
                onset <= key[0] + N and end > when for onset, _, end, _ in self.onsets.values()
            )
            for when, attempt, step in self.steps
        )

    def _proves(self, key: tuple[int, AttemptId], attempt: AttemptId, step: int, when: int) -> bool:
        closed = [(end, at) for _, _, end, at in self.onsets.values() if end <= when]
        since = max(closed)[1] if closed else 0
        is_live = any(begin <= when < end for _, begin, end, _ in self.onsets.values())
        far_enough = step >= max(key[0], since) + N
        return far_enough and not is_live and self._descends(key, attempt)

    def _descends(self, key: tuple[int, AttemptId], attempt: AttemptId) -> bool:
        limit: int | None = None
        at: AttemptId | None = attempt
        while at is not None:
            if key[1] == at:
                return limit is None or key[0] <= limit
            parent = self.parents.get(at)
            limit, at = parent or (0, None)
        return False


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["step", "step", "seal", "verify", "onset", "over", "die"]),
            st.integers(0, 30),
        ),
        max_size=40,
    )
)
def test_what_is_chosen_is_the_newest_that_satisfies_the_definition(
    events: list[tuple[str, int]],
) -> None:
    """Through any seals, onsets and deaths."""
    harness, folder, naive = harness_of(max_attempts_without_progress=99), Folder(), Naive()
    step, live = 0, list[str]()
    naive.parents[live_attempt(harness)] = None
    for now, (what, number) in enumerate(events):
        name = live_attempt(harness)
        if what in ("step", "seal"):
            step += 1 + number % 12
            if what == "seal":
                harness_step = step
                naive.sealed[harness_step, name] = now
                seal(harness, folder, step)
            else:
                make_step(harness, step)
            naive.steps.append((now, name, step))
        elif what == "verify":
            verify(harness)
            for known in run_of(harness).checkpoints:
                if known.scan == "finite":
                    naive.finite.setdefault(known.age, now)
        elif what == "onset" and len(live) < 2:
            onset = max(0, step - number)
            found = find_onset(harness, onset)
            live.append(found)
            naive.onsets[found] = [onset, now, len(events), 0]
        elif what == "over" and live:
            over = live.pop(0)
            end_incident(harness, over)
            naive.onsets[over][2:] = [now, run_of(harness).best_step]
        elif what == "die":
            # Deaths are told apart, and each attempt has made a step.
            step += 1
            make_step(harness, step)
            naive.steps.append((now, name, step))
            harness.take(exited(harness, node="n1", rank=0, stderr_tail=f"E{now}: x"))
            child, resume = relaunch(harness, folder)
            chosen = max(naive.sealed, default=None)
            assert resume == (path_of(*chosen) if chosen else "")
            naive.parents[child] = chosen
            step = chosen[0] if chosen else 0
        for known in run_of(harness).checkpoints:
            healthy = naive.is_healthy(known.age, now)
            assert known.is_at_least(Trust.HEALTHY) == healthy, (now, known)
            assert (known.trust is Trust.PROVEN) == (healthy and naive.is_proven(known.age))
        for least, holds in ((Trust.HEALTHY, naive.is_healthy), (Trust.PROVEN, None)):
            proven = [key for key in naive.finite if naive.is_healthy(key, now)]
            if holds is None:
                proven = [key for key in proven if naive.is_proven(key)]
            before = max(1, step - number)
            expected = max((key for key in proven if key[0] < before), default=None)
            chosen_one = best_before_step(run_of(harness), before, least)
            assert (chosen_one and chosen_one.age) == expected


@pytest.mark.parametrize("level", [Trust.HEALTHY, Trust.FINITE])
def test_what_is_taken_away_is_told(level: Trust) -> None:
    """Promotions are routine."""
    harness, folder = harness_of(), Folder()
    seal(harness, folder, 10)
    verify(harness)
    make_step(harness, 10 + N)
    onset = 10 + N if level is Trust.HEALTHY else 10
    opened = r.IncidentOpened(
        incident="i1", fault=FAULT, evidence="", run=1, non_fatal=True, onset=onset
    )
    harness.sequence += 1
    entry = r.JournalEntry(
        sequence=harness.sequence, now=harness.now, input=r.Tick(), records=(opened,)
    )
    harness.controller.apply(entry)
    (phrase,) = [text for one in harness.settle() if (text := record_phrase(one))]
    how = "is no longer proven" if level is Trust.HEALTHY else "is in doubt"
    assert phrase == f"the checkpoint of step 10 {how}: i1 {FAULT} from step {onset} on"
