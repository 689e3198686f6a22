"""A save: one checkpoint as a trainer left it, a file or a folder, and what tells it from the same save after any write."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Of each file: name, size in bytes, time of its last change in nanoseconds, inode.
Signature = tuple[tuple[str, int, int, int], ...]
# Files of one checkpoint. Chosen: a manifest holds 300,000.
MAX_FILES = 300_000


class Incomplete(ValueError):
    """A save is not whole, or cannot be judged; the message names the file and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One save. `signature`: differs after any write. `irregular`: an entry that is neither file nor folder, "" without one."""

    path: Path
    signature: Signature
    is_folder: bool = False
    irregular: str = ""

    @property
    def files(self) -> list[tuple[str, Path]]:
        """Each file by its name below the save; a save of one file has its own name."""
        if self.is_folder:
            return [(name, self.path / name) for name, *_ in self.signature]
        return [(self.path.name, self.path)]

    @property
    def names(self) -> dict[str, int]:
        """Sizes of the files in bytes, by their names."""
        return {name: size for name, size, *_ in self.signature}

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for _, size, *_ in self.signature)

    @property
    def changed_at(self) -> int:
        """Time of the last change of any file, in nanoseconds since the epoch, by the clock of its file system."""
        return max((changed for _, _, changed, _ in self.signature), default=0)

    def has(self, name: str) -> bool:
        """Whether a folder has this file; a file, and the name "", need none."""
        return not name or not self.is_folder or any(each == name for each, *_ in self.signature)

    def below(self, folder: str) -> "Save":
        """Return a folder inside this save as a save of its own."""
        start = f"{folder}/"
        inside = [each for each in self.signature if each[0].startswith(start)]
        signature = tuple((name.removeprefix(start), *stamp) for name, *stamp in inside)
        return Save(path=self.path / folder, signature=signature, is_folder=True)  # type: ignore[arg-type]


def read_save(path: Path, *, follows_links: bool = False) -> Save:
    """Look at a save as it is now. Raises OSError when it cannot be read, or is being deleted.

    `follows_links`: a link counts as the file that it leads to; otherwise it is irregular. Links to folders are never entered.
    """
    status = path.stat() if follows_links else path.lstat()
    if stat.S_ISREG(status.st_mode):
        return Save(path=path, signature=((path.name, *_stamp(status)),))
    if not stat.S_ISDIR(status.st_mode):
        return Save(path=path, signature=(), irregular=path.name)
    found, irregular = [], ""
    for name, each in _walk(os.fspath(path), follows_links=follows_links):
        if stat.S_ISREG(each.st_mode):
            found.append((name, *_stamp(each)))
        else:
            irregular = irregular or name
        if len(found) > MAX_FILES:
            raise OSError(f"{path} has more than {MAX_FILES} files")
    return Save(path=path, signature=tuple(sorted(found)), is_folder=True, irregular=irregular)


def _walk(folder: str, *, follows_links: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each entry that is no folder, by its name below the first folder. Raises OSError."""
    pending = [(folder, "")]
    while pending:
        folder, prefix = pending.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((entry.path, f"{prefix}{entry.name}/"))
                else:
                    yield f"{prefix}{entry.name}", entry.stat(follow_symlinks=follows_links)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino


def read_signature(plain: Sequence[Sequence[Any]]) -> Signature:
    """Return a signature that came through JSON."""
    return tuple((str(name), *map(int, stamp)) for name, *stamp in plain)  # type: ignore[misc]
