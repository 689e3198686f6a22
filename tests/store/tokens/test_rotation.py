"""A rotation of the token: which one signs and which are accepted when; what the earlier one may still make afterwards."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import Forged, StoreCorrupt, StoreUnavailable, UserError
from runner.facts import wire
from runner.facts.store_names import JOURNAL, SNAPSHOTS
from runner.journal.journal import Journal
from runner.journal.snapshots import SnapshotSeal, sha256
from runner.signer import Signer
from runner.store.memory.store import MemoryStore
from runner.token_file import read_token_file
from tests.store.test_chain import LAST, followed, led, payloads
from tests.store.test_journal import entry, state

OLD, NEW = b"o" * 32, b"n" * 32
# Of a rotation in these tests: it begins, the new token signs, the earlier one ends. Whole seconds, as files have them.
BEGIN, SIGNS, END = 1_800_000_000.0, 1_800_001_800.0, 1_800_003_600.0
TIMES = (
    "# signs from 2027-01-15T08:30:00Z, the token below it is valid until 2027-01-15T09:00:00Z\n"
)


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        """Return the time that it shows."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Give a clock that shows the beginning of the rotation."""
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file with one token."""
    path = tmp_path / "token"
    written(path, OLD.decode())
    return path


def written(path: Path, text: str, mode: int = 0o600) -> None:
    """Put a file in place whose state differs from that of the one before."""
    scratch = path.with_name("scratch")
    scratch.write_text(text)
    scratch.chmod(mode)
    scratch.rename(path)


@pytest.fixture
def rotated(path: Path, clock: Clock) -> tuple[Signer, Signer]:
    """Give a signer that followed the file from before its rotation, and one that knows the new token alone."""
    signer = Signer(path, clock=clock)
    written(path, f"{TIMES}{NEW.decode()}\n{OLD.decode()}\n")
    clock.now += 1
    return signer, Signer(NEW)


def accepts(signer: Signer, sender: Signer) -> bool:
    """Return whether a message of the sender is accepted."""
    try:
        return signer.verify("s", sender.sign("s", b"{}")) == b"{}"
    except Forged:
        return False


def test_the_tokens_change_over_in_two_steps(rotated: tuple[Signer, Signer], clock: Clock) -> None:
    """Until the middle the earlier one signs and both are accepted; then the new one signs; at the end it is alone."""
    signer, new = rotated
    old = Signer(OLD)
    seen = []
    for now in (BEGIN + 1, SIGNS - 1, SIGNS, END - 1, END):
        clock.now = now
        signs = "new" if accepts(new, signer) else "old" if accepts(old, signer) else "?"
        seen.append((signs, accepts(signer, old), accepts(signer, new)))
    assert seen == [
        ("old", True, True),
        ("old", True, True),
        ("new", True, True),
        ("new", True, True),
        ("new", False, True),
    ]
    assert signer.verify_kept("s", old.sign("s", b"{}")) == (b"{}", 0)
    clock.now = BEGIN
    assert accepts(new, signer), "a clock that is set back does not bring the earlier token back"


def test_a_process_that_starts_in_between_goes_by_the_times_of_the_file(
    path: Path, clock: Clock, rotated: tuple[Signer, Signer]
) -> None:
    """Agents that are started during a rotation agree with those that run."""
    for now, sender in ((BEGIN, Signer(OLD)), (SIGNS, rotated[1])):
        clock.now = now
        assert accepts(sender, Signer(path, clock=clock))


def test_clocks_may_differ_by_half_of_the_time(path: Path, rotated: tuple[Signer, Signer]) -> None:
    """Two machines accept each other at every moment, when one clock is just under half of the time ahead."""
    early, late = Clock(), Clock()
    first, second = (Signer(path, clock=c) for c in (early, late))
    for now in range(int(BEGIN), int(END) + 1800, 60):
        early.now, late.now = now + 1799.0, float(now)
        assert accepts(first, second)
        assert accepts(second, first)


BAD: dict[str, Callable[[Path], None]] = {
    "half copied": lambda path: written(path, "# signs from 2027-01-\n" + "n" * 32),
    "cut within the earlier token": lambda path: written(path, "n" * 32 + "\n" + "o" * 20),
    "mode 644": lambda path: path.chmod(0o644),
    "gone": Path.unlink,
    "another secret": lambda path: written(path, "x" * 32),
}


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_is_bad_ends_no_process(
    path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """It goes on with what it has, logs the reason once, and takes the file when it is good again."""
    signer, old, new = (
        Signer(path, clock=clock),
        Signer(OLD),
        Signer(NEW),
    )
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            BAD[what](path) if clock.now == BEGIN else None
            clock.now += 1
            assert accepts(signer, old)
            assert accepts(old, signer)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert str(path) in caplog.text or "stoker token --rotate" in caplog.text
        written(path, f"{NEW.decode()}\n{OLD.decode()}\n")
        clock.now += 1
        assert accepts(new, signer)
    assert "was read again" in caplog.text
    assert NEW.decode() not in caplog.text


def test_a_file_with_the_new_token_alone_is_not_taken_before_that_signs(
    path: Path, clock: Clock, rotated: tuple[Signer, Signer]
) -> None:
    """Else this process would sign with it before the others know it."""
    signer, new = rotated
    assert accepts(Signer(OLD), signer)
    written(path, NEW.decode())
    clock.now += 1
    assert accepts(Signer(OLD), signer)
    assert accepts(signer, new)


NEWEST, BEFORE = NEW.decode() + "\n", OLD.decode() + "\n"


@pytest.mark.parametrize(
    "text",
    [
        NEWEST + TIMES + BEFORE,
        TIMES + TIMES + NEWEST + BEFORE,
        TIMES + NEWEST,
        TIMES,
        TIMES.replace("08:30", "09:30") + NEWEST + BEFORE,
        TIMES.replace("08:30", "25:30") + NEWEST + BEFORE,
        TIMES.replace("2027-01-15T08", "tomorrow") + NEWEST + BEFORE,
        TIMES[:40] + "\n" + NEWEST + BEFORE,
    ],
)
def test_times_in_disorder_are_refused(path: Path, text: str) -> None:
    """One line names the file and what is wrong."""
    written(path, text)
    with pytest.raises(UserError, match=f"token_file: {path} "):
        read_token_file(path)


@pytest.fixture
def store(rotated: tuple[Signer, Signer], clock: Clock) -> MemoryStore:
    """Give a store with eight entries and a snapshot of the earlier token, and one entry of the new one."""
    signer, store = rotated[0], MemoryStore()
    journal = led(store, signer)
    journal.append_many([entry(number) for number in range(1, 5)])
    journal.write_snapshot(state(4), 4)
    journal.append_many([entry(number) for number in range(5, LAST + 1)])
    clock.now = SIGNS
    journal.append(entry(LAST + 1))
    clock.now = END
    return store


def test_a_journal_goes_on_over_both_tokens(
    store: MemoryStore, rotated: tuple[Signer, Signer]
) -> None:
    """From the start and from the snapshot, which the new token's first entry has had signed again."""
    signer, new = rotated
    assert followed(store, signer) == list(range(1, LAST + 2))
    assert followed(store, signer, snapshot=True) == list(range(5, LAST + 2))
    register = store.get(SNAPSHOTS[0])
    assert register is not None
    assert new.verify_kept(SNAPSHOTS[0], register.payload)[1] == 0


def test_a_standby_that_follows_reads_the_file_again_by_itself(path: Path, clock: Clock) -> None:
    """It meets the first entry of a token that was not in the file when it started."""
    store = MemoryStore()
    leader, standby = (Signer(path, clock=clock) for _ in range(2))
    journal, reader = led(store, leader), Journal(store, signer=standby)
    journal.append(entry(1))
    assert [each.sequence for each in reader.replay(1)] == [1]
    written(path, f"{TIMES}{NEW.decode()}\n{OLD.decode()}\n")
    clock.now = SIGNS
    journal.append(entry(2))
    assert [each.sequence for each in reader.replay(2)] == [2]
    # With a clock that is behind, it signs as the journal does.
    clock.now = BEGIN + 1
    assert accepts(leader, standby)
    assert not accepts(Signer(OLD), standby)


def test_an_entry_of_the_earlier_token_is_refused_after_one_of_the_new(
    store: MemoryStore, rotated: tuple[Signer, Signer]
) -> None:
    """By a reader of all of it, by one that starts from the snapshot, and by a standby that had read the rest."""
    signer = rotated[0]
    following = Journal(store, signer=signer)
    assert len(list(following.replay(1))) == LAST + 1
    led(store, Signer(OLD)).append(entry(LAST + 2))
    for snapshot in (False, True):
        with pytest.raises(StoreCorrupt, match=f"journal entry {LAST + 2} does not verify"):
            followed(store, signer, snapshot=snapshot)
    with pytest.raises(StoreCorrupt, match=f"journal entry {LAST + 2} does not verify"):
        list(following.replay(LAST + 2))


def test_an_entry_of_the_earlier_token_right_after_the_newest_snapshot_is_refused(
    store: MemoryStore, rotated: tuple[Signer, Signer]
) -> None:
    """The snapshot contains all entries, so the next supervisor has read none of the new token's when it meets this one."""
    led(store, rotated[0]).write_snapshot(state(LAST + 1), LAST + 1)
    assert followed(store, rotated[0], snapshot=True) == []
    led(store, Signer(OLD)).append(entry(LAST + 2))
    with pytest.raises(StoreCorrupt, match=f"journal entry {LAST + 2} does not verify"):
        followed(store, rotated[0], snapshot=True)


def forged_snapshot(store: MemoryStore, through: int, name: str) -> bytes:
    """Return a snapshot of a state of theirs, by an attacker who has the earlier token and reads the store."""
    body = wire.encode(state(through))
    code = payloads(store)[through - 1][-64:].decode()
    seal = SnapshotSeal(through=through, bytes=len(body), sha256=sha256(body), code=code)
    return Signer(OLD).sign(name, wire.encode(seal) + b"\n" + body)


@pytest.mark.parametrize("through", [3, LAST, LAST + 1])
def test_a_snapshot_of_the_earlier_token_is_not_believed(
    store: MemoryStore, rotated: tuple[Signer, Signer], through: int
) -> None:
    """Whichever entry it goes to; also when the entries that would contradict it are gone."""
    for name in SNAPSHOTS:
        store.put(name, forged_snapshot(store, through, name))
    found = Journal(store, signer=rotated[0]).latest_snapshot()
    assert found.through == 0
    assert all("earlier token" in why for why in found.refused)
    store.trim(JOURNAL, LAST)
    assert Journal(store, signer=rotated[0]).latest_snapshot().through == 0
    store.trim(JOURNAL, LAST + 1)
    assert Journal(store, signer=rotated[0]).latest_snapshot().through == 0


def test_a_token_that_was_replaced_while_nothing_ran_leaves_the_snapshot_good() -> None:
    """All that is kept is of the earlier token; the next supervisor starts from it, and signs it again before it writes."""
    before = MemoryStore()
    journal = led(before, Signer(OLD))
    journal.append_many([entry(1), entry(2)])
    journal.write_snapshot(state(2), 2)
    replaced = Signer(NEW, [OLD])
    journal = led(before, replaced)
    assert journal.latest_snapshot().through == 2
    journal.append(entry(3))
    assert followed(before, replaced, snapshot=True) == [3]


def test_an_append_that_is_repeated_over_the_change_is_written_once(
    rotated: tuple[Signer, Signer], clock: Clock
) -> None:
    """Its acknowledgment was lost while the earlier token signed: the entry keeps the code that it had."""
    store = MemoryStore()
    journal = led(store, rotated[0])
    append_many = store.append_many

    def lose_acknowledgment(*args: object, **more: object) -> object:
        append_many(*args, **more)  # type: ignore[arg-type]
        raise StoreUnavailable("gone")

    store.append_many = lose_acknowledgment  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreUnavailable):
        journal.append(entry(1))
    store.append_many = append_many  # type: ignore[method-assign]
    clock.now = SIGNS
    journal.append(entry(1))
    journal.append(entry(2))
    assert followed(store, rotated[0]) == [1, 2]
