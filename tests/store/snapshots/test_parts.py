"""Snapshots in parts: what is too large for one register, on every kind of store, with crashes between any two steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from runner.errors import PermanentError, StoreUnavailable
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.records import DecisionFailed
from runner.facts.store_names import SNAPSHOTS, snapshot_part
from runner.journal import snapshots
from runner.journal.journal import Journal
from runner.journal.snapshots import Snapshots
from runner.signer import UNSIGNED, Signer
from runner.store.memory.faults import Crash
from runner.store.memory.store import MemoryStore
from runner.store.protocol import MAX_LARGE_BYTES, Store
from tests.store.store_harness import StoreHarness
from tests.store.test_journal import check_recovered, damage, entry, leading, persist, state

PART_BYTES = 400
TOKEN = Signer(b"t" * 32)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make registers of snapshots small."""
    monkeypatch.setattr(snapshots, "PART_BYTES", PART_BYTES)


def wide_state(through: int, num_bytes: int = 5 * PART_BYTES) -> ClusterStatus:
    """Make a state's message of about that size."""
    return ClusterStatus(
        cluster="c" * num_bytes, now=through / 10, wall=0.0, journal_sequence=through
    )


def numbered_parts(store: Store, name: str) -> list[int]:
    """Return the numbers of the parts that the store has, in order."""
    found = store.registers(f"{name}.part.")
    return sorted(int(part.rpartition(".")[2]) for part in found)


class _Dying:
    """A store whose process dies before or after one of its changes of registers."""

    def __init__(self, store: Store, dies_at: int, *, is_done: bool) -> None:
        self._store, self._left, self._is_done = store, dies_at, is_done

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        return self._counted(method) if name in ("put", "delete") else method

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left > 0:
                return method(*arguments, **named)
            if self._is_done:
                method(*arguments, **named)
            raise Crash

        return change


@contextmanager
def leading_next(
    store: Store, signer: Signer = UNSIGNED, holder: str = "next"
) -> Iterator[Journal]:
    """Lead as the next process does."""
    lease = store.acquire_lease("lead", holder, ttl_seconds=60)
    yield Journal(store, lease, signer=signer)
    store.release(lease)


def begun(store: Store, signer: Signer = UNSIGNED) -> None:
    """Write a journal of forty entries with snapshots in parts after the tenth and the twentieth."""
    with leading_next(store, signer) as journal:
        if not journal.last():
            journal.append_many([entry(number) for number in range(1, 41)])
        for name in SNAPSHOTS:
            store.delete(name)
        journal.write_snapshot(wide_state(10), 10)
        journal.write_snapshot(wide_state(20), 20)


@pytest.mark.usefixtures("small_parts")
def test_parts_take_turns_and_are_removed(store: Store) -> None:
    """Snapshots that grow and shrink across the limit are read back whole; parts that no seal names go."""
    journal = leading(store)
    widths = (5, 0, 9, 2, 0, 3, 0, 0)
    for through, width in enumerate(widths, 1):
        written = wide_state(through, width * PART_BYTES) if width else state(through)
        journal.write_snapshot(written, through)
        latest = Journal(store).latest_snapshot()
        assert (latest.state, latest.through, latest.refused) == (written, through, ())
        num_parts = len(numbered_parts(store, SNAPSHOTS[(through + 1) % 2]))
        assert num_parts >= width if width else not num_parts
    assert sorted(store.registers("journal.")) == sorted(SNAPSHOTS)


@pytest.mark.costly
@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("signer", [UNSIGNED, TOKEN], ids=["unsigned", "signed"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_crash_between_any_two_steps_needs_no_repair(
    harness: StoreHarness, is_done: bool, signer: Signer
) -> None:
    """Recovery starts from the older snapshot, or from the newer once it is whole; nothing is refused and nothing left over."""
    found: list[int] = []
    is_whole = False
    while not is_whole:
        begun(harness.open(), signer)
        store = harness.open()
        lease = store.acquire_lease("lead", "dying", ttl_seconds=60)
        dying: Any = _Dying(store, len(found) + 1, is_done=is_done)
        try:
            Journal(dying, lease, signer=signer).write_snapshot(wide_state(30), 30)
            is_whole = True
        except Crash:
            store.break_lease("lead", "dying")
        store = harness.open()
        latest = Journal(store, signer=signer).latest_snapshot()
        assert latest.refused == ()
        assert latest.state == wide_state(latest.through)
        found.append(latest.through)
        with leading_next(store, signer, "dying") as journal:
            # It goes to the same place, or to the other once this one is whole.
            journal.write_snapshot(wide_state(35, PART_BYTES), 35)
        latest = Journal(store, signer=signer).latest_snapshot()
        assert (latest.through, latest.refused) == (35, ())
        num_parts = sorted(len(numbered_parts(store, name)) for name in SNAPSHOTS)
        assert num_parts == [2, 6]
    # Old seal, six parts, new seal; a crash after the last of these finds the newer one whole.
    assert found == [20] * (8 - is_done) + [30] * (1 + is_done)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("num_left", [0, 1, 3, 5])
def test_a_mixture_of_two_snapshots_is_refused(store: Store, num_left: int) -> None:
    """Whichever parts are of the other one, or missing: the older snapshot is taken, and the reason reported."""
    begun(store)
    newer = SNAPSHOTS[1]
    for number in numbered_parts(store, newer)[num_left:]:
        other = store.get(snapshot_part(SNAPSHOTS[0], number))
        assert other is not None
        store.put(snapshot_part(newer, number), other.payload)
    latest = Journal(store).latest_snapshot()
    assert (latest.state, latest.through) == (wide_state(10), 10)
    assert "sealed were" in latest.refused[0]
    store.delete(snapshot_part(newer, 2))
    assert "part 2 of 6 is missing" in Journal(store).latest_snapshot().refused[0]


@pytest.mark.usefixtures("small_parts")
def test_the_seal_covers_each_part() -> None:
    """One bit in any part is enough, with a token and without."""
    for signer in (UNSIGNED, TOKEN):
        whole = MemoryStore()
        begun(whole, signer)
        parts = numbered_parts(whole, SNAPSHOTS[1])
        assert len(parts) == 6
        for number in parts:
            store = MemoryStore()
            begun(store, signer)
            damage(store, snapshot_part(SNAPSHOTS[1], number))
            assert Journal(store, signer=signer).latest_snapshot().through == 10


@pytest.mark.usefixtures("small_parts")
def test_who_has_no_token_cannot_replace_a_snapshot_in_parts() -> None:
    """Parts of a state of theirs do not match the seal, and a seal of theirs is not signed; a reader without a token reads on."""
    store = MemoryStore()
    begun(store, TOKEN)
    assert Journal(store, signer=UNSIGNED).latest_snapshot().through == 20
    theirs = MemoryStore()
    with leading_next(theirs) as journal:
        journal.write_snapshot(wide_state(1), 1)
        journal.write_snapshot(wide_state(40), 40)
    for register, found in theirs.registers(SNAPSHOTS[1]).items():
        store.put(register, found.payload)
    latest = Journal(store, signer=TOKEN).latest_snapshot()
    assert latest.through == 10
    assert "signed" in latest.refused[0]


@pytest.mark.usefixtures("small_parts")
def test_a_snapshot_in_parts_is_believed_after_a_rotation() -> None:
    """The new token's first entry signs the seal again, and the parts with it."""
    store = MemoryStore()
    begun(store, Signer(b"o" * 32))
    rotated = Signer(b"n" * 32, [b"o" * 32])
    with leading_next(store, rotated) as journal:
        assert journal.latest_snapshot().through == 20
        journal.append(entry(41))
    latest = Journal(store, signer=Signer(b"n" * 32)).latest_snapshot()
    assert (latest.state, latest.through) == (wide_state(20), 20)


@pytest.mark.usefixtures("small_parts")
def test_a_snapshot_in_parts_sent_again_stays_whole(store: Store) -> None:
    """After a lost acknowledgment its parts stay in their places, and only the seal is written again."""
    begun(store)
    parts = {name: found.version for name, found in store.registers("journal.snapshot.1.").items()}
    with leading_next(store) as journal:
        journal.write_snapshot(wide_state(20), 20)
    again = store.registers("journal.snapshot.1.")
    assert {name: found.version for name, found in again.items()} == parts
    damage(store, SNAPSHOTS[1])
    assert Journal(store).latest_snapshot().through == 10


class _WrittenMeanwhile(MemoryStore):
    """A store on which another program writes two snapshots while a reader is at the second part of one."""

    is_written = False

    def get(self, name: str) -> Any:
        found = super().get(name)
        if name == snapshot_part(SNAPSHOTS[0], 2) and not self.is_written:
            self.is_written = True
            with leading_next(self.another()) as journal:
                journal.write_snapshot(wide_state(30), 30)
                journal.write_snapshot(wide_state(40), 40)
        return found


@pytest.mark.usefixtures("small_parts")
def test_a_reader_whose_parts_are_replaced_begins_again() -> None:
    """It finds the snapshots that are there now, and refuses none."""
    whole = MemoryStore()
    begun(whole)
    reader = _WrittenMeanwhile(contents=whole._contents)
    latest = Journal(reader).latest_snapshot()
    assert reader.is_written
    assert (latest.through, latest.refused) == (40, ())


@pytest.mark.costly
def test_a_snapshot_beyond_a_register_is_written_and_read(store: Store) -> None:
    """With the real limit: three registers of 16 MiB at most, and the older one is still there."""
    journal = leading(store)
    journal.write_snapshot(state(10), 10)
    large = DecisionFailed(error="x" * (2 * MAX_LARGE_BYTES))
    journal.write_snapshot(large, 20)
    assert numbered_parts(store, SNAPSHOTS[1]) == [1, 2, 3]
    latest = Journal(store).latest_snapshot()
    assert (latest.state == large, latest.through) == (True, 20)
    damage(store, SNAPSHOTS[1])
    assert Journal(store).latest_snapshot().through == 10


def test_too_many_parts_are_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the error has the sizes, and both snapshots stay."""
    monkeypatch.setattr(snapshots, "PART_BYTES", PART_BYTES)
    begun(store)
    monkeypatch.setattr(snapshots, "MAX_PARTS", 6)
    with leading_next(store) as journal, pytest.raises(PermanentError, match="at most 2400 are"):
        journal.write_snapshot(wide_state(30, 6 * PART_BYTES), 30)
    assert len(Snapshots(store).good()[0]) == 2


@pytest.mark.usefixtures("small_parts")
def test_a_deleted_snapshot_leaves_no_parts(store: Store) -> None:
    """As after a rollback that a person accepted."""
    begun(store)
    lease = store.acquire_lease("lead", "a", ttl_seconds=60)
    for name in SNAPSHOTS:
        Snapshots(store).delete(name, lease)
    assert not store.registers("journal.")


def test_no_outage_between_parts_loses_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that fails once at each of a supervisor's writes: it sends the snapshot again, and all is whole."""
    monkeypatch.setattr(snapshots, "PART_BYTES", 100)
    calm = MemoryStore()
    persist(calm, "a", 7)
    assert numbered_parts(calm, SNAPSHOTS[1])

    class Failing(_Dying):
        def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
            counted = super()._counted(method)

            def change(*arguments: Any, **named: Any) -> Any:
                try:
                    return counted(*arguments, **named)
                except Crash:
                    self._left = 1 << 20
                    raise StoreUnavailable("no answer") from None

            return change

    for fails_at in range(1, 30):
        store = MemoryStore()
        failing: Any = Failing(store, fails_at, is_done=bool(fails_at % 2))
        persist(failing, "a", 7)
        check_recovered(store, 7)
        assert numbered_parts(store, SNAPSHOTS[1]) == numbered_parts(calm, SNAPSHOTS[1])
