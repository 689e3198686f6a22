import itertools
import json
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import WireError
from runner.facts.actions import Action
from runner.facts.ids import AttemptId
from runner.facts.messages.records import (
    ActionIssued,
    AttemptStateName,
    IncidentAmended,
    IncidentChanged,
    IncidentOpened,
    JournalEntry,
    Outcome,
    RankCapabilitiesRecorded,
    RunStateName,
)
from runner.facts.messages.signals import RanksTerminated
from runner.facts.wire import decode, encode
from runner.history.ledger import Ledger, RunSummary
from runner.history.step_marks import (
    MAX_CHECKPOINTS,
    MAX_CLOSED_MARKS,
    MAX_LIVE_MARKS,
    MAX_ROUGH_MARKS,
    StepMarks,
)
from tests.history.journal_script import (
    ONE,
    THREE,
    TWO,
    Script,
    admitted,
    advanced,
    attempt_is,
    checkpoint,
    crash_and_restart,
    opened,
    planned,
    prepared,
    resolved,
    run_is,
)


def fold(entries: Sequence[JournalEntry]) -> Ledger:
    """Fold entries into a ledger."""
    ledger = Ledger()
    for entry in entries:
        ledger.apply(entry)
    return ledger


def check_sums(summary: RunSummary) -> None:
    """Assert the invariants of every run at every moment."""
    assert summary.wall_seconds >= 0
    assert summary.productive_seconds >= 0
    assert all(seconds > 0 for seconds in summary.lost_seconds.values())
    total = summary.productive_seconds + sum(summary.lost_seconds.values())
    assert total == pytest.approx(summary.wall_seconds, abs=1e-4)
    assert summary.ettr_ratio is None or 0 <= summary.ettr_ratio <= 1


def check_totals(ledger: Ledger, now: float, before: dict[str, float]) -> dict[str, float]:
    """Assert that no counter has fallen below `before` or what it is a counter of; return them all."""
    summary, counters = ledger.summary(1, now), ledger.account(1).counters
    marked = ledger.account(1).marked_seconds(now)
    assert marked <= summary.productive_seconds
    seconds = {**summary.lost_seconds, "productive": marked}
    totals = {**summary.lost_seconds_total, "productive": summary.productive_seconds_total}
    totals |= {"steps": counters.steps, "restarts": sum(counters.restarts.values())}
    assert all(totals[name] >= before.get(name, 0.0) for name in totals)
    assert all(totals[name] >= seconds[name] for name in seconds)
    for ratio in (summary.ettr_hour_ratio, summary.ettr_day_ratio):
        assert ratio is None or 0 <= ratio <= 1
    return totals


def test_a_crash_costs_detection_stop_start_and_the_steps_after_the_checkpoint() -> None:
    """Each second of a run with one crash is found under the cause it belongs to."""
    script = crash_and_restart()
    summary = fold(script.entries).summary(1, script.start + 500)
    assert summary.wall_seconds == pytest.approx(131)
    assert summary.lost_seconds == pytest.approx(
        {
            "initial_start": 10,
            "detect": 0.5,
            "stop": 0.5,
            "prepare": 2,
            "start": 7,
            # Steps 41 to 51 once more: they take 10 s by the marks, and the rank died a second later.
            "rework": 11,
            "finish": 2,
        },
        abs=1e-3,
    )
    # Steps 2 to 40 of the first attempt and 42 to 100 of the second: first steps count as start.
    assert summary.productive_seconds == pytest.approx(39 + 59, abs=1e-3)
    assert summary.ettr_ratio == pytest.approx(98 / 131, abs=1e-4)
    check_sums(summary)


def test_an_incident_has_its_cost() -> None:
    """The ledger has seconds to detect and recover, and the steps lost, per incident."""
    incident = fold(crash_and_restart().entries).incident("i1")
    assert incident is not None
    assert incident.detected_after_seconds == 0.5
    assert incident.recovered_after_seconds == pytest.approx(9.5)
    assert incident.steps_lost == 11
    assert incident.closed_at is not None


def test_contributing_steps_leave_out_overwritten_steps() -> None:
    """The chain of attempts covers each step of the final state exactly once."""
    summary = fold(crash_and_restart().entries).summary(1, 2e9)
    assert summary.contributing_steps == {ONE: (1, 40), TWO: (41, 100)}


def test_a_rewind_beyond_the_parent_takes_the_grandparents_steps() -> None:
    """An attempt that resumes from an older attempt's checkpoint drops all steps in between."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(60, advanced(ONE, 51)).at(60, checkpoint(ONE, 20), checkpoint(ONE, 40))
    script.at(61, opened("i1", ONE), attempt_is(ONE, "ended", outcome="crashed", incident="i1"))
    script.at(61, planned(TWO), prepared(TWO, resume_step=40, maker=ONE)).at(70, advanced(TWO, 41))
    script.at(80, advanced(TWO, 51), opened("i2", TWO), attempt_is(TWO, "ended", outcome="crashed"))
    script.at(80, planned(THREE), prepared(THREE, resume_step=20, maker=ONE))
    ledger = fold(script.entries)
    summary = ledger.summary(1, script.start + 80)
    assert summary.contributing_steps == {ONE: (1, 20)}
    assert summary.productive_seconds == pytest.approx(19, abs=1e-3)
    assert summary.lost_seconds["rework"] == pytest.approx(31 + 1 + 10, abs=1e-3)
    second = ledger.incident("i2")
    assert second is not None
    assert second.steps_lost == 31
    check_sums(summary)


def test_a_crash_while_starting_again_costs_no_further_steps() -> None:
    """Two incidents in a row: the first lost the steps, both count until the next first step."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(20, advanced(ONE, 11)).at(
        20, opened("i1", ONE), attempt_is(ONE, "ended", outcome="crashed")
    )
    script.at(20, planned(TWO)).at(
        25, opened("i2", TWO), attempt_is(TWO, "ended", outcome="crashed")
    )
    script.at(25, planned(THREE), prepared(THREE, resume_step=5, maker=ONE)).at(
        30, advanced(THREE, 6)
    )
    ledger = fold(script.entries)
    first, second = ledger.incident("i1"), ledger.incident("i2")
    assert first is not None
    assert second is not None
    assert (first.steps_lost, second.steps_lost) == (6, 0)
    assert first.recovered_after_seconds == pytest.approx(10)
    assert second.recovered_after_seconds == pytest.approx(5)
    check_sums(ledger.summary(1, script.start + 30))


def test_a_repeated_incident_sums_up_its_cost() -> None:
    """The same fault on the next attempt is the same incident: its losses add up, and it recovers once."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(30, advanced(ONE, 21), opened("i1", ONE))
    script.at(30, attempt_is(ONE, "ended", outcome="crashed", incident="i1"), planned(TWO))
    script.at(30, prepared(TWO, resume_step=15, maker=ONE)).at(40, advanced(TWO, 16))
    script.at(44, IncidentAmended(incident="i1", evidence="again", attempt=TWO))
    script.at(45, attempt_is(TWO, "ended", outcome="crashed", incident="i1"), planned(THREE))
    script.at(45, prepared(THREE, resume_step=15, maker=ONE)).at(50, advanced(THREE, 16))
    ledger = fold(script.entries)
    incident = ledger.incident("i1")
    assert incident is not None
    assert incident.steps_lost == 6 + 1
    assert incident.recovered_after_seconds == pytest.approx(20)
    lost = ledger.summary(1, script.start + 50).lost_seconds
    assert lost["stop"] == pytest.approx(1, abs=1e-3)


def test_a_withdrawn_attempt_changes_no_cause() -> None:
    """A launch withdrawn before any rank started is part of the same wait for the first step."""
    script = (
        Script()
        .at(0, admitted(), planned(ONE))
        .at(3, attempt_is(ONE, "ended", outcome="withdrawn"))
    )
    script.at(3, planned(TWO), prepared(TWO)).at(4, attempt_is(TWO, "launching")).at(
        8, advanced(TWO, 1)
    )
    lost = fold(script.entries).summary(1, script.start + 8).lost_seconds
    assert lost == pytest.approx({"initial_start": 8}, abs=1e-3)


@pytest.mark.parametrize("outcome", ["reconfigured", "moved"])
def test_a_requested_restart_is_not_charged_to_faults(outcome: Outcome) -> None:
    """A changed learning rate, or a draining node, costs `requested` seconds until the next first step."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(20, advanced(ONE, 11), attempt_is(ONE, "stop_requested"))
    script.at(21, checkpoint(ONE, 12))
    script.at(22, attempt_is(ONE, "ended", outcome=outcome))
    second = AttemptId(1, 2, 0)
    script.at(22, planned(second), prepared(second, resume_step=12, maker=ONE))
    script.at(23, attempt_is(second, "launching")).at(25, advanced(second, 13)).at(
        35, advanced(second, 23)
    )
    summary = fold(script.entries).summary(1, script.start + 35)
    assert summary.lost_seconds == pytest.approx({"initial_start": 10, "requested": 3}, abs=1e-3)
    assert summary.productive_seconds == pytest.approx(10 + 2 + 10, abs=1e-3)


def test_an_operator_who_stops_a_run_ends_the_account() -> None:
    """After a stop on request the time since the last step is `requested`, and no step is rework."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(20, advanced(ONE, 11)).at(
        24, attempt_is(ONE, "ended", outcome="stopped"), run_is("stopped")
    )
    summary = fold(script.entries).summary(1, script.start + 99)
    assert summary.lost_seconds == pytest.approx({"initial_start": 10, "requested": 4}, abs=1e-3)
    assert summary.ended


def test_waiting_for_nodes_is_a_cause_of_its_own() -> None:
    """Time without enough nodes is neither preparation nor start."""
    script = (
        Script().at(0, admitted()).at(1, run_is("waiting")).at(31, run_is("active"), planned(ONE))
    )
    script.at(35, advanced(ONE, 1)).at(45, advanced(ONE, 11), opened("i1", ONE, after=0.0))
    script.at(46, attempt_is(ONE, "stopping", outcome="lost")).at(47, run_is("waiting"))
    script.at(48, attempt_is(ONE, "ended")).at(
        58, planned(TWO), prepared(TWO, resume_step=11, maker=ONE)
    )
    script.at(60, attempt_is(TWO, "launching")).at(61, advanced(TWO, 12))
    summary = fold(script.entries).summary(1, script.start + 61)
    assert summary.lost_seconds == pytest.approx(
        {"initial_start": 5, "waiting": 40, "stop": 3, "prepare": 2, "start": 1}, abs=1e-3
    )


def test_a_run_that_reports_no_step_has_no_ettr() -> None:
    """A script without reports does not count as unproductive: its time is `unreported`."""
    script = Script().at(0, admitted(), planned(ONE)).at(2, attempt_is(ONE, "running"))
    summary = fold(script.entries).summary(1, script.start + 100)
    assert summary.ettr_ratio is None
    assert summary.lost_seconds == pytest.approx({"initial_start": 2, "unreported": 98}, abs=1e-3)
    script.at(100, RankCapabilitiesRecorded(attempt=ONE))
    summary = fold(script.entries).summary(1, script.start + 100)
    assert summary.lost_seconds == pytest.approx({"initial_start": 100}, abs=1e-3)


def test_the_first_step_of_a_script_that_saves_by_itself_shows_its_resume_step() -> None:
    """Without a Stoker checkpoint, the first step of an attempt shows where it resumed."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(60, advanced(ONE, 51)).at(
        60, opened("i1", ONE), attempt_is(ONE, "ended", outcome="crashed")
    )
    script.at(60, planned(TWO), prepared(TWO))
    before = fold(script.entries).summary(1, script.start + 60)
    # No step is known to be lost yet.
    assert before.productive_seconds == pytest.approx(50, abs=1e-3)
    script.at(70, advanced(TWO, 31))
    ledger = fold(script.entries)
    summary = ledger.summary(1, script.start + 70)
    assert summary.contributing_steps == {ONE: (1, 30), TWO: (31, 31)}
    assert summary.lost_seconds["rework"] == pytest.approx(21, abs=1e-3)
    incident = ledger.incident("i1")
    assert incident is not None
    assert incident.steps_lost == 21


def test_steps_past_the_last_mark_count_when_an_exit_reports_them() -> None:
    """The last step that a node reports settles the tail between the last mark and the fault."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(20, advanced(ONE, 11))
    script.at(25, opened("i1", ONE), attempt_is(ONE, "stopping", outcome="crashed", incident="i1"))
    gone = RanksTerminated(node="n1", incarnation=1, generation=1, attempt=ONE, last_step=16)
    script.at(26, attempt_is(ONE, "ended"), input=gone)
    script.at(27, planned(TWO), prepared(TWO, resume_step=15, maker=ONE))
    summary = fold(script.entries).summary(1, script.start + 27)
    assert summary.productive_seconds == pytest.approx(10 + 4, abs=1e-3)
    assert summary.lost_seconds["rework"] == pytest.approx(1, abs=1e-3)


def test_a_step_that_is_noted_late_counts_from_when_it_was_done() -> None:
    """Its time is between the marks before it and the end of the attempt; what came after it is no progress."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(20, advanced(ONE, 11))
    script.at(40, opened("i1", ONE), attempt_is(ONE, "stopping", outcome="crashed", incident="i1"))
    script.at(41, advanced(ONE, 16, at=script.start + 25), attempt_is(ONE, "ended"))
    script.at(42, planned(TWO), prepared(TWO)).at(50, advanced(TWO, 17))
    ledger = fold(script.entries)
    summary = ledger.summary(1, script.start + 50)
    assert summary.contributing_steps == {ONE: (1, 16), TWO: (17, 17)}
    assert summary.productive_seconds == pytest.approx(15, abs=1e-3)
    assert summary.lost_seconds["rework"] == pytest.approx(15, abs=1e-3)
    assert summary.lost_steps == 0
    check_sums(summary)


def test_the_seconds_between_the_last_step_and_the_end_of_the_ranks_are_no_progress() -> None:
    """The last mark comes with the exit of a rank, and says when the step was made."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(60, advanced(ONE, 31, at=script.start + 40))
    script.at(60, attempt_is(ONE, "stopping", outcome="finished"), run_is("finished"))
    summary = fold(script.entries).summary(1, script.start + 60)
    assert summary.productive_seconds == pytest.approx(30, abs=1e-3)
    assert summary.lost_seconds == pytest.approx({"initial_start": 10, "finish": 20}, abs=1e-3)


def test_the_detection_time_of_a_drill_counts_from_its_order() -> None:
    """An observed death has no seconds to detect; after a drill, the seconds since its order count instead, once."""
    drill = Action(
        id="a1",
        action="node_task",
        reason="drill for me",
        args={"node": "n1", "task": "drill"},
        run=1,
    )
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(20, ActionIssued(action=drill)).at(20.25, opened("i1", ONE)).at(30, opened("i2", ONE))
    script.at(40, ActionIssued(action=drill)).at(140, opened("i3", ONE))
    found = [incident.detected_after_seconds for incident in fold(script.entries).incidents()]
    assert found == [0.25, None, None]


def test_an_agent_replaced_under_running_ranks_costs_nothing() -> None:
    """An incident that ends no attempt costs no second, and recovers when it is resolved."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE)).at(10, advanced(ONE, 1))
    script.at(15, opened("i1", ONE, fault="node_silent", after=5.0)).at(20, advanced(ONE, 11))
    script.at(22, resolved("i1")).at(30, advanced(ONE, 21))
    ledger = fold(script.entries)
    assert ledger.summary(1, script.start + 30).lost_seconds == pytest.approx({"initial_start": 10})
    incident = ledger.incident("i1")
    assert incident is not None
    assert incident.recovered_after_seconds == pytest.approx(7)
    assert incident.steps_lost is None


def test_the_ledger_survives_a_snapshot_at_any_moment() -> None:
    """Dumped through JSON and loaded after any entry, the ledger ends with the same figures."""
    entries = crash_and_restart().entries
    whole = fold(entries)
    for cut in range(len(entries)):
        ledger = Ledger.load(json.loads(json.dumps(fold(entries[:cut]).dump())))
        for entry in entries[cut:]:
            ledger.apply(entry)
        assert ledger.summary(1, 2e9) == whole.summary(1, 2e9)
        assert ledger.incidents() == whole.incidents()
    with pytest.raises(WireError):
        Ledger.load({"runs": 3})


def test_marks_stay_few_and_keep_their_ends() -> None:
    """For any number of marks the ledger keeps a bounded number, and total seconds and steps stay right."""
    marks = StepMarks()
    for step in range(1, 20_001):
        marks.add(100.0 + step, step)
        assert len(marks.steps) <= MAX_LIVE_MARKS
    assert marks.seconds_until(10_000) == pytest.approx(9_999)
    assert marks.stepping_seconds(20_100.0) == 19_999
    marks.close(20_105.0)
    assert len(marks.steps) <= MAX_CLOSED_MARKS
    assert marks.seconds_until(20_000) == 19_999
    assert marks.stepping_seconds(9e9) == 20_004


def test_an_exit_that_is_seen_late_moves_no_step_before_it() -> None:
    """Steps of four seconds, the last of which is known by an exit half a minute later: the checkpoint before it keeps its time."""
    marks = StepMarks()
    for step in range(0, 1001, 5):
        marks.add(4.0 * step, step)
    marks.add(4.0 * 1000 + 30.0, 1001)
    marks.close(4.0 * 1000 + 30.0)
    assert len(marks.steps) <= MAX_CLOSED_MARKS
    assert [marks.seconds_until(step) for step in (123, 995, 1000)] == [492.0, 3980.0, 4000.0]
    marks.roughen()
    assert [marks.seconds_until(step) for step in (123, 995, 1000)] == [492.0, 3980.0, 4000.0]


def test_a_change_of_the_pace_stays_where_it_was() -> None:
    """Steps of one second, then of three, then of one again: what few marks say of any step is right to a second."""
    marks, at, times = StepMarks(), 0.0, dict[int, float]()
    for step in range(1, 501):
        at += 3.0 if 217 < step <= 350 else 1.0
        marks.add(at, step)
        times[step] = at - 1.0
    marks.close(at)
    assert len(marks.steps) <= MAX_CLOSED_MARKS
    assert all(marks.seconds_until(step) == pytest.approx(times[step]) for step in times)
    marks.roughen()
    assert len(marks.steps) <= MAX_ROUGH_MARKS
    assert all(abs(marks.seconds_until(step) - times[step]) < 180.0 for step in times)


@given(
    paces=st.lists(st.floats(0.01, 30.0), min_size=2, max_size=1500),
    every=st.integers(3, 60),
    late=st.booleans(),
)
def test_the_step_of_a_checkpoint_keeps_its_time(
    paces: list[float], every: int, late: bool
) -> None:
    """At any pace, with a mark every second step: those who continue from one of the newest inherit what it took, to the digit."""
    marks, whole, at = StepMarks(), StepMarks(), 0.0
    saved = list[int]()
    for step, seconds in enumerate(paces, 1):
        at += seconds
        if step % 2:
            marks.add(at, step)
            whole.times.append(at)
            whole.steps.append(step)
        if step % every == 0 and not late:
            saved.append(step)
            marks.add_checkpoint(step)
    if late:
        saved.append(whole.steps[-1])
        marks.add_checkpoint(saved[-1])
    whole.reached = marks.reached
    marks.close(at)
    whole.closed_at = at
    for step in saved[-MAX_CHECKPOINTS:]:
        assert marks.seconds_until(step) == pytest.approx(whole.seconds_until(step))
    assert len(marks.steps) <= MAX_CLOSED_MARKS + 2 * MAX_CHECKPOINTS
    marks.roughen()
    for step in saved[-2:]:
        assert marks.seconds_until(step) == pytest.approx(whole.seconds_until(step))
    assert len(marks.steps) <= MAX_ROUGH_MARKS + 4


@pytest.mark.costly
@settings(deadline=None)
@given(st.lists(st.floats(0.01, 30.0), min_size=100, max_size=512))
def test_marks_that_are_dropped_are_those_that_others_replace_best(paces: list[float]) -> None:
    """No step is further off than by dropping marks at equal distances until as few are left."""
    marks, at, times = StepMarks(), 0.0, list[float]()
    for step, seconds in enumerate(paces, 1):
        at += seconds
        marks.add(at, step)
        times.append(at)
    marks.close(at)
    found = [marks.seconds_until(step) + times[0] for step in range(1, len(times) + 1)]
    stride = -(-len(times) // (MAX_CLOSED_MARKS - 3))
    kept = sorted({*range(0, len(times) - 2, stride), len(times) - 2, len(times) - 1})
    evenly = [
        times[a] + (times[b] - times[a]) * (step - a) / (b - a)
        for a, b in itertools.pairwise(kept)
        for step in range(a, b)
    ]
    worst = max(abs(one - other) for one, other in zip(evenly, times, strict=False))
    assert max(abs(one - other) for one, other in zip(found, times, strict=True)) <= 2 * worst + 0.1


# ---- for any journal, the seconds add up ----------------------------------------------------------------------------

attempts = st.builds(AttemptId, st.just(1), st.integers(1, 2), st.integers(0, 3))
maybe_incidents = st.none() | st.sampled_from(["i1", "i2", "i3"])
steps = st.integers(0, 60)
records = st.one_of(
    st.builds(planned, attempts),
    st.builds(prepared, attempts, resume_step=steps, maker=st.none() | attempts),
    st.builds(
        attempt_is,
        attempts,
        st.sampled_from(get_args(AttemptStateName)),
        outcome=st.none() | st.sampled_from(get_args(Outcome)),
        incident=maybe_incidents,
    ),
    st.builds(advanced, attempts, steps, at=st.none() | st.floats(0, 2e9)),
    st.builds(advanced, attempts, steps),
    st.builds(checkpoint, attempts, steps),
    st.builds(RankCapabilitiesRecorded, attempt=attempts),
    st.builds(run_is, st.sampled_from(["active", "waiting"])),
    st.builds(
        IncidentOpened,
        incident=st.sampled_from(["i1", "i2", "i3"]),
        fault=st.just("rank_crash"),
        evidence=st.just(""),
        run=st.just(1),
        attempt=st.none() | attempts,
        detected_after_seconds=st.none() | st.floats(0, 100),
    ),
    st.builds(
        IncidentAmended,
        incident=st.sampled_from(["i1", "i2", "i9"]),
        evidence=st.just(""),
        attempt=st.none() | attempts,
    ),
    st.builds(
        IncidentChanged,
        incident=st.sampled_from(["i1", "i2", "i9"]),
        state=st.sampled_from(["acting", "proving", "resolved", "gave_up"]),
    ),
)
inputs = st.none() | st.builds(
    RanksTerminated,
    node=st.just("n1"),
    incarnation=st.just(1),
    generation=st.just(1),
    attempt=attempts,
    last_step=steps,
)
turns = st.lists(
    st.tuples(st.floats(0, 50), st.lists(records, max_size=4), inputs), min_size=1, max_size=40
)
ends: st.SearchStrategy[RunStateName | None] = st.none() | st.sampled_from(
    ["finished", "stopped", "failed"]
)


@pytest.mark.costly
@settings(max_examples=400, deadline=None)
@given(turns=turns, end=ends, later=st.floats(0, 100))
def test_for_any_journal_the_seconds_add_up(
    turns: list[tuple[float, list[object], object]], end: RunStateName | None, later: float
) -> None:
    """Productive and lost seconds sum to the wall time, none is negative, ETTR is a ratio, after every entry."""
    script = Script(start=1_000.0).at(0, admitted())
    now = 0.0
    for wait, some, fact in turns:
        now += wait
        script.at(now, *some, input=fact)
    if end is not None:
        script.at(now, run_is(end))
    ledger, totals = Ledger(), dict[str, float]()
    for entry in script.entries:
        if ledger.runs:
            # As the last status before the entry may show them.
            totals = check_totals(ledger, entry.now, totals)
        ledger.apply(decode(encode(entry)))
        check_sums(ledger.summary(1, entry.now))
        totals = check_totals(ledger, entry.now, totals)
        ranges = list(ledger.summary(1, entry.now).contributing_steps.values())
        assert all(first <= last for first, last in ranges)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))
    final = ledger.summary(1, script.start + now + later)
    check_sums(final)
    assert final.ended is (end is not None)
    assert Ledger.load(json.loads(json.dumps(ledger.dump()))).summary(1, 9e9) == ledger.summary(
        1, 9e9
    )
