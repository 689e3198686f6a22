"""A journal that lies elsewhere: a copy of a state folder, of a store's folder, or of old entries alone, without the cluster.

For readers of history. Nothing of the copy is changed, and codes are not checked, since its token is not there.
"""

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from runner.errors import StokerError, UserError, WireError
from runner.facts import wire
from runner.facts.messages.records import JournalEntry
from runner.journal.archive import OWNER_FILE, Archive, SegmentHead
from runner.journal.chain import split
from runner.journal.journal import Journal
from runner.journal.kept_entries import decode_entry
from runner.store.protocol import MAX_LARGE_BYTES
from runner.store.sqlite.store import SqliteStore

STORE_FILE = "store.db"


def read_copy(path: Path) -> Iterator[JournalEntry]:
    """Yield a copy's entries, oldest first.

    `path`: a state folder, the folder of a store (or its store.db), or a folder of `*.jsonl.gz` or one such file; the newest
    entries of the latter were in the store, and are not there. Raises UserError for anything else, and for a gap.
    """
    folder = path.parent if path.name == STORE_FILE else path
    for store, archive in (
        (folder / "store", folder / "journal"),
        (folder, folder.parent / "journal"),
    ):
        if (store / STORE_FILE).is_file():
            return _of_store(store, archive)
    files = [path] if path.is_file() else sorted(path.glob("*.jsonl.gz"))
    if not files:
        raise UserError(
            f"--journal: {path} has no journal: neither {STORE_FILE}, nor store/{STORE_FILE}, nor files *.jsonl.gz; "
            "name a copy of a state folder, of its store, or of its journal folder"
        )
    return _of_files(files)


def _of_store(store: Path, archive: Path) -> Iterator[JournalEntry]:
    """Read a copy of the copy: opening a store writes beside it."""
    with tempfile.TemporaryDirectory(prefix="stoker-journal-") as scratch:
        for file in sorted(store.glob(f"{STORE_FILE}*")):
            if not file.name.endswith("-shm"):
                shutil.copyfile(file, Path(scratch) / file.name)
        with closing(SqliteStore(scratch, create=False)) as opened:
            owner = archive / OWNER_FILE
            files = Archive(archive, owner.read_text().strip()) if owner.is_file() else None
            journal = Journal(opened, archive=files)
            yield from journal.replay(journal.begins_at())


def _of_files(files: list[Path]) -> Iterator[JournalEntry]:
    number: int | None = None
    for file in files:
        for payload in _lines(file):
            found = _entry(payload, file)
            if number is not None and found.sequence != number + 1:
                raise UserError(
                    f"--journal: {file} goes on with entry {found.sequence} after entry {number}: what is between is missing"
                )
            number = found.sequence
            yield found


def _lines(file: Path) -> list[bytes]:
    try:
        body = file.read_bytes()
        lines = (gzip.decompress(body) if file.suffix == ".gz" else body).splitlines()
        if lines and isinstance(wire.decode(lines[0], limit_bytes=MAX_LARGE_BYTES), SegmentHead):
            return lines[1:]
    except (OSError, EOFError, zlib.error, WireError) as error:
        raise UserError(f"--journal: {file} cannot be read: {error}") from error
    return lines


def _entry(payload: bytes, file: Path) -> JournalEntry:
    try:
        message = split(payload)[0]
        found = wire.decode(message, limit_bytes=MAX_LARGE_BYTES)
        return decode_entry(getattr(found, "sequence", 0), message)
    except StokerError as error:
        raise UserError(f"--journal: {file}: {error}") from error
