"""Entries of Redis streams -> items and registers, checked on the way.

An entry of ours has one field, `crc:<checksum>`. An entry without it was written past the store: its bytes are returned as they
are, since the reader will refuse them as a message, and a gap before it is allowed. A wrong checksum means a broken server or disk.
"""

import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from runner.errors import StoreCorrupt
from runner.store.protocol import Item, Register

_FIELD = re.compile(rb"crc:[0-9a-f]{8}")

# [id, [field, payload, ...]] as Redis has it
Entry = Sequence[Any]


def field_of(payload: bytes) -> bytes:
    """Return the name of the field that holds a payload."""
    return b"crc:%08x" % crc32(payload)


def items_of(stream: str, entries: Sequence[Entry], *, start: int | None) -> tuple[Item, ...]:
    """Return the items; raise StoreCorrupt for a damaged one, or a gap after `start` (None: start anywhere)."""
    items: list[Item] = []
    number = start
    for entry in entries:
        found = _number(entry)
        if number is not None and found <= number:
            # `5-1` beside `5-0` is not ours, and has no number.
            continue
        payload, is_ours = _opened("stream", stream, entry)
        if number is not None and found != number + 1 and is_ours:
            raise StoreCorrupt(
                f"stream {stream!r}: item {number + 1} is missing, {found} follows; put back a copy"
            )
        items.append(Item(found, payload))
        number = found
    return tuple(items)


def follow_each_other(entries: Sequence[Entry], start: int) -> bool:
    """Return whether entries follow `start` without a gap."""
    return all(_number(entry) == start + place for place, entry in enumerate(entries, 1))


def register_of(name: str, entry: Entry) -> Register:
    """Return a register's value; raise StoreCorrupt for a damaged one."""
    return Register(_number(entry), _opened("register", name, entry)[0])


def _number(entry: Entry) -> int:
    return int(entry[0][:-2] if entry[0].endswith(b"-0") else entry[0].partition(b"-")[0])


def _opened(kind: str, name: str, entry: Entry) -> tuple[bytes, bool]:
    """Return the payload, and whether a store wrote it."""
    words = entry[1]
    if len(words) == 2 and words[0] == field_of(words[1]):
        return words[1], True
    match = _FIELD.fullmatch(words[0]) if len(words) == 2 else None
    if match is None:
        return b" ".join(words), False
    what = f"{kind} {name!r}" + (f": item {_number(entry)}" if kind == "stream" else "")
    raise StoreCorrupt(
        f"{what} is not what was written, its checksum is wrong; put back a copy, and test the server's disk and memory"
    )
