"""What a report is about, gathered from its owners, all as of one moment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runner.cli import clusters
from runner.cli.nodes.inventory import state_in
from runner.cli.report.advice import advice
from runner.cli.reports.past import with_progress
from runner.decide.state.cluster_state import Hardware
from runner.errors import StokerError, UserError
from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import ClusterStatus, RunForecast, RunSpending
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.history.forecast import forecast, spending
from runner.history.ledger import Ledger, RunSummary
from runner.history.lineage import LineageRow, lineage
from runner.history.logbook import LogbookEntry, logbook
from runner.history.run_figures import RunFigures, run_figures
from runner.load.deadlines import deadline_seconds
from runner.serve.past import read_past, read_step_history
from runner.steps import StepRow
from runner.store.protocol import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """All of one run at `as_of` (the controller's clock, as all times are). `notes`: what could not be read, and why."""

    cluster: str
    spec: RunSpec
    run: int
    user: str
    state: str
    reason: str
    begun_at: float
    as_of: float
    summary: RunSummary
    figures: RunFigures
    forecast: RunForecast
    spending: RunSpending
    attempts: Sequence[LineageRow]
    interventions: Sequence[LogbookEntry]
    steps: Sequence[StepRow]
    hardware: Sequence[Hardware]
    advice: Sequence[str]
    notes: Sequence[str]


def gather(store: Store, cluster: ClusterSpec, name: str | None) -> RunReport:
    """Gather the report of a run, by its name or number; without one of the only live run, or the newest.

    Raises UserError for an unknown run, and for one whose beginning cannot be read from here.
    """
    status = clusters.require_status(store, cluster)
    run = clusters.newest_run(status, name)
    past = read_past(store, cluster)
    # What the status does not know yet would make its figures others.
    known = status.journal_sequence
    entries = [each for each in with_progress(past.entries) if each.sequence <= known]
    ledger = Ledger()
    for entry in entries:
        ledger.apply(entry)
    if run.run not in ledger.runs:
        raise UserError(
            f"report: the journal that can be read here does not have the beginning of run {run.run} {run.name}; "
            + (past.missing or "run this where its supervisor runs")
        )
    admitted = _admission(entries, run.run)
    spec, summary = admitted.spec, ledger.summary(run.run, status.now)
    figures = run_figures(entries, run.run, spec.cost_rate or None, now=status.now)
    steps, notes = _steps(cluster, run.run)
    expected = forecast(
        ledger.account(run.run),
        now=status.now,
        step=run.step,
        total_steps=run.total_steps,
        deadline=deadline_seconds(spec.deadline),
    )
    used = spending(
        summary,
        spec.world_size,
        rate=spec.cost_rate or None,
        budget=spec.compute_budget or None,
        seconds_left=None if expected.ends_at is None else expected.ends_at - status.now,
    )
    attempts = lineage(entries, run.run)
    book = logbook(entries, run=str(run.run))
    num_checkpoints, num_shortages = _counts(entries, run.run)
    return RunReport(
        cluster=cluster.name,
        spec=spec,
        run=run.run,
        user=admitted.user,
        state=run.state,
        reason=run.reason,
        begun_at=ledger.account(run.run).admitted_at,
        as_of=status.now,
        summary=summary,
        figures=figures,
        forecast=expected,
        spending=used,
        attempts=attempts,
        interventions=[each for each in book.entries if _is_of(each, attempts)],
        steps=steps,
        hardware=_hardware(store, cluster, status, attempts),
        advice=advice(
            figures, cluster, spec, num_checkpoints=num_checkpoints, num_shortages=num_shortages
        ),
        notes=[*([past.missing] if past.missing else []), *notes],
    )


def _admission(entries: Iterable[r.JournalEntry], run: int) -> r.RunAdmitted:
    return next(
        record
        for entry in entries
        for record in entry.records
        if isinstance(record, r.RunAdmitted) and record.run == run
    )


def _steps(cluster: ClusterSpec, run: int) -> tuple[Sequence[StepRow], list[str]]:
    """Return the step history, and why it is not whole; a report without curves is better than none."""
    try:
        history = read_step_history(cluster, run)
    except StokerError:
        return (), [
            "curves: the step history cannot be read here; write the report on the machine of the supervisor"
        ]
    return history.rows, [f"curves: {problem}" for problem in history.damage]


def _is_of(entry: LogbookEntry, attempts: Sequence[LineageRow]) -> bool:
    """Whether an entry is the run's, or, about none, was written while the run went on."""
    if entry.run is not None or not attempts:
        return entry.run is not None
    last = attempts[-1].ended_at
    return attempts[0].planned_at <= entry.at and (last is None or entry.at <= last)


def _counts(entries: Iterable[r.JournalEntry], run: int) -> tuple[int, int]:
    """Return how many checkpoints the run sealed, and how often it began to wait for nodes."""
    paths: dict[str, None] = {}
    num_shortages, before = 0, ""
    for entry in entries:
        for record in entry.records:
            if isinstance(record, r.CheckpointRecorded) and record.run == run:
                paths[record.checkpoint.path] = None
            elif isinstance(record, r.RunChanged) and record.run == run:
                # The first time its nodes only have to be checked.
                num_shortages += record.state == "waiting" and before == "active"
                before = record.state
    return len(paths), num_shortages


def _hardware(
    store: Store, cluster: ClusterSpec, status: ClusterStatus, attempts: Sequence[LineageRow]
) -> list[Hardware]:
    """Return the hardware that is out of service, or had faults, and served this run under any of its names."""
    names = {node for row in attempts for node in row.nodes}
    found = [
        each
        for each in state_in(store, cluster).hardware.values()
        if (each.verdict or each.faults) and names & {*each.node_names}
    ]
    return sorted(found, key=lambda each: (not each.verdict, -len(each.faults)))
