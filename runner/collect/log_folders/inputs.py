"""Inputs: everything that was named, sorted into logs with their origin, curves, flight records, and what is left out."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.collect.log_folders.entries import (
    ADVICE,
    STANDARD_INPUT,
    FoundFile,
    LeftOut,
    find_entries,
    kind_of_special,
)
from runner.collect.log_folders.file_kinds import HEAD_BYTES, is_curve, reason_to_leave
from runner.collect.log_folders.origins import Origin, origins_of
from runner.collect.metric_files.curves import EVENTS


class LogSource(NamedTuple):
    """A log to read: its path ("-": standard input), its bytes (packed), and its writer as far as paths show it."""

    path: str
    size: int
    origin: Origin


@dataclass(slots=True)
class Inputs:
    """What was named, sorted; each list is in the order of the names."""

    logs: list[LogSource] = field(default_factory=list)
    # Files of metrics, and folders of TensorBoard's event files.
    curves: list[str] = field(default_factory=list)
    flights: list[str] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    @property
    def num_bytes(self) -> int:
        """Bytes of all logs, packed as they are."""
        return sum(log.size for log in self.logs)


def find_inputs(
    names: Sequence[str], *, is_flight: Callable[[str], bool] = lambda path: False
) -> Inputs:
    """Sort what was named; nothing raises. `is_flight`: whether the file at a path is a flight record."""
    found = find_entries(names)
    inputs = Inputs(left_out=found.left_out)
    logs: list[FoundFile] = []
    curves: dict[str, None] = {}
    for entry in found.files:
        kind = _kind(entry, inputs.left_out, is_flight)
        if kind == "log":
            logs.append(entry)
        elif kind == "flight":
            inputs.flights.append(entry.path)
        elif kind == "curve":
            is_of_folder = EVENTS in entry.path and not entry.is_named
            curves[os.path.dirname(entry.path) if is_of_folder else entry.path] = None
    inputs.curves = list(curves)
    inputs.logs = _with_origins(logs)
    return inputs


def _kind(entry: FoundFile, left_out: list[LeftOut], is_flight: Callable[[str], bool]) -> str:
    """Return what a file is; "": it is left out."""
    if entry.path == STANDARD_INPUT or (not entry.size and entry.is_named):
        return "log"
    try:
        if kind_of_special(os.stat(entry.path).st_mode):
            return "log" if entry.is_named else ""
        with open(entry.path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        why = f"cannot be read ({error.strerror})" + (f"; {ADVICE}" if entry.is_named else "")
        left_out.append(LeftOut(entry.path, why, is_unread=True))
        return ""
    name = os.path.basename(entry.path)
    if is_curve(name, head):
        return "curve"
    # Text is none; what only looks like one is a log, or binary.
    if head[:1] in (b"\x80", b"{") and is_flight(entry.path):
        return "flight"
    # A file that a person names is read whatever its name is.
    reason = "" if entry.is_named else reason_to_leave(name, head)
    if not head and not entry.is_named:
        reason = "empty"
    if reason:
        left_out.append(LeftOut(entry.path, reason))
        return ""
    return "log"


def _with_origins(entries: Sequence[FoundFile]) -> list[LogSource]:
    """Add origins: of files that were named by what their paths do not share, else below the folder that was named."""
    named = [entry.path for entry in entries if entry.is_named and entry.path != STANDARD_INPUT]
    roots = {entry.path: entry.root for entry in entries if entry.root}
    if len(named) > 1:
        shared = _shared_folder(named)
        roots |= dict.fromkeys(named, shared) if shared else {}
    origins = origins_of([entry.path for entry in entries], roots)
    return [LogSource(entry.path, entry.size, origins[entry.path]) for entry in entries]


def _shared_folder(paths: Sequence[str]) -> str:
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:
        return ""
