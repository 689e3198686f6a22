"""Find the checkpoints of trainers below a folder, and what looks like one and is none that an adapter knows.

Links are not followed; Stoker's own folders and hidden ones are passed over. A folder is listed again only when it has changed.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.checkpoints.formats.adapter import Adapter
from runner.checkpoints.formats.saves import Incomplete, Save, read_save
from runner.checkpoints.formats.table import ADAPTERS

# Folders below folders: Lightning has lightning_logs/version_0/checkpoints. Chosen.
MAX_DEPTH = 3
# Of all folders together. Chosen: 100 times the checkpoints of a long run.
MAX_ENTRIES = 200_000
# Changes of a folder within one tick of its file system's clock have one time: a recent one is listed again. Chosen.
SETTLED_NANOSECONDS = 10_000_000_000
# What hold tensors by their names.
TENSOR_SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp", ".npz", ".pkl")
# Names in messages.
MAX_NAMES = 3


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that an adapter claims."""

    path: Path
    adapter: Adapter


@dataclass(slots=True)
class FolderContents:
    """What lies below a folder. `unknown`: names of what holds tensors and is no checkpoint of a known form, or cannot be read."""

    found: list[Found] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    num_entries: int = 0

    def add_unknown(self, name: str) -> None:
        """Keep the first few names."""
        if len(self.unknown) <= MAX_NAMES and name not in self.unknown:
            self.unknown.append(name)


class FolderScan:
    """Scans one folder again and again. `adapters`: those that are asked; `is_own`: names of Stoker's own folders."""

    def __init__(
        self,
        folder: Path,
        adapters: Sequence[Adapter] = ADAPTERS,
        *,
        is_own: Callable[[str], bool] = lambda _name: False,
    ) -> None:
        self._folder, self._adapters, self._is_own = folder, adapters, is_own
        # Of each folder: its stamp, and what it holds.
        self._listed: dict[str, tuple[tuple[int, int], list[tuple[str, bool]]]] = {}

    def scan(self) -> FolderContents:
        """Look for checkpoints. What cannot be read is among the unknown, with the reason."""
        scan = FolderContents()
        self._scan(str(self._folder), depth=0, scan=scan)
        return scan

    def _scan(self, folder: str, *, depth: int, scan: FolderContents) -> None:
        try:
            entries = self._entries(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            scan.add_unknown(f"{self._name(folder)} ({error.strerror or error})")
            return
        scan.num_entries += len(entries)
        if scan.num_entries > MAX_ENTRIES:
            scan.add_unknown(f"{self._name(folder)} (more than {MAX_ENTRIES} entries)")
            return
        for name, is_folder in entries:
            if name.startswith(".") or self._is_own(name):
                continue
            path = f"{folder}/{name}"
            if not self._claim(path, name, is_folder=is_folder, scan=scan):
                self._descend(path, name, is_folder=is_folder, depth=depth, scan=scan)

    def _claim(self, path: str, name: str, *, is_folder: bool, scan: FolderContents) -> bool:
        files: list[str] | None = None
        if is_folder:
            try:
                files = [entry for entry, _ in self._entries(path)]
            except FileNotFoundError:
                return True
            except OSError:
                # Its name may say enough; it is reported when it is judged, or descended into.
                files = []
        adapter = next((each for each in self._adapters if each.claims(name, files)), None)
        if adapter is not None:
            scan.found.append(Found(Path(path), adapter))
        return adapter is not None

    def _descend(
        self, path: str, name: str, *, is_folder: bool, depth: int, scan: FolderContents
    ) -> None:
        if is_folder and depth < MAX_DEPTH:
            self._scan(path, depth=depth + 1, scan=scan)
        elif not is_folder and name.endswith(TENSOR_SUFFIXES):
            scan.add_unknown(self._name(path))

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        """List names and whether they are folders, of regular files and folders only. Raises OSError."""
        status = os.stat(folder, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            # The scanned folder itself may be a link.
            status = os.stat(folder)
        stamp = (status.st_mtime_ns, status.st_ino)
        known = self._listed.get(folder)
        if known is not None and known[0] == stamp:
            return known[1]
        with os.scandir(folder) as found:
            entries = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in found
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            )
        if time.time_ns() - status.st_mtime_ns > SETTLED_NANOSECONDS:
            self._listed[folder] = (stamp, entries)
        return entries

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._folder)


def read_saves(found: Sequence[Found]) -> Iterator[tuple[Save, Adapter]]:
    """Yield the saves of what was found, as they are now; one that is being deleted or renamed is left out."""
    for each in found:
        try:
            save = read_save(each.path)
        except FileNotFoundError:
            continue
        except OSError as error:
            save = Save(path=each.path, signature=(), irregular=f"{each.path.name} ({error})")
        yield save, each.adapter


def newest_whole_save(folder: Path, *, before: int | None = None) -> tuple[Path, int] | None:
    """Return the whole save with the highest step, below `before` if that is given, and its step; None where there is none."""
    newest: tuple[Path, int] | None = None
    for save, adapter in read_saves(FolderScan(folder).scan().found):
        try:
            step = adapter.judge(save)
        except (Incomplete, OSError):
            continue
        is_early = before is None or step < before
        if is_early and (newest is None or step > newest[1]):
            newest = (save.path, step)
    return newest
