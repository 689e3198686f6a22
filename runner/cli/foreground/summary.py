"""The summary of a run: its result, its incidents, and what they cost."""

from dataclasses import dataclass

from runner.cli import output
from runner.cli.reports.tables import incidents_table, step_of
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, RunStatus
from runner.facts.wording import counted, printable

CAUSE_NAMES = {
    "initial_start": "first start",
    "waiting": "waiting for nodes",
    "paused": "paused by a person",
    "detect": "detecting faults",
    "stop": "ending gangs",
    "prepare": "preparing new attempts",
    "start": "starting again",
    "rework": "steps done twice",
    "requested": "requested changes",
    "finish": "after the last step",
    "unreported": "no step reported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The end of a run in figures. Times are seconds; None: the trainer did not report it."""

    run: RunStatus
    # Oldest first.
    incidents: tuple[IncidentStatus, ...]
    first_loss: float | None
    last_loss: float | None
    steps_lost: int
    wall_seconds: float | None
    ettr_ratio: float | None


def summarize(status: ClusterStatus, run: RunStatus) -> Summary:
    """Build the summary of a run from the cluster's status."""
    incidents = tuple(i for i in reversed(status.incidents) if i.run == run.run)
    losses = run.recent_losses
    last = run.last.loss if run.last is not None else None
    return Summary(
        run=run,
        incidents=incidents,
        first_loss=run.first_loss,
        last_loss=last if last is not None else (losses[-1] if losses else None),
        steps_lost=sum(one.steps_lost or 0 for one in incidents)
        if run.lost_steps is None
        else run.lost_steps,
        wall_seconds=_wall_seconds(run),
        ettr_ratio=run.ettr_ratio,
    )


def summary_text(summary: Summary, *, is_watched: bool = False) -> str:
    """Lay the summary out for people. `is_watched`: Stoker did not launch the run, and has no journal of it."""
    run = summary.run
    lines = [
        f"run {run.run} {run.name} {run.state}{output.because(run.reason)}",
        *_causes(summary, more="" if is_watched else " (more: stoker story {})"),
        f"  steps       {step_of(run)} in {counted(run.num_attempts, 'attempt')}{_unread(run)}",
        f"  loss        {output.number(summary.first_loss)} at the start, {output.number(summary.last_loss)} at the end",
        f"  wall time   {output.seconds(summary.wall_seconds)}",
        f"  ETTR        {output.ratio(summary.ettr_ratio)} (time on steps that count / wall time)",
    ]
    if run.lost_seconds:
        most_first = sorted(run.lost_seconds.items(), key=lambda item: -item[1])
        names = (
            {**CAUSE_NAMES, "waiting": "until it was started again"} if is_watched else CAUSE_NAMES
        )
        lost = [f"{names.get(cause, cause)} {output.seconds(s)}" for cause, s in most_first]
        lines.append(f"  lost time   {', '.join(lost)}")
    lines += [f"  steps lost  {summary.steps_lost}", f"  files       {run.folder}"]
    return "\n".join([*lines, "", incidents_table(summary.incidents)])


def _unread(run: RunStatus) -> str:
    """Say that no step is known of a run that may have made some."""
    if run.step or not run.num_attempts:
        return ""
    return ": none was reported, and none read from the output (`stoker docs what_you_get`)"


def _causes(summary: Summary, *, more: str) -> list[str]:
    """Return the evidence for which the run was given up, and what it ended with, and where to read more of an incident.

    The reason alone names no file.
    """
    left_open = [
        f"  open        {incident.fault}: {printable(incident.reason)}{more.format(incident.incident)}"
        for incident in summary.incidents
        if incident.on_trial and incident.closed_at is None
    ]
    return left_open + [
        f"  cause       {printable(incident.evidence[0])}{more.format(incident.incident)}"
        for incident in summary.incidents
        if incident.state == "gave_up" and incident.evidence
    ]


def _wall_seconds(run: RunStatus) -> float | None:
    """Wall time out of the ledger's figures: productive + lost = wall, and ETTR = productive / wall."""
    lost = sum(run.lost_seconds.values())
    if run.ettr_ratio is None:
        return lost or None
    return lost / (1 - run.ettr_ratio) if run.ettr_ratio < 1 else None
