"""The SQLite store between processes: bells, races for the lease, and writers that are killed."""

import os
import resource
import signal
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import runner.store.sqlite.store
from runner.store.sqlite.store import SqliteStore
from tests.store.store_harness import payloads, start_player


def lines(text: str | None) -> list[str]:
    """Return whole lines; the last may have been cut off by a kill."""
    return (text or "").rpartition("\n")[0].splitlines()


def test_a_write_rings_a_reader_in_another_process(tmp_path: Path) -> None:
    """Two processes answer each other 200 times with the safety poll put far off."""
    num_rounds = 200
    with start_player("echo", tmp_path, str(num_rounds)) as player:
        store = SqliteStore(tmp_path)
        assert player.stdout is not None
        assert player.stdout.readline() == "ready\n"
        for number in range(num_rounds):
            store.append("ping", b"%d" % number)
            batch = store.read(streams={"pong": number}, registers={}, timeout_seconds=30)
            assert [item.payload for item in batch.items["pong"]] == [b"%d" % number]
        assert player.wait(30) == 0
    store.close()


@pytest.mark.costly
def test_every_acknowledged_append_survives_kill_9(tmp_path: Path) -> None:
    """A writer is killed at 15 moments: each acknowledged entry is there, whole and in order."""
    acknowledged = 0
    for round_number in range(15):
        with start_player("append", tmp_path, "journal") as player:
            assert player.stdout is not None
            reply = [player.stdout.readline()]
            time.sleep(0.003 * round_number)
            player.kill()
            reply += lines(player.stdout.read())
        acknowledged = max(acknowledged, *map(int, reply))
        store = SqliteStore(tmp_path)
        found = payloads(store, "journal")
        store.close()
        assert found == [b"%d" % number for number in range(1, len(found) + 1)]
        # One more may be there, which was committed before its writer could print it.
        assert acknowledged <= len(found) <= acknowledged + 1
    assert acknowledged >= 15


@pytest.mark.costly
def test_tokens_never_fall_while_processes_fight_for_a_lease(tmp_path: Path) -> None:
    """Holders whose lease runs out while they sleep are fenced: the appended tokens never go back."""
    players = [start_player("lead", tmp_path, "300") for _ in range(4)]
    reply = [player.communicate(timeout=100)[0] for player in players]
    assert [player.returncode for player in players] == [0] * 4
    store = SqliteStore(tmp_path)
    tokens = [int(token) for token in payloads(store, "tokens")]
    store.close()
    assert len(tokens) >= 300
    assert tokens == sorted(tokens)
    assert len(set(tokens)) > 10
    assert sum(text.count("fenced") for text in reply) > 0


def listeners(folder: Path) -> list[tuple[str, str]]:
    """Return the registered listeners, as a third party sees them."""
    with closing(sqlite3.connect(next(folder.glob("volatile-*.db")))) as connection:
        return connection.execute("SELECT name, address FROM listeners").fetchall()


def cross_out(folder: Path) -> None:
    """Remove all listeners from the list, like a writer that cannot reach their addresses."""
    with closing(sqlite3.connect(next(folder.glob("volatile-*.db")))) as connection:
        connection.execute("DELETE FROM listeners")
        connection.commit()


def test_a_killed_reader_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next writer removes a dead listener from the list; the file system never had anything of it."""
    with start_player("wait", tmp_path, "inbox") as player:
        assert player.stdout is not None
        assert player.stdout.readline() == "ready\n"
        while not listeners(tmp_path):
            time.sleep(0.01)
        files = sorted(tmp_path.iterdir())
        os.kill(player.pid, signal.SIGKILL)
        player.wait(30)
    store = SqliteStore(tmp_path)
    store.append("inbox", b"x")
    assert listeners(tmp_path) == []
    assert set(tmp_path.iterdir()) <= set(files)
    store.close()


@pytest.mark.costly
def test_the_poll_makes_up_for_a_lost_notification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that was removed (a writer could not reach it) sees new entries anyway, and asks for notifications again."""
    monkeypatch.setattr(runner.store.sqlite.store, "POLL_SECONDS", 0.2)
    reader, writer = SqliteStore(tmp_path), SqliteStore(tmp_path)
    for number in range(3):
        assert not reader.read(streams={"inbox": number}, registers={}, timeout_seconds=0.5)
        assert [name for name, _ in listeners(tmp_path)] == ["stream inbox"]
        cross_out(tmp_path)
        writer.append("inbox", b"x")
        assert reader.read(streams={"inbox": number}, registers={}, timeout_seconds=30)
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(reader.read, streams={"inbox": 3}, registers={}, timeout_seconds=30)
        while not listeners(tmp_path):
            time.sleep(0.01)
        cross_out(tmp_path)
        writer.append("inbox", b"x")
        assert blocked.result(30).items["inbox"][0].number == 4
    reader.close()
    writer.close()


@pytest.mark.costly
def test_a_blocked_reader_sleeps(tmp_path: Path) -> None:
    """Waiting costs a handful of polls, not a loop: few switches and next to no CPU time in two polls' time."""
    store = SqliteStore(tmp_path)
    store.read(streams={"inbox": 0}, registers={}, timeout_seconds=0.01)
    before = resource.getrusage(resource.RUSAGE_THREAD)
    store.read(streams={"inbox": 0}, registers={"status": 0}, timeout_seconds=2.5)
    after = resource.getrusage(resource.RUSAGE_THREAD)
    assert after.ru_nvcsw - before.ru_nvcsw < 20
    store.close()
