"""An attacker who reaches the store without the token, or with recorded messages: the supervisor refuses and counts all of them."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml

from runner.cli.clusters import find_cluster
from runner.facts import wire
from runner.facts.messages.records import MessageUnreadable
from runner.facts.messages.requests import ShutDown, StopRun
from runner.facts.messages.signals import Signal
from runner.journal.journal import Journal
from runner.signer import signer_of
from runner.store.sqlite import tables
from tests.e2e.cluster_harness import ClusterHarness, Training, incidents_of, kill, node_of, run_of
from tests.e2e.minimal_run import led_run
from tests.e2e.scripts import STEPPING

pytestmark = pytest.mark.timeout(900)

NO_CHECKS: dict[str, object] = {"checks": []}


def led(harness: ClusterHarness, **limits: object) -> tuple[subprocess.Popen[bytes], Training]:
    """Start a supervisor and a run, and wait until its ranks step."""
    supervisor = led_run(harness, **{**NO_CHECKS, **limits})
    return supervisor, harness.training(past_step=1)


def over(harness: ClusterHarness, supervisor: subprocess.Popen[bytes], before: Training) -> None:
    """Check that steps go on in the same processes and no others, and that the cluster ends in order."""
    assert harness.training(past_step=run_of(harness.view()).step + 5).pids == before.pids
    assert harness.observer.starts() == {str(before.attempt): 2}
    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    ended = harness.stoker("shutdown")
    assert ended.returncode == 0, ended
    assert supervisor.wait(30) == 0


def await_refused(harness: ClusterHarness, reason: str, count: int) -> None:
    """Wait until so many messages were refused for this reason."""
    harness.wait(
        lambda view: view.refused_messages.get(reason, 0) >= count or None, f"{count} {reason}"
    )


def unreadable_messages(harness: ClusterHarness) -> list[MessageUnreadable]:
    """Return the journal's records of unreadable messages."""
    entries = Journal(harness.store).replay()
    return [entry.input for entry in entries if isinstance(entry.input, MessageUnreadable)]


def test_a_request_without_the_token_is_refused(harness: ClusterHarness) -> None:
    """Unsigned, signed with another token, or signed for another stream: the cluster stays up, and the journal records it once."""
    supervisor, before = led(harness)
    signer = signer_of(find_cluster(str(harness.state)))
    assert signer.is_active
    for number in range(20):
        request = wire.encode(ShutDown(id=f"q-{number}", by="mallory"))
        harness.store.append("requests", request)
        harness.store.append("requests", signer.sign("signals", request))
    await_refused(harness, "unsigned", 40)
    view = harness.view()
    assert view is not None
    assert not view.closing
    assert not view.unsigned
    assert len(unreadable_messages(harness)) == 1
    over(harness, supervisor, before)


def test_replayed_signals_and_requests_are_refused(
    harness: ClusterHarness,
) -> None:
    """The attacker appends every earlier signal and request again and again: the supervisor handles none of them twice."""
    supervisor, before = led(harness)
    signer, store = signer_of(find_cluster(str(harness.state))), harness.store
    for stream in ("signals", "requests"):
        items = store.read(streams={stream: 0}, registers={}, timeout_seconds=0).items[stream]
        for _ in range(3):
            store.append_many(stream, [item.payload for item in items])
    signals = store.read(streams={"signals": 0}, registers={}, timeout_seconds=0).items["signals"]
    facts = [wire.decode(signer.verify("signals", item.payload)) for item in signals]
    num_replayed = sum(isinstance(fact, Signal) for fact in facts) * 3 // 4
    # two joins, two starts, two settings at least
    assert num_replayed >= 6
    await_refused(harness, "replayed", num_replayed)
    view = harness.view()
    assert view is not None
    assert [node.state for node in view.nodes] == ["active", "active"]
    assert len(view.runs) == 1
    over(harness, supervisor, before)


def test_a_dead_node_is_found_silent_while_its_old_heartbeats_are_replayed(
    harness: ClusterHarness,
) -> None:
    """Its agent is killed; the attacker replays every heartbeat it ever sent; the supervisor still finds it silent."""
    supervisor, before = led(harness, heartbeat_timeout_seconds=3.0)
    signer, store = signer_of(find_cluster(str(harness.state))), harness.store
    agent = node_of(harness.view(), "n2").agent_pid
    kill(agent)
    items = store.read(streams={"heartbeats": 0}, registers={}, timeout_seconds=0).items[
        "heartbeats"
    ]
    mine = [
        item.payload
        for item in items
        if wire.decode(signer.verify("heartbeats", item.payload)).node == "n2"
    ]
    assert mine
    with replaying(harness, mine):
        harness.wait(
            lambda view: [i.fault for i in view.incidents] == ["node_silent"] or None, "silence"
        )
        await_refused(harness, "replayed", len(mine))
    harness.wait(lambda view: node_of(view, "n2").agent_pid != agent or None, "another agent")
    over(harness, supervisor, before)
    assert [(i.fault, i.state) for i in incidents_of(harness.view())] == [
        ("node_silent", "resolved")
    ]


def test_a_replayed_assignment_starts_and_ends_no_rank(harness: ClusterHarness) -> None:
    """The attacker writes the signed register from before the launch: its generation is old, and the ranks go on."""
    harness.write_cluster(nodes=2, slots=1, limits=NO_CHECKS)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    supervisor = harness.start("supervise")
    harness.wait(
        lambda view: [node.state for node in view.nodes] == ["spare", "spare"] or None, "two spares"
    )
    idle = harness.until(lambda: harness.store.get("assignment/n1"), "an idle assignment").payload
    assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
    before = harness.training(past_step=1)
    launch = harness.store.get("assignment/n1")
    assert launch is not None
    assert launch.payload != idle
    for _ in range(3):
        harness.store.put("assignment/n1", idle)
        harness.training(past_step=run_of(harness.view()).step + 10)
    harness.store.put("assignment/n1", launch.payload.replace(b"train.py", b"other.py"))
    harness.training(past_step=run_of(harness.view()).step + 10)
    harness.store.put("assignment/n1", launch.payload)
    over(harness, supervisor, before)


def test_malformed_messages_do_not_block_operators_and_agents(harness: ClusterHarness) -> None:
    """Thousands of malformed lines in every stream, some larger than any message: requests and heartbeats still pass."""
    supervisor, before = led(harness)
    noise = [bytes([n % 256]) * (n % 900) for n in range(1500)]
    noise += [b"[" * 20_000, b'{"kind":"heartbeat","node":"n1"}', b"\xff" * 60_000]
    for stream in ("signals", "requests", "heartbeats"):
        for _ in range(2):
            harness.store.append_many(stream, noise)
    with closing(sqlite3.connect(harness.state / "store" / "store.db")) as rows, rows:
        tables.append(rows, "signals", [b"x" * 200_000, b"{" * 2_000_000], seen=0, at=None)
    # Wakes the supervisor, which this test cannot.
    harness.store.append_many("signals", noise[:3])
    await_refused(harness, "unsigned", 6 * len(noise))
    await_refused(harness, "malformed", 2)
    journal = harness.store.last("journal")
    answer = harness.ask(StopRun(id="q-unknown", by="ann", run="no such run"))
    assert answer.state == "refused"
    assert len(unreadable_messages(harness)) <= 2
    assert journal < 1000
    assert [i.fault for i in incidents_of(harness.view())] == []
    over(harness, supervisor, before)


def test_of_two_supervisors_that_both_act_as_leader_one_is_fenced(
    harness: ClusterHarness,
) -> None:
    """Its lease is taken from it without its knowledge: its next append is refused, it exits, and no gang is launched twice."""
    first, before = led(harness)
    view = harness.view()
    assert view is not None
    assert harness.store.break_lease("supervisor", view.holder)
    second = harness.start("supervise")
    assert first.wait(60) == 1
    harness.wait(lambda view: f":{second.pid}:" in view.holder or None, "a View of the second")
    assert "lead" in harness.output()
    over(harness, second, before)


def test_a_supervisor_without_its_token_does_not_lead(harness: ClusterHarness) -> None:
    """A cluster that was led with a token is not led without: the error names the file, and running ranks go on."""
    supervisor, before = led(harness)
    supervisor.kill()
    supervisor.wait()
    token = harness.state / "cluster.token"
    away = token.rename(token.with_name("away"))
    refused = harness.stoker("supervise")
    assert refused.returncode == 2
    assert str(token) in refused.stderr
    made = harness.stoker("token", "--json")
    assert made.returncode == 2
    assert "shutdown" in made.stderr
    away.rename(token)
    assert json.loads(harness.stoker("token", "--json").stdout) == {
        "token_file": str(token),
        "made": False,
    }
    again = harness.start("supervise")
    over(harness, again, before)


def test_of_two_clusters_of_one_name_in_one_store_the_second_is_refused(
    harness: ClusterHarness,
) -> None:
    """With another token or none, while the first leads and when it is dead; with the same token it is the same cluster."""
    token = harness.folder / "first.token"
    token.write_text("the token of the first cluster\n")
    token.chmod(0o600)
    first, before = led(harness, token_file=str(token), lease_seconds=2.0)
    fields = yaml.safe_load((harness.folder / "cluster.yaml").read_text())
    for made, text in (("second", "the token of the second cluster"), ("same", token.read_text())):
        folder = harness.folder / made
        folder.mkdir()
        (folder / "cluster.token").write_text(text)
        (folder / "cluster.token").chmod(0o600)
        changed: dict[str, object] = {"state": str(harness.state), "token_file": "cluster.token"}
        changed["heartbeat_timeout_seconds"] = 7.0
        (folder / "cluster.yaml").write_text(yaml.safe_dump({**fields, **changed}))
    spec = (harness.state / "cluster.json").read_bytes()
    second = str(harness.folder / "second" / "cluster.yaml")
    for words in ("supervise --standby", f"stop {harness.name}"):
        refused(harness, *words.split(), "--cluster", second, named=f"second{os.sep}cluster.token")
    first.kill()
    first.wait()
    for words in ("supervise", "run run.yaml --detach"):
        refused(harness, *words.split(), "--cluster", second, named=f"second{os.sep}cluster.token")
    (harness.state / "cluster.json").unlink()
    without = yaml.safe_load(Path(second).read_text())
    del without["token_file"]
    Path(second).write_text(yaml.safe_dump(without))
    refused(harness, "supervise", "--cluster", second, named="this one has none")
    (harness.state / "cluster.json").write_bytes(spec)
    same = harness.start("supervise", "--cluster", str(harness.folder / "same" / "cluster.yaml"))
    over(harness, same, before)


def refused(harness: ClusterHarness, *words: str, named: str) -> None:
    """Check that a command is refused, with what is wrong and the way out."""
    ended = harness.stoker(*words)
    assert ended.returncode == 2, ended
    for part in (f"holds the journal of another cluster {harness.name!r}", named, "another name"):
        assert part in ended.stderr, ended


@contextmanager
def replaying(harness: ClusterHarness, heartbeats: list[bytes]) -> Iterator[None]:
    """Append these again and again while the block runs."""
    ended = threading.Event()

    def play() -> None:
        while not ended.wait(0.05):
            harness.store.append_many("heartbeats", heartbeats[-50:])

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
