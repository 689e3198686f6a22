"""Runs as the page shows them."""

from typing import Any

from msgspec import to_builtins

from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    RunForecast,
    RunStatus,
)
from runner.facts.remedies import REMEDIES
from runner.facts.wording import printable
from runner.serve.web.page_item import MAX_NAME, MAX_TEXT, why_of


def newest_restarts(status: ClusterStatus) -> dict[int, IncidentStatus]:
    """Return, by run, the newest incident for which something was done about it."""
    found: dict[int, IncidentStatus] = {}
    for incident in status.incidents:
        if incident.run is not None and incident.rungs and not incident.non_fatal:
            found.setdefault(incident.run, incident)
    return found


def run_item(run: RunStatus, restart: IncidentStatus | None) -> dict[str, Any]:
    """Return a run; `restart`: the incident for which it was started again last."""
    last = run.last
    is_live = run.state in ("active", "waiting", "paused")
    return {
        "run": run.run,
        "name": run.name,
        "state": run.attempt_state or run.state if run.state == "active" else run.state,
        "live": is_live,
        "held": None if run.hold is None else _hold(run),
        "reason": printable(run.reason, MAX_TEXT),
        "attempt": str(run.attempt or ""),
        "attempts": run.num_attempts,
        "mode": run.mode,
        "phase": printable(run.phase, MAX_NAME),
        "step": run.step,
        "total_steps": run.total_steps,
        "loss": None if last is None else last.loss,
        "grad_norm": None if last is None else last.grad_norm,
        "lr": None if last is None else last.lr,
        "tokens_per_second": None if last is None else last.tokens_per_second,
        "checkpoint": run.checkpoint_step,
        "ettr": run.ettr_ratio,
        "ettr_hour": run.ettr_hour_ratio,
        "lost": {name: round(seconds, 1) for name, seconds in run.lost_seconds.items() if seconds},
        "nodes": len(run.nodes),
        "asked": [printable(each, MAX_TEXT) for each in run.open_requests],
        "trends": [printable(each, MAX_TEXT) for each in run.metric_notes] if is_live else [],
        "remedies": _remedies(run),
        "restarted": None if restart is None else _restarted(restart),
        "forecast": None if run.forecast is None else _forecast(run.forecast),
        "spending": None if run.spending is None else to_builtins(run.spending),
    }


def _forecast(expected: RunForecast) -> dict[str, Any]:
    return {**to_builtins(expected), "unknown": printable(expected.unknown, MAX_TEXT)}


def _hold(run: RunStatus) -> dict[str, Any]:
    assert run.hold is not None
    return {
        "hold": run.hold.hold,
        "by": printable(run.hold.by, MAX_NAME),
        "reason": printable(run.hold.reason, MAX_TEXT),
        "since": run.hold.since,
    }


def _remedies(run: RunStatus) -> list[str]:
    live = [each for each in run.applied_remedies if each.state != "reverted"]
    return [
        f"{each.id} {printable(REMEDIES[each.name].words(each.value))}: {each.state.replace('_', ' ')}"
        for each in live
        if each.name in REMEDIES
    ]


def _restarted(incident: IncidentStatus) -> dict[str, Any]:
    return {"incident": incident.incident, "at": incident.opened_at, "why": why_of(incident)}
