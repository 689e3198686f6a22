"""Stands: where ranks that hung stood when they were read, short enough to travel and to be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_STANDS = 64  # of one node that are told, of ranks that stand differently; chosen
MAX_STANDS_KEPT = 256  # of one attempt; ranks beyond count as not read; chosen
MAX_STAND = 300  # characters of all frames of one; chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where some ranks stood, all in the same way.

    `state` is the letter of the main thread before anything of ours stopped it, `wchan` where in the kernel it waited.
    `frames` are its Python frames, the innermost first, each `file:function:line`; none: they could not be read. All of it
    comes from a rank, so it is hostile text, printable ASCII, and is compared and shown only.
    """

    ranks: tuple[int, ...]
    state: str = ""
    wchan: str = ""
    frames: tuple[str, ...] = ()

    @property
    def where(self) -> tuple[str, str, tuple[str, ...]]:
        """All but the ranks."""
        return self.state, self.wchan, self.frames


def merged(stands: Iterable[Stand], *, most: int) -> list[Stand]:
    """Put ranks that stand alike together, in order of their first one; of more than `most` kinds the last are left out."""
    ranks: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for stand in stands:
        ranks.setdefault(stand.where, []).extend(stand.ranks)
    found = [
        Stand(ranks=tuple(sorted(of)), state=state, wchan=wchan, frames=frames)
        for (state, wchan, frames), of in ranks.items()
    ]
    return sorted(found, key=lambda stand: stand.ranks)[:most]
