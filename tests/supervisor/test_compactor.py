"""The compactor's own thread writes snapshots and moves old entries; after any fault the next supervisor has the same state."""

import time
from pathlib import Path

import pytest

from bench.long_journal import LongJournal
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.errors import Fenced, StoreUnavailable
from runner.facts import wire
from runner.facts.messages.records import SupervisorPaused
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import JOURNAL
from runner.journal.archive import Archive
from runner.journal.journal import Journal
from runner.store.memory.faults import Faults, StoreFault
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store
from runner.supervisor import decisions as turns_module
from runner.supervisor.compactor import JournalCompactor
from runner.supervisor.decisions import DecisionLog

POLICY = Policy(cluster=ClusterSpec(name="c"), runbooks=())
SIZE = 20


def never(error: StoreUnavailable) -> None:
    """Fail: nothing here is an outage of the journal."""
    raise error


def opened(store: Store, folder: Path, holder: str = "a") -> tuple[DecisionLog, Journal]:
    """Recover as a supervisor does."""
    lease = store.acquire_lease("lead", holder, ttl_seconds=60)
    journal = Journal(store, lease, archive=Archive(folder, "c"), segment_entries=SIZE)
    turns = DecisionLog(Controller(POLICY), journal, on_outage=never)
    turns.recover()
    return turns, journal


def work(
    turns: DecisionLog, compactor: JournalCompactor, num_turns: int, *, is_quiet: bool = True
) -> int:
    """Process inputs, with a state image whenever one is due; return the number of images."""
    num_images = 0
    for _ in range(num_turns):
        turns.process(
            SupervisorPaused(seconds=0.0, reason="x" * 50), turns.controller.state.now + 1.0
        )
        if compactor.is_idle and turns.is_snapshot_due(is_quiet=is_quiet):
            compactor.submit(turns.state_image())
            num_images += 1
            settle(compactor)
    return num_images


def settle(compactor: JournalCompactor) -> None:
    """Wait until it is idle."""
    deadline = time.monotonic() + 60
    while not compactor.is_idle and time.monotonic() < deadline:
        time.sleep(0.001)
    assert compactor.is_idle


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "SNAPSHOT_ENTRIES", 10)


def test_a_busy_supervisor_takes_fewer_state_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes half as many, and the tail that a take-over reads stays bounded."""
    monkeypatch.setattr(turns_module, "SNAPSHOT_ENTRIES", 1)
    taken = {}
    for is_quiet in (True, False):
        store, errors = MemoryStore(), list[Exception]()
        turns, journal = opened(store, tmp_path / str(is_quiet))
        compactor = JournalCompactor(journal, errors.append)
        compactor.start()
        taken[is_quiet] = work(turns, compactor, 1000, is_quiet=is_quiet)
        compactor.close(10)
        assert not errors
    assert 5 < taken[False] <= 0.6 * taken[True]


def test_the_store_keeps_a_bounded_number_of_entries(tmp_path: Path) -> None:
    """After any number of inputs, the stream holds no more than a segment and the entries between two snapshots."""
    store, errors = MemoryStore(), list[Exception]()
    turns, journal = opened(store, tmp_path)
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    num_images = work(turns, compactor, 1000)
    compactor.close(10)
    assert not errors
    assert num_images > 5
    last = turns.controller.state.sequence
    apart = last // num_images + 1
    assert last - journal.first_stored() <= SIZE + 3 * apart
    assert [entry.sequence for entry in journal.replay()] == list(range(1, last + 1))


def test_the_next_supervisor_has_the_same_state_and_ledger(tmp_path: Path) -> None:
    """From any snapshot, the take-over reaches the same state, and reads only the tail."""
    store = MemoryStore()
    lease = store.acquire_lease("lead", "a", ttl_seconds=60)
    journal = Journal(store, lease, archive=Archive(tmp_path, "c"), segment_entries=SIZE)
    for entry in LongJournal(nodes=4, days=3, mark_seconds=600.0).entries():
        journal.append(entry)
    turns, journal = opened(store, tmp_path)
    errors: list[Exception] = []
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    settle(compactor)
    compactor.submit(turns.state_image())
    settle(compactor)
    work(turns, compactor, 200)
    compactor.close(10)
    assert not errors
    state, books = wire.encode(turns.controller.state), turns.ledger.dump()
    assert journal.first_stored() > 1
    store.break_lease("lead", "a")
    after, _ = opened(store, tmp_path, "b")
    assert wire.encode(after.controller.state) == state
    assert after.ledger.dump() == books
    whole = DecisionLog(
        Controller(POLICY), Journal(store, archive=Archive(tmp_path, "c")), on_outage=never
    )
    applied = 0
    for entry in Journal(store, archive=Archive(tmp_path, "c")).replay():
        whole.controller.apply(entry)
        applied += 1
    assert wire.encode(whole.controller.state) == state
    assert applied == after.controller.state.sequence


def test_journalled_messages_are_trimmed_from_the_store(tmp_path: Path) -> None:
    """The compactor trims message streams up to the cursors of the state image, and no further."""
    store, errors = MemoryStore(), list[Exception]()
    turns, journal = opened(store, tmp_path)
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    settle(compactor)
    numbers = [store.append("signals", b"a word") for _ in range(30)]
    for number in numbers[:20]:
        turns.process(
            SupervisorPaused(seconds=0.0, reason="x"),
            float(number),
            stream="signals",
            cursor=number,
        )
    compactor.submit(turns.state_image())
    settle(compactor)
    compactor.close(10)
    assert not errors
    left = store.read(streams={"signals": 0}, registers={}, timeout_seconds=0).items["signals"]
    assert [item.number for item in left] == numbers[20:]


def test_a_state_image_does_not_change_after_it_was_taken(tmp_path: Path) -> None:
    """Later decisions do not change the image."""
    turns, _ = opened(MemoryStore(), tmp_path)
    turns.process(SupervisorPaused(seconds=1.0, reason="one"), 10.0)
    image = turns.state_image()
    before = image.body
    turns.process(SupervisorPaused(seconds=1.0, reason="two"), 20.0)
    assert image.body == before
    assert wire.decode(before).state.now == 10.0


def test_the_compactor_retries_after_an_error(tmp_path: Path) -> None:
    """An error of the store or the disk costs only room: the next attempt writes and moves everything."""
    store, errors = MemoryStore(), list[Exception]()
    turns, journal = opened(store, tmp_path / "past")
    (tmp_path / "past").write_text("in the way")
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    work(turns, compactor, 300)
    settle(compactor)
    assert journal.first_stored() == 1
    (tmp_path / "past").unlink()
    work(turns, compactor, 300)
    compactor.close(10)
    assert not errors
    assert journal.first_stored() > 300


def test_a_replaced_supervisor_learns_of_its_lost_lease(tmp_path: Path) -> None:
    """The store refuses a snapshot under a lost lease, and the compactor reports it."""
    store, errors = MemoryStore(), list[Exception]()
    turns, journal = opened(store, tmp_path)
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    settle(compactor)
    turns.process(SupervisorPaused(seconds=1.0, reason="one"), 10.0)
    image = turns.state_image()
    store.break_lease("lead", "a")
    store.acquire_lease("lead", "b", ttl_seconds=60)
    compactor.submit(image)
    compactor.close(10)
    assert [type(error) for error in errors] == [Fenced]


def test_the_next_supervisor_moves_the_entries_after_a_crash_behind_a_snapshot(
    tmp_path: Path,
) -> None:
    """On start the compactor finishes the move that its predecessor left."""
    store = MemoryStore()
    turns, journal = opened(store, tmp_path)
    for number in range(100):
        turns.process(SupervisorPaused(seconds=0.0, reason="x"), float(number))
        if number in (60, 80):
            turns.snapshot()
    store.faults = Faults(plan={1: StoreFault.REFUSE})
    with pytest.raises(StoreUnavailable):
        journal.archive()
    assert store.read(streams={JOURNAL: 0}, registers={}, timeout_seconds=0).items[JOURNAL]
    store.break_lease("lead", "a")
    _, journal = opened(store, tmp_path, "b")
    errors: list[Exception] = []
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    settle(compactor)
    compactor.close(10)
    assert journal.first_stored() == 61
