"""Zip archives as torch writes them: stored, one after the other in one file (`torch.distributed.checkpoint`), read from the end.

The local headers that torch writes have no sizes, so the directory at the end of each archive is what is read. Formats and names of
fields are those of PKWARE's APPNOTE.TXT, 4.3.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_FULL32, _FULL16, _ZIP64_EXTRA = 0xFFFFFFFF, 0xFFFF, 1
# Chosen: half a million tensors.
MAX_DIRECTORY_BYTES = 64 * 1024 * 1024

# (offset, bytes wanted) -> bytes, fewer at the end of the file.
Read = Callable[[int, int], bytes]


class NoArchive(ValueError):
    """These bytes are no archive, or not one as torch writes them."""


@dataclass(frozen=True, slots=True)
class ZipRecord:
    """One member: where its local header begins, its size, and whether it is stored as it is."""

    name: str
    header: int
    size_bytes: int
    is_stored: bool


def archives(read: Read, size_bytes: int) -> Iterator[tuple[int, dict[str, ZipRecord]]]:
    """Yield where each archive of a file begins, and its records, by their names without the first folder; the last archive first.

    Raises NoArchive where something else than an archive lies.
    """
    end = size_bytes
    while end > 0:
        end, records = _archive(read, end)
        yield end, records


def data_offset(read: Read, record: ZipRecord) -> int:
    """Return where the bytes of a record begin. Raises NoArchive."""
    raw = read(record.header, _LOCAL.size)
    if len(raw) < _LOCAL.size or not raw.startswith(b"PK\x03\x04"):
        raise NoArchive(f"no header of {record.name!r:.80}")
    *_, name_bytes, extra_bytes = _LOCAL.unpack(raw)
    return int(record.header + _LOCAL.size + name_bytes + extra_bytes)


def _archive(read: Read, end: int) -> tuple[int, dict[str, ZipRecord]]:
    """Return where the archive that ends at `end` begins, and its records."""
    at = end - _END.size
    raw = read(at, _END.size) if at >= 0 else b""
    if len(raw) < _END.size or not raw.startswith(b"PK\x05\x06"):
        raise NoArchive(f"no archive ends at byte {end}")
    _, _, _, _, count, size, offset, _ = _END.unpack(raw)
    located = read(max(0, at - _LOCATOR.size), _LOCATOR.size)
    if at >= _LOCATOR.size and located.startswith(b"PK\x06\x07"):
        at -= _LOCATOR.size + _END64.size
        raw = read(at, _END64.size) if at >= 0 else b""
        if len(raw) < _END64.size or not raw.startswith(b"PK\x06\x06"):
            raise NoArchive(f"a directory of another form at byte {max(at, 0)}")
        *_, count, size, offset = _END64.unpack(raw)
    begin = at - size - offset
    if begin < 0 or size > MAX_DIRECTORY_BYTES:
        raise NoArchive(f"a directory of {size} bytes before byte {at}")
    return begin, _records(read(at - size, size), begin, count=count)


def _records(directory: bytes, begin: int, *, count: int) -> dict[str, ZipRecord]:
    found, at = dict[str, ZipRecord](), 0
    for _ in range(count):
        if len(directory) < at + _ENTRY.size or directory[at : at + 4] != b"PK\x01\x02":
            raise NoArchive(f"an entry of the directory is cut off, of {count}")
        fields = _ENTRY.unpack_from(directory, at)
        method, packed, size, name_bytes, extra_bytes, comment_bytes = (
            fields[4],
            fields[8],
            fields[9],
            *fields[10:13],
        )
        at += _ENTRY.size
        name = directory[at : at + name_bytes].decode(errors="replace")
        extra = directory[at + name_bytes : at + name_bytes + extra_bytes]
        at += name_bytes + extra_bytes + comment_bytes
        size, packed, offset = _wide(extra, size, packed, fields[16])
        record = ZipRecord(name, begin + offset, size, method == 0 and packed == size)
        found[name.partition("/")[2] or name] = record
    return found


def _wide(extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """Return the three numbers, from the extra field of those that do not fit into 32 bits."""
    at, wide = 0, b""
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _ZIP64_EXTRA:
            wide = extra[at + 4 : at + 4 + length]
        at += 4 + length
    numbers = [size, packed, offset]
    for number, value in enumerate(numbers):
        if value == _FULL32:
            if len(wide) < 8:
                raise NoArchive("a size of 64 bits is missing")
            numbers[number], wide = struct.unpack_from("<Q", wide)[0], wide[8:]
    return numbers[0], numbers[1], numbers[2]
