"""Entries: the files below the paths that a person named, in a stable order, and what is left out, with the reason."""

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

# All chosen. Files that are read, files and folders that are looked at, and folders within folders.
MAX_FILES, MAX_ENTRIES, MAX_DEPTH = 50_000, 1_000_000, 64
STANDARD_INPUT = "-"
ADVICE = "give the path of a log, or - for standard input"
# Folders of programs and their tools: no log is in them.
LEFT_OUT_FOLDERS = frozenset(
    {".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages"}
)
_NUMBER = re.compile(r"(\d+)")
_KINDS = (
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class LeftOut(NamedTuple):
    """A path that is not read. `is_unread`: it may hold what matters, and could not be read; else no log is expected in it."""

    path: str
    reason: str
    is_unread: bool = False


class FoundFile(NamedTuple):
    """A file. `is_named`: a person named it, and not only a folder above it; `root`: that folder, else "" for none."""

    path: str
    size: int
    root: str = ""
    is_named: bool = False


@dataclass(slots=True)
class Entries:
    """What was found: files in the order of their names, numbers in them by value, below each name that was given."""

    files: list[FoundFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def find_entries(names: Sequence[str]) -> Entries:
    """Walk through everything that was named; nothing raises."""
    found = Entries()
    for name in dict.fromkeys(names):
        _Walk(found).add(name)
    return found


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that orders numbers in names by value: rank2 before rank10."""
    parts = _NUMBER.split(name)
    # A number of thousands of digits is text.
    return [
        (0, int(part), part) if at % 2 and len(part) < 19 else (1, 0, part)
        for at, part in enumerate(parts)
    ]


class _Walk:
    """Walks through one name: first what is there itself, then what only links lead to."""

    def __init__(self, found: Entries) -> None:
        self._found = found
        self._num_looked_at = 0
        # Identity (device, inode) of folders and files that are known.
        self._folders: set[tuple[int, int]] = set()
        self._files: set[tuple[int, int]] = set()
        self._links: list[str] = []

    def add(self, name: str) -> None:
        if name == STANDARD_INPUT:
            self._found.files.append(FoundFile(name, 0, is_named=True))
            return
        try:
            status = os.stat(name)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            self._leave(name, f"cannot be read ({why}); {ADVICE}", True)
            return
        if not stat.S_ISDIR(status.st_mode):
            self._add_named(name, status)
            return
        files: list[FoundFile] = []
        self._walk(name, name, files)
        for link in self._links:
            self._follow(link, name, files)
        files.sort(key=lambda entry: [natural(part) for part in entry.path.split(os.sep)])
        for entry in files[MAX_FILES:]:
            self._leave(entry.path, f"beyond the first {MAX_FILES:,} files", is_unread=True)
        self._found.files += files[:MAX_FILES]

    def _add_named(self, name: str, status: os.stat_result) -> None:
        """Add a file. A pipe that was named is read (a shell makes one of `<(command)`), another special file is not."""
        kind = kind_of_special(status.st_mode)
        if kind in ("", "a pipe") or os.path.realpath(name).startswith(("/dev/pts/", "/dev/tty")):
            self._found.files.append(FoundFile(name, status.st_size, is_named=True))
        elif os.path.samestat(status, os.stat(os.devnull)):
            self._found.files.append(FoundFile(name, 0, is_named=True))
        else:
            self._leave(name, f"{kind}: {ADVICE}", True)

    def _walk(self, folder: str, root: str, files: list[FoundFile]) -> None:
        waiting = [(folder, 0)]
        while waiting:
            path, depth = waiting.pop()
            try:
                status = os.stat(path)
                if (status.st_dev, status.st_ino) in self._folders:
                    continue
                self._folders.add((status.st_dev, status.st_ino))
                with os.scandir(path) as entries:
                    inside = sorted(entries, key=lambda entry: natural(entry.name))
            except OSError as error:
                self._leave_unread(path, error)
                continue
            for entry in inside:
                self._num_looked_at += 1
                if self._num_looked_at > MAX_ENTRIES:
                    self._leave(path, f"beyond the first {MAX_ENTRIES:,} entries", True)
                    return
                if self._add(entry, root, files):
                    if depth + 1 < MAX_DEPTH:
                        waiting.append((entry.path, depth + 1))
                    else:
                        self._leave(entry.path, f"more than {MAX_DEPTH} folders deep", True)

    def _add(self, entry: os.DirEntry[str], root: str, files: list[FoundFile]) -> bool:
        """Add what a folder holds; return whether it is a folder to walk through."""
        try:
            if entry.is_symlink():
                self._links.append(entry.path)
                return False
            if entry.is_dir(follow_symlinks=False):
                if entry.name in LEFT_OUT_FOLDERS:
                    self._leave(entry.path, "a folder of programs")
                    return False
                return True
            status = entry.stat(follow_symlinks=False)
        except OSError as error:
            self._leave_unread(entry.path, error)
            return False
        if kind := kind_of_special(status.st_mode):
            self._leave(entry.path, kind)
        else:
            self._files.add((status.st_dev, status.st_ino))
            files.append(FoundFile(entry.path, status.st_size, root))
        return False

    def _follow(self, link: str, root: str, files: list[FoundFile]) -> None:
        try:
            status = os.stat(link)
        except OSError as error:
            self._leave(link, f"a link that leads nowhere ({error.strerror})")
            return
        identity = (status.st_dev, status.st_ino)
        if identity in self._folders or identity in self._files:
            self._leave(link, "a link to what is read already")
        elif stat.S_ISDIR(status.st_mode):
            self._walk(link, root, files)
        elif kind := kind_of_special(status.st_mode):
            self._leave(link, kind)
        else:
            self._files.add(identity)
            files.append(FoundFile(link, status.st_size, root))

    def _leave(self, path: str, reason: str, is_unread: bool = False) -> None:
        self._found.left_out.append(LeftOut(path, reason, is_unread))

    def _leave_unread(self, path: str, error: OSError | ValueError) -> None:
        why = getattr(error, "strerror", None) or str(error)
        self._leave(path, f"cannot be read ({why})", True)


def kind_of_special(mode: int) -> str:
    """Return what a file is that is no regular file; "": it is one, or a folder."""
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "")


def by_reason(left_out: Iterable[LeftOut]) -> dict[str, list[str]]:
    """Group what was left out: reason -> paths."""
    groups: dict[str, list[str]] = {}
    for one in left_out:
        groups.setdefault(one.reason, []).append(one.path)
    return groups
