"""`stoker store doctor`: the report on a fit store, and which check fails when something is wrong with it."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.facts.wire import encode
from runner.journal.doctor import examine
from runner.journal.journal import Journal
from runner.signer import Signer
from runner.store.examination import overall
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store
from runner.store.redis.store import RedisStore
from runner.store.sqlite.store import SqliteStore
from runner.token_file import make_token
from tests.store.redis_server import RedisServer
from tests.store.test_journal import entry

ROOT = Path(__file__).parents[2]


def found(store: Store) -> dict[str, tuple[str, str]]:
    """Return outcome and reason of each check."""
    return {result.check: (result.outcome, result.reason) for result in examine(store)}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server with users, as deployed."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        yield server


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    """Give a handle on a store there."""
    store = RedisStore(server.spec(), "c")
    yield store
    store.close()


def test_a_server_as_deployed_passes_every_check(
    secured_server: RedisServer, store: RedisStore
) -> None:
    """With users, and with TLS besides; and nothing is left of what was tried."""
    secured = RedisStore(secured_server.spec(), "doctor")
    for each in (store, secured):
        before = each.registers("")
        results = list(examine(each))
        assert overall(results) == "PASS", results
        assert len({result.check for result in results}) == len(results) > 12
        assert each.registers("") == before
        assert each.lease_holder("doctor") is None
        assert not each.read(streams={"doctor": 0}, registers={}, timeout_seconds=0)
    assert "TLSv1" in found(secured)["tls"][1]
    secured.close()


@pytest.mark.parametrize(
    ("check", "setting", "value", "words"),
    [
        ("durable", "appendfsync", "everysec", "set `appendfsync always`"),
        ("disk", "appendonly", "no", "no append-only file"),
        ("limits", "proto-max-bulk-len", "536870912", "proto-max-bulk-len is 512 MB"),
        ("limits", "timeout", "300", "set `timeout 0`"),
        ("memory", "maxmemory", "1000000", "give it more"),
    ],
)
def test_a_setting_that_will_not_do_fails_its_check(
    server: RedisServer, store: RedisStore, check: str, setting: str, value: str, words: str
) -> None:
    """The check names the setting and its value."""
    server.client().config_set(setting, value)
    outcome, reason = found(store)[check]
    assert outcome == "FAIL"
    assert words in reason


def test_a_missing_right_is_named(server: RedisServer, store: RedisStore) -> None:
    """By name, where the server reports it; else the check does not know, and the trial fails."""
    server.client().execute_command("ACL", "SETUSER", "stoker", "-xtrim")  # type: ignore[no-untyped-call]
    results = found(store)
    assert results["rights"] == (
        "FAIL",
        "user 'stoker' may not: XTRIM; give it the rights in `stoker docs users.acl`",
    )
    assert results["use"][0] == "FAIL"
    server.client().execute_command("ACL", "SETUSER", "stoker", "+xtrim", "-acl|dryrun")  # type: ignore[no-untyped-call]
    assert found(store)["rights"][0] == "UNKNOWN"
    server.client().execute_command("ACL", "SETUSER", "stoker", "-config|get")  # type: ignore[no-untyped-call]
    assert found(store)["durable"][0] == "UNKNOWN"


def test_a_server_that_cannot_replay_its_file_fails_before_it_forgets(
    server: RedisServer, store: RedisStore
) -> None:
    """With `user default off` and no rights, every transaction of the append-only file is dropped at the next start."""
    server.client().execute_command("ACL", "SETUSER", "default", "reset")  # type: ignore[no-untyped-call]
    outcome, reason = found(store)["durable"]
    assert outcome == "FAIL"
    assert "user 'default' may not" in reason
    assert "EXEC" in reason
    assert "~* &* +@all" in reason
    server.client().execute_command("ACL", "SETUSER", "default", "~*", "+@all", "-zadd")  # type: ignore[no-untyped-call]
    assert "user 'default' may not ZADD," in found(store)["durable"][1]


def test_full_connections_and_a_paused_server_are_seen(
    server: RedisServer, store: RedisStore
) -> None:
    """A check of a server that is stopped ends, and reports it once."""
    server.client().config_set("maxclients", 7)
    others = [RedisStore(server.spec(), "c") for _ in range(5)]
    assert "raise maxclients" in found(store)["clients"][1]
    for other in others:
        other.close()
    server.pause()
    results = found(store)
    assert list(results) == ["reach"]
    assert results["reach"][0] == "FAIL"
    assert "out of reach" in results["reach"][1]
    server.resume()


def test_a_store_of_files_passes_every_check(tmp_path: Path) -> None:
    """On a disk of this machine."""
    store = SqliteStore(tmp_path / "store")
    Journal(store, store.acquire_lease("lead", "a", ttl_seconds=5)).append(entry(1))
    results = found(store)
    store.close()
    assert "1 after the newest snapshot" in results["entries"][1]
    assert results["integrity"][0] == "PASS"
    assert {outcome for outcome, _ in results.values()} == {"PASS"}, results
    assert not list((tmp_path / "store").glob("doctor*"))


def test_a_store_of_files_in_memory_or_damaged_fails(tmp_path: Path) -> None:
    """What is gone after a reboot, and what is not whole any more."""
    folder = Path("/dev/shm") / f"stoker-doctor-{os.getpid()}"
    store = SqliteStore(folder)
    try:
        assert "a reboot deletes it" in found(store)["file_system"][1]
    finally:
        store.close()
        subprocess.run(["rm", "-r", str(folder)], check=True)
    store = SqliteStore(tmp_path)
    store.append_many("journal", [os.urandom(900) for _ in range(300)])
    store.close()
    path = tmp_path / "store.db"
    data = bytearray(path.read_bytes())
    dice = random.Random(5)
    for _ in range(200):
        data[dice.randrange(8192, len(data))] ^= 0xFF
    path.write_bytes(data)
    store = SqliteStore(tmp_path)
    outcome, reason = found(store)["integrity"]
    store.close()
    assert outcome == "FAIL"
    assert "put back a copy" in reason


def doctor(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command on the folder's cluster.yaml."""
    command = [sys.executable, "-m", "runner.cli.main", "store", "doctor"]
    return subprocess.run(
        [*command, "--cluster", str(folder / "cluster.yaml"), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.costly
def test_the_command_prints_a_line_per_check_and_ends_with_the_worst(
    server: RedisServer, tmp_path: Path
) -> None:
    """0 when all is well, 1 when something failed, JSON for programs; the password is in none of it."""
    (tmp_path / "cluster.yaml").write_text(
        f"name: c\nstore: {{address: '{server.address}', user: stoker, password_file: redis/password}}\n"
    )
    good = doctor(tmp_path)
    assert good.returncode == 0, good.stdout + good.stderr
    assert good.stdout.splitlines()[0].split() == ["CHECK", "OUTCOME", "WHY"]
    assert good.stdout.splitlines()[-1] == "PASS"
    server.client().config_set("appendfsync", "no")
    reported = doctor(tmp_path, "--json")
    assert reported.returncode == 1
    assert json.loads(reported.stdout)["overall"] == {
        "outcome": "FAIL",
        "failed": ["durable"],
        "unknown": [],
    }
    refused = subprocess.run(
        [
            sys.executable,
            "-m",
            "runner.cli.main",
            "supervise",
            "--cluster",
            tmp_path / "cluster.yaml",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert refused.returncode == 2
    assert "appendfsync: is no" in refused.stderr
    server.kill()
    down = doctor(tmp_path)
    assert down.returncode == 1
    assert "reach" in down.stdout
    password = (server.folder / "password").read_text().strip()
    for ended in (good, reported, refused, down):
        assert password not in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_supervisor_leads_by_a_volatile_store_on_request(
    server: RedisServer, tmp_path: Path
) -> None:
    """With `--volatile-store` it starts, and leads until it is stopped."""
    server.client().config_set("appendfsync", "no")
    make_token(str(tmp_path / "token"))
    (tmp_path / "cluster.yaml").write_text(
        "name: c\ntoken_file: token\nlocal: {nodes: 0}\n"
        f"store: {{address: '{server.address}', user: stoker, password_file: redis/password}}\n"
    )
    command = [sys.executable, "-m", "runner.cli.main", "supervise", "--volatile-store"]
    with subprocess.Popen(
        [*command, "--cluster", str(tmp_path / "cluster.yaml")],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "errors").open("wb"),
    ) as supervisor:
        try:
            store = RedisStore(server.spec(), "c")
            until = time.monotonic() + 60
            while store.last("journal") == 0:
                assert supervisor.poll() is None, (tmp_path / "errors").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
            assert store.lease_holder("supervisor") is not None
            store.close()
        finally:
            supervisor.terminate()
            supervisor.wait(60)


def test_entries_that_do_not_verify_fail_by_number_and_are_unknown_without_the_token() -> None:
    """What the next supervisor would refuse, an operator sees before."""
    store, token = MemoryStore(), Signer(b"t" * 32)
    lease = store.acquire_lease("lead", "a", ttl_seconds=3600)
    Journal(store, lease, signer=token).append_many([entry(1), entry(2)])

    def entries(signer: Signer | None) -> tuple[str, str]:
        return next((x.outcome, x.reason) for x in examine(store, signer) if x.check == "entries")

    assert entries(token) == ("PASS", "2 after the newest snapshot continue its chain")
    outcome, reason = entries(None)
    assert outcome == "UNKNOWN"
    assert "token cannot be read here" in reason
    store.append("journal", encode(entry(3)))
    outcome, reason = entries(token)
    assert outcome == "FAIL"
    assert "journal entry 3 carries no code" in reason
