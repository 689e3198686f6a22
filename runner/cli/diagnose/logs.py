"""`stoker diagnose`: the root cause, from any logs of any run; offline, without a cluster or configuration."""

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import click

from runner.cli import exit_codes, output
from runner.cli.diagnose import timeline, verdict_text
from runner.cli.diagnose.notes import Result, print_left_out, print_notes, unread
from runner.cli.options import command
from runner.collect.flight_records.record_files import is_flight_record
from runner.collect.log_folders.flight_incidents import SIGNATURE, judge_records, merged
from runner.collect.log_folders.incidents import LaunchIncident, judge, read_curves
from runner.collect.log_folders.inputs import Inputs, LogSource, find_inputs
from runner.collect.log_folders.readers import ReadLog, SourceReader, max_repeats, read_here
from runner.collect.log_folders.worker_processes import num_workers, read_with_workers
from runner.facts.causes import Verdict
from runner.facts.specs.planned_changes import PlannedChange
from runner.facts.wording import counted

PROGRESS_BAR_FROM_BYTES = 64 * 1024 * 1024


@command(
    "stoker diagnose train.log                  one log: the fault, its culprit, and the line that shows it",
    "stoker diagnose logs/                      a folder: of Slurm, torchrun, kubectl, Ray or Stoker; finds what is what",
    "stoker diagnose logs/rank*.log dmesg.txt   the ranks of one run, and a kernel log beside them",
    "stoker diagnose logs/ --timeline           when what began, stepped, failed and ended, over all files",
    "kubectl logs trainer-0 | stoker diagnose - --json",
    "stoker diagnose --metrics metrics.csv      a curve: spikes, divergence, NaN, loss scale, throughput",
    "stoker diagnose --flight nccl_trace_rank_* records of torch's flight recorder: which rank a hang waits for",
    more=exit_codes.HELP,
)
@click.argument("files", nargs=-1, required=True, metavar="FILES...")
@click.option(
    "--json", "as_json", is_flag=True, help="One object a line for each incident, root cause first."
)
@click.option("--evidence", "with_evidence", is_flag=True, help="All lines behind each verdict.")
@click.option(
    "--timeline", "with_timeline", is_flag=True, help="What all files say, in the order of time."
)
@click.option(
    "--metrics",
    is_flag=True,
    help="FILES are metrics: CSV, JSON lines or a folder of TensorBoard events.",
)
@click.option(
    "--flight",
    is_flag=True,
    help="FILES are records of torch's flight recorder, pickles or JSON, named by rank; or a folder of them.",
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --flight: how many ranks the run had, where the records do not show it.",
)
@click.option(
    "--pattern",
    metavar="REGEX",
    help="How your trainer writes a step, with groups named step, loss, grad_norm, lr, loss_scale, tokens_per_second.",
)
@click.option(
    "--run",
    "run_file",
    metavar="RUN.YAML",
    help="The run's own file: its `planned` changes are no findings, its `metric_pattern` is known.",
)
@click.pass_context
def diagnose(  # noqa: PLR0913 - click hands over each option
    ctx: click.Context,
    files: tuple[str, ...],
    *,
    as_json: bool,
    with_evidence: bool,
    with_timeline: bool,
    metrics: bool,
    flight: bool,
    ranks: int | None,
    pattern: str | None,
    run_file: str | None,
) -> None:
    """Find the root cause in logs of a run. FILES are files or folders of one run; `-` reads standard input.

    In a folder it finds what are logs of ranks, kernel logs and metrics, and says what it leaves out. Ranks, nodes and attempts
    are known by the lines and by the paths. Packed files (gz, bz2, xz, zst) are read.

    A healthy log prints nothing with --json, and ends with 0; with an incident the exit code is 1.
    """
    if flight:
        from runner.cli.diagnose.flight import diagnose_flight

        ctx.exit(diagnose_flight(files, as_json=as_json, expected=ranks or 0))
    run = None
    if run_file is not None:
        from runner.load.specs import load_run

        run = load_run(run_file)
    planned = run.planned if run is not None else ()
    if pattern is None and run is not None:
        pattern = run.metric_pattern or None
    inputs = Inputs() if metrics else find_inputs(files, is_flight=is_flight_record)
    is_lone_curve = inputs.curves and not (inputs.logs or inputs.flights)
    only_curves = is_lone_curve and not unread(inputs.left_out)
    if metrics or only_curves:
        from runner.cli.diagnose.metrics import diagnose_metrics

        names = files if metrics else inputs.curves
        print_left_out(inputs.left_out)
        ctx.exit(diagnose_metrics(names, as_json=as_json, planned=planned))
    # Logs hold characters that a terminal may not be able to show.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    result = _read(inputs, pattern, planned)
    incidents = judge([(source, read.log) for source, read in result.logs], result.curves)
    incidents = merged(incidents, result.hangs)
    print_left_out(inputs.left_out)
    print_notes(result)
    if as_json:
        for incident in incidents:
            output.print_text(json.dumps(as_object(incident)))
    else:
        is_whole = not unread(inputs.left_out) and result.is_whole
        _print_incidents(incidents, result, is_whole=is_whole, with_evidence=with_evidence)
    if with_timeline:
        _print_timeline(result.logs, as_json=as_json)
    ctx.exit(_exit_code(incidents, inputs, result))


def as_object(incident: LaunchIncident) -> dict[str, object]:
    """Return an incident as programs read it."""
    verdict = incident.verdict
    cause, culprit = verdict.cause, verdict.cause.culprit
    return {
        "fault": cause.fault,
        "scope": cause.scope,
        "culprit": None if culprit is None else {"kind": culprit.kind, "id": culprit.id},
        **({"culprits": _culprit_ranks(verdict)} if len(_culprit_ranks(verdict)) > 1 else {}),
        "node": cause.node,
        **({"local_rank": incident.local_rank} if incident.local_rank is not None else {}),
        "confidence": cause.confidence,
        "known_by": verdict.evidence[0].known_by,
        "evidence": [
            {"file": match.file, "line": match.line, "text": match.text}
            for match in verdict.evidence
        ],
        "action_class": cause.action_class,
        "recovered": verdict.recovered,
        **({"launch": incident.launch_name} if incident.launch_name else {}),
        **({"template": cause.template} if cause.template else {}),
    }


def _culprit_ranks(verdict: Verdict) -> list[dict[str, str]]:
    """Return the ranks that flight records name: there may be several."""
    return [
        {"kind": "rank", "id": str(match.rank)}
        for match in verdict.evidence
        if match.signature == SIGNATURE and match.rank is not None
    ]


# ---- reading


def _read(inputs: Inputs, pattern: str | None, planned: Sequence[PlannedChange]) -> Result:
    reader = SourceReader(own_format=pattern, repeats=max_repeats(len(inputs.logs)))
    workers = num_workers(len(inputs.logs), inputs.num_bytes)
    with _progress(inputs.num_bytes) as on_bytes:
        if workers > 1:
            found = read_with_workers(inputs.logs, reader, on_bytes, workers)
        else:
            found = list(read_here(inputs.logs, reader, on_bytes))
    read = list(zip(inputs.logs, found, strict=True))
    # What was read until an error counts.
    kept = [(source, one) for source, one in read if one.log.num_bytes or not one.error]
    hangs, flight_notes, flight_errors = judge_records(inputs.flights)
    return Result(
        logs=kept,
        curves=read_curves(inputs.curves, planned),
        hangs=hangs,
        num_records=len(inputs.flights),
        errors=[one.error for _, one in read if one.error] + flight_errors,
        notes=[note for _, one in read for note in one.notes],
        flight_notes=flight_notes,
    )


@contextmanager
def _progress(num_bytes: int) -> Iterator[Callable[[int], None]]:
    hidden = not sys.stderr.isatty() or num_bytes < PROGRESS_BAR_FROM_BYTES
    with click.progressbar(
        length=num_bytes, label="reading", file=sys.stderr, hidden=hidden
    ) as bar:
        yield bar.update


def _exit_code(incidents: Sequence[LaunchIncident], inputs: Inputs, result: Result) -> int:
    is_unread = bool(result.errors or unread(inputs.left_out))
    is_nothing_read = not (result.num_read or result.num_records or result.curves.num_samples)
    if is_nothing_read or (is_unread and not incidents):
        # An unread log is not healthy.
        return exit_codes.BAD_INPUT
    return exit_codes.FAILED if incidents else exit_codes.DONE


# ---- printing


def _print_incidents(
    incidents: Sequence[LaunchIncident], result: Result, *, is_whole: bool, with_evidence: bool
) -> None:
    """Print the verdicts for people, and what they are based on."""
    if not (result.num_bytes or result.curves.num_samples or result.num_records):
        output.print_text("nothing was read")
        return
    what = f"{counted(len(result.logs), 'file')}, {result.num_bytes / 1e6:,.1f} MB"
    if result.curves.num_samples:
        what += f", and {result.curves.num_samples:,} samples of metrics"
    if result.num_records:
        what += f", and {counted(result.num_records, 'flight record')}"
    if not is_whole:
        what = f"what could be read: {what}"
    if not incidents:
        output.print_text(f"no incident found in {what}")
        return
    for line in verdict_text.lines_of(incidents, with_evidence=with_evidence):
        output.print_text(line)
    output.print_text(f"from {what}")


def _print_timeline(logs: Sequence[tuple[LogSource, ReadLog]], *, as_json: bool) -> None:
    entries = timeline.timeline(logs)
    if as_json:
        for entry in entries:
            output.print_text(json.dumps(timeline.as_object(entry)))
        return
    output.print_text()
    for line in timeline.printed(entries):
        output.print_text(line)
