"""Wake-ups: the kernel says when something was written where logs lie (inotify), so that logs at rest cost nothing.

Where it does not say so (another system, its limits, a file system that other machines write to),
logs are looked at all the same, more often.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# without types
_library: Any = None
# not Linux, or no libc that has it
with contextlib.suppress(ImportError, OSError):
    _library = importlib.import_module("inotify_simple")

_READ_BYTES = 64 * 1024


class Wakeups:
    """Tells of writes in some folders. `is_active`: it does, for all of them."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._notes: Any = None
        try:
            self._notes = _library.INotify(nonblocking=True)
            flags = _library.flags
            for folder in folders:
                self._notes.add_watch(folder, flags.MODIFY | flags.CREATE | flags.MOVED_TO)
        except (AttributeError, OSError, TypeError):
            # AttributeError: there is no such module
            self.close()

    @property
    def is_active(self) -> bool:
        """Whether writes are told."""
        return self._notes is not None

    @property
    def descriptors(self) -> list[int]:
        """What can be read once something was written."""
        return [] if self._notes is None else [self._notes.fileno()]

    def drain(self) -> None:
        """Forget what was told: whoever looks sees it."""
        if self._notes is not None:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._notes.fileno(), _READ_BYTES):
                    pass

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._notes is not None:
            self._notes.close()
        self._notes = None
