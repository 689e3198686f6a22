"""What only the SQLite store can suffer: other users, full disks, foreign, damaged, old and vanished files."""

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from runner.errors import PermanentError, StokerError, StoreCorrupt, StoreUnavailable
from runner.store.protocol import LeaseHeld
from runner.store.sqlite.store import SqliteStore
from tests.small_disk import small_disk
from tests.store.store_harness import SteppedClock, payloads


def filled(folder: Path, num_items: int = 50) -> None:
    """Make a store with some contents, closed again and with everything in its main file."""
    store = SqliteStore(folder)
    store.append_many("journal", [b"%d" % (n % 10) * 200 for n in range(num_items)])
    store.put("assignment", b"a" * 3000)
    store.acquire_lease("lead", "a", ttl_seconds=5)
    store.close()


def fill(store: SqliteStore) -> None:
    """Append until the store refuses."""
    while True:
        store.append("inbox", b"x" * 3000)


def use(folder: Path) -> None:
    """Do one thing of each kind."""
    store = SqliteStore(folder, deadline_seconds=0.1)
    try:
        payloads(store, "journal")
        store.append("journal", b"x" * 5000)
        store.registers("")
        store.put("assignment", b"x")
        store.lease_holder("lead")
        store.trim("journal", 10)
    finally:
        store.close()


def test_a_locked_store_is_unavailable_after_the_deadline(tmp_path: Path) -> None:
    """Another process's lock is waited for as long as the deadline allows; reading goes on, and nothing is lost."""
    store = SqliteStore(tmp_path, deadline_seconds=0.05)
    store.append("inbox", b"a")
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"store\.db is busy"):
            store.append("inbox", b"b")
        assert payloads(store, "inbox") == [b"a"]
    assert store.append("inbox", b"b") == 2
    store.close()


@pytest.mark.costly
def test_busy_writers_do_not_starve_each_other(tmp_path: Path) -> None:
    """Four writers that never rest for two seconds: each gets its turn within the deadline, every time."""
    failures: list[Exception] = []
    until = time.monotonic() + 2.0

    def write(stream: str) -> None:
        store = SqliteStore(tmp_path)
        try:
            while time.monotonic() < until:
                store.append(stream, b"x" * 100)
        except StokerError as error:
            failures.append(error)
        finally:
            store.close()

    threads = [threading.Thread(target=write, args=(f"s{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_write_is_acknowledged_even_if_no_reader_can_be_notified(tmp_path: Path) -> None:
    """Bells are a courtesy: what is committed is reported as committed though the list of listeners is locked."""
    store = SqliteStore(tmp_path, deadline_seconds=0.05)
    (volatile,) = tmp_path.glob("volatile-*.db")
    with closing(sqlite3.connect(volatile, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert store.append("inbox", b"a") == 1
    store.close()


def test_many_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    """Handles that all find the folder missing agree on one store."""
    handles: list[SqliteStore] = []
    threads = [
        threading.Thread(target=lambda: handles.append(SqliteStore(tmp_path / "new")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = [handle.append("inbox", b"x") for handle in handles]
    assert numbers == list(range(1, 9))
    for handle in handles:
        handle.close()


def test_a_reader_makes_no_store(tmp_path: Path) -> None:
    """Opened without `create`, a folder without a store stays as it is and is named."""
    with pytest.raises(PermanentError, match=r"there is no store in .*nowhere"):
        SqliteStore(tmp_path / "nowhere", create=False)
    assert list(tmp_path.iterdir()) == []
    filled(tmp_path / "there")
    SqliteStore(tmp_path / "there", create=False).close()


def test_a_folder_with_a_long_path_works(tmp_path: Path) -> None:
    """A path longer than a socket's address may be is no limit, for bells neither."""
    folder = tmp_path.joinpath(*["a-folder-with-a-rather-long-name"] * 8)
    reader, writer = SqliteStore(folder), SqliteStore(folder)
    threading.Timer(0.1, lambda: writer.append("inbox", b"x")).start()
    assert reader.read(streams={"inbox": 0}, registers={}, timeout_seconds=30)
    reader.close()
    writer.close()


def test_a_folder_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    """A file where the folder should be is named in the error."""
    (tmp_path / "file").write_text("here")
    with pytest.raises(StoreUnavailable, match="file/store"):
        SqliteStore(tmp_path / "file" / "store")


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    """Neither a text nor another program's database is written to."""
    (tmp_path / "store.db").write_text("this is no database, but a text of some length" * 100)
    with pytest.raises(StoreCorrupt, match="not a store of Stoker"):
        SqliteStore(tmp_path)
    (tmp_path / "store.db").unlink()
    with closing(sqlite3.connect(tmp_path / "store.db")) as other:
        other.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreCorrupt, match="another program"):
        SqliteStore(tmp_path)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A store that a newer Stoker wrote is left alone, and the error names what would read it."""
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.db")) as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreCorrupt, match=r"schema version 99.*newer Stoker"):
        SqliteStore(tmp_path)


@pytest.mark.costly
def test_a_damaged_file_never_raises_a_raw_error(tmp_path: Path) -> None:
    """300 files with a few bytes overwritten, or cut short: each works or raises an error of ours."""
    filled(tmp_path / "good")
    good = (tmp_path / "good" / "store.db").read_bytes()
    dice = random.Random(7)
    num_refused = 0
    for number in range(300):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        damaged = bytearray(good)
        if number % 5 == 0:
            del damaged[dice.randrange(1, len(damaged)) :]
        for _ in range(dice.randrange(1, 30)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        (folder / "store.db").write_bytes(damaged)
        try:
            use(folder)
        except StokerError:
            num_refused += 1
        shutil.rmtree(folder)
    assert num_refused > 30


@pytest.mark.parametrize("what", ["append", "read", "last", "put", "get"])
def test_an_old_copy_put_in_place_is_noticed(tmp_path: Path, what: str) -> None:
    """A handle that saw more than the store now holds raises, instead of writing a second history."""
    filled(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    store = SqliteStore(tmp_path / "store")
    store.append("journal", b"acknowledged")
    store.put("assignment", b"acknowledged")
    for path in (tmp_path / "store").glob("store.db*"):
        path.unlink()
    os.replace(tmp_path / "copy" / "store.db", tmp_path / "store" / "store.db")
    uses: dict[str, Callable[[], object]] = {
        "append": lambda: store.append("journal", b"x"),
        "read": lambda: payloads(store, "journal", after=51),
        "last": lambda: store.last("journal"),
        "put": lambda: store.put("assignment", b"x"),
        "get": lambda: store.get("assignment"),
    }
    with pytest.raises(StoreCorrupt, match="came back with less than it acknowledged"):
        uses[what]()
    store.close()


def test_a_missing_item_is_named(tmp_path: Path) -> None:
    """A hole in a stream is never read over in silence."""
    filled(tmp_path)
    for number in (3, 50):
        with closing(sqlite3.connect(tmp_path / "store.db")) as other:
            other.execute("DELETE FROM items WHERE key & 0xFFFFFFFFFFF = ?", (number,))
            other.commit()
        store = SqliteStore(tmp_path)
        with pytest.raises(StoreCorrupt, match=rf"'journal': item {number} is missing"):
            payloads(store, "journal", after=0 if number == 3 else 49)
        store.close()


def test_a_flipped_bit_is_named(tmp_path: Path) -> None:
    """A payload that the disk changed is never handed out, from a stream or a register."""
    filled(tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.db")) as other:
        other.execute("UPDATE items SET payload = ? WHERE key & 0xFFFFFFFFFFF = 3", (b"3" * 200,))
        other.execute("UPDATE registers SET payload = ?", (b"b" * 3000,))
        other.commit()
    store = SqliteStore(tmp_path, deadline_seconds=0.1)
    with pytest.raises(StoreCorrupt, match="'journal': item 3 is not what was written"):
        payloads(store, "journal")
    with pytest.raises(StoreCorrupt, match="'assignment' is not what was written"):
        store.get("assignment")
    assert len(payloads(store, "journal", after=3)) == 47
    store.close()


def test_a_vanished_file_is_not_written_to(tmp_path: Path) -> None:
    """Deleted under an open handle, the store is unavailable; it is not acknowledged into a file without a name."""
    store = SqliteStore(tmp_path)
    store.append("inbox", b"a")
    kept = tmp_path / "kept"
    kept.mkdir()
    for path in tmp_path.glob("store.db*"):
        path.rename(kept / path.name)
    with pytest.raises(StoreUnavailable, match=r"store\.db is gone"):
        store.append("inbox", b"b")
    assert not (tmp_path / "store.db").exists()
    for path in kept.iterdir():
        path.rename(tmp_path / path.name)
    assert store.append("inbox", b"b") == 2
    store.close()


def test_a_disk_that_takes_no_more_makes_the_store_unavailable(tmp_path: Path) -> None:
    """A process that may not let files grow gets StoreUnavailable, and everything acknowledged stays readable."""
    limit_bytes = 400_000
    script = f"""
import sys
from runner.errors import StoreUnavailable
from runner.store.sqlite.store import SqliteStore
store = SqliteStore({str(tmp_path)!r})
number = 0
try:
    while True:
        number = store.append("inbox", b"x" * 3000)
except StoreUnavailable:
    print(number)
    sys.exit(7)
"""

    def restrict() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    ended = subprocess.run(
        [sys.executable, "-c", script],
        preexec_fn=restrict,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == 7
    store = SqliteStore(tmp_path)
    assert store.last("inbox") >= int(ended.stdout) > 10
    assert len(payloads(store, "inbox")) == store.last("inbox")
    store.append("inbox", b"x" * 3000)
    store.close()


def test_a_full_disk_is_named_and_gets_over_it(tmp_path: Path) -> None:
    """On a small file system of its own: "its disk is full" when it is, business as usual after room was made."""
    with small_disk(tmp_path / "disk", size_bytes=2 << 20) as disk:
        (disk / "ballast").write_bytes(b"x" * 1_000_000)
        store = SqliteStore(disk)
        with pytest.raises(StoreUnavailable, match=r"disk is full.*make room"):
            fill(store)
        last = store.last("inbox")
        (disk / "ballast").unlink()
        assert store.append("inbox", b"y") == last + 1
        assert len(payloads(store, "inbox")) == last + 1
        store.close()


def test_a_disk_without_room_for_a_new_store_is_named(tmp_path: Path) -> None:
    """SQLite itself speaks of an I/O error, where what is left does not hold what it shares with other processes."""
    with small_disk(tmp_path / "disk", size_bytes=300 << 10) as disk:
        (disk / "other").write_bytes(bytes(280 << 10))
        with pytest.raises(StoreUnavailable, match=r"disk is full.*make room"):
            SqliteStore(disk / "store").append("inbox", b"x")


def test_what_a_reboot_means(tmp_path: Path) -> None:
    """After one, leases have run out, tokens still rise, durable things are there, and volatile files are gone."""
    clock = SteppedClock(seconds=1000.0)
    before = SqliteStore(tmp_path, clock=clock, boot="1" * 32)
    before.append("inbox", b"a")
    before.append("heartbeats", b"a")
    before.acquire_lease("lead", "a", ttl_seconds=60)
    before.close()
    clock.seconds = 10.0
    after = SqliteStore(tmp_path, clock=clock, boot="2" * 32)
    assert after.acquire_lease("lead", "b", ttl_seconds=60).token == 2
    with pytest.raises(LeaseHeld):
        after.acquire_lease("lead", "c", ttl_seconds=60)
    assert (after.last("inbox"), after.last("heartbeats")) == (1, 0)
    after.close()
    assert {path.name for path in tmp_path.glob("volatile-*.db")} == {"volatile-22222222.db"}


def test_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    """A handle survives a fork on both sides: the child neither uses nor closes what the parent has open."""
    store = SqliteStore(tmp_path)
    store.append("inbox", b"parent")
    child = os.fork()
    if child == 0:
        try:
            number = store.append("inbox", b"child")
            store.close()
            os._exit(0 if number == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.append("inbox", b"parent") == 3
    store.close()


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace to see system calls")
def test_only_durable_writes_are_synced(tmp_path: Path) -> None:
    """Each durable write costs one fsync, a volatile one none, not even when it is fenced."""
    script = f"""
import os
from runner.store.sqlite.store import SqliteStore
store = SqliteStore({str(tmp_path / "store")!r})
lease = store.acquire_lease("lead", "a", ttl_seconds=5)
store.put("warm", b"x")
def mark(name):
    try: os.stat("/mark-" + name)
    except OSError: pass
mark("durable")
for _ in range(10): store.append("inbox", b"x", fence=lease)
mark("volatile")
for _ in range(10): store.append("heartbeats", b"x"); store.put("status", b"x", fence=lease)
mark("end")
"""
    trace = tmp_path / "trace"
    subprocess.run(
        [
            *("strace", "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,stat,newfstatat"),
            *(sys.executable, "-c", script),
        ],
        cwd=Path(__file__).parents[2],
        check=True,
    )
    before, _, rest = trace.read_text().partition("/mark-durable")
    durable, _, rest = rest.partition("/mark-volatile")
    volatile, _, _ = rest.partition("/mark-end")
    assert before.count("sync(") > 0
    assert durable.count("sync(") == 10
    assert volatile.count("sync(") == 0
