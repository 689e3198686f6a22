"""The files of histories: a leader's own to append to, all to read, and the step that makes one small file of many."""

import contextlib
import os
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from runner.atomic_files import sync_folder, write_atomically
from runner.folder_modes import SHARED, make_folder
from runner.steps.blocks import (
    MAX_HEAD_BYTES,
    VERSION,
    StepsHead,
    decode,
    encode_blocks,
    encode_head,
)
from runner.steps.buckets import FINE_ROWS, MAX_ROWS, bounded
from runner.steps.rows import COLUMNS, MAX_STEP, Packed, StepRow, packed, unpacker

SUFFIX = ".steps"
FOLDER = "steps"
# Leaders change; past that their files become one. Chosen.
MAX_FILES = 16
# Configuration, restart, step.
_BY_ATTEMPT_AND_STEP = itemgetter(2, 3, 0)
# A reader whose file another process replaces meanwhile lists the folder again this often; chosen.
_LOOKS = 5

T = TypeVar("T")


def folder_beside(journal_folder: Path) -> Path:
    """Return the folder of all runs' histories, given that of the journal's files."""
    return journal_folder / FOLDER


class History(NamedTuple):
    """What was read of one run: rows by attempt and step, one for each step of an attempt, and in words what is damaged."""

    rows: list[StepRow]
    damage: tuple[str, ...]


def read(
    folder: Path, run: int, first: int | None = None, last: int | None = None
) -> list[StepRow]:
    """Return the rows of a run's steps `first` to `last`, both included, ordered by attempt, then by step.

    Several attempts may have the same step: `contributing` tells which is part of the run's state. What is damaged is left out;
    a run without a history has no rows. Raises OSError for a folder that cannot be read.
    """
    return load(folder, run, first, last).rows


def read_newest(folder: Path, run: int, num_rows: int) -> list[StepRow]:
    """Return the newest rows of a run, at most about so many, ordered by attempt, then by step: none of them is thinned.

    Raises OSError for a folder that cannot be read.
    """
    count = min(num_rows, FINE_ROWS)
    rows = _looked(lambda: _load_newest(folder / str(run), count))
    unpack = unpacker(run)
    return [unpack(row) for row in sorted(rows, key=_BY_ATTEMPT_AND_STEP)]


def load(folder: Path, run: int, first: int | None = None, last: int | None = None) -> History:
    """Return the same, and what is damaged."""
    found = _load_packed(folder / str(run), first or 0, MAX_STEP if last is None else last)
    unpack = unpacker(run)
    ordered = sorted(found.rows, key=_BY_ATTEMPT_AND_STEP)
    return History([unpack(row) for row in ordered], found.damage)


class _Found(NamedTuple):
    """`names`: of the files that this release can read."""

    rows: list[Packed]
    damage: tuple[str, ...]
    names: list[str]
    width: int


def _load_packed(folder: Path, first: int, last: int, *, token: int | None = None) -> _Found:
    """Read all files of leaders up to this one; a row of a later file replaces the same step's of an earlier one."""
    return _looked(lambda: _load_once(folder, first, last, token))


def _looked(load_once: Callable[[], T]) -> T:
    """Return what is loaded; a file that a leader made one of with others, meanwhile, is looked for again."""
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):
            return load_once()
    return load_once()


def _load_newest(folder: Path, count: int) -> list[Packed]:
    """Read files from the newest one back, until there are so many rows: at the end of each file, they are whole."""
    heads = {name: _read_head(folder / name) for name in _names(folder)}
    admitted_at = max((head.admitted_at for head in heads.values() if head), default=0.0)
    rows: dict[tuple[float, float, float], Packed] = {}
    for name, head in reversed(heads.items()):
        if len(rows) >= count:
            break
        if head is None or head.admitted_at != admitted_at:
            continue
        one = decode((folder / name).read_bytes(), 0, MAX_STEP, newest=count - len(rows))
        for row in reversed(one.rows):
            rows.setdefault((row[2], row[3], row[0]), row)
    return list(rows.values())[:count]


def _read_head(path: Path) -> StepsHead | None:
    with path.open("rb") as file:
        return decode(file.read(MAX_HEAD_BYTES), 0, 0, newest=0).head


def _load_once(folder: Path, first: int, last: int, token: int | None) -> _Found:
    names = [name for name in _names(folder) if token is None or _token_of(name) <= token]
    contents = {name: decode((folder / name).read_bytes(), first, last) for name in names}
    damage = [f"{folder / name}: {one.damage}" for name, one in contents.items() if one.damage]
    readable = {name: one for name, one in contents.items() if one.head is not None}
    heads = [one.head for one in readable.values() if one.head is not None]
    # Another run had this number, before the store was rolled back.
    admitted_at = max((head.admitted_at for head in heads), default=0.0)
    rows: dict[tuple[float, float, float], Packed] = {}
    width = 1
    for one in readable.values():
        if one.head is not None and one.head.admitted_at == admitted_at:
            width = max(width, one.head.width)
            for row in one.rows:
                rows[row[2], row[3], row[0]] = row
    return _Found(list(rows.values()), tuple(damage), list(readable), width)


def _names(folder: Path) -> list[str]:
    """Return the files of a run, oldest first; none of a run without a history."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(name for name in names if name.endswith(SUFFIX) and _token_of(name) >= 0)


def _token_of(name: str) -> int:
    token = name.partition("-")[0]
    return int(token) if token.isascii() and token.isdecimal() else -1


class RunFiles:
    """The history of one run as one leader writes it. One thread calls it; OSError means that nothing, or a part, was written."""

    def __init__(self, folder: Path, *, run: int, run_name: str, admitted_at: float, token: int):
        self.folder = folder / str(run)
        self._head = StepsHead(
            version=VERSION,
            run=run,
            run_name=run_name,
            admitted_at=admitted_at,
            token=token,
            columns=COLUMNS,
        )
        self._token = token
        # The file of ours that is appended to, and the bytes of it that are whole.
        self._path: Path | None = None
        self._whole_bytes = 0
        # Rows in all files, counted when the first are appended; more than there are, if steps are in several.
        self._num_rows: int | None = None

    def append(self, rows: Sequence[StepRow]) -> None:
        """Append rows as one block. Raises OSError: then they are not in the file, and may be appended again."""
        if not rows:
            return
        if self._num_rows is None:
            self._count()
        block = encode_blocks([packed(row) for row in rows])
        if self._path is not None:
            try:
                self._extend(self._path, block)
            except FileNotFoundError:
                # A later leader made one file of several: this one is not the leader any more.
                self._path = None
        if self._path is None:
            path = self._next_path()
            self._whole_bytes = 0
            self._extend(path, encode_head(self._head) + block, flags=os.O_CREAT | os.O_EXCL)
            self._path = path
        self._num_rows = (self._num_rows or 0) + len(rows)

    @property
    def is_thick(self) -> bool:
        """Whether `compact` is due."""
        return (self._num_rows or 0) > MAX_ROWS

    def compact(self) -> None:
        """Make one file of all files of this leader and those before, thinned if there are many rows.

        A crash leaves some rows twice, which readers count once, or a file that no reader looks at.
        """
        found = _load_packed(self.folder, 0, MAX_STEP, token=self._token)
        rows, width = sorted(found.rows, key=lambda row: row[1]), found.width
        if len(rows) > MAX_ROWS:
            rows, width = bounded(rows, width)
        if rows:
            head = replace(self._head, width=width)
            write_atomically(self._next_path(), encode_head(head) + encode_blocks(rows))
        for name in found.names:
            (self.folder / name).unlink(missing_ok=True)
        sync_folder(self.folder)
        self._path, self._num_rows = None, len(rows)

    def _count(self) -> None:
        """Learn what is there; make one file of too many."""
        make_folder(self.folder, SHARED)
        found = _load_packed(self.folder, 0, MAX_STEP)
        self._num_rows = len(found.rows)
        if len(found.names) > MAX_FILES:
            self.compact()

    def _extend(self, path: Path, data: bytes, *, flags: int = 0) -> None:
        """Append to a file what fits in whole; leave it as it was otherwise."""
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
        try:
            if os.fstat(file).st_size != self._whole_bytes:
                os.ftruncate(file, self._whole_bytes)
            written = os.pwrite(file, data, self._whole_bytes)
            if written < len(data):
                # A disk that fills up takes a part; this asks it for the rest, and for the reason.
                written += os.pwrite(file, data[written:], self._whole_bytes + written)
            if written < len(data):
                raise OSError(f"{path} took {written} of {len(data)} bytes")
        except OSError:
            os.ftruncate(file, self._whole_bytes)
            if not self._whole_bytes:
                path.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        self._whole_bytes += len(data)

    def _next_path(self) -> Path:
        numbers = [
            int(name.removesuffix(SUFFIX).partition("-")[2] or 0)
            for name in _names(self.folder)
            if _token_of(name) == self._token
        ]
        return self.folder / f"{self._token:012d}-{max(numbers, default=0) + 1:06d}{SUFFIX}"
