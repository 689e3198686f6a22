"""The contract of a store, on every kind of store: streams, registers, leases."""

import pytest

from runner.errors import Fenced, PermanentError, StoreCorrupt
from runner.facts.store_names import JOURNAL
from runner.facts.wire import MAX_MESSAGE_BYTES
from runner.store.protocol import (
    MAX_LARGE_BYTES,
    MAX_NAME_BYTES,
    VOLATILE_KEEP,
    VOLATILE_SLACK,
    Item,
    Lease,
    LeaseHeld,
    Register,
    Store,
)
from tests.store.store_harness import StoreHarness, payloads


def take(store: Store, holder: str = "a", ttl_seconds: float = 5.0) -> Lease:
    """Acquire the one lease these tests use."""
    return store.acquire_lease("lead", holder, ttl_seconds=ttl_seconds)


# ---- streams


@pytest.mark.parametrize("stream", ["inbox", "heartbeats.n1", JOURNAL])
def test_items_are_numbered_from_one_per_stream(store: Store, stream: str) -> None:
    """Each stream counts for itself, from 1 and without gaps."""
    assert store.append("other", b"x") == 1
    assert [store.append(stream, b"%d" % n) for n in range(3)] == [1, 2, 3]
    batch = store.read(streams={stream: 1}, registers={}, timeout_seconds=0)
    assert batch.items == {stream: (Item(2, b"1"), Item(3, b"2"))}


def test_another_handle_sees_what_was_appended(harness: StoreHarness) -> None:
    """What one handle appended, another handle reads and continues."""
    first, second = harness.open(), harness.open()
    first.append("inbox", b"a")
    assert second.append("inbox", b"b") == 2
    assert payloads(first, "inbox") == [b"a", b"b"]


def test_append_many_at_a_number_is_done_once_and_all_or_nothing(store: Store) -> None:
    """Appended again, nothing is added; where only part of it is there, or another, the append is refused."""
    assert store.append_many("inbox", [b"a", b"b"], at=1) == 2
    assert store.append_many("inbox", [b"a", b"b"], at=1) == 2
    assert store.append_many("inbox", [b"b"], at=2) == 2
    for other, at in (
        ([b"a", b"b", b"c"], 1),
        ([b"b", b"c"], 2),
        ([b"a", b"x"], 1),
        ([b"c"], 4),
    ):
        with pytest.raises(StoreCorrupt):
            store.append_many("inbox", other, at=at)
    assert store.append_many("inbox", [b"c"], at=3) == 3


def test_append_many_appends_all_in_order(store: Store) -> None:
    """Several payloads get consecutive numbers; none at all changes nothing."""
    assert store.append_many("inbox", []) == 0
    assert store.append_many("inbox", [b"a", b"b", b"c"]) == 3
    assert store.append_many("inbox", []) == 3
    assert payloads(store, "inbox") == [b"a", b"b", b"c"]


def test_last_is_zero_before_the_first_item(store: Store) -> None:
    """A stream without writes ends at 0 and reads as empty."""
    assert store.last("inbox") == 0
    assert payloads(store, "inbox") == []


def test_append_at_its_number_counts_once(store: Store) -> None:
    """Sending the same payload to the same number again is one append."""
    assert store.append("inbox", b"a", at=1) == 1
    assert store.append("inbox", b"a", at=1) == 1
    assert store.append("inbox", b"b", at=2) == 2
    assert store.append("inbox", b"a", at=1) == 1
    assert payloads(store, "inbox") == [b"a", b"b"]


def test_append_at_a_number_that_is_taken_is_refused(store: Store) -> None:
    """Another payload at that number, or a number past the next, is an inconsistency and changes nothing."""
    store.append("inbox", b"a", at=1)
    with pytest.raises(StoreCorrupt, match="item 1: another payload"):
        store.append("inbox", b"b", at=1)
    with pytest.raises(StoreCorrupt, match="item 3: it ends at 1"):
        store.append("inbox", b"b", at=3)
    store.trim("inbox", 1)
    with pytest.raises(StoreCorrupt, match="trimmed through 1"):
        store.append("inbox", b"a", at=1)
    assert store.last("inbox") == 1


def test_a_payload_over_the_limit_is_refused(store: Store) -> None:
    """Streams take 64 KiB, the journal and registers 16 MiB; nothing is written beyond."""
    store.append("inbox", b"x" * MAX_MESSAGE_BYTES)
    with pytest.raises(PermanentError, match=r"'inbox'.*65537 bytes.*path and hash"):
        store.append("inbox", b"x" * (MAX_MESSAGE_BYTES + 1))
    with pytest.raises(PermanentError, match="heartbeats"):
        store.append_many("heartbeats", [b"", b"x" * (MAX_MESSAGE_BYTES + 1)])
    large = b"x" * MAX_LARGE_BYTES
    assert store.append(JOURNAL, large) == 1
    assert payloads(store, JOURNAL) == [large]
    with pytest.raises(PermanentError, match="journal"):
        store.append(JOURNAL, large + b"x")
    with pytest.raises(PermanentError, match="register 'assignment'"):
        store.put("assignment", large + b"x")
    assert (store.last("inbox"), store.last("heartbeats"), store.last(JOURNAL)) == (1, 0, 1)


@pytest.mark.parametrize("name", ["", "x" * (MAX_NAME_BYTES + 1), "a\nb", "a\0b"])
def test_a_name_that_cannot_be_printed_is_refused(store: Store, name: str) -> None:
    """Names of streams and registers are short and printable."""
    for attempt in (
        lambda: store.append(name, b""),
        lambda: store.put(name, b""),
        lambda: store.acquire_lease(name, "a", ttl_seconds=1),
        lambda: store.acquire_lease("lead", name, ttl_seconds=1),
    ):
        with pytest.raises(PermanentError, match="cannot be a name"):
            attempt()


def test_trimming_drops_items_and_never_reuses_numbers(store: Store) -> None:
    """After a trim the numbers go on, also when the stream was emptied or trimmed beyond its end."""
    store.append_many("inbox", [b"a", b"b", b"c"])
    store.trim("inbox", 2)
    batch = store.read(streams={"inbox": 0}, registers={}, timeout_seconds=0)
    assert batch.items == {"inbox": (Item(3, b"c"),)}
    store.trim("inbox", 1)
    store.trim("inbox", 99)
    assert payloads(store, "inbox") == []
    assert store.last("inbox") == 3
    assert store.append("inbox", b"d") == 4


def test_a_volatile_stream_bounds_itself(store: Store) -> None:
    """Heartbeats need no reader to trim them: at least the newest VOLATILE_KEEP stay, and not many more."""
    total = VOLATILE_KEEP + 3 * VOLATILE_SLACK + 17
    for _ in range(total // 100 + 1):
        store.append_many("heartbeats", [b"."] * 100)
    items = store.read(
        streams={"heartbeats": 0}, registers={}, timeout_seconds=0, limit=10 * VOLATILE_KEEP
    ).items["heartbeats"]
    assert VOLATILE_KEEP <= len(items) <= VOLATILE_KEEP + VOLATILE_SLACK
    assert items[-1].number == store.last("heartbeats")


def test_a_read_returns_at_most_its_limit_of_each_stream(store: Store) -> None:
    """A backlog is read in pieces, oldest first, and one stream does not starve another."""
    store.append_many("inbox", [b"%d" % n for n in range(10)])
    store.append_many("heartbeats", [b"x"] * 10)
    batch = store.read(
        streams={"inbox": 2, "heartbeats": 0}, registers={}, timeout_seconds=0, limit=3
    )
    assert [item.number for item in batch.items["inbox"]] == [3, 4, 5]
    assert [item.number for item in batch.items["heartbeats"]] == [1, 2, 3]


@pytest.mark.costly
def test_a_read_is_bounded_in_bytes_and_always_advances(store: Store) -> None:
    """Large entries come a few at a time, and every stream with news gives at least one."""
    for _ in range(4):
        store.append(JOURNAL, b"x" * MAX_LARGE_BYTES)
    store.append("inbox", b"small")
    seen = 0
    while batch := store.read(streams={JOURNAL: seen}, registers={}, timeout_seconds=0):
        assert len(batch.items[JOURNAL]) <= 2
        seen = batch.items[JOURNAL][-1].number
    assert seen == 4
    batch = store.read(streams={JOURNAL: 0, "inbox": 0}, registers={}, timeout_seconds=0)
    assert batch.items["inbox"] == (Item(1, b"small"),)


def test_a_cursor_past_the_end_means_lost_items(store: Store) -> None:
    """A reader's position must be in a durable stream; a volatile one has restarted."""
    store.append("inbox", b"x")
    store.append("heartbeats", b"x")
    with pytest.raises(StoreCorrupt, match="'inbox' ends at 1, but 2 was seen before"):
        store.read(streams={"inbox": 2}, registers={}, timeout_seconds=0)
    with pytest.raises(StoreCorrupt, match="'other' ends at 0"):
        store.read(streams={"other": 1}, registers={}, timeout_seconds=0)
    assert payloads(store, "heartbeats", after=7) == [b"x"]


# ---- registers


@pytest.mark.parametrize("name", ["assignment.n1", "status"])
def test_a_register_holds_the_last_value_put(store: Store, name: str) -> None:
    """Each put replaces the value and raises the version."""
    assert store.get(name) is None
    first = store.put(name, b"a")
    second = store.put(name, b"b")
    assert second > first > 0
    assert store.get(name) == Register(second, b"b")


@pytest.mark.parametrize("name", ["assignment.n1", "status"])
def test_versions_rise_across_a_delete(store: Store, name: str) -> None:
    """A reader that knows a deleted register's version is shown the one put after it."""
    before = store.put(name, b"a")
    store.delete(name)
    store.delete(name)
    assert store.get(name) is None
    assert not store.read(streams={}, registers={name: before}, timeout_seconds=0)
    assert store.put(name, b"b") > before
    batch = store.read(streams={}, registers={name: before}, timeout_seconds=0)
    assert batch.registers[name].payload == b"b"


@pytest.mark.parametrize("names", [("assignment/n1", "assignment/n2"), ("status", "status.n1")])
def test_put_many_sets_all_registers_in_one_step(
    harness: StoreHarness, names: tuple[str, str]
) -> None:
    """Each gets its value and a version of its own, above all before; the newest is returned, and a reader of any is shown it."""
    store, other = harness.open(), harness.open()
    before = store.put(names[0], b"old")
    newest = store.put_many({names[0]: b"a", names[1]: b"b"})
    found = [other.get(name) for name in names]
    assert [register.payload for register in found if register is not None] == [b"a", b"b"]
    versions = [register.version for register in found if register is not None]
    assert before < versions[0] < versions[1] == newest
    batch = other.read(streams={}, registers={names[1]: before}, timeout_seconds=0)
    assert batch.registers[names[1]].payload == b"b"
    assert store.put(names[0], b"c") > newest


def test_put_many_takes_all_or_none(store: Store) -> None:
    """A stale token, a name or a value that no store takes, or volatile and durable ones together: nothing is set."""
    old = take(store, "a")
    assert store.break_lease("lead", "a")
    large = b"x" * (MAX_LARGE_BYTES + 1)
    with pytest.raises(Fenced):
        store.put_many({"assignment/n1": b"a", "assignment/n2": b"b"}, fence=old)
    for values in ({"n1": b"a", "n2": large}, {"n1": b"a", "": b"b"}, {"n1": b"a", "status": b"b"}):
        with pytest.raises(PermanentError):
            store.put_many(values)
    assert store.registers("") == {}


def test_put_many_of_nothing_changes_nothing(store: Store) -> None:
    """No register, no new version."""
    version = store.put("n1", b"a")
    assert store.put_many({}) == version


def test_registers_are_found_by_prefix(store: Store) -> None:
    """A prefix is plain text: no sign in it is a wildcard, case counts, and the result is sorted by name."""
    for name in ("node.n10", "node.n1", "Node.n1", "node_n1", "nodexn1", "status.n1"):
        store.put(name, name.encode())
    assert list(store.registers("node.")) == ["node.n1", "node.n10"]
    assert list(store.registers("node_")) == ["node_n1"]
    assert list(store.registers("node%")) == []
    assert len(store.registers("")) == 6
    assert store.registers("status.")["status.n1"].payload == b"status.n1"


def test_a_read_returns_only_newer_registers(store: Store) -> None:
    """A register at or below the version named is not returned again."""
    version = store.put("assignment", b"a")
    store.put("status", b"v")
    both = {"assignment": 0, "status": 0, "missing": 0}
    batch = store.read(streams={}, registers=both, timeout_seconds=0)
    assert {name: found.payload for name, found in batch.registers.items()} == {
        "assignment": b"a",
        "status": b"v",
    }
    assert not store.read(streams={}, registers={"assignment": version}, timeout_seconds=0)


# ---- leases


def test_a_lease_has_one_holder_at_a_time(harness: StoreHarness) -> None:
    """The second caller learns the holder and the time left."""
    first, second = harness.open(), harness.open()
    lease = take(first, "a", ttl_seconds=5.0)
    harness.clock.seconds += 2.0
    with pytest.raises(LeaseHeld, match=r"'lead' is held by 'a' for another 3\.0 s") as held:
        take(second, "b")
    assert (held.value.holder, held.value.expires_in_seconds) == ("a", 3.0)
    holder = second.lease_holder("lead")
    assert holder is not None
    assert (holder.holder, holder.token, holder.expires_in_seconds) == ("a", lease.token, 3.0)
    assert second.acquire_lease("other", "b", ttl_seconds=5.0).token == 1


def test_a_lease_that_ran_out_can_be_taken_and_fences_its_old_holder(harness: StoreHarness) -> None:
    """Taking over raises the token; the old holder can neither write nor renew, the new one can."""
    first, second = harness.open(), harness.open()
    old = take(first, "a", ttl_seconds=5.0)
    harness.clock.seconds += 5.0
    holder = second.lease_holder("lead")
    assert holder is not None
    assert holder.expires_in_seconds == 0.0
    new = take(second, "b")
    assert new.token == old.token + 1
    with pytest.raises(Fenced, match=r"token 1 of 'a', was lost: the token is 2 now, held by b"):
        first.append("inbox", b"late", fence=old)
    with pytest.raises(Fenced):
        first.renew(old)
    first.release(old)
    assert second.append("inbox", b"x", fence=new) == 1


def test_every_fenced_write_is_refused_to_a_stale_token(store: Store) -> None:
    """A stale token changes nothing: not by append, trim, put or delete, durable or volatile."""
    old = take(store, "a")
    store.append_many("inbox", [b"a", b"b"], fence=old)
    version = store.put("status", b"v", fence=old)
    assert store.break_lease("lead", "a")
    for attempt in (
        lambda: store.append("inbox", b"x", fence=old),
        lambda: store.append("inbox", b"a", fence=old, at=1),
        lambda: store.append_many("inbox", [b"x"], fence=old),
        lambda: store.append("heartbeats", b"x", fence=old),
        lambda: store.trim("inbox", 1, fence=old),
        lambda: store.put("assignment", b"x", fence=old),
        lambda: store.put("status", b"x", fence=old),
        lambda: store.put_many({"assignment": b"x", "other": b"y"}, fence=old),
        lambda: store.delete("status", fence=old),
    ):
        with pytest.raises(Fenced, match="held by no process"):
            attempt()
    assert payloads(store, "inbox") == [b"a", b"b"]
    assert (store.last("heartbeats"), store.get("assignment")) == (0, None)
    assert store.get("status") == Register(version, b"v")


def test_a_lease_never_acquired_fences(store: Store) -> None:
    """A token that the store never gave is no token."""
    made_up = Lease(name="lead", holder="a", token=1, ttl_seconds=5.0)
    with pytest.raises(Fenced, match="the token is 0 now"):
        store.append("inbox", b"x", fence=made_up)


def test_renewing_holds_a_lease_for_its_full_time_again(harness: StoreHarness) -> None:
    """A renewal counts from now, and comes in time as long as no other holder has the lease."""
    store = harness.open()
    lease = take(store, "a", ttl_seconds=5.0)
    harness.clock.seconds += 4.0
    store.renew(lease)
    harness.clock.seconds += 4.0
    with pytest.raises(LeaseHeld):
        take(store, "b")
    harness.clock.seconds += 60.0
    store.renew(lease)
    with pytest.raises(LeaseHeld):
        take(store, "b")
    assert store.append("inbox", b"x", fence=lease) == 1


def test_the_same_holder_may_ask_again(store: Store) -> None:
    """A holder that never received the answer gets the lease under a new token."""
    first = take(store, "a")
    second = take(store, "a")
    assert second.token == first.token + 1
    with pytest.raises(Fenced):
        store.append("inbox", b"x", fence=first)


def test_a_released_lease_is_free_at_once(store: Store) -> None:
    """Giving it back lets the next holder in, whose token is higher; giving it back twice does no harm."""
    lease = take(store, "a")
    store.release(lease)
    assert store.lease_holder("lead") is None
    with pytest.raises(Fenced):
        store.append("inbox", b"x", fence=lease)
    other = take(store, "b")
    assert other.token == lease.token + 1
    store.release(lease)
    assert store.append("inbox", b"x", fence=other) == 1


def test_breaking_a_lease_names_the_dead_holder(store: Store) -> None:
    """Only the holder named loses it: breaking the lease of a replaced holder does nothing."""
    assert not store.break_lease("lead", "a")
    take(store, "a")
    assert not store.break_lease("lead", "b")
    with pytest.raises(LeaseHeld):
        take(store, "b")
    assert store.break_lease("lead", "a")
    assert take(store, "b").token == 2


# ---- the handle


def test_a_closed_handle_refuses_and_others_go_on(harness: StoreHarness) -> None:
    """After close every call raises; other handles on the same store are not concerned."""
    first, second = harness.open(), harness.open()
    first.append("inbox", b"a")
    first.close()
    first.close()
    with pytest.raises(PermanentError, match="closed"):
        first.append("inbox", b"b")
    with pytest.raises(PermanentError, match="closed"):
        first.read(streams={"inbox": 0}, registers={}, timeout_seconds=0)
    assert payloads(second, "inbox") == [b"a"]
