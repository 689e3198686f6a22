"""What was read of everything that was named, and notes on standard error: what was not read and why, and defects."""

from collections.abc import Sequence
from dataclasses import dataclass

from runner.cli import output
from runner.cli.diagnose.verdict_text import escaped
from runner.collect.log_folders.entries import LeftOut, by_reason
from runner.collect.log_folders.incidents import CurveFindings, LaunchIncident
from runner.collect.log_folders.inputs import LogSource
from runner.collect.log_folders.readers import ReadLog

# Paths that one note names, and notes of one kind; chosen.
MAX_PATHS, MAX_NOTES = 3, 20


@dataclass(frozen=True, slots=True)
class Result:
    """What was read. `errors`: files that were not read, or not to their end."""

    logs: Sequence[tuple[LogSource, ReadLog]]
    curves: CurveFindings
    # Hangs that flight records show, the number of record files, and notes about them.
    hangs: Sequence[LaunchIncident]
    num_records: int
    flight_notes: Sequence[str]
    errors: Sequence[str]
    notes: Sequence[str]

    @property
    def num_read(self) -> int:
        """Texts that were read."""
        return sum(not read.log.is_binary for _, read in self.logs)

    @property
    def is_whole(self) -> bool:
        """Whether every byte of every log was read."""
        return not self.errors and all(read.is_whole for _, read in self.logs)

    @property
    def num_bytes(self) -> int:
        """Bytes of text that were read."""
        return sum(read.log.num_bytes for _, read in self.logs)


def unread(left_out: Sequence[LeftOut]) -> list[LeftOut]:
    """Return what may hold a log and could not be read."""
    return [one for one in left_out if one.is_unread]


def print_notes(result: Result) -> None:
    """Print errors, what of logs was not read, and defects of what was read."""
    for note in (*result.errors[:MAX_NOTES], *result.notes[:MAX_NOTES]):
        output.print_note(f"stoker: {escaped(note)}")
    for name, num in (("errors", len(result.errors)), ("notes", len(result.notes))):
        if num > MAX_NOTES:
            output.print_note(f"stoker: and {num - MAX_NOTES} more {name}")
    defects: dict[str, list[str]] = {}
    for source, read in result.logs:
        for warning in read.log.warnings:
            defects.setdefault(warning, []).append(source.path)
    for warning, paths in defects.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        output.print_note(f"stoker: {escaped(paths[0])}{more}: {warning}")
    for warning in (*result.curves.warnings[:MAX_NOTES], *result.flight_notes[:MAX_NOTES]):
        output.print_note(f"stoker: {escaped(warning)}")


def print_left_out(left_out: Sequence[LeftOut]) -> None:
    """Print which paths cannot be read, and by reason what is left out."""
    for one in unread(left_out)[:MAX_NOTES]:
        output.print_note(f"stoker: {escaped(one.path)}: {one.reason}")
    if (more := len(unread(left_out)) - MAX_NOTES) > 0:
        output.print_note(f"stoker: and {more} more that cannot be read")
    for reason, paths in by_reason(one for one in left_out if not one.is_unread).items():
        named = ", ".join(escaped(path) for path in paths[:MAX_PATHS])
        more_paths = f" and {len(paths) - MAX_PATHS} more" if len(paths) > MAX_PATHS else ""
        output.print_note(f"stoker: left out, {reason}: {named}{more_paths}")
