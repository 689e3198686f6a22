"""Domains: whether nodes that fell silent did so with their switch, rack or power supply. Judged anew at each look; no memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runner.facts.faults import DomainSilence
from runner.facts.watch import WatchList

# silent nodes that make a domain of one kind; one alone is a node
MIN_DOMAIN = 2
# Of the silence limit: who was not heard for so long has missed a heartbeat, for the limit is more than two of them.
QUIET_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Hearing:
    """When each watched node was last heard, and what that means now."""

    heard: Mapping[str, float]
    # seconds without a word after which a node is silent
    limit: float
    now: float

    def is_quiet(self, node: str) -> bool:
        """Whether it has missed a heartbeat at least: it may turn out to be silent."""
        return self.now >= self.heard[node] + QUIET_SHARE * self.limit

    def is_silent(self, node: str) -> bool:
        """Whether it has not been heard for the whole limit."""
        return self.now >= self.heard[node] + self.limit


@dataclass(slots=True, kw_only=True)
class Judgement:
    """What is known of domains now: those that are silent, and nodes that are not blamed yet because theirs may be."""

    silent: list[DomainSilence] = field(default_factory=list)
    # silent, and their peers may be
    held: dict[str, bool] = field(default_factory=dict)
    # the peers: quiet, not silent yet
    awaited: dict[str, bool] = field(default_factory=dict)


def judge(
    due: Mapping[str, object], watch: WatchList, hearing: Hearing, *, may_be_mass: bool
) -> Judgement:
    """Say what the silence of the nodes in `due` has to do with domains.

    A domain is silent when all of its watched nodes are that spoke within the same limit, two at least, while others are heard.
    `may_be_mass`: so many are quiet that it may be no domain at all; then nothing is said yet.
    """
    judgement = Judgement()
    watched = dict.fromkeys(watch.nodes)
    nobody_speaks = all(hearing.is_quiet(node) for node in watch.nodes)
    candidates: list[tuple[int, int, DomainSilence]] = []
    for width, (kind, names) in enumerate(watch.domains.items()):
        for name, nodes in names.items():
            fell = _fell_together([node for node in nodes if node in watched], hearing)
            if len(fell) < MIN_DOMAIN or not any(node in due for node in fell):
                continue
            if not all(hearing.is_quiet(node) for node in fell):
                # one of them speaks
                continue
            waits = [node for node in fell if not hearing.is_silent(node)]
            if waits or may_be_mass or nobody_speaks:
                judgement.held |= dict.fromkeys(fell, True)
                judgement.awaited |= dict.fromkeys(waits, True)
                continue
            longest = max(hearing.now - hearing.heard[node] for node in fell)
            silence = DomainSilence(
                domain=kind, name=name, nodes=tuple(fell), silent_seconds=longest
            )
            candidates.append((len(fell), width, silence))
    if may_be_mass or nobody_speaks:
        judgement.awaited |= dict.fromkeys(
            [node for node in watch.nodes if _is_on_its_way(node, hearing)], True
        )
    judgement.silent = _chosen(candidates, judgement.held)
    return judgement


def _is_on_its_way(node: str, hearing: Hearing) -> bool:
    return hearing.is_quiet(node) and not hearing.is_silent(node)


def _fell_together(nodes: Sequence[str], hearing: Hearing) -> list[str]:
    """Leave out those that were silent already when the last of them still spoke: they are another story."""
    latest = max((hearing.heard[node] for node in nodes), default=0.0)
    return [node for node in nodes if hearing.heard[node] > latest - hearing.limit]


def _chosen(
    candidates: list[tuple[int, int, DomainSilence]], held: dict[str, bool]
) -> list[DomainSilence]:
    """Take the widest domains that explain the silence, and narrower ones only for what is left.

    The one with more silent nodes is the wider; among equals, that of the wider kind. One whose nodes may belong to a wider one
    that is not known to be silent yet waits for it, with all its nodes: they are added to `held`.
    """
    chosen: list[DomainSilence] = []
    explained: dict[str, bool] = {}
    for _, _, silence in sorted(candidates, key=lambda each: each[:2], reverse=True):
        left = [node for node in silence.nodes if node not in explained]
        if any(node in held for node in left):
            held |= dict.fromkeys(left, True)
        elif left:
            chosen.append(silence)
            explained |= dict.fromkeys(silence.nodes, True)
    return chosen
