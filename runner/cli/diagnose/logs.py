"""`stoker diagnose`: the root cause, from any logs of any run; offline, without a cluster or configuration."""

import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, cast

import click

from runner.cli import exit_codes, output
from runner.cli.options import command
from runner.collect.diagnosis import Diagnosis, Log
from runner.collect.scan import BLOCK_BYTES
from runner.errors import UserError
from runner.facts.causes import Verdict

GZIP_MAGIC = b"\x1f\x8b"
PROGRESS_BAR_FROM_BYTES = 64 * 1024 * 1024


@command(
    "stoker diagnose train.log                  one log: the fault, its culprit, and the lines behind it",
    "stoker diagnose logs/rank*.log dmesg.txt   the ranks of one run, and a kernel log beside them",
    "kubectl logs trainer-0 | stoker diagnose - --json",
    "stoker diagnose --metrics metrics.csv      a curve: spikes, divergence, NaN, loss scale, throughput",
    "stoker diagnose --flight nccl_trace_rank_* records of torch's flight recorder: which rank a hang waits for",
    more=exit_codes.HELP,
)
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--json", "as_json", is_flag=True, help="One object a line for each incident, root cause first."
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
    metrics: bool,
    flight: bool,
    ranks: int | None,
    pattern: str | None,
    run_file: str | None,
) -> None:
    """Find the root cause in logs of a run, and show the lines behind it. Several FILES are the ranks of one run.

    A healthy log prints nothing with --json, and ends with 0; with an incident the exit code is 1.
    `-` reads standard input.
    """
    if flight:
        from runner.cli.diagnose.flight import diagnose_flight

        ctx.exit(diagnose_flight(files, as_json=as_json, expected=ranks or 0))
    run = None
    if run_file is not None:
        from runner.load.specs import load_run

        run = load_run(run_file)
    if metrics:
        from runner.cli.diagnose.metrics import diagnose_metrics

        planned = run.planned if run is not None else ()
        ctx.exit(diagnose_metrics(files, as_json=as_json, planned=planned))
    if pattern is None and run is not None:
        pattern = run.metric_pattern or None
    diagnosis = Diagnosis(own_format=pattern)
    num_read, unread = 0, list[str]()
    size = _size(files)
    hidden = not sys.stderr.isatty() or size < PROGRESS_BAR_FROM_BYTES
    with click.progressbar(length=size, label="reading", file=sys.stderr, hidden=hidden) as bar:
        for name in files:
            log = diagnosis.log(name)
            try:
                for block in _blocks(name):
                    log.feed(block)
                    bar.update(len(block))
                    if log.is_binary:
                        break
            except UserError as error:
                # What was read until then counts, and so do the other files.
                unread.append(str(error))
                if not log.num_bytes:
                    diagnosis.logs.remove(log)
                    continue
            log.finish()
            num_read += not log.is_binary
    # Logs hold characters that a terminal may not be able to show.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    for warning in (*unread, *diagnosis.warnings):
        output.print_note(f"stoker: {warning}")
    verdicts = diagnosis.verdicts()
    if as_json:
        for verdict in verdicts:
            output.print_text(json.dumps(as_object(verdict)))
    else:
        _print_verdicts(verdicts, diagnosis.logs, is_whole=not unread)
    if not num_read or (unread and not verdicts):
        # An unread log is not healthy.
        ctx.exit(exit_codes.BAD_INPUT)
    ctx.exit(exit_codes.FAILED if verdicts else exit_codes.DONE)


def as_object(verdict: Verdict) -> dict[str, object]:
    """Return a verdict as programs read it."""
    cause, culprit = verdict.cause, verdict.cause.culprit
    return {
        "fault": cause.fault,
        "scope": cause.scope,
        "culprit": None if culprit is None else {"kind": culprit.kind, "id": culprit.id},
        "confidence": cause.confidence,
        "evidence": [
            {"file": match.file, "line": match.line, "text": match.text}
            for match in verdict.evidence
        ],
        "action_class": cause.action_class,
        **({"template": cause.template} if cause.template else {}),
    }


def _print_verdicts(verdicts: Sequence[Verdict], logs: Sequence[Log], *, is_whole: bool) -> None:
    """Print verdicts for people. `is_whole`: every file was read to its end."""
    if not any(log.num_bytes and not log.is_binary for log in logs):
        output.print_text("nothing was read")
        return
    read = sum(log.num_bytes for log in logs)
    what = f"{len(logs)} file{'s' * (len(logs) != 1)}, {read / 1e6:,.1f} MB"
    if not verdicts:
        where = what if is_whole else f"what could be read: {what}"
        output.print_text(f"no incident found in {where}")
        return
    for number, verdict in enumerate(verdicts):
        cause, culprit = verdict.cause, verdict.cause.culprit
        whose = f", {culprit.kind} {culprit.id}" if culprit is not None else ""
        sure = f"{cause.confidence:.0%} sure"
        head = f"{cause.fault}{whose} ({sure}; scope {cause.scope}; wants: {cause.action_class})"
        output.print_text(("" if number == 0 else "besides: ") + head)
        for match in verdict.evidence:
            rank = f" rank {match.rank}" if match.rank is not None else ""
            output.print_text(f"  {match.file}:{match.line}{rank}: {match.text.strip()[:160]}")
    output.print_text(f"from {what}")


def _blocks(name: str) -> Iterator[bytes]:
    """Yield the bytes of a file (`-`: standard input); what gzip packed is unpacked. Raises UserError when it cannot be read."""
    try:
        with closing(_opened(name)) as file:
            while block := file.read(BLOCK_BYTES):
                yield block
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            f"{name}: cannot be read ({why}); give the path of a log, or - for standard input"
        ) from error


def _opened(name: str) -> BinaryIO:
    if name == "-":
        return sys.stdin.buffer
    file = open(name, "rb")  # noqa: SIM115 - the caller closes it
    if file.peek(2)[:2] == GZIP_MAGIC:
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    return file


def _size(files: Sequence[str]) -> int:
    paths = [Path(name) for name in files if name != "-"]
    return sum(path.stat().st_size for path in paths if path.is_file())
