"""The in-memory store fails exactly by its plan, and counts the operations."""

import threading

import pytest

from runner.errors import StoreUnavailable
from runner.store.memory.faults import Crash, Faults, StoreFault, single_faults
from runner.store.memory.store import MemoryStore
from tests.store.store_harness import payloads


def test_operations_that_change_something_are_counted() -> None:
    """Every injection point has a number, a method and a name; reads have none."""
    store = MemoryStore()
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    store.append("inbox", b"x", fence=lease)
    store.append_many("inbox", [b"y", b"z"])
    store.put("status", b"x")
    payloads(store, "inbox")
    store.get("status")
    store.renew(lease)
    store.trim("inbox", 1)
    store.delete("status")
    store.break_lease("lead", "b")
    store.release(lease)
    assert store.faults.operations == [
        ("acquire_lease", "lead"),
        ("append", "inbox"),
        ("append_many", "inbox"),
        ("put", "status"),
        ("renew", "lead"),
        ("trim", "inbox"),
        ("delete", "status"),
        ("break_lease", "lead"),
        ("release", "lead"),
    ]


@pytest.mark.parametrize(
    ("fault", "error", "is_done"),
    [
        (StoreFault.REFUSE, StoreUnavailable, False),
        (StoreFault.LOSE, StoreUnavailable, True),
        (StoreFault.CRASH_BEFORE, Crash, False),
        (StoreFault.CRASH_AFTER, Crash, True),
    ],
)
def test_each_fault_does_what_it_promises(
    fault: StoreFault, error: type[BaseException], is_done: bool
) -> None:
    """The second operation fails, done or not; the contents as another handle sees them show which."""
    store = MemoryStore(faults=Faults(plan={2: fault}))
    store.append("inbox", b"a")
    with pytest.raises(error):
        store.append("inbox", b"b")
    assert payloads(store.another(), "inbox") == [b"a", b"b"][: 1 + is_done]


def test_a_crashed_handle_stays_unusable() -> None:
    """What the process would still do, in its handlers and in its threads, never happens."""
    store = MemoryStore(faults=Faults(plan={1: StoreFault.CRASH_BEFORE}))
    other_thread: list[BaseException] = []

    def wait() -> None:
        try:
            store.read(streams={"inbox": 0}, registers={}, timeout_seconds=60)
        except Crash as crash:
            other_thread.append(crash)

    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(Crash):
        store.append("inbox", b"a")
    with pytest.raises(Crash):
        store.get("status")
    thread.join(60)
    assert len(other_thread) == 1
    store.wake()
    store.close()
    assert store.another().append("inbox", b"b") == 1


def test_an_outage_by_operations_passes() -> None:
    """A range of operations is refused, those before and after it are not."""
    store = MemoryStore(faults=Faults(outages=(range(2, 4),)))
    done = []
    for number in range(1, 6):
        try:
            store.append("inbox", b"%d" % number)
        except StoreUnavailable:
            continue
        done.append(number)
    assert done == [1, 4, 5]


def test_an_outage_by_hand_ends_blocked_reads() -> None:
    """While the store is down every call fails, a read that blocks too; afterwards all is as before."""
    store = MemoryStore()
    store.append("inbox", b"a")
    threading.Timer(0.05, store.go_down).start()
    with pytest.raises(StoreUnavailable, match="set to be down"):
        store.read(streams={"inbox": 1}, registers={}, timeout_seconds=60)
    with pytest.raises(StoreUnavailable):
        store.get("status")
    store.come_back()
    assert payloads(store, "inbox") == [b"a"]


def test_single_faults_meets_every_point_once() -> None:
    """An exhaustive test runs once per operation and fault."""
    plans = [plan.plan for plan in single_faults(3)]
    assert len(plans) == 3 * len(StoreFault)
    assert {(number, fault) for plan in plans for number, fault in plan.items()} == {
        (number, fault) for number in (1, 2, 3) for fault in StoreFault
    }
