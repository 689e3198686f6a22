"""What a visitor opens: an incident with its story, a run's curves and lineage. Read from journal and steps when it is asked for.

Reading a long journal takes seconds, so one such reading runs at a time, and what was read is kept while nothing was added.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from runner.errors import StokerError, UserError
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.remedies import remedies_text
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import known_words, printable
from runner.history.lineage import LineageRow, lineage
from runner.history.timeline import TimelineLine, story
from runner.serve.past import read_past, read_step_history
from runner.serve.status_reader import read_status
from runner.serve.web.page_item import MAX_TEXT
from runner.serve.web.page_state import incident_detail
from runner.signer import signer_of
from runner.steps import contributing
from runner.steps.buckets import thinned
from runner.steps.rows import StepRow, packed, unpacker
from runner.store.protocol import Store

# Before an incident opened, what led to it; after it closed, what followed. Chosen.
BEFORE_SECONDS, AFTER_SECONDS = 900.0, 60.0
MAX_STORY_LINES, MAX_LINEAGE_ROWS = 200, 200
# Buckets of a curve, of which each keeps three rows at most: more than a screen shows. Chosen.
MAX_BUCKETS = 400
# What was read is read again after that, if there may be more. Chosen.
KEPT_SECONDS = 5.0
MAX_KEPT = 32


class Records:
    """Reads what visitors open, for any thread."""

    def __init__(self, store: Store, cluster: ClusterSpec) -> None:
        self._store, self._cluster = store, cluster
        self._reading = threading.Lock()
        self._kept: dict[object, tuple[float, Any]] = {}

    def incident(self, name: str) -> dict[str, Any]:
        """Return an incident's cause, evidence and story. Raises UserError for one that the status does not have."""
        known = {one.incident: one for one in self.status().incidents}
        if name not in known:
            raise UserError(f"no incident {name!r} in the status; {known_words(name, list(known))}")
        incident = known[name]
        lines = self._once(("story", name, incident.version), lambda: self._story(incident))
        return {**incident_detail(incident), **lines}

    def curves(self, run: int) -> dict[str, Any]:
        """Return loss and gradient norm by step, of the steps that count, and what was done to the run at which step."""
        status = self.status()
        found = _run_of(status, run)
        curves: dict[str, Any] = self._once(("curves", run), lambda: self._curves(found))
        marks = [
            {"step": one.step, "text": f"{one.incident} {', '.join(one.rungs)}"}
            for one in reversed(status.incidents)
            if one.run == run and one.step is not None and one.rungs
        ]
        return {**curves, "marks": marks}

    def lineage(self, run: int) -> dict[str, Any]:
        """Return the attempts of a run, newest first. Raises UserError for a run that the status does not have."""
        found = _run_of(self.status(), run)
        key = ("lineage", run, found.attempt, found.attempt_state)
        rows: dict[str, Any] = self._once(key, lambda: self._lineage(run))
        return rows

    def status(self) -> ClusterStatus:
        """Return the published status; raise UserError without one."""
        status = read_status(self._store, signer_of(self._cluster))
        if status is None:
            raise UserError(
                "no supervisor has published a status yet; `stoker supervise` starts one"
            )
        return status

    def _story(self, incident: IncidentStatus) -> dict[str, Any]:
        since = incident.opened_at - BEFORE_SECONDS
        until = None if incident.closed_at is None else incident.closed_at + AFTER_SECONDS
        try:
            past = read_past(self._store, self._cluster, since=since)
            entries = (entry for entry in past.entries if until is None or entry.now <= until)
            lines = story(entries, incident=incident.incident, since=since)
        except StokerError as error:
            return {"story": [], "missing": printable(str(error), MAX_TEXT)}
        missing = past.missing
        if len(lines) > MAX_STORY_LINES:
            missing = f"the first {MAX_STORY_LINES} of {len(lines)} lines; `stoker story {incident.incident}` has all"
        return {
            "story": [_story_line(line) for line in lines[:MAX_STORY_LINES]],
            "missing": missing,
        }

    def _curves(self, run: RunStatus) -> dict[str, Any]:
        try:
            rows = contributing(read_step_history(self._cluster, run.run).rows)
        except StokerError as error:
            losses = run.recent_losses
            return {
                # Which steps they are of is not known: the newest is the last.
                "step": list(range(run.step - len(losses) + 1, run.step + 1)),
                "loss": list(losses),
                "grad_norm": [None] * len(losses),
                "missing": printable(str(error), MAX_TEXT),
            }
        shown = _few(rows, run.run)
        return {
            "step": [row.step for row in shown],
            "loss": [row.loss for row in shown],
            "grad_norm": [row.grad_norm for row in shown],
            "missing": "",
        }

    def _lineage(self, run: int) -> dict[str, Any]:
        try:
            past = read_past(self._store, self._cluster)
            rows, missing = lineage(past.entries, run), past.missing
        except StokerError as error:
            rows, missing = [], str(error)
        if len(rows) > MAX_LINEAGE_ROWS:
            missing = (
                f"the newest {MAX_LINEAGE_ROWS} of {len(rows)} attempts; `stoker lineage` has all"
            )
        newest = list(reversed(rows))[:MAX_LINEAGE_ROWS]
        return {
            "attempts": [_attempt(row) for row in newest],
            "missing": printable(missing, MAX_TEXT),
        }

    def _once(self, key: object, read: Callable[[], Any]) -> Any:
        """Return what was read for this key a moment ago, or read it, one at a time."""
        with self._reading:
            read_at, found = self._kept.get(key, (0.0, None))
            if found is None or time.monotonic() - read_at > KEPT_SECONDS:
                found = read()
                self._kept.pop(key, None)
                self._kept[key] = time.monotonic(), found
                for oldest in list(self._kept)[:-MAX_KEPT]:
                    del self._kept[oldest]
        return found


def _run_of(status: ClusterStatus, number: int) -> RunStatus:
    for run in status.runs:
        if run.run == number:
            return run
    raise UserError(
        f"no run {number}; {known_words(str(number), [str(r.run) for r in status.runs])}"
    )


def _few(rows: list[StepRow], run: int) -> list[StepRow]:
    """Return so few rows as a screen shows, with the highest loss and norm of each bucket."""
    if len(rows) <= MAX_BUCKETS:
        return rows
    span = rows[-1].step - rows[0].step + 1
    width = max(1, -(-span // MAX_BUCKETS))
    kept = map(unpacker(run), thinned([packed(row) for row in rows], width))
    found = {row.step: row for row in kept}
    return [found[step] for step in sorted(found)]


def _story_line(line: TimelineLine) -> dict[str, Any]:
    return {
        "at": line.now,
        "offset": round(line.offset_seconds, 3),
        "event": printable(line.input_text, MAX_TEXT),
        "decided": [printable(text, MAX_TEXT) for text in line.decided],
    }


def _attempt(row: LineageRow) -> dict[str, Any]:
    return {
        "attempt": str(row.attempt),
        "from": str(row.parent or ""),
        "resume_step": row.resume_step,
        "last_step": row.last_step,
        "kept": list(row.contributes) if row.contributes else None,
        "nodes": len(row.nodes),
        "start_seconds": row.start_seconds,
        "outcome": row.outcome,
        "cause": printable(row.cause, MAX_TEXT),
        "incident": row.incident,
        "remedies": printable(remedies_text(row.remedies), MAX_TEXT),
    }
