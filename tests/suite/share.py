"""The share of what is exhaustive that one run of the tests plays: a quarter in continuous integration, all of it by hand.

Crash places, deaths in a save, faults to diagnose, sequences of faults, rounds of kills, layouts: their items fall into four parts,
each by its own name or number, so that a new one moves no other. A commit plays the part of its height in the first-parent history,
modulo four: any four commits in a row play everything. A hash alone cannot promise that; it seeds what is drawn besides.
"""

import hashlib
import os
import random
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

NUM_PARTS = 4
# ALL, OF_THE_COMMIT, or a share as it is printed, such as 2/4@9f3ab12c.
VARIABLE = "STOKER_SHARE"
ALL, OF_THE_COMMIT = "all", "commit"
ROOT = Path(__file__).parents[2]
# Of the commit's hash.
NUM_DIGITS = 8
Item = TypeVar("Item")
_WRITTEN = re.compile(rf"([1-{NUM_PARTS}])/{NUM_PARTS}@([0-9a-f]{{4,40}})")


@dataclass(frozen=True, slots=True)
class Share:
    """What is played. `part`: from 1; None: everything. `commit`: its hash, "" where none is known. `reason`: why everything."""

    part: int | None
    commit: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return ALL if self.part is None else f"{self.part}/{NUM_PARTS}@{self.commit}"

    def words(self) -> str:
        """Say what is played, and how it is played again."""
        if self.part is None:
            return f"everything ({self.reason})" if self.reason else "everything"
        again = f"{VARIABLE}={self} plays it again, {VARIABLE}={ALL} everything"
        return f"part {self.part} of {NUM_PARTS}, of commit {self.commit}; {again}"

    def has(self, item: str | int) -> bool:
        """Say whether an item is played: a number by itself, a name by its hash."""
        return self.part is None or part_of(item) == self.part

    def of(self, items: Iterable[Item]) -> list[Item]:
        """Return the items that are played, by their places in the list."""
        return [item for place, item in enumerate(items) if self.has(place)]

    def dice(self, what: str) -> random.Random:
        """Return a generator for what is drawn besides: the same for the same commit and `what`; without a commit, any."""
        return random.Random(f"{self.commit} {what}" if self.commit else None)


def part_of(item: str | int) -> int:
    """Return the part that an item falls into, from 1."""
    if isinstance(item, str):
        item = int.from_bytes(hashlib.sha256(item.encode()).digest()[:8])
    return item % NUM_PARTS + 1


def current() -> Share:
    """Return the share that the environment names; raise ValueError if it names none."""
    return read(os.environ.get(VARIABLE, ALL))


def read(text: str) -> Share:
    """Read a share as people write it; raise ValueError if it is none."""
    if text == ALL:
        return Share(None)
    if text == OF_THE_COMMIT:
        return of_the_commit(ROOT)
    written = _WRITTEN.fullmatch(text)
    if written is None:
        example = f"1/{NUM_PARTS}@9f3ab12c"
        raise ValueError(f"{VARIABLE} is {text!r}; write {ALL}, {OF_THE_COMMIT}, or {example}")
    return Share(int(written[1]), written[2])


def of_the_commit(folder: Path) -> Share:
    """Return the share of the commit that is checked out in `folder`.

    Everything, if that is not the top of a git repository, or one whose clone is shallow: nothing tells the height then.
    """
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != folder.resolve():
        return Share(None, reason="no git repository is here")
    commit, height = (
        _git(folder, "rev-parse", "HEAD"),
        _git(folder, "rev-list", "--count", "--first-parent", "HEAD"),
    )
    if commit is None or height is None:
        return Share(None, reason="git names no commit")
    commit = commit[:NUM_DIGITS]
    if _git(folder, "rev-parse", "--is-shallow-repository") != "false":
        reason = "the clone is shallow, so its height is unknown; `git fetch --unshallow` helps"
        return Share(None, commit, reason)
    return Share(int(height) % NUM_PARTS + 1, commit)


def _git(folder: Path, *words: str) -> str | None:
    """Return the one line that git prints; None if it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
