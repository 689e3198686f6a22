"""What was kept with an incident, printed: it came with the signals of the nodes, so it is there on every machine."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from runner.cli import output
from runner.cli.reports.tables import incident_place
from runner.facts.messages.cluster_status import IncidentStatus, RunStatus
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.messages.records import JournalEntry
from runner.facts.wording import join_words, printable
from runner.history.incident_output import IncidentOutput, incident_output

# Characters of a line, as `stoker explain` shows more of one.
MAX_LINE_CHARACTERS = 500


def print_kept(
    entries: Iterable[JournalEntry],
    incident: IncidentStatus,
    runs: Sequence[RunStatus],
    *,
    as_json: bool,
) -> None:
    """Print the lines, last words and stacks of an incident."""
    kept = incident_output(entries, incident.incident, incident.attempt)
    if as_json:
        output.print_json(kept)
        return
    output.print_text("\n".join(kept_text(kept, incident, runs)))


def kept_text(
    kept: IncidentOutput, incident: IncidentStatus, runs: Sequence[RunStatus]
) -> list[str]:
    """Write what was kept with an incident, and where all output of its ranks is."""
    head = f"{incident.incident} {incident.fault} on {incident_place(incident)}"
    lines = [f"{head}, attempt {incident.attempt or '-'}", *_kept_lines(incident, kept)]
    if len(lines) == 1:
        lines.append("no output was kept with it")
    run = next((one for one in runs if one.run == incident.run), None)
    if run is not None and incident.attempt is not None:
        folder = Path(run.folder, "attempts", incident.attempt)
        if incident.rank is not None:
            lines += _files_of(incident.rank, folder, incident.node)
        lines.append(f"all output of its ranks: {folder}, on the nodes that ran them")
    return lines


def _files_of(rank: int, folder: Path, node: str | None) -> Iterator[str]:
    """Name the files of the incident's rank: those that can be read here, else its node and where they are there."""
    files = [folder / f"rank{rank}.{stream}" for stream in ("out", "err")]
    here = [str(path) for path in files if os.access(path, os.R_OK)]
    if here:
        yield f"all that rank {rank} wrote: {', '.join(here)}"
    elif node is not None:
        yield f"all that rank {rank} wrote: on node {printable(node, 60)}, {files[0]} and {files[1].name} there"


def _kept_lines(incident: IncidentStatus, kept: IncidentOutput) -> Iterator[str]:
    found = [
        f"{match.node} {match.file}:{match.line}: {match.text}" for match in kept.lines
    ] or list(incident.cause.lines if incident.cause is not None else ())
    if found:
        yield "lines that show the cause:"
        yield from (f"  {printable(line, MAX_LINE_CHARACTERS)}" for line in found)
    for last in kept.last:
        code = "unknown" if last.exit_code is None else last.exit_code
        yield f"last lines of rank {last.rank} on {last.node} (exit code {code}):"
        yield from (f"  {printable(line, MAX_LINE_CHARACTERS)}" for line in last.text.splitlines())
    for node, stack in kept.stacks:
        yield from _stack_lines(node, stack)


def _stack_lines(node: str, stack: RankStack) -> Iterator[str]:
    ranks = f"ranks {join_words(stack.ranks)}" if len(stack.ranks) > 1 else f"rank {stack.ranks[0]}"
    state = f", state {stack.state}" if stack.state else ""
    yield f"stack of {ranks} on {node}{state}, the innermost frame first:"
    yield from (f"  {printable(frame, MAX_LINE_CHARACTERS)}" for frame in stack.frames)
    if not stack.frames:
        yield f"  no frames of Python; the kernel has it in {printable(stack.wchan) or 'no call'}"
