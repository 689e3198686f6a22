"""Snapshots and old entries are seen to by a thread of its own; whatever happens to it, the next life has the same state."""

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
    """Begin as a supervisor does."""
    lease = store.acquire_lease("lead", holder, ttl_seconds=60)
    journal = Journal(store, lease, archive=Archive(folder, "c"), segment_entries=SIZE)
    turns = DecisionLog(Controller(POLICY), journal, on_outage=never)
    turns.recover()
    return turns, journal


def work(
    turns: DecisionLog, compactor: JournalCompactor, num_turns: int, *, is_quiet: bool = True
) -> int:
    """Take turns, with a picture whenever one is due; return how many were taken."""
    pictures = 0
    for _ in range(num_turns):
        turns.process(
            SupervisorPaused(seconds=0.0, reason="x" * 50), turns.controller.state.now + 1.0
        )
        if compactor.is_idle and turns.is_snapshot_due(is_quiet=is_quiet):
            compactor.submit(turns.state_image())
            pictures += 1
            settle(compactor)
    return pictures


def settle(compactor: JournalCompactor) -> None:
    """Wait until it is idle."""
    deadline = time.monotonic() + 60
    while not compactor.is_idle and time.monotonic() < deadline:
        time.sleep(0.001)
    assert compactor.is_idle


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "SNAPSHOT_ENTRIES", 10)


def test_while_people_wait_for_decisions_pictures_are_put_off_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half as many are taken, and the tail that a take-over reads stays bounded."""
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
    """However many turns are taken, the stream holds no more than a segment and what two snapshots lie apart."""
    store, errors = MemoryStore(), list[Exception]()
    turns, journal = opened(store, tmp_path)
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    pictures = work(turns, compactor, 1000)
    compactor.close(10)
    assert not errors
    assert pictures > 5
    last = turns.controller.state.sequence
    apart = last // pictures + 1
    assert last - journal.first_stored() <= SIZE + 3 * apart
    assert [entry.sequence for entry in journal.replay()] == list(range(1, last + 1))


def test_the_next_life_has_the_same_state_and_books(tmp_path: Path) -> None:
    """From whatever snapshot there is, take-over comes to the state that was, and reads no more than the tail."""
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


def test_words_that_the_journal_has_taken_in_do_not_stay_in_the_store(tmp_path: Path) -> None:
    """Streams of words are cut where the state's cursors were when the picture was taken, and no further."""
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


def test_a_picture_is_of_its_moment(tmp_path: Path) -> None:
    """What is decided after it was taken does not come into it."""
    turns, _ = opened(MemoryStore(), tmp_path)
    turns.process(SupervisorPaused(seconds=1.0, reason="one"), 10.0)
    picture = turns.state_image()
    before = picture.body
    turns.process(SupervisorPaused(seconds=1.0, reason="two"), 20.0)
    assert picture.body == before
    assert wire.decode(before).state.now == 10.0


def test_what_cannot_be_done_now_is_done_later(tmp_path: Path) -> None:
    """A store or a disk that refuses costs nothing but room: the next time everything is written and moved."""
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


def test_one_that_was_replaced_says_so(tmp_path: Path) -> None:
    """A snapshot under a lost lease is refused, and its supervisor learns of it."""
    store, errors = MemoryStore(), list[Exception]()
    turns, journal = opened(store, tmp_path)
    compactor = JournalCompactor(journal, errors.append)
    compactor.start()
    settle(compactor)
    turns.process(SupervisorPaused(seconds=1.0, reason="one"), 10.0)
    picture = turns.state_image()
    store.break_lease("lead", "a")
    store.acquire_lease("lead", "b", ttl_seconds=60)
    compactor.submit(picture)
    compactor.close(10)
    assert [type(error) for error in errors] == [Fenced]


def test_dying_after_a_snapshot_was_written_leaves_the_move_to_the_next_life(
    tmp_path: Path,
) -> None:
    """Beginning, an compactor finishes what an earlier life left."""
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
