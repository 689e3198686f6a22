"""The high-water mark: the newest entry that the store acknowledged, kept on the supervisor's own machine.

A store that comes back with less than it acknowledged cannot tell; somebody else must remember. The file is one sector, of its
full size from the start and overwritten in place, like an agent's life: a disk writes it whole or not at all.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.atomic_files import overwrite_sector
from runner.errors import PermanentError, StoreUnavailable

# in the state folder
MARK_FILE = "journal.mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWaterMark:
    """The newest acknowledged entry. 0: none was, as far as this machine knows."""

    sequence: int = 0
    # of its bytes as the store got them
    sha256: str = ""
    # the controller's, after it
    next_epoch: int = 0
    # how often a person had taken a store that forgot for the truth
    accepted: int = 0


class HighWaterFile:
    """One supervisor's hand on the file; one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open it, making it if need be. Raises PermanentError when it holds something else."""
        self.path = path
        self.newest = read_high_water(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._write(self.newest)
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be written: {error}; see to it") from error

    def keep(self, newest: HighWaterMark) -> None:
        """Remember this entry, durably. Raises StoreUnavailable when the disk does not take it."""
        if newest == self.newest:
            return
        try:
            self._write(newest)
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be written: {error}; see to it") from error
        self.newest = newest

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _write(self, newest: HighWaterMark) -> None:
        overwrite_sector(self._file, asdict(newest))


def read_high_water(path: Path) -> HighWaterMark:
    """Return what a mark says; nothing is known where there is no file. Raises PermanentError for one that is no mark."""
    try:
        text = path.read_text()
        plain = json.loads(text) if text.strip("\0 \n") else {}
        return HighWaterMark(
            **{name: plain[name] for name in asdict(HighWaterMark()) if name in plain}
        )
    except FileNotFoundError:
        return HighWaterMark()
    except (ValueError, TypeError, OSError) as error:
        raise PermanentError(
            f"{path} cannot be read ({error}); it tells how far the journal was once. When the journal is whole "
            "(`stoker story` tells its end), delete it"
        ) from error
