import math
import queue
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.decide.state.cluster_state import State
from runner.errors import Fenced
from runner.facts.messages.cluster_status import (
    CheckStatus,
    ClusterStatus,
    NodeChecks,
    NodeStatus,
    RunStatus,
)
from runner.facts.messages.records_checks import OutcomeGroup
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.store_names import CHECK_STATUS
from runner.history.ledger import Ledger
from runner.serve.status_reader import read_check_status, read_status
from runner.store.memory.store import MemoryStore
from runner.supervisor.status_publisher import (
    BURST_PAUSE_SECONDS,
    LONGEST_SECONDS,
    SHORTEST_SECONDS,
    StatusPublisher,
    StatusWriter,
    period,
)

SECONDS = 30.0


def view(sequence: int) -> ClusterStatus:
    """Return the status of a state after so many entries."""
    return ClusterStatus(cluster="c", now=0.0, wall=0.0, journal_sequence=sequence)


def test_the_newest_status_is_written_and_older_ones_may_be_skipped() -> None:
    """A reader sees them in order, and the newest one in the end."""
    store = MemoryStore()
    writer = StatusWriter(store, store.acquire_lease("supervisor", "me", ttl_seconds=60.0), print)
    writer.start()
    version, seen = 0, [0]
    for sequence in range(1, 200):
        writer.write(view(sequence))
    while seen[-1] < 199:
        batch = store.read(streams={}, registers={"status": version}, timeout_seconds=SECONDS)
        version = batch.registers["status"].version
        found = read_status(store)
        assert found is not None
        seen.append(found.journal_sequence)
    assert seen == sorted(seen)
    writer.stop(SECONDS)
    writer.write_now(view(500))
    found = read_status(store)
    assert found is not None
    assert found.journal_sequence == 500


def test_what_is_written_is_the_whole_status() -> None:
    """With nodes and runs, whatever text and numbers ranks put into them."""
    store = MemoryStore()
    writer = StatusWriter(store, store.acquire_lease("supervisor", "me", ttl_seconds=60.0), print)
    nodes = (
        NodeStatus(node="n1", state="spare"),
        NodeStatus(node="n2", state="lost", reason="null"),
    )
    runs = (
        RunStatus(run=1, name="a", state="active", recent_losses=(1.0, math.nan)),
        RunStatus(run=2, name="b", state="failed", reason="\udcff"),
    )
    writer.write_now(replace(view(3), nodes=nodes, runs=runs))
    written = read_status(store)
    assert written is not None
    assert (written.journal_sequence, written.nodes, written.runs[1].reason) == (
        3,
        nodes,
        "\\udcff",
    )
    assert [str(loss) for loss in written.runs[0].recent_losses] == ["1.0", "nan"]


def test_results_of_checks_are_written_when_they_change() -> None:
    """Apart from the status, which is written every moment: the same results again are no write."""
    store = MemoryStore()
    writer = StatusWriter(store, store.acquire_lease("supervisor", "me", ttl_seconds=60.0), print)
    group = OutcomeGroup(outcome="UNKNOWN", at=1.0, level="quick", checks=("clock",))
    one = CheckStatus(cluster="c", nodes=(NodeChecks(node="n1", outcomes=(group,)),))
    other = CheckStatus(cluster="c", nodes=(NodeChecks(node="n2", outcomes=(group,)),))
    versions = []
    for checks in (one, replace(one), other):
        writer.write_now(view(1), checks)
        register = store.get(CHECK_STATUS)
        assert register is not None
        versions.append(register.version)
        assert read_check_status(store) == checks
    assert versions[0] == versions[1] < versions[2]


def test_a_lost_lease_is_reported_and_ends_the_thread() -> None:
    """A supervisor that lost its lease learns of it by any write."""
    store = MemoryStore()
    lease = store.acquire_lease("supervisor", "me", ttl_seconds=60.0)
    store.break_lease("supervisor", "me")
    store.acquire_lease("supervisor", "another", ttl_seconds=60.0)
    errors: queue.Queue[Exception] = queue.Queue()
    writer = StatusWriter(store, lease, errors.put)
    writer.start()
    writer.write(view(1))
    assert isinstance(errors.get(timeout=SECONDS), Fenced)
    writer.stop(SECONDS)
    assert not [thread for thread in threading.enumerate() if thread.name == "status-writer"]
    assert read_status(store) is None


def test_a_large_fleet_is_published_less_often_and_never_looks_stale() -> None:
    """At full pace for a few nodes, and within the age at which `stoker status` warns for any number."""
    assert period(4) == SHORTEST_SECONDS
    assert SHORTEST_SECONDS < period(2000) <= period(10_000) <= LONGEST_SECONDS < 5.0


def test_an_answer_is_in_the_status_without_delay(tmp_path: Path) -> None:
    """However many changes there were before: who was answered and asks for the status at once sees what was answered."""
    store = MemoryStore()
    writer = StatusWriter(store, store.acquire_lease("supervisor", "me", ttl_seconds=60.0), print)
    cluster = ClusterSpec(name="c", state=str(tmp_path), local=LocalNodes(nodes=0, slots=1))
    publisher = StatusPublisher(cluster, writer, lambda: {"holder": "me"})
    state, ledger, now = State(), Ledger(bounded=True), 100.0
    delays = []
    for _ in range(10):
        publisher.mark_changed()
        delays.append(publisher.due_at() - now)
        now = max(now, publisher.due_at())
        publisher.advance(state, ledger, now)
        while publisher.due_at() == 0.0:
            publisher.advance(state, ledger, now)
    assert delays[-1] == SHORTEST_SECONDS
    publisher.mark_answered()
    assert publisher.due_at() - now == pytest.approx(BURST_PAUSE_SECONDS)


def test_a_cluster_without_nodes_and_news_is_published_again(tmp_path: Path) -> None:
    """Its status does not grow old, so that `StokerStatusStale` does not page about a supervisor that has nothing to do."""
    store = MemoryStore()
    writer = StatusWriter(store, store.acquire_lease("supervisor", "me", ttl_seconds=60.0), print)
    writer.start()
    cluster = ClusterSpec(name="c", state=str(tmp_path), local=LocalNodes(nodes=0, slots=1))
    publisher = StatusPublisher(cluster, writer, lambda: {"holder": "me"})
    state, ledger, now, version = State(), Ledger(bounded=True), 100.0, 0
    for _ in range(4):
        while publisher.due_at() <= now:
            publisher.advance(state, ledger, now)
        batch = store.read(streams={}, registers={"status": version}, timeout_seconds=SECONDS)
        assert batch.registers["status"].version > version
        version = batch.registers["status"].version
        found = read_status(store)
        assert found is not None
        assert found.now == now
        assert now < publisher.due_at() <= now + LONGEST_SECONDS
        now = publisher.due_at()
    writer.stop(SECONDS)
