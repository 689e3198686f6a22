"""The spool: durable signals that the store has not acknowledged yet, in a file, so that an agent killed meanwhile says them later.

The file is in the page cache, not fsynced: it is to survive the process, and what a machine's death takes is reported by the
silence of the node. A disk that is full takes nothing from the signals themselves: they wait in memory, go out as always, and are
written down once there is room.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger("stoker.agent")


class Spool:
    """Lines in a file. Only whole lines count: one that was cut off by a kill or a full disk is taken back, or passed over."""

    def __init__(self, path: Path) -> None:
        """Open the file, making it if need be; raises OSError when that cannot be done."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._size = os.fstat(self._file).st_size
        # the disk took nothing at the last try
        self._is_refused = False

    def read(self) -> list[bytes]:
        """Return the lines an earlier life left; begin a new line behind one that was cut off."""
        data = b""
        while chunk := os.pread(self._file, 1 << 20, len(data)):
            data += chunk
        if data and not data.endswith(b"\n"):
            self.write([b""])
        return data.splitlines()

    def write(self, lines: list[bytes]) -> bool:
        """Write lines down, all or none; False when the disk does not take them."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.ftruncate(self._file, self._size)
        except OSError as error:
            self._refuse(str(error))
            return False
        if written < len(data):
            self._refuse("it took a part only")
            return False
        self._size += written
        if self._is_refused:
            log.warning("%s: there is room again", self._path)
            self._is_refused = False
        return True

    def clear(self) -> None:
        """Forget all lines."""
        try:
            os.ftruncate(self._file, 0)
            self._size = 0
        except OSError as error:
            self._refuse(str(error))

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _refuse(self, reason: str) -> None:
        # once, until there is room again
        if not self._is_refused:
            log.warning(
                "%s cannot be written (%s): signals wait in memory, and would be lost with this agent",
                self._path,
                reason,
            )
            self._is_refused = True
