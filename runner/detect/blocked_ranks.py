"""Blocked ranks: those that the kernel holds in state D while their gang makes no step. By itself that is no finding.

It is evidence in the finding of a gang without progress: which ranks are blocked, and for how long. State D is normal while
files are written, and SIGKILL does not end it, so an operator who answers a hang needs to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.facts.messages.signals import Heartbeat

# Share of the time without progress that a rank was blocked, from which on it counts as the one that all wait for; chosen.
CULPRIT_SHARE = 0.5
# Ranks listed in the evidence; chosen.
MAX_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedRank:
    """A rank in state D, and for how many seconds by now."""

    rank: int
    node: str
    seconds: float


@dataclass(slots=True)
class BlockedRanks:
    """What the nodes of one gang reported last."""

    _reports: dict[str, tuple[float, Heartbeat]] = field(default_factory=dict)

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Record the blocked ranks of a node; none: all have got out."""
        if heartbeat.ranks_blocked:
            self._reports[heartbeat.node] = (now, heartbeat)
        elif self._reports:
            self._reports.pop(heartbeat.node, None)

    def shift(self, seconds: float) -> None:
        """Allow for a time in which the supervisor received no heartbeats."""
        self._reports = {
            node: (at + seconds, heartbeat) for node, (at, heartbeat) in self._reports.items()
        }

    def ranks(self, now: float) -> list[BlockedRank]:
        """Return the blocked ranks in order, with the time since they were reported added."""
        blocked = [
            BlockedRank(rank=item.rank, node=node, seconds=item.seconds + now - at)
            for node, (at, heartbeat) in self._reports.items()
            for item in heartbeat.ranks_blocked
        ]
        return sorted(blocked, key=lambda each: each.rank)


def culprit(ranks: list[BlockedRank], gap_seconds: float) -> BlockedRank | None:
    """Return the only blocked rank, if it was blocked for most of the time without progress."""
    if len(ranks) == 1 and ranks[0].seconds >= CULPRIT_SHARE * gap_seconds:
        return ranks[0]
    return None


def evidence_of(ranks: list[BlockedRank]) -> str:
    """Return text about blocked ranks to append to other evidence; "" for none."""
    return "".join(_lines(ranks))


def _lines(ranks: list[BlockedRank]) -> Iterator[str]:
    for each in ranks[:MAX_SHOWN]:
        yield f"; rank {each.rank} on {each.node} has been in state D for {each.seconds:.0f} s"
    if len(ranks) > MAX_SHOWN:
        yield f"; so have {len(ranks) - MAX_SHOWN} more"
