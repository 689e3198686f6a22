"""Blocked: ranks that the kernel holds in state D while their gang makes no step. By itself that is no finding.

It is evidence of one that the lack of progress makes: who is blocked, and since when. State D is normal while files are written,
and SIGKILL does not end it, so whoever answers a hang wants to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.facts.messages.signals import Heartbeat

# Of the time without progress that a rank was blocked, before it is taken for the one that all wait for; chosen.
CULPRIT_SHARE = 0.5
# ranks in the evidence; chosen
MAX_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedRank:
    """One of them, and for how many seconds by now."""

    rank: int
    node: str
    seconds: float


@dataclass(slots=True)
class BlockedRanksDetector:
    """What the nodes of one gang told last."""

    _told: dict[str, tuple[float, Heartbeat]] = field(default_factory=dict)

    def heard(self, beat: Heartbeat, now: float) -> None:
        """Note whom a node told of; nobody: all of them got out."""
        if beat.ranks_blocked:
            self._told[beat.node] = (now, beat)
        elif self._told:
            self._told.pop(beat.node, None)

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        self._told = {node: (at + seconds, beat) for node, (at, beat) in self._told.items()}

    def ranks(self, now: float) -> list[BlockedRank]:
        """Return them in order, with the time that has passed since they were told of."""
        found = [
            BlockedRank(rank=item.rank, node=node, seconds=item.seconds + now - at)
            for node, (at, beat) in self._told.items()
            for item in beat.ranks_blocked
        ]
        return sorted(found, key=lambda each: each.rank)


def culprit(ranks: list[BlockedRank], quiet_seconds: float) -> BlockedRank | None:
    """Return the one rank that is blocked, and was for most of the time in which no step was made."""
    if len(ranks) == 1 and ranks[0].seconds >= CULPRIT_SHARE * quiet_seconds:
        return ranks[0]
    return None


def evidence_of(ranks: list[BlockedRank]) -> str:
    """Say who is blocked, to be put behind what else was found; "" for nobody."""
    return "".join(_lines(ranks))


def _lines(ranks: list[BlockedRank]) -> Iterator[str]:
    for each in ranks[:MAX_SHOWN]:
        yield f"; rank {each.rank} on {each.node} has been in state D for {each.seconds:.0f} s"
    if len(ranks) > MAX_SHOWN:
        yield f"; so have {len(ranks) - MAX_SHOWN} more"
