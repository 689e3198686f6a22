"""Tables of runs and incidents, as `stoker status` and the live screen show them."""

from collections.abc import Callable, Mapping, Sequence

from runner.cli import output
from runner.cli.clusters import LIVE_STATES
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    ProposalStatus,
    RunStatus,
)
from runner.facts.remedies import REMEDIES
from runner.facts.wording import counted, printable
from runner.serve.status_words import incident_fault as incident_fault
from runner.serve.status_words import incident_place as incident_place
from runner.serve.status_words import is_open as is_open

RUN_COLUMNS: dict[str, Callable[[RunStatus], str]] = {
    "run": lambda run: str(run.run),
    "name": lambda run: run.name,
    "state": lambda run: run.attempt_state or run.state if run.state == "active" else run.state,
    "attempt": lambda run: str(run.attempt or "-"),
    "step": lambda run: step_of(run),
    "loss": lambda run: output.number(run.last.loss if run.last else None),
    "tok/s": lambda run: output.number(run.last.tokens_per_second if run.last else None),
    "checkpoint": lambda run: output.count(run.checkpoint_step),
    "ETTR": lambda run: output.ratio(run.ettr_ratio),
    "why": lambda run: printable(run.reason, 100),
}
INCIDENT_COLUMNS: dict[str, Callable[[IncidentStatus], str]] = {
    # As `--incident` takes it.
    "incident": lambda i: f"{i.incident}@{i.version}",
    "state": lambda i: i.state,
    "fault": lambda i: incident_fault(i),
    "where": lambda i: incident_place(i),
    "opened": lambda i: output.clock(i.opened_at)[:8],
    "detect": lambda i: output.seconds(i.detected_after_seconds),
    "recover": lambda i: output.seconds(i.recovered_after_seconds),
    "steps lost": lambda i: output.count(i.steps_lost),
    "done": lambda i: ", ".join(i.rungs) or "-",
    "why": lambda i: printable(i.reason or (i.evidence[0] if i.evidence else ""), 80),
    "page": lambda i: printable(i.page, 60) or "-",
}


def runs_table(status: ClusterStatus) -> str:
    """Lay out the runs of a cluster."""
    return output.table(RUN_COLUMNS, status.runs) if status.runs else "no run yet"


def open_requests(status: ClusterStatus) -> str:
    """List what people asked of live runs that is not done yet, and what waits for them; "" for nothing."""
    asked = [(run.name, each) for run in status.runs for each in run.open_requests]
    lines = [f"run {name}: asked for: {printable(each)}" for name, each in asked]
    return "\n".join([*lines, *map(_proposal, status.proposals)])


def _proposal(known: ProposalStatus) -> str:
    ask = f"`stoker approve {known.action}` or `stoker deny {known.action}`"
    return f"{known.incident}: {known.action} proposes {printable(known.text)}: {ask}"


def rank_start_notes(status: ClusterStatus) -> str:
    """Describe of each live attempt with a preload whether ranks were forked, and nodes with other versions; "" for none."""
    lines = []
    for run in status.runs:
        if run.preload and run.attempt_state in ("running", "stop_requested"):
            fresh = f"fresh processes: {printable(run.not_forked_reason)}"
            how = fresh if run.not_forked_reason else "ranks forked from warm processes"
            lines.append(f"run {run.name}: {how}")
        lines += [f"run {run.name}: {printable(apart)}" for apart in run.version_mismatches]
    return "\n".join(lines)


def remedy_notes(status: ClusterStatus) -> str:
    """Describe each remedy of live runs that was not reverted, and whether it is in effect; "" for none."""
    lines = []
    for run in status.runs:
        live = [each for each in run.applied_remedies if each.state != "reverted"]
        for each in live if run.state in LIVE_STATES else []:
            words = printable(REMEDIES[each.name].words(each.value))
            by = f", for {printable(each.by)}" if each.by else ""
            state, detail = each.state.replace("_", " "), printable(each.detail)
            lines.append(
                f"run {run.name}: remedy {each.id}, {words}{by}: {state}"
                + (f": {detail}" if detail else "")
            )
    return "\n".join(lines)


def metric_notes(status: ClusterStatus) -> str:
    """List the trends in the numbers of live runs that ask for no action; "" for none."""
    return "\n".join(
        f"run {run.name}: {printable(note)}"
        for run in status.runs
        if run.state in LIVE_STATES
        for note in run.metric_notes
    )


def page_notes(status: ClusterStatus) -> str:
    """Say of pages what an operator must know: those that wait, and why; "" where all is well."""
    pages = status.pages
    if pages is None:
        return ""
    lines = []
    if pages.waiting:
        since = (
            ""
            if pages.waiting_since is None
            else f", the oldest since {output.moment(pages.waiting_since)}"
        )
        lines.append(f"pages: {counted(pages.waiting, 'page')} not delivered{since}")
    if pages.problem:
        lines.append(f"pages: {printable(pages.problem)}; see `stoker page --test`")
    if pages.dropped:
        lines.append(f"pages: {pages.dropped} given up; see the supervisor's log")
    return "\n".join(lines)


def incidents_table(some: Sequence[IncidentStatus]) -> str:
    """Lay out incidents."""
    return output.table(INCIDENT_COLUMNS, some, optional=("page",)) if some else "no incident"


def explanation(incident: IncidentStatus) -> str:
    """Explain an incident: its fault, cause, log lines, evidence, and what was done."""
    place = incident_place(incident)
    text = [f"{incident.incident} ({incident.state}): {incident.fault} at {place}"]
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
    if incident.acknowledged_by:
        text.append(f"{printable(incident.acknowledged_by, 60)} looks at it")
    if incident.page:
        text.append(f"page: {printable(incident.page)}")
    text += ["evidence:", *(f"  {printable(line, 160)}" for line in incident.evidence)]
    text.append(f"done: {', '.join(incident.rungs) or 'nothing'}")
    if incident.events:
        text.append(f"version {incident.version}; what made the newest versions:")
        text += [f"  {printable(event, 200)}" for event in incident.events]
    if incident.reason:
        how = "so far" if incident.closed_at is None else "ended"
        text.append(f"{how}: {printable(incident.reason, 160)}")
    return "\n".join(text)


def runs_with_in_words(found: Mapping[str, str]) -> str:
    """Write what attempts run with: `commit 0123456789ab, Python 3.11.7, packages 53, data sha256:12...`."""
    return ", ".join(f"{part} {printable(text, 100)}" for part, text in found.items())


def step_of(run: RunStatus) -> str:
    """Return the progress of a run: "120/200"."""
    return f"{run.step}/{run.total_steps}" if run.total_steps else str(run.step)
