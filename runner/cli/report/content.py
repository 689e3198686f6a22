"""What a report is about, gathered from its owners, all as of one moment."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runner.cli import clusters
from runner.cli.nodes.inventory import state_in
from runner.cli.report.advice import advice
from runner.cli.reports.past import with_progress
from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import Hardware, State
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
from runner.journal.copies import read_copy
from runner.load.deadlines import deadline_seconds
from runner.serve.past import read_past, read_step_history
from runner.steps import StepRow, folder_beside, load
from runner.store.protocol import Store
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """What a report is made of. `hardware`: of the whole cluster, `missing`: which entries cannot be read, and why."""

    cluster: ClusterSpec
    status: ClusterStatus
    entries: Sequence[r.JournalEntry]
    hardware: Iterable[Hardware]
    steps: Callable[[int], tuple[Sequence[StepRow], list[str]]]
    missing: Sequence[str] = ()


def gather(store: Store, cluster: ClusterSpec, name: str | None) -> RunReport:
    """Gather the report of a run, by its name or number; without one of the only live run, or the newest.

    Raises UserError for an unknown run, and for one whose beginning cannot be read from here.
    """
    status = clusters.require_status(store, cluster)
    past = read_past(store, cluster)
    # What the status does not know yet would make its figures others.
    known = status.journal_sequence
    sources = _Sources(
        cluster=cluster,
        status=status,
        entries=[each for each in with_progress(past.entries) if each.sequence <= known],
        hardware=state_in(store, cluster).hardware.values(),
        steps=partial(_steps, cluster),
        missing=[past.missing] if past.missing else [],
    )
    return _gathered(sources, name)


def gather_copy(copy: Path, name: str | None) -> RunReport:
    """Gather the same of a journal that was copied elsewhere, as of its last entry: its status is made as a supervisor makes it.

    Raises UserError as `gather`, and for a copy without the beginning of the journal.
    """
    cluster, missing = clusters.spec_of_copy(copy), list[str]()
    if cluster is None:
        cluster = ClusterSpec(name="")
        missing = [
            "the copy has no cluster.yaml: advice about spares is by its defaults; copy the whole state folder for better"
        ]
    entries = list(with_progress(read_copy(copy)))
    if not entries or entries[0].sequence != 1:
        first = f"begins with entry {entries[0].sequence}" if entries else "has no entry"
        raise UserError(
            f"--journal: {copy} {first}; a report needs the journal from its first entry: copy the whole state folder"
        )
    state, ledger = State(), Ledger(bounded=True)
    for entry in entries:
        apply_entry(state, entry)
        ledger.apply(entry)
    now = entries[-1].now
    builder = StatusBuilder(state, cluster, ledger, LastHeartbeats(), now)
    sources = _Sources(
        cluster=cluster,
        status=builder.status(now, {"wall": now}),
        entries=entries,
        hardware=state.hardware.values(),
        steps=partial(_copied_steps, copy),
        missing=missing,
    )
    return _gathered(sources, name)


def _gathered(sources: _Sources, name: str | None) -> RunReport:
    cluster, status, entries = sources.cluster, sources.status, sources.entries
    run, ledger = clusters.newest_run(status, name), Ledger()
    for entry in entries:
        ledger.apply(entry)
    if run.run not in ledger.runs:
        raise UserError(
            f"report: the journal that can be read here does not have the beginning of run {run.run} {run.name}; "
            + ("; ".join(sources.missing) or "run this where its supervisor runs")
        )
    admitted = _admission(entries, run.run)
    spec, summary = admitted.spec, ledger.summary(run.run, status.now)
    figures = run_figures(entries, run.run, spec.cost_rate or None, now=status.now)
    steps, notes = sources.steps(run.run)
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
        hardware=_hardware(sources.hardware, attempts),
        advice=advice(
            figures, cluster, spec, num_checkpoints=num_checkpoints, num_shortages=num_shortages
        ),
        notes=[*sources.missing, *notes],
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


def _copied_steps(copy: Path, run: int) -> tuple[Sequence[StepRow], list[str]]:
    """Return the step history that was copied with the files of the journal."""
    for folder in (copy / "journal", copy.parent / "journal", copy, copy.parent):
        if (folder_beside(folder) / str(run)).is_dir():
            history = load(folder_beside(folder), run)
            return history.rows, [f"curves: {problem}" for problem in history.damage]
    return (), [
        "curves: the copy has no step history; copy the folder `journal` of the state folder, too"
    ]


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


def _hardware(known: Iterable[Hardware], attempts: Sequence[LineageRow]) -> list[Hardware]:
    """Return the hardware that is out of service, or had faults, and served this run under any of its names."""
    names = {node for row in attempts for node in row.nodes}
    found = [each for each in known if (each.verdict or each.faults) and names & {*each.node_names}]
    return sorted(found, key=lambda each: (not each.verdict, -len(each.faults)))
