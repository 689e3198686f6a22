"""The files of a share that were verified already, in a file: a reader that was killed is followed by one that goes on there.

A line for the share, then one for each file, with what changes when the file does and what a scan found in it. It is not flushed to
disk, for it must survive the process only. What a kill cut off is removed; any other content than what is written here means: start
again.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.checkpoints.finite.file_scan import ScanResult

VERSION = 2
# A manifest of as many bytes has fewer files than fit. Chosen, not measured.
MAX_RECORD_BYTES = 128 * 1024 * 1024


class VerifiedFiles:
    """The record of one share, at `path`. `share` is plain JSON that tells it from every other share."""

    def __init__(self, path: Path, share: Mapping[str, Any]) -> None:
        """Open the record, or begin it if it is missing, malformed or another share's. Raises OSError."""
        self._path = path
        self._header = _line({"v": VERSION, **share})
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._known: dict[str, tuple[list[int], ScanResult]] = {}
        self._is_failing = False
        self._size = self._load()

    def find(self, name: str, status: os.stat_result) -> ScanResult | None:
        """Return the result of a file that was verified, if nothing of it has changed since; else None."""
        mark, scanned = self._known.get(name, (None, None))
        return scanned if mark == _mark(status) else None

    def add(self, name: str, status: os.stat_result, scanned: ScanResult) -> None:
        """Record that a file agrees with the manifest; `status` is from before it was read."""
        mark = _mark(status)
        self._known[name] = mark, scanned
        findings = [scanned.num_tensors, scanned.uncovered, scanned.not_finite]
        self._write(_line([name, *mark, *findings]))

    def close(self) -> None:
        """Close the record."""
        os.close(self._file)

    def _load(self) -> int:
        """Read the lines, and return the size of the file in bytes, without a line that was cut off."""
        data = b""
        while len(data) <= MAX_RECORD_BYTES and (chunk := os.read(self._file, 1 << 20)):
            data += chunk
        whole = data[: data.rfind(b"\n") + 1]
        if len(data) <= MAX_RECORD_BYTES and whole.startswith(self._header):
            try:
                self._known = dict(map(_read, whole[len(self._header) :].splitlines()))
            except (ValueError, TypeError, RecursionError):
                pass
            else:
                os.ftruncate(self._file, len(whole))
                return len(whole)
        os.ftruncate(self._file, 0)
        self._size = 0
        self._write(self._header)
        return self._size

    def _write(self, line: bytes) -> None:
        """Append a line or nothing: without room, files are verified all the same, and again by the next reader."""
        try:
            if os.write(self._file, line) < len(line):
                os.ftruncate(self._file, self._size)
                raise OSError("it took a part of a line only")
            self._size += len(line)
        except OSError as error:
            if not self._is_failing:
                sys.stderr.write(f"{self._path} cannot be written: {error}\n")
            self._is_failing = True


def _mark(status: os.stat_result) -> list[int]:
    """Return what tells a file from a changed one. A user may set the time of content (mtime), not that of the change (ctime)."""
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _line(plain: Any) -> bytes:
    return json.dumps(plain, separators=(",", ":"), sort_keys=True).encode() + b"\n"


def _read(line: bytes) -> tuple[str, tuple[list[int], ScanResult]]:
    name, *numbers, uncovered, not_finite = json.loads(line)
    is_text = all(isinstance(each, str) for each in (name, uncovered, not_finite))
    if not is_text or [type(each) for each in numbers] != [int] * 5:
        raise ValueError(f"{line[:80]!r} is no line of a verified file")
    *mark, num_tensors = numbers
    scanned = ScanResult(num_tensors=num_tensors, uncovered=uncovered, not_finite=not_finite)
    return name, (mark, scanned)
