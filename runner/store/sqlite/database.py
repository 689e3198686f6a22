"""One SQLite file as one thread uses it: opening, transactions with a deadline, and what its errors mean."""

import math
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.atomic_files import lock
from runner.errors import StoreCorrupt, StoreUnavailable

# "Stok" in the file's header marks a store
APPLICATION_ID = 0x53746F6B
SCHEMA_VERSION = 1

# An item's key is its stream's id and its number in one integer, so that appending touches one B-tree, at one end per stream.
NUMBER_BITS = 44

_SCHEMA = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last INTEGER NOT NULL, trimmed INTEGER NOT NULL);
CREATE TABLE items (key INTEGER PRIMARY KEY, crc INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE registers (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, crc INTEGER NOT NULL, payload BLOB NOT NULL);
CREATE TABLE versions (last INTEGER NOT NULL);
CREATE TABLE leases (
    name TEXT PRIMARY KEY, holder TEXT, token INTEGER NOT NULL, expires_seconds REAL NOT NULL, boot TEXT NOT NULL);
CREATE TABLE listeners (
    name TEXT NOT NULL, address TEXT NOT NULL, PRIMARY KEY (name, address)) WITHOUT ROWID;
CREATE INDEX listeners_by_address ON listeners (address);
INSERT INTO versions VALUES (0);
"""

# SQLite's shared memory of a database; without room for it, it names an I/O error.
_LEAST_FREE_BYTES = 32 * 1024
_TEMPORARY = frozenset(
    {
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_PROTOCOL,
    }
)
# Python raises the last three for a damaged file, where a name is not text or a number is text or too large.
_RAW_ERRORS = (sqlite3.Error, UnicodeDecodeError, TypeError, OverflowError)
# between tries for the write lock, which is held for one fsync; chosen
_LONGEST_PAUSE_SECONDS = 0.002
# Beyond it, a burst of large entries gives its disk space back; chosen.
_MAX_LOG_BYTES = 64 * 1024 * 1024


class Database:
    """A connection to one file, made when first needed, and again after an error or when the file was replaced.

    `durable`: each commit is fsynced before it returns. Not safe for two threads at once. Raises StoreUnavailable and
    StoreCorrupt, never an error of sqlite3.
    """

    def __init__(self, path: Path, *, durable: bool, deadline_seconds: float) -> None:
        self.path = path
        self._durable = durable
        self._deadline_seconds = deadline_seconds
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @contextmanager
    def transaction(self, *, write: bool) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction: committed (and fsynced) at its end, undone if it raises."""
        try:
            connection = self._connected()
            if write:
                self._acquire_write_lock(connection)
            else:
                connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")
        except _RAW_ERRORS as error:
            # Ends the transaction too; a new connection does not share the state of this one.
            self.close()
            raise translate_error(error, self.path) from error
        except BaseException:
            self._undo()
            raise

    def close(self) -> None:
        """Close the connection; the next transaction opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close()
            except _RAW_ERRORS as error:
                raise translate_error(error, self.path) from error

    def _acquire_write_lock(self, connection: sqlite3.Connection) -> None:
        # Waiting by SQLite itself means sleeping up to 100 ms a try, which starves a writer among a few busy ones: with
        # three in a loop, one in a thousand appends failed after a whole second. Short random pauses share the lock.
        deadline = time.monotonic() + self._deadline_seconds
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    is_locked = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
                    if not is_locked or time.monotonic() >= deadline:
                        raise
                    time.sleep(random.uniform(0.1, 1.0) * _LONGEST_PAUSE_SECONDS)
                else:
                    return
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(self._deadline_seconds * 1000)}")

    def _undo(self) -> None:
        if self._connection is None:
            return
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except _RAW_ERRORS:
            self.close()

    def _connected(self) -> sqlite3.Connection:
        # SQLite would write into a deleted or replaced file, and acknowledge it.
        try:
            inode = os.stat(self.path).st_ino
        except FileNotFoundError:
            if self._inode:
                self.close()
                raise StoreUnavailable(
                    f"store file {self.path} is gone; was it deleted, or its disk unmounted? Bring it back"
                ) from None
            inode = 0
        except OSError as error:
            raise StoreUnavailable(f"store file {self.path} cannot be reached: {error}") from error
        if self._connection is None or inode != self._inode:
            self.close()
            self._connection = self._opened()
            self._inode = os.stat(self.path).st_ino
        return self._connection

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self._deadline_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            # Locked only to create: a process stopped while it opens must not keep the others from opening.
            if not _is_store(connection, self.path):
                with _exclusive(self.path.with_suffix(".lock"), self._deadline_seconds):
                    if not _is_store(connection, self.path):
                        _create(connection)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_LOG_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection


def translate_error(error: Exception, path: Path) -> StoreUnavailable | StoreCorrupt:
    """Translate an error of SQLite for callers of the store."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    text = f"{error} ({name})"
    is_short = primary_code in _TEMPORARY and _free_bytes(path) < _LEAST_FREE_BYTES
    if primary_code == sqlite3.SQLITE_FULL or is_short:
        return StoreUnavailable(f"store {path}: its disk is full, {text}; make room")
    if primary_code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(
            f"store {path} is busy: {text}; another process writes or holds a lock"
        )
    if primary_code in _TEMPORARY:
        return StoreUnavailable(
            f"store {path} cannot be used: {text}; check its disk and its permissions"
        )
    return StoreCorrupt(
        f"store {path} is damaged or not a store of Stoker: {text}; restore a backup, or name another folder"
    )


def _free_bytes(path: Path) -> float:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return math.inf
    return float(found.f_bavail * found.f_frsize)


def _is_store(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file is a store already; False if it is empty, StoreCorrupt if it is something else."""
    # One transaction for all three, since another process may be creating the tables.
    connection.execute("BEGIN")
    application_id = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    num_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    connection.execute("COMMIT")
    if application_id == APPLICATION_ID and version > SCHEMA_VERSION:
        raise StoreCorrupt(
            f"{path} has schema version {version}, this Stoker knows {SCHEMA_VERSION}; use the newer Stoker"
        )
    if application_id != APPLICATION_ID and (application_id or version or num_tables):
        raise StoreCorrupt(
            f"{path} is a database of another program; name another folder for the store"
        )
    return bool(application_id == APPLICATION_ID)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(
        f"BEGIN IMMEDIATE;{_SCHEMA}PRAGMA application_id = {APPLICATION_ID};"
        f"PRAGMA user_version = {SCHEMA_VERSION};COMMIT;"
    )


@contextmanager
def _exclusive(lock_path: Path, deadline_seconds: float) -> Iterator[None]:
    """Let one process at a time create the file: SQLite fails when two switch it to WAL at once."""
    stuck = StoreUnavailable(
        f"store {lock_path} is being created by another process that does not finish"
    )
    try:
        descriptor = os.open(lock_path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreUnavailable(
            f"store folder {lock_path.parent} cannot be written: {error}"
        ) from error
    try:
        lock(descriptor, deadline_seconds=deadline_seconds, otherwise=stuck)
        yield
    finally:
        os.close(descriptor)
