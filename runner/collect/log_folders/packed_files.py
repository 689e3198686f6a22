"""Packed files: the bytes of a log, whatever packed it; a file that grows while it is read ends where it ended at first."""

import bz2
import gzip
import io
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, BinaryIO, Protocol, cast

from runner.collect.log_folders.entries import ADVICE, STANDARD_INPUT
from runner.collect.scan import BLOCK_BYTES
from runner.errors import UserError

# Of one packed file, unpacked; and what any may have, however small it is. Both chosen: text packs to a twentieth.
MAX_RATIO, MIN_UNPACKED_BYTES = 200, 4 << 30
TAR_MAGIC, TAR_MAGIC_AT = b"ustar", 257
ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07")


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


def _zstandard(file: BinaryIO) -> _Stream:
    try:
        module: Any = import_module("zstandard")
    except ImportError:
        raise UserError("packed by zstd: unpack it, or install the package zstandard") from None
    return cast(_Stream, module.ZstdDecompressor().stream_reader(file, read_across_frames=True))


def _gzip(file: BinaryIO) -> _Stream:
    return gzip.GzipFile(fileobj=file)


# The first bytes of a packed file -> how it is unpacked.
_UNPACKERS: dict[bytes, Callable[[BinaryIO], _Stream]] = {
    b"\x1f\x8b": _gzip,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _zstandard,
}
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)


def is_packed(head: bytes) -> bool:
    """Whether bytes are the start of a packed file that can be unpacked here."""
    return any(head.startswith(magic) for magic in _UNPACKERS)


def is_archive(head: bytes) -> bool:
    """Whether bytes are the start of an archive, which may hold many files."""
    at = slice(TAR_MAGIC_AT, TAR_MAGIC_AT + len(TAR_MAGIC))
    return head.startswith(ARCHIVES) or head[at] == TAR_MAGIC


def _read_some(file: BinaryIO) -> bytes:
    """Read what is there by now: the writer of a pipe may take its time."""
    return (
        file.read1(BLOCK_BYTES) if isinstance(file, io.BufferedReader) else file.read(BLOCK_BYTES)
    )


class LogBytes:
    """The bytes of one log, once. `notes` are complete after that: what of it was not read."""

    def __init__(self, name: str) -> None:
        """`name`: a path, or "-" for standard input."""
        self.name = name
        self.notes: list[str] = []
        self._file: io.BufferedReader | None = None

    @property
    def num_packed_bytes(self) -> int:
        """How many bytes of the file itself were read: what a person sees as its progress."""
        try:
            return self._file.tell() if self._file is not None else 0
        except (OSError, ValueError):
            return 0

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes, unpacked; raises UserError where they cannot be read on."""
        try:
            if self.name == STANDARD_INPUT:
                yield from self._of_stream(sys.stdin.buffer)
                return
            with open(self.name, "rb") as file:
                self._file = file
                yield from self._of_file(file)
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from error
        except _BROKEN as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UserError(f"{self.name}: cannot be read ({why}); {ADVICE}") from error
        finally:
            self._file = None

    def _of_stream(self, stream: BinaryIO) -> Iterator[bytes]:
        if isinstance(stream, io.BufferedReader):
            yield from self._of_file(stream)
        else:
            yield from iter(partial(_read_some, stream), b"")

    def _of_file(self, file: io.BufferedReader) -> Iterator[bytes]:
        head = file.peek(BLOCK_BYTES)
        for magic, unpacker in _UNPACKERS.items():
            if head.startswith(magic):
                yield from self._unpacked(unpacker(file), os.fstat(file.fileno()).st_size)
                return
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            yield from iter(partial(_read_some, file), b"")
            return
        left = status.st_size
        # Files of /proc say that they are empty.
        while left > 0 or status.st_size == 0:
            block = file.read(min(BLOCK_BYTES, left) if status.st_size else BLOCK_BYTES)
            if not block:
                break
            left -= len(block)
            yield block
        if status.st_size and os.fstat(file.fileno()).st_size > status.st_size:
            self.notes.append(f"it grows: its first {status.st_size:,} bytes were read")

    def _unpacked(self, stream: _Stream, packed_bytes: int) -> Iterator[bytes]:
        left, is_first = max(MIN_UNPACKED_BYTES, MAX_RATIO * packed_bytes), True
        while block := stream.read(BLOCK_BYTES):
            if is_first and (is_packed(block) or is_archive(block)):
                raise UserError("it holds an archive: unpack it, and give the folder")
            is_first = False
            yield block
            left -= len(block)
            if left <= 0:
                self.notes.append(
                    f"it unpacks to more than {MAX_RATIO} times its size: the rest was not read"
                )
                return
