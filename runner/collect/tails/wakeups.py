"""Wakeups: the kernel reports writes in the folders of logs (inotify), so that unchanged logs cost nothing.

Without it (another system, its limits, a shared file system), logs are polled more often.
"""

import contextlib
import ctypes
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# It has no types.
_library: Any = None
# On other systems than Linux, or without a libc that has inotify, it cannot be imported.
with contextlib.suppress(ImportError, OSError):
    _library = importlib.import_module("inotify_simple")
    # This process has the C library; the module would search for its file, and start a program (ldconfig) to do so.
    _library._libc = ctypes.CDLL(None, use_errno=True)

_READ_BYTES = 64 * 1024


class Wakeups:
    """Watches folders for writes. `is_active`: it watches all of them."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._inotify: Any = None
        try:
            self._inotify = _library.INotify(nonblocking=True)
            flags = _library.flags
            for folder in folders:
                self._inotify.add_watch(folder, flags.MODIFY | flags.CREATE | flags.MOVED_TO)
        except (AttributeError, OSError, TypeError):
            # AttributeError: the module is missing.
            self.close()

    @property
    def is_active(self) -> bool:
        """Whether writes are reported."""
        return self._inotify is not None

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that become readable with a write."""
        return [] if self._inotify is None else [self._inotify.fileno()]

    def drain(self) -> None:
        """Discard the reports: the next poll sees the writes."""
        if self._inotify is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._inotify.fileno(), _READ_BYTES):
                    pass

    def close(self) -> None:
        """Close the descriptor."""
        if self._inotify is not None:
            self._inotify.close()
        self._inotify = None
