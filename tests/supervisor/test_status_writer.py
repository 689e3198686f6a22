import queue
import threading
from typing import Any

from runner.errors import Fenced
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus
from runner.serve.status_reader import read_view
from runner.store.memory.store import MemoryStore
from runner.supervisor.status_writer import LONGEST_SECONDS, SHORTEST_SECONDS, StatusWriter, period

SECONDS = 30.0


def view(sequence: int) -> dict[str, Any]:
    """Make a View of a state after so many entries."""
    return wire.to_message(ClusterStatus(cluster="c", now=0.0, wall=0.0, journal_sequence=sequence))


def test_the_newest_view_is_written_and_what_it_overtook_need_not_be() -> None:
    """Whoever reads sees them in order, and the last one in the end."""
    store = MemoryStore()
    views = StatusWriter(store, store.acquire_lease("supervisor", "me", ttl_seconds=60.0), print)
    views.start()
    version, seen = 0, [0]
    for sequence in range(1, 200):
        views.write(view(sequence))
    while seen[-1] < 199:
        batch = store.read(streams={}, registers={"view": version}, timeout_seconds=SECONDS)
        version = batch.registers["view"].version
        found = read_view(store)
        assert found is not None
        seen.append(found.journal_sequence)
    assert seen == sorted(seen)
    views.stop(SECONDS)
    views.put(view(500))
    found = read_view(store)
    assert found is not None
    assert found.journal_sequence == 500


def test_a_lost_lease_is_told_and_ends_the_thread() -> None:
    """The one who leads no more learns of it, wherever it shows."""
    store = MemoryStore()
    lease = store.acquire_lease("supervisor", "me", ttl_seconds=60.0)
    store.break_lease("supervisor", "me")
    store.acquire_lease("supervisor", "another", ttl_seconds=60.0)
    told: queue.Queue[Exception] = queue.Queue()
    views = StatusWriter(store, lease, told.put)
    views.start()
    views.write(view(1))
    assert isinstance(told.get(timeout=SECONDS), Fenced)
    views.stop(SECONDS)
    assert not [thread for thread in threading.enumerate() if thread.name == "view"]
    assert read_view(store) is None


def test_views_of_a_large_fleet_are_drawn_less_often_and_never_grow_old() -> None:
    """As often as ever for a few nodes, and within what `stoker status` takes for fresh for any number."""
    assert period(4) == SHORTEST_SECONDS
    assert SHORTEST_SECONDS < period(2000) <= period(10_000) <= LONGEST_SECONDS < 5.0
