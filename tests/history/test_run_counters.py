"""Counters of runs, and ETTR of recent windows, against a journal written by hand."""

import json

import pytest

from bench.long_journal import LongJournal
from runner.facts.causes import Cause
from runner.facts.ids import AttemptId
from runner.facts.messages.records import IncidentAmended, IncidentDiagnosed, StepsAdvanced
from runner.history.ledger import Ledger
from runner.history.recent_time import recent_ettr
from runner.history.run_counters import BUCKET_SECONDS
from tests.history.journal_script import (
    ONE,
    THREE,
    TWO,
    Script,
    admitted,
    advanced,
    attempt_is,
    crash_and_restart,
    opened,
    planned,
    prepared,
)


def fold(script: Script) -> Ledger:
    """Fold a script's entries into a ledger."""
    ledger = Ledger()
    for entry in script.entries:
        ledger.apply(entry)
    return ledger


def test_a_recovery_is_one_observation_of_each_phase() -> None:
    """Half a second to detect, half to stop, two to prepare, seven to start, and the steps after the checkpoint as rework."""
    counters = fold(crash_and_restart()).account(1).counters
    seconds = {phase: each.total_seconds for phase, each in counters.phases.items()}
    # Step 1 is done at 10 s, the fault is at 60 s, and step 40 was done at 49 s.
    assert seconds == pytest.approx(
        {"detect": 0.5, "stop": 0.5, "prepare": 2.0, "start": 7.0, "rework": 11.0}
    )
    assert all(sum(each.counts) == 1 for each in counters.phases.values())
    assert counters.phases["start"].counts[BUCKET_SECONDS.index(10.0)] == 1
    assert counters.phases["stop"].counts[BUCKET_SECONDS.index(0.5)] == 1


def test_a_crash_while_starting_again_prolongs_the_recovery() -> None:
    """Two attempts that break before a step are one recovery, and two restarts."""
    script = Script().at(0, admitted(), planned(ONE), prepared(ONE), attempt_is(ONE, "launching"))
    script.at(10, advanced(ONE, 1)).at(20, advanced(ONE, 11))
    script.at(20, opened("i1", ONE), attempt_is(ONE, "stopping", outcome="crashed", incident="i1"))
    script.at(21, attempt_is(ONE, "ended"), planned(TWO), attempt_is(TWO, "launching"))
    again = attempt_is(TWO, "stopping", outcome="crashed", incident="i1")
    script.at(25, IncidentAmended(incident="i1", evidence="again", attempt=TWO), again).at(
        26, attempt_is(TWO, "ended"), planned(THREE)
    )
    script.at(27, prepared(THREE), attempt_is(THREE, "launching")).at(30, advanced(THREE, 1))
    counters = fold(script).account(1).counters
    assert {name: sum(each.counts) for name, each in counters.phases.items()} == dict.fromkeys(
        counters.phases, 1
    )
    assert counters.phases["stop"].total_seconds == pytest.approx(2.0)
    assert counters.restarts == {"rank_crash": 2}


def test_restarts_are_counted_by_the_cause_that_was_found_and_by_who_asked() -> None:
    """A diagnosis before the launch names the restart; one that a person asked for is `requested`."""
    script = Script().at(0, admitted(), planned(ONE), attempt_is(ONE, "launching"))
    script.at(10, advanced(ONE, 1))
    script.at(20, opened("i1", ONE), attempt_is(ONE, "stopping", outcome="crashed", incident="i1"))
    cause = Cause(
        fault="rank_oom",
        scope="rank",
        culprit=None,
        node="n1",
        confidence=0.9,
        action_class="restart",
    )
    script.at(20.5, IncidentDiagnosed(incident="i1", cause=cause))
    script.at(21, attempt_is(ONE, "ended"), planned(TWO), attempt_is(TWO, "launching"))
    script.at(30, advanced(TWO, 1)).at(40, attempt_is(TWO, "stopping", outcome="stopped"))
    script.at(41, attempt_is(TWO, "ended"), planned(THREE), attempt_is(THREE, "launching"))
    assert fold(script).account(1).counters.restarts == {"rank_oom": 1, "requested": 1}


def test_steps_count_again_when_they_are_made_again_and_tokens_as_they_are_reported() -> None:
    """Fifty-one steps, of which eleven are overwritten and made again; tokens and skipped steps add up over attempts."""
    ledger = fold(crash_and_restart())
    counters = ledger.account(1).counters
    assert counters.steps == 51 + 60
    script = Script().at(0, admitted(), planned(ONE))
    script.at(1, StepsAdvanced(attempt=ONE, step=1, tokens=100))
    script.at(2, StepsAdvanced(attempt=ONE, step=2, tokens=150, num_skipped=1))
    counters = fold(script).account(1).counters
    assert (counters.tokens, counters.skipped_steps, counters.steps) == (250, 1, 2)


def test_productive_seconds_rest_while_steps_are_made_again() -> None:
    """After a rewind the counter stays where it was, and rises once the run is past it; ETTR shows the loss at once."""
    script, ledger, before = crash_and_restart(), Ledger(), 0.0
    at_fault = None
    for entry in script.entries:
        ledger.apply(entry)
        summary = ledger.summary(1, entry.now)
        assert summary.productive_seconds_total >= before
        before = summary.productive_seconds_total
        if entry.now == script.start + 62:
            at_fault = summary
    assert at_fault is not None
    assert at_fault.productive_seconds == pytest.approx(39.0)
    # Until the last mark, of step 51 at 60 s.
    assert at_fault.productive_seconds_total == pytest.approx(50.0)
    assert summary.productive_seconds_total == summary.productive_seconds


def test_the_counters_survive_a_snapshot_at_any_moment() -> None:
    """A supervisor that takes over from a snapshot shows the sums of the one before."""
    script = crash_and_restart()
    whole = fold(script)
    for cut in range(1, len(script.entries)):
        ledger = Ledger()
        for entry in script.entries[:cut]:
            ledger.apply(entry)
        ledger = Ledger.load(json.loads(json.dumps(ledger.dump())))
        for entry in script.entries[cut:]:
            ledger.apply(entry)
        assert ledger.account(1).counters == whole.account(1).counters


def test_recent_ettr_is_the_productive_share_of_its_window() -> None:
    """Of the last 40 seconds of the run, 38 went into steps; of the 30 around the crash, what is left of them."""
    script = crash_and_restart()
    account = fold(script).account(1)
    end = script.start + 131
    assert recent_ettr(account, 40.0, end) == pytest.approx(38 / 40)
    assert recent_ettr(account, 1e9, end) == fold(script).summary(1, end).ettr_ratio
    until_80 = Ledger()
    for entry in script.entries:
        if entry.now <= script.start + 80:
            until_80.apply(entry)
    # From 50 to 80 s: steps 42 to 51 alone; the steps until 60 s were after step 40, which was done at 49 s.
    assert recent_ettr(until_80.account(1), 30.0, script.start + 80) == pytest.approx(10 / 30)


def test_recent_ettr_of_a_whole_life_is_its_ettr() -> None:
    """Over months with failures, a window of all its time has the ledger's own ratio, and bounded books the same last day."""
    whole, bounded = Ledger(), Ledger(bounded=True)
    for entry in LongJournal(nodes=30, days=60, mark_seconds=3000.0).entries():
        whole.apply(entry)
        bounded.apply(entry)
        if entry.sequence % 200 == 0 and whole.runs:
            summary = whole.summary(1, entry.now)
            ratio = recent_ettr(whole.account(1), 1e12, entry.now)
            assert ratio == (
                None if summary.ettr_ratio is None else pytest.approx(summary.ettr_ratio)
            )
            day = bounded.summary(1, entry.now).ettr_day_ratio
            assert day == (
                None if summary.ettr_day_ratio is None else pytest.approx(summary.ettr_day_ratio)
            )
            assert bounded.account(1).counters == whole.account(1).counters
    assert whole.summary(1, 0.0).num_attempts > 8
    assert AttemptId(1, 1, 5) in whole.account(1).attempts
