"""Stands: where ranks that hung stood when they were read, short enough to travel and to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

MAX_STANDS = 64  # of one node that are told, of ranks that stand differently; chosen
MAX_STANDS_KEPT = 256  # of one attempt; ranks beyond count as not read; chosen
MAX_STAND = 300  # characters of all frames of one; chosen
MAX_COLLECTIVES = 4  # groups of one rank that are told of; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """The last collective that a rank began in one process group, by torch's flight recorder.

    `sequence` counts the group's collectives, so it is equal on all its ranks, unless one is behind. `waits`: `operation`, at
    `sequence` or before it, is not over. Sends and receives are none: their groups have no common count.
    """

    group: str
    sequence: int
    operation: str = ""
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where some ranks stood, all in the same way.

    `state` is the letter of the main thread before anything of ours stopped it, `wchan` where in the kernel it waited.
    `frames` are its Python frames, the innermost first, each `file:function:line`; none: they could not be read. All of it
    comes from a rank, so it is hostile text, printable ASCII, and is compared and shown only. `collectives` are of the groups in
    which it waits first; `is_recorded`: there was a record of them, so that none that waits means something.
    """

    ranks: tuple[int, ...]
    state: str = ""
    wchan: str = ""
    frames: tuple[str, ...] = ()
    collectives: tuple[Collective, ...] = ()
    is_recorded: bool = False


def merged(stands: Iterable[Stand], *, most: int) -> list[Stand]:
    """Put ranks that stand alike together, in order of their first one; of more than `most` kinds the last are left out."""
    ranks: dict[Stand, list[int]] = {}
    for stand in stands:
        ranks.setdefault(replace(stand, ranks=()), []).extend(stand.ranks)
    found = [replace(stand, ranks=tuple(sorted(of))) for stand, of in ranks.items()]
    return sorted(found, key=lambda stand: stand.ranks)[:most]
