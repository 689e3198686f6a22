"""The form of one file: a head, then blocks, each with the steps that it spans and a checksum over all of it.

A file begins with the line `stoker-steps <crc32> <head as a message>`. A block is its own head (magic, number of rows, least and
greatest step, crc32) and rows of one size. All numbers are little-endian.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from runner.errors import WireError
from runner.facts import wire
from runner.facts.wire import Value
from runner.steps.rows import (
    COLUMNS,
    LAYOUT,
    MAX_COLUMNS,
    MAX_STEP,
    NUM_FIXED,
    Packed,
    layout,
    translated,
)

MARK = b"stoker-steps "
# Of the form of blocks and of the fixed fields; another number is refused.
VERSION = 1
_MAGIC = b"STPS"
_BLOCK = struct.Struct("<4sIqqI")
# Of a block; damage to one costs no more. Chosen.
MAX_BLOCK_ROWS = 1000
# A head larger than that is damage; chosen.
MAX_HEAD_BYTES = 16 * 1024


class StepsHead(Value, kind="steps_head"):
    """The first line of a file. `admitted_at` tells a run from another that had its number before a rollback.

    `width`: the rows of its older part are one of each so many steps; 1: all are there.
    """

    version: int
    run: int
    run_name: str
    admitted_at: float
    token: int
    columns: tuple[str, ...]
    width: int = 1


class Contents(NamedTuple):
    """What was read of a file. `damage`: what could not be, or "" for none; the last block of a file in use may be half written."""

    head: StepsHead | None
    rows: list[Packed]
    damage: str


def encode_head(head: StepsHead) -> bytes:
    """Return the first line of a file."""
    body = wire.encode(head)
    return b"%b%08x %b\n" % (MARK, zlib.crc32(body), body)


def _head_of(line: bytes) -> StepsHead | None:
    code, _, body = line.removeprefix(MARK).partition(b" ")
    if not line.startswith(MARK) or code != b"%08x" % zlib.crc32(body):
        return None
    try:
        head = wire.decode(body)
    except WireError:
        return None
    return head if isinstance(head, StepsHead) else None


def encode_blocks(rows: Sequence[Packed]) -> bytes:
    """Return blocks of rows with our columns."""
    begins = range(0, len(rows), MAX_BLOCK_ROWS)
    return b"".join([_encode_block(rows[begin : begin + MAX_BLOCK_ROWS]) for begin in begins])


def _encode_block(rows: Sequence[Packed]) -> bytes:
    body = b"".join([LAYOUT.pack(*row) for row in rows])
    steps = [int(row[0]) for row in rows]
    head = _BLOCK.pack(_MAGIC, len(rows), min(steps), max(steps), 0)
    return _BLOCK.pack(_MAGIC, len(rows), min(steps), max(steps), _code(head, body)) + body


def _code(head: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(head[: _BLOCK.size - 4]))


class _Block(NamedTuple):
    """A block that matches its checksum: the steps that it spans, how many rows it has, and where."""

    least: int
    greatest: int
    num_rows: int
    begin: int
    end: int


def decode(data: bytes, first: int, last: int, *, newest: int | None = None) -> Contents:
    """Return the rows of steps `first` to `last`; whatever the bytes are, nothing is raised.

    `newest`: no more than the last blocks that hold so many rows are read.
    """
    end = data.find(b"\n", 0, MAX_HEAD_BYTES)
    head = _head_of(data[:end]) if end > 0 else None
    if head is None:
        return Contents(None, [], "its first line is no head, or does not match its checksum")
    if head.version != VERSION:
        return Contents(None, [], f"it is of version {head.version}, this release reads {VERSION}")
    if len(head.columns) > MAX_COLUMNS:
        return Contents(None, [], f"its head names {len(head.columns)} columns")
    form = layout(len(head.columns))
    found = list(_blocks(data, end + 1, form))
    damage = next((one for one in found if isinstance(one, str)), "")
    blocks = [one for one in found if isinstance(one, _Block)]
    rows: list[Packed] = []
    for block in blocks if newest is None else _last(blocks, newest):
        if block.greatest >= first and block.least <= last:
            body = memoryview(data)[block.begin : block.end]
            rows += translated(list(form.iter_unpack(body)), head.columns)
    if first > 0 or last < MAX_STEP:
        rows = [row for row in rows if first <= row[0] <= last]
    return Contents(head, rows, damage)


def _last(blocks: Sequence[_Block], num_rows: int) -> Sequence[_Block]:
    """Return the last blocks that hold so many rows together."""
    begin = len(blocks)
    while begin and num_rows > 0:
        begin -= 1
        num_rows -= blocks[begin].num_rows
    return blocks[begin:]


def _blocks(data: bytes, place: int, form: struct.Struct) -> Iterator[_Block | str]:
    """Yield each block, and in words what is damaged."""
    while place < len(data):
        if place + _BLOCK.size > len(data):
            yield f"it ends in half a block, at byte {place}"
            return
        magic, count, least, greatest, code = _BLOCK.unpack_from(data, place)
        begin, end = place + _BLOCK.size, place + _BLOCK.size + count * form.size
        if magic != _MAGIC or count > MAX_BLOCK_ROWS:
            yield f"there is no block at byte {place}"
            place = _next_block(data, place)
        elif end > len(data):
            yield f"it ends in half a block, at byte {place}"
            place = _next_block(data, place)
        elif _code(data[place:begin], data[begin:end]) != code:
            yield f"the block at byte {place} does not match its checksum"
            place = _next_block(data, place)
        else:
            yield _Block(least, greatest, count, begin, end)
            place = end


def _next_block(data: bytes, place: int) -> int:
    """Search for the next block behind damage."""
    found = data.find(_MAGIC, place + 1)
    return found if found >= 0 else len(data)


NUM_BYTES_PER_ROW = LAYOUT.size
assert len(COLUMNS) <= MAX_COLUMNS
assert NUM_FIXED + len(COLUMNS) == len(LAYOUT.unpack(bytes(LAYOUT.size)))
