"""The high-water mark: the newest entry that the store acknowledged, persisted on the supervisor's own machine.

A store that comes back with less than it acknowledged cannot notice it. The file is one sector, of its full size from the
start and overwritten in place: a disk writes it whole or not at all.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.atomic_files import overwrite_sector
from runner.errors import PermanentError, StoreUnavailable

# in the state folder
MARK_FILE = "journal.high_water_mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class HighWaterMark:
    """The newest acknowledged entry, the hash of its bytes, and the controller's next generation after it.

    `sequence` 0: none was acknowledged, as far as this machine knows. `accepted`: how often a person has accepted a
    rolled-back store.
    """

    sequence: int = 0
    sha256: str = ""
    next_generation: int = 0
    accepted: int = 0


class HighWaterFile:
    """The file of one supervisor; one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Open or create it. Raises PermanentError when it holds something else."""
        self.path = path
        self.newest = read_high_water(path)
        with self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            overwrite_sector(self._file, asdict(self.newest))

    def persist(self, newest: HighWaterMark) -> None:
        """Persist this entry. Raises StoreUnavailable when the disk fails."""
        if newest != self.newest:
            with self._writing():
                overwrite_sector(self._file, asdict(newest))
            self.newest = newest

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(
                f"{self.path} cannot be written: {error}; make it writable"
            ) from error


def read_high_water(path: Path) -> HighWaterMark:
    """Read a mark; a missing file reads as no entry. Raises PermanentError for a file that is not a mark."""
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
            f"{path} cannot be read ({error}); it records how far the journal reached. When the journal is complete "
            "(`stoker story` shows its end), delete it"
        ) from error
