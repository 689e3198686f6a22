"""When runs will be done, and what they use: in words, for `stoker status`, the live screen and reports."""

from runner.cli import output
from runner.cli.clusters import LIVE_STATES
from runner.facts.messages.cluster_status import ClusterStatus, RunForecast, RunSpending, RunStatus

# Runs of which `stoker status` says it; chosen.
MAX_RUNS_SHOWN = 10


def forecast_notes(status: ClusterStatus) -> str:
    """Say of each live run when it will be done and what it uses; "" without one."""
    live = [run for run in status.runs if run.state in LIVE_STATES]
    lines = [
        f"run {run.name}: {line}"
        for run in live[:MAX_RUNS_SHOWN]
        for line in forecast_lines(run, status.now)
    ]
    if len(live) > MAX_RUNS_SHOWN:
        lines.append(f"and {len(live) - MAX_RUNS_SHOWN} runs more: `stoker status --json`")
    return "\n".join(lines)


def forecast_lines(run: RunStatus, now: float) -> list[str]:
    """Say in up to three lines when a run will be done, how that is to its deadline, and what it uses; `now`: the status's."""
    lines = []
    if run.forecast is not None:
        lines += [end_in_words(run.forecast, now), deadline_in_words(run.forecast, now)]
    if run.spending is not None:
        lines.append(spending_in_words(run.spending))
    return [line for line in lines if line]


def end_in_words(expected: RunForecast, now: float) -> str:
    """Write when a run will be done: "done in 3 h 20 min (2026-12-24 18:00:00); in 80 % of all cases in 3 h to 4 h"."""
    ends, earliest, latest = expected.ends_at, expected.earliest, expected.latest
    if ends is None or earliest is None or latest is None:
        return f"when it will be done is not known: {expected.unknown}"
    least, most = output.seconds(earliest - now), output.seconds(latest - now)
    condition = ", if it goes on now" if expected.if_resumed else ""
    return (
        f"done in {output.seconds(ends - now)} ({output.moment(ends)}){condition}; "
        f"in 80 % of all cases in {least} to {most}"
    )


def end_in_short(run: RunStatus, now: float) -> str:
    """Write for a table in how long a run will be done, with "!" where that is after its deadline; "-" where it is not known."""
    expected = run.forecast
    if expected is None or expected.ends_at is None:
        return "-"
    is_late = expected.margin_seconds is not None and expected.margin_seconds < 0
    return output.seconds(expected.ends_at - now) + ("!" if is_late else "")


def deadline_in_words(expected: RunForecast, now: float) -> str:
    """Write how a run's end is to its deadline; "" without one."""
    margin, deadline = expected.margin_seconds, expected.deadline
    if deadline is None:
        return ""
    at = f"deadline {output.moment(deadline)}"
    if margin is None and now > deadline:
        return f"{at}: passed {output.seconds(now - deadline)} ago"
    if margin is None:
        return f"{at}: whether it will be kept is not known"
    by = output.seconds(abs(margin))
    if expected.ends_at is None:
        return f"{at}: kept, {by} before it" if margin >= 0 else f"{at}: MISSED BY {by}"
    if margin < 0:
        return f"{at}: WILL BE MISSED BY {by}"
    is_sure = expected.latest is not None and expected.latest <= deadline
    risk = "" if is_sure else ", but it may end later"
    return f"{at}: {by} of margin{risk}"


def spending_in_words(used: RunSpending) -> str:
    """Write what a run used, of its budget and in money: "12.3 rank hours: 11.0 useful, 1.3 lost; ..."."""
    parts = [
        f"{hours(used.rank_hours)} rank hours: {hours(used.useful_rank_hours)} useful, "
        f"{hours(used.lost_rank_hours)} lost"
    ]
    if used.rank_hours_at_end is not None:
        parts.append(f"{hours(used.rank_hours_at_end)} at its end")
    if used.budget_rank_hours is not None:
        parts.append(_budget(used, used.budget_rank_hours))
    if used.cost is not None and used.lost_cost is not None:
        at_end = f", {used.cost_at_end:.2f} at its end" if used.cost_at_end is not None else ""
        parts.append(f"cost {used.cost:.2f}, {used.lost_cost:.2f} of it lost{at_end}")
    return "; ".join(parts)


def hours(value: float) -> str:
    """Write hours: 0.012, 1.2, 1234."""
    return f"{value:.2g}" if value < 1 else f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _budget(used: RunSpending, budget: float) -> str:
    share = f"{used.rank_hours / budget:.0%} of the budget of {hours(budget)}"
    if used.rank_hours > budget:
        return f"{share}: OVERDRAWN"
    is_short = used.rank_hours_at_end is not None and used.rank_hours_at_end > budget
    return f"{share}, which WILL NOT BE ENOUGH" if is_short else share
