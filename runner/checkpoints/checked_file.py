"""Read a file of a checkpoint and hash it on the way: what a rank loads is what was sealed, or the rank is refused.

    manifest = checkpoints.read_manifest(folder)
    with checkpoints.open_checked(folder, "model.pt", manifest.files) as file:
        state = torch.load(file.part())
    # Here the whole file agreed with the manifest. Nothing that was read may be used before.

Each byte is read once, into memory; the hash is made of that memory, and that memory is handed out. So it does not matter what
happens to the file meanwhile or after: a change is either in both or in neither. Not covered are memory that goes bad later, and
files that the reader does not open. A thread hashes while the caller reads and decodes.
"""

import hashlib
import io
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from runner.checkpoints.manifest import FileSeal
from runner.checkpoints.verification import check_equal, open_regular, refuse_on_error
from runner.errors import CheckpointRefused, StokerError

# Read and hashed at once: about 10 ms of hashing. Chosen, not measured.
CHUNK_BYTES = 4 * 1024 * 1024
# How many chunks may wait for their hash. Chosen, not measured.
MAX_CHUNKS_WAITING = 8


def open_checked(folder: str | Path, name: str, files: Mapping[str, FileSeal]) -> "CheckedFile":
    """Open one of the `files` that a checkpoint's manifest lists.

    Raises CheckpointRefused that names the file and its fault: not listed, not there, of another size; TemporaryError.
    """
    if name not in files:
        raise CheckpointRefused(f"{Path(folder) / name} is not listed in the manifest")
    return CheckedFile(Path(folder) / name, files[name])


class CheckedFile:
    """A file of a checkpoint, read once from front to back and hashed on the way. Not for use by several threads.

    Leave its `with` block before you use what it gave: that reads and hashes the rest, and raises CheckpointRefused unless size and
    hash are those of the manifest, also in place of an error of the block's own, since damaged bytes raise anything.
    """

    def __init__(self, path: Path, seal: FileSeal) -> None:
        self.path = path
        self.size_bytes = seal.size_bytes
        self._seal = seal
        self._digest = hashlib.sha256()
        self._waiting: deque[Future[None]] = deque()
        # A thread costs more than it saves where there is one chunk.
        self._hasher = ThreadPoolExecutor(1) if seal.size_bytes > CHUNK_BYTES else None
        self._offset = 0
        self._last: tuple[int, memoryview] = 0, memoryview(b"")
        with refuse_on_error(path):
            self._file = open_regular(path)
        try:
            self._check_size()
        except BaseException:
            self.close()
            raise

    def part(self, offset: int = 0, size_bytes: int | None = None) -> "PartFile":
        """Return a part of the file (default: all that follows `offset`) as a file in memory; it stays valid after the block.

        Parts are asked for from front to back, or the last one again. Raises ValueError for any other, CheckpointRefused for a file
        that ends early or cannot be read, TemporaryError.
        """
        size_bytes = self.size_bytes - offset if size_bytes is None else size_bytes
        first, last = self._last
        if offset == first and size_bytes == len(last):
            return PartFile(last)
        if not self._offset <= offset <= offset + size_bytes <= self.size_bytes:
            raise ValueError(
                f"bytes {offset} to {offset + size_bytes} of {self.path}: {self._offset} of {self.size_bytes} are read, "
                "ask for parts from front to back"
            )
        self._skip_to(offset)
        part = memoryview(bytearray(size_bytes))
        self._read_into(part)
        self._last = offset, part.toreadonly()
        return PartFile(self._last[1])

    def finish(self) -> None:
        """Read and hash the rest. Raises CheckpointRefused unless the file is that of the manifest, TemporaryError."""
        self._skip_to(self.size_bytes)
        self._await_hashes(0)
        actual = self._digest.hexdigest()
        check_equal(self.path, "sha256", actual=actual, expected=self._seal.sha256)

    def close(self) -> None:
        """Close the file, unchecked if it was not finished."""
        if self._hasher is not None:
            self._hasher.shutdown(cancel_futures=True)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        is_checked = error is None or (
            isinstance(error, Exception) and not isinstance(error, StokerError)
        )
        try:
            if is_checked:
                self.finish()
        finally:
            self.close()

    def _check_size(self) -> None:
        size_bytes = self._file.seek(0, io.SEEK_END)
        check_equal(self.path, "bytes", actual=size_bytes, expected=self.size_bytes)
        self._file.seek(0)

    def _skip_to(self, offset: int) -> None:
        while self._offset < offset:
            self._read_into(memoryview(bytearray(min(CHUNK_BYTES, offset - self._offset))))

    def _read_into(self, part: memoryview) -> None:
        for begin in range(0, len(part), CHUNK_BYTES):
            chunk = part[begin : begin + CHUNK_BYTES]
            with refuse_on_error(self.path):
                num_read = self._file.readinto(chunk)
            self._offset += num_read
            if num_read < len(chunk):
                check_equal(self.path, "bytes", actual=self._offset, expected=self.size_bytes)
            self._hash(chunk)

    def _hash(self, chunk: memoryview) -> None:
        if self._hasher is None:
            self._digest.update(chunk)
            return
        self._waiting.append(self._hasher.submit(self._digest.update, chunk))
        self._await_hashes(MAX_CHUNKS_WAITING)

    def _await_hashes(self, num_left: int) -> None:
        while len(self._waiting) > num_left:
            self._waiting.popleft().result()


class PartFile(io.RawIOBase):
    """Bytes in memory as a file that can be read and sought; `view` is all of it. Reading copies, and nothing can be written."""

    def __init__(self, view: memoryview) -> None:
        super().__init__()
        self.view = view
        self._position = 0

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether it can be sought: always."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position, and return it. Raises ValueError for one before the start."""
        begins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self.view)}
        position = begins[whence] + offset
        if position < 0:
            raise ValueError(f"position {position} lies before the start")
        self._position = position
        return position

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer from the position on; return how many bytes there were."""
        target = memoryview(buffer).cast("B")
        found = self.view[self._position : self._position + len(target)]
        target[: len(found)] = found
        self._position += len(found)
        return len(found)
