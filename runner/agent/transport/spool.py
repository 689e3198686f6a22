"""The spool: a file of durable signals that the store has not acknowledged, for the next instance of an agent that is killed.

The file is not fsynced: it must survive the process only, since a node's lost heartbeat reports the
machine's death. Signals that a full disk does not take wait in memory, are sent as always, and are
spooled once there is room.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger("stoker.agent")


class Spool:
    """Lines in a file. A line that a kill or a full disk cut off is removed or ignored."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises OSError."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._file).st_size
        # The last write failed.
        self._is_failing = False

    def read(self) -> list[bytes]:
        """Return the lines of earlier instances; end a line that was cut off."""
        data = b""
        while chunk := os.pread(self._file, 1 << 20, len(data)):
            data += chunk
        if data and not data.endswith(b"\n"):
            self.write([b""])
        return data.splitlines()

    def write(self, lines: list[bytes]) -> bool:
        """Append all lines or none; False when the disk refuses them."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.ftruncate(self._file, self._size)
        except OSError as error:
            self._on_failure(str(error))
            return False
        if written < len(data):
            self._on_failure("it took a part of the lines only")
            return False
        self._size += written
        if self._is_failing:
            log.warning("%s can be written again", self._path)
            self._is_failing = False
        return True

    def clear(self) -> None:
        """Remove all lines."""
        try:
            os.ftruncate(self._file, 0)
            self._size = 0
        except OSError as error:
            self._on_failure(str(error))

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _on_failure(self, reason: str) -> None:
        if not self._is_failing:
            log.warning(
                "%s cannot be written (%s): unsent signals are kept in memory only, and are lost if this agent dies",
                self._path,
                reason,
            )
            self._is_failing = True
