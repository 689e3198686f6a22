"""TensorBoard's event files: scalars by tag and step, read without TensorBoard.

A file is a row of records: length (8 bytes, little endian), its checksum, the data, its checksum (CRC-32C, rotated and offset as
TFRecord has it). Data is a protobuf `Event`, of which step, tag and one number are read, as `simple_value` or as a tensor of one
element. Sources: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto,
tensorflow/core/framework/{summary,tensor}.proto.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

# A record beyond the first is damaged; one beyond the second is an image, a graph or a histogram, and is skipped. Both chosen.
MAX_RECORD_BYTES, MAX_SCALAR_BYTES = 64 << 20, 64 << 10
# Of TFRecord, and CRC-32C's polynomial, reflected.
_MASK_DELTA, _CASTAGNOLI = 0xA282EAD8, 0x82F63B78


class EventsDamaged(ValueError):
    """A record does not fit its checksum, or ends before its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One number of one tag at one step."""

    tag: str
    step: int
    value: float


def scalars(stream: BinaryIO) -> Iterator[Scalar]:
    """Read scalars in the order in which they were written; raises EventsDamaged where the file cannot be read on."""
    while True:
        data = _record(stream)
        if data is None:
            return
        if len(data) <= MAX_SCALAR_BYTES:
            yield from _scalars_of(data)


def crc32c(data: bytes) -> int:
    """Return the Castagnoli checksum of these bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """Return the checksum as TFRecord writes it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (_CASTAGNOLI if byte & 1 else 0)
    return byte


_TABLE = tuple(_table_entry(byte) for byte in range(256))


def _record(stream: BinaryIO) -> bytes | None:
    start = stream.tell()
    head = stream.read(12)
    if not head:
        return None
    if len(head) < 12:
        raise EventsDamaged(f"it ends within the record at byte {start}")
    length, checksum = struct.unpack("<QI", head)
    if masked_crc32c(head[:8]) != checksum or length > MAX_RECORD_BYTES:
        raise EventsDamaged(f"the record at byte {start} does not fit its checksum")
    data = stream.read(length)
    tail = stream.read(4)
    if len(data) < length or len(tail) < 4:
        raise EventsDamaged(f"it ends within the record at byte {start}")
    # A long record holds no scalar, and its checksum would take seconds.
    if length <= MAX_SCALAR_BYTES and masked_crc32c(data) != struct.unpack("<I", tail)[0]:
        raise EventsDamaged(f"the record at byte {start} does not fit its checksum")
    return data


def _scalars_of(event: bytes) -> Iterator[Scalar]:
    step, values = 0, []
    for number, value in _fields(event):
        if number == 2 and isinstance(value, int):
            step = value - (1 << 64) if value >> 63 else value
        elif number == 5 and isinstance(value, bytes):
            values += [part for at, part in _fields(value) if at == 1 and isinstance(part, bytes)]
    for value in values:
        tag, found = "", None
        for number, part in _fields(value):
            if number == 1 and isinstance(part, bytes):
                tag = part.decode("utf-8", "replace")
            elif number == 2 and isinstance(part, bytes) and len(part) == 4:
                found = struct.unpack("<f", part)[0]
            elif number == 8 and isinstance(part, bytes):
                found = _of_tensor(part)
        if tag and found is not None:
            yield Scalar(tag=tag, step=step, value=found)


# DT_FLOAT, DOUBLE, INT32, INT64, HALF.
_DTYPES = {1: "f", 2: "d", 3: "i", 9: "q", 19: "e"}
# float_val, double_val; packed or one by one.
_LISTS = {5: "f", 6: "d"}


def _of_tensor(tensor: bytes) -> float | None:
    """Return the number of a tensor of one element; None for any other."""
    form, found = "", None
    for number, part in _fields(tensor):
        if number == 1 and isinstance(part, int):
            form = _DTYPES.get(part, "")
        elif number in {7, 10} and isinstance(part, int):
            found = float(part)
        elif isinstance(part, bytes) and (number in _LISTS or (number == 4 and form)):
            form_of = _LISTS.get(number, form)
            if len(part) == struct.calcsize("<" + form_of):
                found = float(struct.unpack("<" + form_of, part)[0])
    return found


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Walk through a protobuf message: field numbers with an integer, or with the bytes of anything else."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in {1, 5}:
            size = 8 if kind == 1 else 4
        else:
            raise EventsDamaged(f"a record holds a field of the unknown kind {kind}")
        if at + size > len(message):
            raise EventsDamaged("a record ends within a field")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at >= len(message):
            raise EventsDamaged("a record ends within a number")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise EventsDamaged("a record holds a number without an end")
