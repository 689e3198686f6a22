"""The SQL of the SQLite store. Every function works inside a transaction that its caller opened."""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from runner.errors import StoreCorrupt
from runner.store import protocol
from runner.store.protocol import Item, Lease, LeaseHeld, LeaseHolder, Register
from runner.store.sqlite.database import NUMBER_BITS

_NUMBER_MASK = (1 << NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTime:
    """A time of the lease clock: seconds since the boot with that id."""

    seconds: float
    boot: str


def append(
    rows: sqlite3.Connection, stream: str, payloads: Sequence[bytes], *, seen: int, at: int | None
) -> int:
    """Append payloads and return the number of the last item; raise StoreRolledBack if the stream ends below `seen`."""
    base, last, trimmed = _stream(rows, stream, seen=seen)
    if at is not None and at != last + 1:
        end = at + len(payloads) - 1
        found = rows.execute(
            "SELECT payload FROM items WHERE key BETWEEN ? AND ? ORDER BY key",
            (base + at, base + end),
        ).fetchall()
        if not trimmed < at <= end <= last or [row[0] for row in found] != [*payloads]:
            raise protocol.append_refused(stream, at, last=last, trimmed=trimmed)
        return end
    if not payloads:
        return last
    if not base:
        base = _new_stream(rows, stream)
    rows.executemany(
        "INSERT INTO items (key, crc, payload) VALUES (?, ?, ?)",
        [(key, crc32(payload), payload) for key, payload in enumerate(payloads, base + last + 1)],
    )
    end = last + len(payloads)
    rows.execute("UPDATE streams SET last = ? WHERE name = ?", (end, stream))
    if (
        protocol.is_volatile_stream(stream)
        and end // protocol.VOLATILE_SLACK > last // protocol.VOLATILE_SLACK
    ):
        trim(rows, stream, end - protocol.VOLATILE_KEEP)
    return end


def trim(rows: sqlite3.Connection, stream: str, through: int) -> None:
    """Drop the items up to and including `through`."""
    base, last, trimmed = _stream(rows, stream, seen=0)
    through = min(through, last)
    if through <= trimmed:
        return
    rows.execute("DELETE FROM items WHERE key > ? AND key <= ?", (base + trimmed, base + through))
    rows.execute("UPDATE streams SET trimmed = ? WHERE name = ?", (through, stream))


def last_number(rows: sqlite3.Connection, stream: str, *, seen: int) -> int:
    """Return the number of the newest item ever appended."""
    return _stream(rows, stream, seen=seen)[1]


def items_after(
    rows: sqlite3.Connection, after: Mapping[str, int], *, limit: int, seen: Mapping[str, int]
) -> dict[str, tuple[Item, ...]]:
    """Return up to `limit` items of each stream that has any past the number given."""
    found = {}
    room_bytes = protocol.MAX_BATCH_BYTES
    for stream, number in after.items():
        volatile = protocol.is_volatile_stream(stream)
        base, last, trimmed = _stream(
            rows, stream, seen=seen[stream] if volatile else max(seen[stream], number)
        )
        # A volatile stream that ends before its reader's cursor restarted with the machine.
        start = max(number, trimmed) if number <= last else trimmed
        if last <= start:
            continue
        keys = range(base + start + 1, base + last + 1)
        found[stream], room_bytes = _items(rows, stream, keys, limit=limit, room_bytes=room_bytes)
    return found


def _stream(rows: sqlite3.Connection, stream: str, *, seen: int) -> tuple[int, int, int]:
    """Return where the stream's keys begin (0: no such stream yet), its newest number and the newest one trimmed."""
    found = rows.execute(
        "SELECT id, last, trimmed FROM streams WHERE name = ?", (stream,)
    ).fetchone()
    identity, last, trimmed = found or (0, 0, 0)
    protocol.check_watermark(f"stream {stream!r}", number=last, watermark=seen)
    return identity << NUMBER_BITS, last, trimmed


def _new_stream(rows: sqlite3.Connection, stream: str) -> int:
    inserted = rows.execute("INSERT INTO streams (name, last, trimmed) VALUES (?, 0, 0)", (stream,))
    return int(inserted.lastrowid or 0) << NUMBER_BITS


def _items(
    rows: sqlite3.Connection, stream: str, keys: range, *, limit: int, room_bytes: int
) -> tuple[tuple[Item, ...], int]:
    """Return the items of these keys that fit, and the room left; raise StoreCorrupt if one is missing."""
    items: list[Item] = []
    found = rows.execute(
        "SELECT key, crc, payload FROM items WHERE key >= ? AND key < ? ORDER BY key LIMIT ?",
        (keys.start, keys.stop, limit),
    )
    for expected, (key, crc, payload) in enumerate(found, keys.start):
        if key != expected:
            raise _missing(stream, expected, f"{key & _NUMBER_MASK} follows; ")
        number = key & _NUMBER_MASK
        if crc32(payload) != crc:
            raise _damaged(f"stream {stream!r}: item {number}")
        items.append(Item(number, payload))
        room_bytes -= len(payload)
        if room_bytes <= 0:
            break
    if not items:
        raise _missing(stream, keys.start)
    return tuple(items), room_bytes


def _missing(stream: str, key: int, what_follows: str = "") -> StoreCorrupt:
    number = key & _NUMBER_MASK
    return StoreCorrupt(
        f"stream {stream!r}: item {number} is missing, {what_follows}put back a copy"
    )


def put(rows: sqlite3.Connection, values: Mapping[str, bytes], *, seen: int) -> int:
    """Set registers and return the newest version: one counter for all, so that a deleted register's never return."""
    before = newest_version(rows, seen=seen)
    rows.executemany(
        "INSERT OR REPLACE INTO registers (name, version, crc, payload) VALUES (?, ?, ?, ?)",
        [
            (name, version, crc32(payload), payload)
            for version, (name, payload) in enumerate(values.items(), before + 1)
        ],
    )
    rows.execute("UPDATE versions SET last = ?", (before + len(values),))
    return before + len(values)


def newest_version(rows: sqlite3.Connection, *, seen: int) -> int:
    """Return the newest version of any register."""
    version = int(rows.execute("SELECT last FROM versions").fetchone()[0])
    protocol.check_watermark("the count of register versions", number=version, watermark=seen)
    return version


def registers_above(rows: sqlite3.Connection, above: Mapping[str, int]) -> dict[str, Register]:
    """Return the registers that have a version above the one given."""
    found = {}
    for name, version in above.items():
        row = rows.execute(
            "SELECT version, crc, payload FROM registers WHERE name = ? AND version > ?",
            (name, version),
        ).fetchone()
        if row is not None:
            found[name] = Register(row[0], _checked(f"register {name!r}", row[1], row[2]))
    return found


def registers_with_prefix(rows: sqlite3.Connection, prefix: str) -> dict[str, Register]:
    """Return the registers whose name starts with `prefix`."""
    # Not LIKE: it would take % and _ in the prefix for wildcards, and ignore case.
    return {
        name: Register(version, _checked(f"register {name!r}", crc, payload))
        for name, version, crc, payload in rows.execute(
            "SELECT name, version, crc, payload FROM registers WHERE substr(name, 1, ?) = ?",
            (len(prefix), prefix),
        )
    }


def _checked(what: str, crc: int, payload: bytes) -> bytes:
    """Return the payload; raise StoreCorrupt if it is not the one written: SQLite itself has no checksums."""
    if crc32(payload) != crc:
        raise _damaged(what)
    return payload


def _damaged(what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{what} is not what was written, its checksum is wrong; put back a copy, and test the disk"
    )


def delete(rows: sqlite3.Connection, name: str) -> None:
    """Remove a register."""
    rows.execute("DELETE FROM registers WHERE name = ?", (name,))


def check_fence(rows: sqlite3.Connection, fence: Lease | None) -> None:
    """Raise Fenced unless the lease is still the current one."""
    if fence is None:
        return
    holder, token, *_ = _lease_row(rows, fence.name)
    if (holder, token) != (fence.holder, fence.token):
        raise protocol.lease_lost(fence, holder=holder, token=token)


def acquire_lease(rows: sqlite3.Connection, wanted: Lease, now: LeaseTime) -> Lease:
    """Return the wanted lease with its token if it is free, run out or the holder's own; raise LeaseHeld otherwise."""
    current = lease_holder(rows, wanted.name, now)
    if current and current.holder != wanted.holder and current.expires_in_seconds > 0:
        raise LeaseHeld(wanted.name, current.holder, expires_in_seconds=current.expires_in_seconds)
    lease = replace(wanted, token=_lease_row(rows, wanted.name)[1] + 1)
    extend_lease(rows, lease, now)
    return lease


def extend_lease(rows: sqlite3.Connection, lease: Lease, now: LeaseTime) -> None:
    """Record that the lease is valid for `ttl_seconds` from now, in this boot of the machine."""
    rows.execute(
        "INSERT OR REPLACE INTO leases (name, holder, token, expires_seconds, boot) "
        "VALUES (?, ?, ?, ?, ?)",
        (lease.name, lease.holder, lease.token, now.seconds + lease.ttl_seconds, now.boot),
    )


def lease_holder(rows: sqlite3.Connection, name: str, now: LeaseTime) -> LeaseHolder | None:
    """Return who holds a lease; one from an earlier boot of the machine has expired."""
    holder, token, expires_seconds, boot = _lease_row(rows, name)
    if holder is None:
        return None
    left_seconds = max(expires_seconds - now.seconds, 0.0) if boot == now.boot else 0.0
    return LeaseHolder(holder=holder, token=token, expires_in_seconds=left_seconds)


def _lease_row(rows: sqlite3.Connection, name: str) -> tuple[str | None, int, float, str]:
    found = rows.execute(
        "SELECT holder, token, expires_seconds, boot FROM leases WHERE name = ?", (name,)
    ).fetchone()
    return found or (None, 0, 0.0, "")


def free_lease(
    rows: sqlite3.Connection, name: str, holder: str, *, token: int | None = None
) -> bool:
    """Free the lease if `holder` has it (with `token`, where given); the token stays, so that it never falls."""
    freed = rows.execute(
        "UPDATE leases SET holder = NULL WHERE name = ? AND holder = ? AND token = coalesce(?, token)",
        (name, holder, token),
    )
    return freed.rowcount > 0


def listen(rows: sqlite3.Connection, address: str, names: set[str]) -> None:
    """Record that writers notify `address` of `names`, and of no others."""
    rows.execute("DELETE FROM listeners WHERE address = ?", (address,))
    rows.executemany(
        "INSERT OR IGNORE INTO listeners (name, address) VALUES (?, ?)",
        [(name, address) for name in sorted(names)],
    )


def is_listening(rows: sqlite3.Connection, address: str, names: set[str]) -> bool:
    """Return whether `address` is still recorded for all of `names`."""
    found = rows.execute("SELECT name FROM listeners WHERE address = ?", (address,)).fetchall()
    return {row[0] for row in found} >= names


def listeners(rows: sqlite3.Connection, name: str) -> list[str]:
    """Return the addresses to notify of a name."""
    return [row[0] for row in rows.execute("SELECT address FROM listeners WHERE name = ?", (name,))]


def forget_listeners(rows: sqlite3.Connection, addresses: Sequence[str]) -> None:
    """Remove addresses whose owners are gone."""
    rows.executemany("DELETE FROM listeners WHERE address = ?", [(a,) for a in addresses])
