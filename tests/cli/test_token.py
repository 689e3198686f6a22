"""`stoker token`: it makes a token once, and never shows or overwrites it; which clusters run without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.cli.clusters import find_cluster, with_token, write_spec
from runner.errors import UserError
from runner.facts import wire
from runner.facts.messages.records import JournalEntry, SupervisorStarted
from runner.facts.specs.cluster import ClusterSpec, LocalNodes, StoreSpec
from runner.signer import UNSIGNED, signer_of
from runner.store.sqlite.store import SqliteStore
from tests.cli.conftest import stoker


def test_a_token_is_made_once_and_readable_by_its_owner_only(folder: Path) -> None:
    """The command prints its path, never the token; the second time it changes nothing."""
    (folder / "cluster.yaml").write_text("name: lab\ntoken_file: secrets/token\n")
    path = folder / "secrets" / "token"
    first = stoker("token", "--json")
    assert json.loads(first.stdout) == {"token_file": str(path), "made": True}
    token = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    second = stoker("token")
    assert second.exit_code == 0
    assert second.stdout == f"{path}\n"
    assert path.read_text() == token
    assert token.strip() not in first.output + second.output


@pytest.mark.parametrize(("mode", "text"), [(0o644, "x" * 64), (0o600, "short")])
def test_an_unsafe_token_is_refused_on_read(folder: Path, mode: int, text: str) -> None:
    """One that others can read, or that is too short, gives one line that names the file."""
    (folder / "cluster.yaml").write_text("name: lab\ntoken_file: token\n")
    (folder / "token").write_text(text)
    (folder / "token").chmod(mode)
    refused = stoker("token")
    assert refused.exit_code == 2
    assert str(folder / "token") in refused.output


def test_a_new_cluster_of_this_machine_gets_a_token_by_itself(folder: Path) -> None:
    """Afterwards every command that knows the state folder finds it."""
    cluster = with_token(ClusterSpec(name="lab", state=str(folder / "state")))
    write_spec(cluster)
    assert cluster.token_file == str(folder / "state" / "cluster.token")
    assert find_cluster(str(folder / "state")) == cluster
    message = signer_of(cluster).sign("requests", b"{}")
    assert signer_of(find_cluster(str(folder / "state"))).verify("requests", message) == b"{}"


def test_a_cluster_that_has_a_journal_and_no_token_goes_on_without(folder: Path) -> None:
    """An older release led it, and its agents do not sign; `stoker token` changes that while the cluster is stopped."""
    state = folder / "state"
    write_spec(ClusterSpec(name="lab", state=str(state)))
    store = SqliteStore(state / "store")
    started = SupervisorStarted(holder="host:1:2", token=1, version="0")
    store.append("journal", wire.encode(JournalEntry(sequence=1, now=1.0, input=started)))
    store.close()
    cluster = with_token(find_cluster(str(state)))
    assert cluster.token_file == ""
    assert signer_of(cluster) is UNSIGNED
    assert stoker("token", "--cluster", str(state)).exit_code == 0
    assert signer_of(find_cluster(str(state))).is_active


def test_no_token_is_made_while_a_cluster_is_led_without(folder: Path) -> None:
    """The supervisor would refuse its agents' messages: the remedy is a shutdown."""
    from runner.supervisor.lease import holder_name

    state = folder / "state"
    write_spec(ClusterSpec(name="lab", state=str(state)))
    store = SqliteStore(state / "store")
    store.acquire_lease("supervisor", holder_name(), ttl_seconds=60.0)
    refused = stoker("token", "--cluster", str(state))
    store.close()
    assert refused.exit_code == 2
    assert "stoker shutdown" in refused.output
    assert not (state / "cluster.token").exists()


def test_a_store_on_the_network_is_never_used_without_a_token(folder: Path) -> None:
    """A cluster that was led with a token is not used either, once the file is gone."""
    shared = ClusterSpec(
        name="lab",
        state=str(folder / "shared"),
        local=LocalNodes(nodes=0),
        store=StoreSpec(address="127.0.0.1:1"),
    )
    with pytest.raises(UserError, match="stoker token"):
        signer_of(with_token(shared))
    led = with_token(ClusterSpec(name="lab", state=str(folder / "led")))
    write_spec(led)
    Path(led.token_file).unlink()
    with pytest.raises(UserError, match=r"cluster\.token"):
        signer_of(find_cluster(led.state))
