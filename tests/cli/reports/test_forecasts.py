"""When a run will be done and what it uses, in words, as `stoker status` has them."""

from runner.cli.reports.forecasts import MAX_RUNS_SHOWN, forecast_lines, forecast_notes
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    RunForecast,
    RunSpending,
    RunStatus,
)

DAY = 24 * 3600.0


def lines(forecast: RunForecast | None = None, spending: RunSpending | None = None) -> str:
    """Return what is said of a run at second 0."""
    run = RunStatus(run=1, name="a", state="active", forecast=forecast, spending=spending)
    return "\n".join(forecast_lines(run, 0.0))


def ends(**fields: float) -> RunForecast:
    """Forecast an end in a day, give or take an hour."""
    return RunForecast(ends_at=DAY, earliest=DAY - 3600, latest=DAY + 3600, **fields)  # type: ignore[arg-type]


def test_the_end_and_its_spread() -> None:
    """The duration comes first, then the moment, then the spread."""
    text = lines(ends())
    assert text.startswith("done in 24 h 00 min (19")
    assert text.endswith("; in 80 % of all cases in 23 h 00 min to 25 h 00 min")


def test_a_deadline_that_is_kept_missed_or_unsure() -> None:
    """Each way to stand to a deadline has its own words; too late is written large."""
    assert lines(ends(deadline=3 * DAY, margin_seconds=2 * DAY)).endswith(": 2 d 0 h of margin")
    late = lines(ends(deadline=DAY / 2, margin_seconds=-DAY / 2))
    assert late.endswith("WILL BE MISSED BY 12 h 00 min")
    unsure = lines(ends(deadline=DAY + 60, margin_seconds=60.0))
    assert "60.0 s of margin, but it may end later" in unsure
    over = RunForecast(unknown="the run has ended", deadline=DAY, margin_seconds=-60.0)
    assert lines(over).endswith("MISSED BY 60.0 s")


def test_an_unknown_end_says_why() -> None:
    """No figure is made up; the deadline is still named."""
    text = lines(RunForecast(unknown="too little data: why", deadline=DAY))
    assert text.startswith("when it will be done is not known: too little data: why\n")
    assert text.endswith("whether it will be kept is not known")


def test_hours_budget_and_cost() -> None:
    """What is used, useful and lost, the share of the budget, whether it will be enough, and money."""
    used = RunSpending(
        rank_hours=40.0,
        useful_rank_hours=35.0,
        lost_rank_hours=5.0,
        budget_rank_hours=100.0,
        rank_hours_at_end=120.0,
        rate=2.0,
        cost=80.0,
        lost_cost=10.0,
        cost_at_end=240.0,
    )
    assert lines(spending=used) == (
        "40.0 rank hours: 35.0 useful, 5.0 lost; 120.0 at its end; 40% of the budget of 100.0, which WILL NOT BE ENOUGH; "
        "cost 80.00, 10.00 of it lost, 240.00 at its end"
    )
    assert "lost; 400% of the budget of 10.0: OVERDRAWN" in lines(
        spending=RunSpending(rank_hours=40.0, budget_rank_hours=10.0)
    )


def test_many_runs_do_not_fill_the_screen() -> None:
    """Ten runs are shown, and how many more there are; an ended run is not forecast, nor one of an earlier release."""
    runs = tuple(RunStatus(run=n, name=f"r{n}", state="active", forecast=ends()) for n in range(25))
    ended = RunStatus(run=30, name="old", state="finished", forecast=ends())
    earlier = RunStatus(run=31, name="earlier", state="active")
    text = forecast_notes(ClusterStatus(cluster="c", now=0.0, wall=0.0, runs=(*runs, ended)))
    assert len(text.splitlines()) == MAX_RUNS_SHOWN + 1
    assert text.endswith("and 15 runs more: `stoker status --json`")
    assert (
        forecast_notes(ClusterStatus(cluster="c", now=0.0, wall=0.0, runs=(ended, earlier))) == ""
    )
