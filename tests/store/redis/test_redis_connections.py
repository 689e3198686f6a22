"""Access to a Redis store, and the errors of refusals: passwords, certificates, rights, wrong servers."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.errors import StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec, StoreSpec
from runner.store.redis.store import RedisStore
from runner.store.registry import check_durable, exists, open_store
from tests.store.redis_server import PASSWORD, RedisServer, free_port, write_secret
from tests.store.store_harness import payloads


def refusal(spec: StoreSpec, cluster: str = "connections") -> str:
    """Return the message with which opening is refused."""
    with pytest.raises(UserError) as caught:
        RedisStore(spec, cluster)
    return str(caught.value)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server with users that the test may do to as it likes."""
    with RedisServer(tmp_path / "redis", acl=True) as server:
        yield server


# ---- passwords


def test_a_wrong_password_is_refused_and_never_shown(
    secured_server: RedisServer, tmp_path: Path
) -> None:
    """The setting is named and the password is not, neither in the message nor in anything it is printed with."""
    write_secret(tmp_path / "wrong", "guessed-it-0123")
    text = refusal(secured_server.spec(password_file=str(tmp_path / "wrong")))
    assert "store.password_file" in text
    assert "'stoker'" in text
    assert "guessed" not in text
    store = RedisStore(secured_server.spec(), "connections")
    for shown in (repr(store), repr(vars(store)), repr(store.server), str(store.server)):
        assert PASSWORD not in shown
    store.close()


def test_no_password_where_one_is_needed(secured_server: RedisServer) -> None:
    """Without one, the error names the setting."""
    assert "store.password_file" in refusal(secured_server.spec(password_file="", user=""))


def test_a_password_file_that_cannot_be_used_is_named(
    secured_server: RedisServer, tmp_path: Path
) -> None:
    """Gone, or empty."""
    (tmp_path / "empty").touch()
    gone = refusal(secured_server.spec(password_file=str(tmp_path / "gone")))
    assert "gone cannot be read" in gone
    assert "is empty" in refusal(secured_server.spec(password_file=str(tmp_path / "empty")))


def test_a_password_may_change_while_everything_runs(
    own_server: RedisServer, tmp_path: Path
) -> None:
    """In between, the store is unavailable and the error has the reason; with the new password in the file it goes on by itself."""
    write_secret(tmp_path / "password", PASSWORD)
    store = RedisStore(own_server.spec(password_file=str(tmp_path / "password")), "connections")
    store.append("inbox", b"a")
    admin = own_server.client()
    admin.execute_command(  # type: ignore[no-untyped-call]
        "ACL", "SETUSER", "stoker", "resetpass", ">another-one-0123"
    )
    admin.execute_command(  # type: ignore[no-untyped-call]
        "CLIENT", "KILL", "USER", "stoker"
    )
    with pytest.raises(StoreUnavailable, match=r"store\.password_file"):
        store.append("inbox", b"b")
    (tmp_path / "password").write_text("another-one-0123\n")
    assert store.append("inbox", b"b") == 2
    store.close()


# ---- rights


def test_the_deployed_users_have_all_rights_that_are_needed_and_no_others(
    own_server: RedisServer,
) -> None:
    """A store's user can neither empty the server, nor configure it, nor read another cluster."""
    admin = own_server.client()
    admin.execute_command(  # type: ignore[no-untyped-call]
        "ACL", "SETUSER", "stoker", "resetkeys", "~stoker:connections:*"
    )
    store = RedisStore(own_server.spec(), "connections")
    check_durable(store)
    for words in (
        ("FLUSHALL",),
        ("FLUSHDB",),
        ("CONFIG", "SET", "appendonly", "no"),
        ("SHUTDOWN",),
        ("KEYS", "*"),
        ("REPLICAOF", "NO", "ONE"),
        ("SCRIPT", "FLUSH"),
        ("GET", "stoker:other:meta"),
        ("EXISTS", "stoker:other:meta"),
    ):
        assert str(store.command(*words)).startswith("NOPERM"), words
    text = refusal(own_server.spec(), "other")
    assert "store.user: 'stoker'" in text
    assert "users.acl" in text
    store.close()


def test_a_right_taken_away_is_an_outage_until_it_is_back(own_server: RedisServer) -> None:
    """In the middle of a run it is for an operator to repair; no process ends for it."""
    store = RedisStore(own_server.spec(), "connections")
    admin = own_server.client()
    admin.execute_command(  # type: ignore[no-untyped-call]
        "ACL", "SETUSER", "stoker", "-xadd"
    )
    with pytest.raises(StoreUnavailable, match=r"store\.user: 'stoker' lacks rights"):
        store.append("inbox", b"a")
    admin.execute_command(  # type: ignore[no-untyped-call]
        "ACL", "SETUSER", "stoker", "+xadd"
    )
    assert store.append("inbox", b"a") == 1
    store.close()


# ---- certificates


def test_only_the_server_that_our_authority_signed_is_believed(
    secured_server: RedisServer, tmp_path: Path
) -> None:
    """Another authority, or the system's, does not vouch for it."""
    with RedisServer(tmp_path / "other", tls=True) as other:
        text = refusal(secured_server.spec(ca_file=str(other.folder / "ca.crt")))
        assert "store.ca_file" in text
        assert "authority" in text
        assert "store.ca_file: the system's" in refusal(secured_server.spec(ca_file=""))
        text = refusal(
            secured_server.spec(
                certificate_file=str(other.folder / "client.crt"),
                key_file=str(other.folder / "client.key"),
            )
        )
        assert "store.certificate_file" in text


def test_a_server_whose_certificate_expired_is_refused(tmp_path: Path) -> None:
    """The message reports that it expired, and of which server."""
    with RedisServer(
        tmp_path / "redis",
        tls=True,
        settings={
            "tls-cert-file": str(tmp_path / "redis" / "expired.crt"),
            "tls-key-file": str(tmp_path / "redis" / "expired.key"),
        },
    ) as server:
        text = refusal(server.spec())
    assert "certificate has expired: renew it" in text
    assert server.address in text


def test_an_invalid_client_certificate_is_refused(secured_server: RedisServer) -> None:
    """None given, an expired one, or one with another's key."""
    folder = secured_server.folder
    none = refusal(secured_server.spec(certificate_file="", key_file=""))
    assert "store.certificate_file" in none
    assert "none given" in none
    expired = refusal(
        secured_server.spec(
            certificate_file=str(folder / "expired.crt"), key_file=str(folder / "expired.key")
        )
    )
    assert "store.certificate_file" in expired
    assert "expired" in expired
    mixed = refusal(secured_server.spec(key_file=str(folder / "server.key")))
    assert "the key must belong to the certificate" in mixed


def test_a_certificate_for_another_address_is_refused(secured_server: RedisServer) -> None:
    """A server may not pass for another one, even with a certificate of the same authority."""
    port = secured_server.address.rpartition(":")[2]
    text = refusal(secured_server.spec(address=f"localhost:{port}"))
    assert f"store.address: localhost:{port}" in text
    assert "localhost" in text


@pytest.mark.costly
def test_tls_on_one_side_only_is_named(
    redis_server: RedisServer, secured_server: RedisServer
) -> None:
    """On either side the error recommends TLS. A plain server only waits on, so that this looks like one that hangs."""
    store = RedisStore(redis_server.spec(tls=True), "connections")
    with pytest.raises(StoreUnavailable, match="is its port a TLS port"):
        store.last("inbox")
    store.close()
    store = RedisStore(StoreSpec(address=secured_server.address), "connections")
    with pytest.raises(StoreUnavailable, match="does it want `tls: true`"):
        store.last("inbox")
    store.close()


# ---- wrong servers


def test_what_is_no_redis_is_named(tmp_path: Path) -> None:
    """A port where another program answers."""
    import http.server
    import threading

    class Web(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Web) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        text = refusal(StoreSpec(address=f"127.0.0.1:{web.server_port}"))
        web.shutdown()
    assert "is no Redis" in text


def test_a_redis_cluster_is_refused(tmp_path: Path) -> None:
    """Its keys lie on many servers, and it fails over by itself."""
    settings = {"cluster-enabled": "yes", "cluster-port": str(free_port("127.0.0.1"))}
    with RedisServer(tmp_path / "redis", settings=settings) as server:
        assert "runs as 'cluster'" in refusal(server.spec())


def test_reading_does_not_create_a_store_that_was_never_started(redis_server: RedisServer) -> None:
    """Opened without `create`, the server is left as it is."""
    with pytest.raises(UserError, match="cluster 'unheard-of' was never started"):
        RedisStore(redis_server.spec(), "unheard-of", create=False)
    cluster = ClusterSpec(name="unheard-of", store=redis_server.spec())
    assert not exists(cluster)
    assert redis_server.client().keys("stoker:unheard-of:*") == []
    open_store(cluster).close()
    assert exists(cluster)


def test_another_database_is_another_store(redis_server: RedisServer) -> None:
    """`store.database` separates clusters of one name."""
    first = RedisStore(redis_server.spec(), "connections-database")
    second = RedisStore(redis_server.spec(database=1), "connections-database")
    first.append("inbox", b"a")
    assert second.last("inbox") == 0
    first.close()
    second.close()


def test_a_name_that_cannot_be_resolved_takes_no_longer_than_the_deadline() -> None:
    """Opening succeeds, calls raise the reason; no call waits for a resolver."""
    started = time.monotonic()
    store = RedisStore(StoreSpec(address="no-such-host.invalid:6379"), "connections")
    with pytest.raises(StoreUnavailable, match="no address is known for the name 'no-such-host"):
        store.last("inbox")
    assert time.monotonic() - started < 20
    store.close()


def test_a_handle_may_be_opened_before_its_server(tmp_path: Path) -> None:
    """An agent that starts while the server is down goes on once it is there."""
    with RedisServer(tmp_path / "redis") as server:
        server.stop()
        store = RedisStore(server.spec(), "connections")
        with pytest.raises(StoreUnavailable, match="out of reach"):
            store.append("inbox", b"a")
        server.start()
        assert store.append("inbox", b"a") == 1
        assert payloads(store, "inbox") == [b"a"]
        store.close()


# ---- durability


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("appendonly", "no", "appendonly: is no"),
        ("appendfsync", "everysec", "appendfsync: is everysec: a power cut loses"),
        ("no-appendfsync-on-rewrite", "yes", "no-appendfsync-on-rewrite: is yes"),
        ("maxmemory-policy", "allkeys-lru", "maxmemory-policy: is allkeys-lru"),
        ("proto-max-bulk-len", "1048576", "proto-max-bulk-len: is 1048576"),
    ],
)
def test_a_server_that_would_lose_data_is_refused(
    own_server: RedisServer, name: str, value: str, words: str
) -> None:
    """Setting, value and way out are named; as deployed, it passes."""
    store = RedisStore(own_server.spec(), "connections")
    check_durable(store)
    own_server.client().config_set(name, value)
    with pytest.raises(UserError, match=words) as caught:
        check_durable(store)
    assert "--volatile-store" in str(caught.value)
    store.close()


def test_settings_that_cannot_be_read_are_not_trusted(own_server: RedisServer) -> None:
    """Unknown is not healthy."""
    own_server.client().execute_command(  # type: ignore[no-untyped-call]
        "ACL", "SETUSER", "stoker", "-config|get"
    )
    store = RedisStore(own_server.spec(), "connections")
    with pytest.raises(UserError, match="appendfsync: the server does not say"):
        check_durable(store)
    store.close()


def test_a_server_with_a_replica_is_refused(own_server: RedisServer, tmp_path: Path) -> None:
    """A replica could take over without what was acknowledged; and one is no store itself."""
    own_server.client().config_set("repl-diskless-sync-delay", 0)
    store = RedisStore(own_server.spec(), "connections")
    host, port = own_server.bind[0], own_server.port
    settings = {
        "replicaof": f"{host} {port}",
        "masteruser": "admin",
        "masterauth": "look-after-0123",
    }
    with RedisServer(tmp_path / "replica", settings=settings) as replica:
        until = time.monotonic() + 30
        while replica.client().info("replication")["master_link_status"] != "up":
            assert time.monotonic() < until
            time.sleep(0.05)
        with pytest.raises(UserError, match="role: 1 replicas follow it"):
            check_durable(store)
        copy = RedisStore(replica.spec(), "connections")
        with pytest.raises(StoreUnavailable, match="it is a replica, which refuses writes"):
            check_durable(copy)
        copy.close()
        replica.kill()
    store.close()
