"""The forecast: its spread holds the true end, what it cannot know it says, and what a run has used."""

import itertools

import pytest

from runner.facts.messages.cluster_status import RunForecast
from runner.history.forecast import forecast, spending
from runner.history.ledger import Ledger
from runner.history.run_accounting import RunAccounting
from tests.history.journal_script import (
    ONE,
    Script,
    admitted,
    advanced,
    attempt_is,
    crash_and_restart,
    planned,
    prepared,
    run_is,
)
from tests.history.simulated_runs import Kind, play

NUM_RUNS = 150
# Of 80 %, by `NUM_RUNS` runs of one kind: 4.5 standard deviations of a share that is 80 % less.
LEAST_SHARE, LEAST_SHARE_OF_ALL = 0.66, 0.75
KINDS = [
    Kind(mtbf_seconds=mtbf, drift=drift, long_tail=long_tail)
    for mtbf, drift, long_tail in itertools.product(
        (40_000.0, 8_000.0, 1_500.0), (0.0, 0.005), (False, True)
    )
]


@pytest.mark.costly
def test_the_spread_covers_the_true_end() -> None:
    """Of simulated runs with few and many interruptions, 80 % are to end within the spread; of each kind at least 66 % do.

    Their mean end is as expected to within a tenth of the time that was left.
    """
    shares, errors = [], []
    for kind in KINDS:
        outcomes = [play(kind, seed) for seed in range(NUM_RUNS)]
        hits = 0
        for each in outcomes:
            expected = each.forecast
            assert expected.ends_at is not None
            assert not expected.unknown
            assert expected.earliest is not None
            assert expected.latest is not None
            assert each.at <= expected.earliest <= expected.ends_at <= expected.latest
            hits += expected.earliest <= each.ended_at <= expected.latest
            errors.append((expected.ends_at - each.ended_at) / (each.ended_at - each.at))
        shares.append(hits / NUM_RUNS)
    assert min(shares) >= LEAST_SHARE, shares
    assert LEAST_SHARE_OF_ALL <= sum(shares) / len(shares) <= 0.9, shares
    assert abs(sum(errors) / len(errors)) < 0.1


def steady(last: int) -> Script:
    """Admit a run that makes a step a second from second 10 on, and nothing else."""
    script = Script().at(0, admitted(), planned(ONE)).at(1, prepared(ONE))
    script.at(2, attempt_is(ONE, "launching")).at(3, attempt_is(ONE, "running"))
    for step in range(1, last + 1, 10):
        script.at(9 + step, advanced(ONE, step))
    return script


def account_of(script: Script) -> tuple[RunAccounting, float]:
    """Fold a script; return the run's account and the moment of its last entry."""
    ledger = Ledger()
    for entry in script.entries:
        ledger.apply(entry)
    return ledger.account(1), script.entries[-1].now


def expect(
    script: Script, *, step: int, total: int | None, margin: float | None = None
) -> RunForecast:
    """Forecast at the end of a script, with a deadline so many seconds later."""
    account, now = account_of(script)
    deadline = None if margin is None else now + margin
    return forecast(account, now=now, step=step, total_steps=total, deadline=deadline)


def test_a_steady_run_ends_when_its_pace_says() -> None:
    """900 steps are left at one a second; half a restart as long as the first start is allowed for at the late end only."""
    script = steady(101)
    expected = expect(script, step=101, total=1001, margin=1000.0)
    now = script.entries[-1].now
    assert expected.ends_at == pytest.approx(now + 900)
    assert expected.earliest == pytest.approx(now + 900)
    assert expected.latest is not None
    assert expected.latest > now + 910
    assert expected.margin_seconds == pytest.approx(100)
    assert (expected.steps_left, expected.interruptions) == (900, 0)


def test_lost_time_is_part_of_the_rate() -> None:
    """After a crash the end is later than the pace alone says, by what the crash cost for each second of steps."""
    script = crash_and_restart()
    account, now = account_of(script)
    (cost, count) = account.interruptions.lost_seconds, account.interruptions.count
    lost = Ledger()
    for entry in script.entries:
        lost.apply(entry)
    seconds = lost.summary(1, now).lost_seconds
    assert count == 1
    started = seconds.get("initial_start", 0.0) + seconds.get("finish", 0.0)
    assert cost == pytest.approx(sum(seconds.values()) - started)


@pytest.mark.parametrize(
    ("script", "total", "words"),
    [
        (steady(101), None, "no target"),
        (Script().at(0, admitted(), planned(ONE)), 100, "no step was made yet"),
        (steady(21), 1000, "too little data"),
        (steady(101), 50, "past the target"),
        (steady(101).at(200, run_is("stopped")), 1000, "the run has ended"),
    ],
)
def test_what_cannot_be_known_is_said(script: Script, total: int | None, words: str) -> None:
    """Without a target, a step, enough data or a run that goes on, there is no end, and the reason names what is missing."""
    expected = expect(script, step=101, total=total, margin=50.0)
    assert words in expected.unknown
    assert (expected.ends_at, expected.earliest, expected.latest) == (None, None, None)
    assert expected.margin_seconds is None
    assert expected.deadline is not None


def test_a_finished_run_has_its_margin() -> None:
    """Its last step done, the margin is that of its end, whatever the time is now."""
    account, now = account_of(steady(101).at(150, run_is("finished")))
    expected = forecast(account, now=now + 999, step=101, total_steps=101, deadline=now + 30)
    assert expected.margin_seconds == pytest.approx(30)


def test_a_pause_is_no_part_of_the_rate() -> None:
    """A paused run is forecast as if it went on now, and the seconds of the pause cost nothing later."""
    script = steady(101).at(120, attempt_is(ONE, "ended", outcome="paused"), run_is("paused"))
    paused = expect(script.at(5000), step=101, total=1001)
    assert paused.if_resumed
    assert paused.seconds_per_step is not None
    assert paused.seconds_per_step < 1.2


def test_hours_and_cost() -> None:
    """Useful and lost rank hours add up to all; what is to come is added at the end; without a rate nothing costs."""
    ledger = Ledger()
    entries = crash_and_restart().entries
    for entry in entries:
        ledger.apply(entry)
    summary = ledger.summary(1, entries[-1].now)
    used = spending(summary, 4, rate=2.0, budget=1.0, seconds_left=1800.0)
    assert used.useful_rank_hours + used.lost_rank_hours == pytest.approx(used.rank_hours)
    assert used.useful_rank_hours == pytest.approx(summary.productive_seconds * 4 / 3600)
    assert used.rank_hours_at_end == pytest.approx(used.rank_hours + 2.0)
    assert used.cost_at_end == pytest.approx(2 * used.rank_hours + 4.0)
    free = spending(summary, 4)
    assert (free.cost, free.lost_cost, free.cost_at_end) == (None, None, None)
