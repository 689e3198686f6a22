"""Layouts: where the floating-point tensors of a file lie.

Covered are what `torch.save` writes since release 1.6 (DeepSpeed's files among them), several of these in one file
(`torch.distributed.checkpoint`), and safetensors. A text, and a pickle without tensors, hold none. All else is not covered.
"""

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from runner.checkpoints.finite import zip_archives
from runner.checkpoints.finite.float_kinds import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, FloatKind
from runner.checkpoints.finite.pickle_outline import (
    MAX_PICKLE_BYTES,
    NoOutline,
    Outline,
    TensorOutline,
    nodes,
    outline,
)
from runner.checkpoints.finite.zip_archives import NoArchive, ZipRecord

# The limit of the safetensors library itself.
MAX_HEADER_BYTES = 100_000_000
# Of a file, to see whether it is a text. Chosen.
TEXT_BYTES = 4096
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\x1b")
_FLOATS = {
    "FloatStorage": FLOAT32,
    "DoubleStorage": FLOAT64,
    "HalfStorage": FLOAT16,
    "BFloat16Storage": BFLOAT16,
    # Pairs of numbers.
    "ComplexFloatStorage": FLOAT32,
    "ComplexDoubleStorage": FLOAT64,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "float16": FLOAT16,
    "bfloat16": BFLOAT16,
    "complex64": FLOAT32,
    "complex128": FLOAT64,
    "F64": FLOAT64,
    "F32": FLOAT32,
    "F16": FLOAT16,
    "BF16": BFLOAT16,
}
_PAIRS = ("ComplexFloatStorage", "ComplexDoubleStorage", "complex64", "complex128")
_INTEGERS = frozenset(
    [f"{kind}Storage" for kind in ("Long", "Int", "Short", "Char", "Byte", "Bool")]
    + [f"{kind}Storage" for kind in ("QInt8", "QUInt8", "QInt32", "QUInt4x2", "QUInt2x4")]
    + ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bool"]
    + ["U8", "U16", "U32", "U64", "I8", "I16", "I32", "I64", "BOOL"]
)


class NotCovered(ValueError):
    """Where the tensors of a file lie is not known; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Numbers of one kind that lie side by side in a file; `name` of the tensor, "" where the file does not say it."""

    offset: int
    size_bytes: int
    kind: FloatKind
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLayout:
    """The spans of a file by their offsets, none in another; `num_tensors` with those of integers. `uncovered`: why; "": it is."""

    spans: tuple[Span, ...] = ()
    num_tensors: int = 0
    uncovered: str = ""


def layout_of(file: int, size_bytes: int, names: Mapping[int, str] | None = None) -> TensorLayout:
    """Return the layout of an open file. Raises OSError alone: what cannot be understood is not covered.

    `names`: of tensors that have none in the file, by where their archive begins (`distributed_names`).
    """

    def read(offset: int, wanted: int) -> bytes:
        found = b""
        while len(found) < wanted:
            more = os.pread(file, wanted - len(found), offset + len(found))
            if not more:
                break
            found += more
        return found

    try:
        with _without_read_ahead(file):
            num_tensors, spans = _spans(read, size_bytes, names or {})
    except (NotCovered, NoArchive, NoOutline) as error:
        return TensorLayout(uncovered=str(error)[:200])
    except (ValueError, ArithmeticError, LookupError, TypeError, struct.error) as error:
        # Bytes that pass for a format and are none.
        return TensorLayout(uncovered=f"malformed: {error!r:.150}")
    ordered = sorted((span for span in spans if span.size_bytes), key=lambda span: span.offset)
    if not _are_apart(ordered, size_bytes):
        return TensorLayout(uncovered="its tensors lie over one another, or past its end")
    return TensorLayout(spans=tuple(ordered), num_tensors=num_tensors)


@contextmanager
def _without_read_ahead(file: int) -> Iterator[None]:
    """A few places of the file are wanted here; all of it is read once, by the reader."""
    with suppress(OSError):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    try:
        yield
    finally:
        with suppress(OSError):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)


def _are_apart(ordered: Iterable[Span], size_bytes: int) -> bool:
    end = 0
    for span in ordered:
        if span.offset < end:
            return False
        end = span.offset + span.size_bytes
    return end <= size_bytes


def _spans(
    read: zip_archives.Read, size_bytes: int, names: Mapping[int, str]
) -> tuple[int, list[Span]]:
    begin = read(0, 9)
    if begin.startswith(b"PK\x03\x04"):
        found = [
            _torch_archive(read, records, names.get(start, ""))
            for start, records in zip_archives.archives(read, size_bytes)
        ]
        return sum(count for count, _ in found), [span for _, spans in found for span in spans]
    header_bytes = int.from_bytes(begin[:8], "little")
    if begin[8:9] == b"{" and 2 <= header_bytes <= min(MAX_HEADER_BYTES, size_bytes - 8):
        return _safetensors(read(8, header_bytes), 8 + header_bytes, size_bytes)
    if begin[:1] == b"\x80" and size_bytes <= MAX_PICKLE_BYTES:
        _check_plain(outline(read(0, size_bytes)))
        return 0, []
    if _is_text(read(0, TEXT_BYTES)):
        return 0, []
    raise NotCovered("no known format of tensors")


def _is_text(begin: bytes) -> bool:
    """Whether bytes are a text, or nothing."""
    try:
        # The last character may be cut off.
        begin.decode() if len(begin) < TEXT_BYTES else begin[:-4].decode()
    except UnicodeDecodeError:
        return False
    return all(byte >= 32 or byte in _TEXT_CONTROLS for byte in set(begin))


def _check_plain(found: Outline) -> None:
    """Raise NotCovered for a pickle that may hold numbers itself."""
    kept = [name for name in found.globals if name.startswith(("numpy", "array ", "torch._utils"))]
    if kept or found.storages:
        raise NotCovered(f"a pickle with tensors inside ({', '.join(kept[:2]) or 'storages'})")
    large = (x for node in nodes(found.root) for pair in node.items for x in pair)
    if isinstance(found.root, int) or any(isinstance(x, bytes | bytearray) for x in large):
        raise NotCovered("a pickle with bytes of an unknown kind")


def _torch_archive(
    read: zip_archives.Read, records: dict[str, ZipRecord], name: str
) -> tuple[int, list[Span]]:
    """Return how many tensors an archive has, and the spans of those of floating-point numbers."""
    pickled = records.get("data.pkl")
    if pickled is None or "constants.pkl" in records:
        raise NotCovered("a zip archive that torch.save did not write")
    if not pickled.is_stored or pickled.size_bytes > MAX_PICKLE_BYTES:
        raise NotCovered(f"its data.pkl has {pickled.size_bytes} bytes, or is compressed")
    order = records.get("byteorder")
    if order is not None and read(zip_archives.data_offset(read, order), 6) != b"little":
        raise NotCovered("its numbers are big-endian")
    found = outline(read(zip_archives.data_offset(read, pickled), pickled.size_bytes))
    of_storage: dict[str, list[TensorOutline]] = {each.key: [] for each in found.storages}
    for tensor in found.tensors:
        tensor.name = tensor.name or name
        of_storage[tensor.storage.key].append(tensor)
    spans: list[Span] = []
    for storage in found.storages:
        views = of_storage[storage.key] or [
            TensorOutline(storage, 0, (storage.count,), (1,), name="a storage")
        ]
        spans += _of_storage(read, records.get(f"data/{storage.key}"), views)
    return len(found.tensors), spans


def _of_storage(
    read: zip_archives.Read, record: ZipRecord | None, views: list[TensorOutline]
) -> Iterator[Span]:
    """Yield what the views of one storage cover, each number once."""
    pieces: list[Span] = []
    for view in views:
        dtype = view.dtype or view.storage.kind
        kind = _FLOATS.get(dtype)
        if kind is None and dtype not in _INTEGERS:
            raise NotCovered(f"{view.name or 'a tensor'} is of kind {dtype or 'unknown'!r:.40}")
        if kind is None or 0 in view.size:
            continue
        if record is None or not record.is_stored:
            raise NotCovered(f"the record of {view.name or 'a tensor'} is missing, or compressed")
        item_bytes = kind.item_bytes * (2 if dtype in _PAIRS else 1)
        count = 1 + sum(
            (size - 1) * stride for size, stride in zip(view.size, view.stride, strict=True)
        )
        begin, length = view.offset * item_bytes, count * item_bytes
        if begin + length > record.size_bytes:
            raise NotCovered(f"{view.name or 'a tensor'} reaches past the end of its record")
        pieces.append(Span(offset=begin, size_bytes=length, kind=kind, name=view.name))
    if not pieces or record is None:
        return
    start = zip_archives.data_offset(read, record)
    end = 0
    for piece in sorted(pieces, key=lambda each: (each.offset, -each.size_bytes)):
        begin = max(piece.offset, end)
        end = max(end, piece.offset + piece.size_bytes)
        yield Span(offset=start + begin, size_bytes=end - begin, kind=piece.kind, name=piece.name)


def _safetensors(header: bytes, start: int, size_bytes: int) -> tuple[int, list[Span]]:
    """Return how many tensors a file of safetensors has, and its spans: https://github.com/huggingface/safetensors#format."""
    try:
        plain: dict[str, Any] = json.loads(header)
        plain.pop("__metadata__", None)
        found = [(name, str(each["dtype"]), *each["data_offsets"]) for name, each in plain.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise NotCovered(f"a header of safetensors that cannot be read: {error!r:.80}") from error
    spans = []
    for name, dtype, begin, end in found:
        kind = _FLOATS.get(dtype)
        if kind is None and dtype not in _INTEGERS:
            raise NotCovered(f"{name!r:.80} is of kind {dtype!r:.40}")
        if not (type(begin) is type(end) is int and 0 <= begin <= end <= size_bytes - start):
            raise NotCovered(f"{name!r:.80} lies past the end")
        if kind is not None and (end - begin) % kind.item_bytes == 0:
            spans.append(
                Span(offset=start + begin, size_bytes=end - begin, kind=kind, name=name[:200])
            )
        elif kind is not None:
            raise NotCovered(f"{name!r:.80} is no whole number of {kind.name}")
    return len(found), spans
