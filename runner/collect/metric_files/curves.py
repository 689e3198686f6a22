"""Metric files as step records: CSV, JSON (lines, a list, Trainer's log history), and folders of TensorBoard events.

Files of any origin are read. Unreadable parts are left out with one warning for each kind and its
first place; nothing raises. Only samples of a file without steps are numbered here.
"""

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from runner.collect.metric_files.columns import Columns, FileWarnings, Sample
from runner.collect.metric_files.tensorboard import EventsDamaged, Scalar, scalars

__all__ = ["Curve", "Sample", "curves_in"]

# All chosen. The head shows a file's form; a document is JSON that is no list of lines.
HEAD_CHARACTERS = 64 << 10
MAX_LINE_CHARACTERS = 1 << 20
MAX_DOCUMENT_BYTES = 256 << 20
MAX_DEPTH = 3
# It is part of the name of every TensorBoard file.
EVENTS = "tfevents"
DELIMITERS = (",", "\t", ";")


class Curve:
    """One file, or the event files of one folder. `samples` reads it once; `columns` and `warnings` are complete after that."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._warnings = FileWarnings()
        self._columns = Columns(self._warnings)
        self.num_samples = 0

    @property
    def columns(self) -> dict[str, str]:
        """Return field -> its column, key or tag."""
        return dict(self._columns.names)

    @property
    def all_columns(self) -> list[str]:
        """Return all columns, keys and tags, those without a meaning, too."""
        return list(self._columns.all_names)

    @property
    def warnings(self) -> list[str]:
        """Return the defects, each kind once."""
        return self._warnings.sentences()

    def samples(self) -> Iterator[Sample]:
        """Read in the order of the file; a defect becomes a warning."""
        try:
            for sample in self._read():
                self.num_samples += 1
                yield sample
        except (OSError, csv.Error, RecursionError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            what = (
                f"cannot be read on ({reason})"
                if self.num_samples
                else f"cannot be read ({reason}); give the path of a CSV or JSON-lines file, or a folder of TensorBoard events"
            )
            self._warnings.add(what)
        if not self.num_samples and not self.warnings:
            self._warnings.add("holds no metric that is known: name columns step, loss, grad_norm")

    def _read(self) -> Iterator[Sample]:
        if self.path.is_dir() or EVENTS in self.path.name:
            yield from self._read_events()
            return
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            head = stream.read(HEAD_CHARACTERS)
            if not head.strip():
                self._warnings.add("is empty")
            elif "\0" in head.lstrip().split("\n", 1)[0]:
                self._warnings.add("is no text: give CSV, JSON lines or TensorBoard events")
            else:
                stream.seek(0)
                is_json = head.lstrip()[0] in "{["
                yield from self._read_json(stream, head) if is_json else self._read_csv(stream)

    def _read_csv(self, stream: TextIO) -> Iterator[Sample]:
        """Read rows below a line of names."""
        lines = self._lines(stream)
        number, header = next(lines, (0, ""))
        delimiter = max(DELIMITERS, key=header.count)
        if delimiter not in header and len(header.split()) > 1:
            delimiter = " "
        names = _cells(header, delimiter)
        if all(_is_number(name) for name in names):
            kind = "has no line of names: write one, such as step,loss,grad_norm, above the numbers"
            self._warnings.add(kind, f"line {number}")
            return
        self._columns.add_names(names, f"line {number}")
        for number, line in lines:
            cells = _cells(line, delimiter)
            where = f"line {number}"
            if len(cells) != len(names):
                if cells != names:
                    kind = (
                        f"a line does not have the {len(names)} columns of the first one, left out"
                    )
                    self._warnings.add(kind, where)
                continue
            # A resumed run wrote the names again.
            if cells == names:
                continue
            sample = self._columns.sample(dict(zip(names, cells, strict=True)), where)
            if sample is not None:
                yield sample

    def _lines(self, stream: TextIO) -> Iterator[tuple[int, str]]:
        """Return numbered lines that are neither empty nor comments."""
        for number in itertools.count(1):
            line = stream.readline(MAX_LINE_CHARACTERS)
            if not line:
                return
            if len(line) == MAX_LINE_CHARACTERS and not line.endswith("\n"):
                self._warnings.add(
                    f"a line is longer than {MAX_LINE_CHARACTERS} characters", f"line {number}"
                )
                while line and not line.endswith("\n"):
                    line = stream.readline(MAX_LINE_CHARACTERS)
                continue
            if "\0" in line or "\ufffd" in line:
                self._warnings.add("a line is no text, left out", f"line {number}")
            elif line.strip() and not line.lstrip().startswith("#"):
                yield number, line.rstrip("\r\n")

    def _read_json(self, stream: TextIO, head: str) -> Iterator[Sample]:
        """Read objects: one a line, or the list in one document."""
        rows = self._json_document if _is_document(head) else self._json_lines
        for where, row in rows(stream):
            sample = self._columns.sample(dict(_flat(row)), where)
            if sample is not None:
                yield sample

    def _json_document(self, stream: TextIO) -> Iterator[tuple[str, Mapping[str, Any]]]:
        try:
            document = json.loads(stream.read(MAX_DOCUMENT_BYTES))
        except ValueError as error:
            self._warnings.add(f"is no JSON: {error}")
            return
        for number, row in enumerate(_rows_of(document), 1):
            yield f"entry {number}", row

    def _json_lines(self, stream: TextIO) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for number, line in self._lines(stream):
            where = f"line {number}"
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                self._warnings.add("a line is no JSON, left out", where)
                continue
            if isinstance(row, dict):
                yield where, row
            else:
                self._warnings.add("a line is no JSON object, left out", where)

    def _read_events(self) -> Iterator[Sample]:
        """Read the event files of one folder, oldest first: a run that was resumed has written several."""
        files = [self.path]
        if self.path.is_dir():
            files = sorted(path for path in self.path.iterdir() if EVENTS in path.name)
            if not files:
                self._warnings.add(
                    "is a folder without TensorBoard event files: name the metric file itself"
                )
        for path in files:
            for step, group in itertools.groupby(self._scalars(path), key=lambda one: one.step):
                row: dict[str, Any] = {"step": step}
                for scalar in group:
                    row.setdefault(scalar.tag, scalar.value)
                sample = self._columns.sample(row, f"{path.name}, step {step}")
                if sample is not None:
                    yield sample

    def _scalars(self, path: Path) -> Iterator[Scalar]:
        try:
            with path.open("rb") as stream:
                yield from scalars(stream)
        except EventsDamaged as error:
            self._warnings.add(f"is damaged, and read up to there: {error}", path.name)


def curves_in(path: Path) -> list[Curve]:
    """Return the curve of a file, or one for each folder below this one that holds event files."""
    if not path.is_dir():
        return [Curve(path)]
    folders = {file.parent: True for file in sorted(path.rglob(f"*{EVENTS}*")) if file.is_file()}
    return [Curve(folder) for folder in folders] or [Curve(path)]


def _cells(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    return [cell.strip() for cell in next(csv.reader(io.StringIO(line), delimiter=delimiter), [])]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return not text
    return True


def _is_document(head: str) -> bool:
    """Whether a file is one JSON document, and not an object a line."""
    if head.lstrip()[0] == "[":
        return True
    first = head.lstrip().split("\n", 1)[0]
    try:
        row = json.loads(first)
    except ValueError:
        # Pretty-printed, its first line is a bracket and perhaps a name.
        return re.fullmatch(r'\{\s*("[^"]*"\s*:\s*[^,}]*,?\s*)?', first) is not None
    return isinstance(row, dict) and "log_history" in row


def _rows_of(document: Any) -> list[Mapping[str, Any]]:
    """Return the longest list of objects in a document, or the document itself."""
    if isinstance(document, dict):
        lists = [_rows_of(value) for value in document.values() if isinstance(value, list)]
        return max(lists, key=len, default=[document]) or [document]
    if isinstance(document, list):
        return [row for row in document if isinstance(row, dict)]
    return []


def _flat(row: Mapping[str, Any], before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Name values of nested objects as dashboards do: train/loss."""
    for name, value in row.items():
        if isinstance(value, Mapping) and depth < MAX_DEPTH:
            yield from _flat(value, f"{before}{name}/", depth + 1)
        elif not isinstance(value, list | Mapping):
            yield before + str(name), value
