"""Tables of runs and incidents, as `stoker status` and the live screen show them."""

from __future__ import annotations

from runner.cli import output
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.wording import printable


def runs_table(status: ClusterStatus) -> str:
    """Lay out the runs of a cluster."""
    columns = (
        "run",
        "name",
        "state",
        "attempt",
        "step",
        "loss",
        "tok/s",
        "checkpoint",
        "ETTR",
        "why",
    )
    return (
        output.table(columns, [_run_row(run) for run in status.runs])
        if status.runs
        else "no run yet"
    )


def rank_start_notes(status: ClusterStatus) -> str:
    """Describe of each live attempt with a preload whether ranks were forked, and nodes with other versions; "" for none."""
    lines = []
    for run in status.runs:
        if run.preload and run.attempt_state in ("running", "stop_requested"):
            not_forked_reason = f"fresh processes: {printable(run.not_forked_reason)}"
            lines.append(
                f"run {run.name}: {not_forked_reason if run.not_forked_reason else _FORKED}"
            )
        lines += [f"run {run.name}: {printable(apart)}" for apart in run.version_mismatches]
    return "\n".join(lines)


_FORKED = "ranks forked from warm processes"


def incidents_table(some: tuple[IncidentStatus, ...] | list[IncidentStatus]) -> str:
    """Lay out incidents."""
    columns = (
        "incident",
        "state",
        "fault",
        "where",
        "opened",
        "detect",
        "recover",
        "steps lost",
        "done",
        "why",
    )
    rows = [
        (
            i.incident,
            i.state,
            incident_fault(i),
            incident_place(i),
            output.clock(i.opened_at)[:8],
            output.seconds(i.detected_after_seconds),
            output.seconds(i.recovered_after_seconds),
            "-" if i.steps_lost is None else str(i.steps_lost),
            ", ".join(i.rungs) or "-",
            printable(i.reason or (i.evidence[0] if i.evidence else ""), 80),
        )
        for i in some
    ]
    return output.table(columns, rows)


def incident_fault(incident: IncidentStatus) -> str:
    """Return an incident's fault and its cause: "rank_crash: cuda_oom"."""
    cause = incident.cause
    if cause is None or cause.fault == incident.fault:
        return incident.fault
    return f"{incident.fault}: {cause.fault}"


def incident_place(incident: IncidentStatus) -> str:
    """Return the place of an incident: "n2 rank 3"."""
    parts = [incident.node or ""] + ([f"rank {incident.rank}"] if incident.rank is not None else [])
    return " ".join(part for part in parts if part) or "-"


def explanation(incident: IncidentStatus) -> str:
    """Explain an incident: its fault, cause, log lines, evidence, and what was done."""
    text = [
        f"{incident.incident} ({incident.state}): {incident.fault} at {incident_place(incident)}"
    ]
    cause = incident.cause
    if cause is None and incident.non_fatal:
        text.append("cause: unknown; the run goes on")
    elif cause is None:
        text.append("cause: unknown; no known signature in the output of the ranks that ended")
    else:
        whose = f", {cause.culprit.kind} {cause.culprit.id}" if cause.culprit is not None else ""
        where = f" on {cause.node}" if cause.node else ""
        text.append(
            f"cause: {cause.fault}{whose}{where} ({cause.confidence:.0%} sure; wants: {cause.action_class})"
        )
        text += [f"  {printable(line, 160)}" for line in cause.lines]
        if cause.seen_in:
            text.append(
                f"seen before: {cause.seen_in} (the same text, except numbers, paths and a few names)"
            )
    text += ["evidence:", *(f"  {printable(line, 160)}" for line in incident.evidence)]
    text.append(f"done: {', '.join(incident.rungs) or 'nothing'}")
    if incident.reason:
        how = "so far" if incident.closed_at is None else "ended"
        text.append(f"{how}: {printable(incident.reason, 160)}")
    return "\n".join(text)


def step_of(run: RunStatus) -> str:
    """Return the progress of a run: "120/200"."""
    return f"{run.step}/{run.total_steps}" if run.total_steps else str(run.step)


def _run_row(run: RunStatus) -> tuple[str, ...]:
    last = run.last
    doing = f"{run.attempt_state or run.state}" if run.state == "active" else run.state
    return (
        str(run.run),
        run.name,
        doing,
        str(run.attempt or "-"),
        step_of(run),
        output.number(last.loss if last else None),
        output.number(last.tokens_per_second if last else None),
        "-" if run.checkpoint_step is None else str(run.checkpoint_step),
        output.ratio(run.ettr_ratio),
        printable(run.reason, 100),
    )
