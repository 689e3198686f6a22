"""What changed between two statuses of the cluster, as log lines: one per event."""

from collections.abc import Iterator

from runner.cli import output
from runner.cli.clusters import LIVE_STATES
from runner.cli.reports.tables import incident_place, step_of
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    RunStatus,
)
from runner.facts.remedies import REMEDIES
from runner.facts.wording import counted, printable, settings_text

# Characters; those of a check's message in the state.
MAX_SHORTAGE = 1000
# Of an attempt: each lasts for a moment, or the run's own state has the news.
BRIEF_STATES = ("preparing", "prepared", "stopping")
# How the reason of a run ends that waits for the checks of its nodes.
CHECKED = "being checked"
# Moves between these are no news.
QUIET_STATES = ("absent", "joining", "checking", "spare", "active")


def changes(before: ClusterStatus | None, after: ClusterStatus, *, run: int) -> list[str]:
    """Return what happened to `run`, its nodes and its incidents since `before` (None: since the start)."""
    lines = list(_nodes(before.nodes if before else (), after.nodes))
    known = {i.incident: i for i in before.incidents} if before else {}
    for incident in reversed(after.incidents):
        if incident.run in (run, None):
            lines += _incident(known.get(incident.incident), incident)
    new = find_run(after, run)
    if new is not None:
        old = find_run(before, run) if before else None
        lines += _run(old, new)
        others = [known for known in after.runs if known.run != run and known.state in LIVE_STATES]
        if old is None and new.state == "waiting" and others:
            lines.append(f"run is waiting{output.because(new.reason)}")
    return lines


def progress(run: RunStatus) -> str:
    """Describe the progress of a run in one line."""
    last = run.last
    parts = [f"step {step_of(run)}"]
    if last is not None:
        parts += [f"loss {output.number(last.loss)}"] if last.loss is not None else []
        if last.tokens_per_second is not None:
            parts.append(f"{output.number(last.tokens_per_second, 3)} tok/s")
        parts += [f"lr {last.lr:.2e}"] if last.lr is not None else []
    if run.checkpoint_step is not None:
        parts.append(f"checkpoint {run.checkpoint_step}")
    if run.ettr_ratio is not None:
        parts.append(f"ETTR {run.ettr_ratio:.2f}")
    return f"{run.name} {run.attempt or ''}: {', '.join(parts)}"


def find_run(status: ClusterStatus, run: int) -> RunStatus | None:
    """Return a run by its number."""
    return next((known for known in status.runs if known.run == run), None)


def _nodes(before: tuple[NodeStatus, ...], after: tuple[NodeStatus, ...]) -> Iterator[str]:
    states = {node.node: node.state for node in before}
    leaving = [node.node for node in before if node.pending_drain is not None]
    # Nodes that share a machine are short of the same.
    shortages = {node.shortage for node in before}
    for node in after:
        old = states.get(node.node)
        if node.pending_drain is not None and node.node not in leaving:
            drain = node.pending_drain
            why = output.because(drain.reason)
            yield f"{node.node} is to leave ({drain.to}){why}"
        if node.shortage and node.shortage not in shortages:
            shortages.add(node.shortage)
            yield f"{node.node} serves, but is short: {printable(node.shortage, MAX_SHORTAGE)}"
        if node.state != old and not (node.state in QUIET_STATES and old in (None, *QUIET_STATES)):
            yield f"{node.node} is {node.state}{output.because(node.reason)}"


def _run(old: RunStatus | None, new: RunStatus) -> Iterator[str]:
    if old is None:
        yield f"run {new.run} {new.name} begins; files in {new.folder}"
    was_checked = old is not None and _is_first_check(old)
    if _is_first_check(new):
        if not was_checked:
            yield f"before the first start, {printable(new.reason.rpartition('; ')[2])}"
    elif was_checked and new.state == "active":
        # The attempt that follows is the news.
        pass
    elif old is not None and (old.state, old.reason) != (new.state, new.reason):
        yield f"run is {new.state}{output.because(new.reason)}"
    was = (old.attempt, old.attempt_state) if old else (None, "")
    is_brief = new.attempt_state in BRIEF_STATES
    if new.attempt is not None and (new.attempt, new.attempt_state) != was and not is_brief:
        yield f"attempt {new.attempt} {new.attempt_state} on {', '.join(new.nodes)}"
    if new.not_forked_reason and (old is None or old.not_forked_reason != new.not_forked_reason):
        yield f"ranks of {new.attempt} are fresh processes: {printable(new.not_forked_reason)}"
    settings = settings_text(new.settings or {}, ("lr", *REMEDIES))
    if settings and (old is None or old.settings != new.settings):
        yield f"settings in effect: {printable(settings)}"


def _is_first_check(run: RunStatus) -> bool:
    """Whether a run waits for its first attempt because its nodes are being checked, as every new cluster's are."""
    return run.state == "waiting" and not run.num_attempts and run.reason.endswith(CHECKED)


def _incident(old: IncidentStatus | None, new: IncidentStatus) -> Iterator[str]:
    if old is None:
        after = new.detected_after_seconds
        detected = f", detected after {output.seconds(after)}" if after else ""
        why = output.because(new.evidence[0] if new.evidence else "")
        yield f"{new.incident} {new.fault} on {incident_place(new)}{detected}{why}"
    elif old.fault != new.fault:
        yield f"{new.incident} is {new.fault} on {incident_place(new)}: {printable(new.evidence[-1])}"
    for rung in new.rungs[len(old.rungs) if old else 0 :]:
        yield f"{new.incident}: {rung}"
    recovered = new.recovered_after_seconds
    if recovered is not None and (old is None or old.recovered_after_seconds is None):
        lost = "" if new.steps_lost is None else f", {counted(new.steps_lost, 'step')} lost"
        yield f"{new.incident}: training again after {output.seconds(recovered)}{lost}"
    if new.state in ("resolved", "gave_up") and (old is None or old.state != new.state):
        yield f"{new.incident} {new.state}{output.because(new.reason)}"
