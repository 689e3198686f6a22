"""`stoker token`: it makes a token once, and never shows or overwrites it; which clusters run without one."""

import json
import time
from pathlib import Path

import pytest

from runner.cli.clusters import find_cluster
from runner.cli.made_clusters import with_token, write_spec
from runner.errors import Forged, UserError
from runner.facts import wire
from runner.facts.messages.records import JournalEntry, SupervisorStarted
from runner.facts.specs.cluster import ClusterSpec, LocalNodes, StoreSpec
from runner.signer import UNSIGNED, Signer, load_signer, signer_of
from runner.store.sqlite.store import SqliteStore
from runner.token_file import read_token_file, utc
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


def test_a_token_is_replaced_above_the_earlier_one_while_nothing_runs(folder: Path) -> None:
    """What the earlier one signed is verified where it was kept, and refused as a message."""
    (folder / "cluster.yaml").write_text("name: lab\ntoken_file: token\n")
    assert stoker("token").exit_code == 0
    earlier = (folder / "token").read_text()
    before = Signer(earlier.strip().encode())
    replaced = stoker("token", "--replace")
    assert replaced.exit_code == 0
    lines = (folder / "token").read_text().splitlines()
    assert len(lines) == 2
    assert lines[1] == earlier.strip()
    assert lines[0] not in replaced.output
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    after, message = signer_of(find_cluster(None)), before.sign("journal.snapshot.0", b"{}")
    assert after.verify_kept("journal.snapshot.0", message) == (b"{}", -1)
    with pytest.raises(Forged):
        after.verify("journal.snapshot.0", message)


def test_a_rotation_says_what_to_copy_and_until_when(folder: Path) -> None:
    """For people and for programs; a second one is refused until the first has ended; no output shows a token."""
    (folder / "cluster.yaml").write_text("name: lab\ntoken_file: token\n")
    path = folder / "token"
    path.write_text("four words of a secret\n")
    path.chmod(0o600)
    begun = time.time()
    rotated = stoker("token", "--rotate", "--valid", "600")
    assert rotated.exit_code == 0
    times, made, earlier = path.read_text().splitlines()
    assert earlier == "four words of a secret"
    tokens, note = read_token_file(path), " ".join(rotated.stderr.split())
    assert tokens.rotation == times[2:]
    assert f"every machine of the cluster before {utc(tokens.signs_from)}, when the new one" in note
    assert f"the earlier one is accepted until {utc(tokens.valid_until)}" in note
    assert begun + 300 <= tokens.signs_from <= time.time() + 301
    assert 299 <= tokens.valid_until - tokens.signs_from <= 301
    before = path.read_text()
    again = stoker("token", "--rotate")
    assert again.exit_code == 2
    assert times[2:] in again.output
    assert path.read_text() == before
    shown = json.loads(stoker("token", "--json").stdout)
    assert (shown["signs_from"], shown["valid_until"]) == tokens[1:3]
    assert stoker("token", "--rotate", "--valid", "1").exit_code == 2
    assert stoker("token", "--replace").exit_code == 0
    assert path.read_text().splitlines()[1:] == [made, earlier]
    assert made not in rotated.output + again.output
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_rotation_may_begin_when_the_last_one_has_ended(folder: Path) -> None:
    """The file then has the times of the new one alone."""
    (folder / "cluster.yaml").write_text("name: lab\ntoken_file: token\n")
    path = folder / "token"
    old = (
        "# signs from 2026-01-01T00:00:00Z, the token below it is valid until 2026-01-01T01:00:00Z"
    )
    path.write_text(f"{old}\n{'b' * 16}\n{'a' * 16}\n")
    path.chmod(0o600)
    assert stoker("token", "--rotate").exit_code == 0
    lines = path.read_text().splitlines()
    assert lines[2:] == ["b" * 16, "a" * 16]
    assert lines[0] != old


def test_a_token_that_a_person_wrote_may_hold_blanks(folder: Path) -> None:
    """Lines are tokens, words are not: the words of one line are no earlier tokens."""
    path = folder / "token"
    path.write_text("four words of a secret\n\n  an earlier one, as long  \n")
    path.chmod(0o600)
    signer = load_signer(str(path))
    signed = signer.sign("s", b"{}")
    assert Signer(b"four words of a secret").verify("s", signed) == b"{}"
    kept = Signer(b"an earlier one, as long").sign("s", b"{}")
    assert signer.verify_kept("s", kept)[0] == b"{}"
