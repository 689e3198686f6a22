"""Silent failure domains: whether nodes fell silent with their switch, rack or power supply. No memory between calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runner.detect.detector import NodeSilence
from runner.facts.faults import DomainSilence
from runner.facts.watch import WatchList

# Silent nodes that make a domain of one kind; a single one is a node's own failure.
MIN_DOMAIN = 2


@dataclass(slots=True, kw_only=True)
class DomainAssessment:
    """Domains that are silent now, and nodes not named yet because their domain may be."""

    silent: list[DomainSilence] = field(default_factory=list)
    # Timed out, and their peers may follow.
    deferred: dict[str, bool] = field(default_factory=dict)
    # Those peers: overdue, not timed out yet.
    awaited: dict[str, bool] = field(default_factory=dict)


def assess_domains(
    due: Mapping[str, object],
    watch: WatchList,
    silence: NodeSilence,
    *,
    now: float,
    may_be_correlated: bool,
) -> DomainAssessment:
    """Attribute the silence of the nodes in `due` to domains.

    A domain is silent when all its watched nodes timed out whose last heartbeats came within the same limit, two at least, while
    nodes outside send heartbeats. `may_be_correlated`: so many are overdue that it may be no domain at all; then every answer is
    deferred.
    """
    result = DomainAssessment()
    watched = dict.fromkeys(watch.nodes)
    is_open = may_be_correlated or all(silence.is_overdue(node, now) for node in watch.nodes)
    candidates: list[tuple[int, int, DomainSilence]] = []
    for width, (kind, names) in enumerate(watch.domains.items()):
        for name, nodes in names.items():
            fell = _fell_together([node for node in nodes if node in watched], silence)
            if len(fell) < MIN_DOMAIN or not any(node in due for node in fell):
                continue
            if not all(silence.is_overdue(node, now) for node in fell):
                continue
            pending = [node for node in fell if not silence.has_timed_out(node, now)]
            if pending or is_open:
                result.deferred |= dict.fromkeys(fell, True)
                result.awaited |= dict.fromkeys(pending, True)
                continue
            longest = max(now - silence.last_heartbeat[node] for node in fell)
            domain = DomainSilence(
                domain=kind, name=name, nodes=tuple(fell), silent_seconds=longest
            )
            candidates.append((len(fell), width, domain))
    if is_open:
        result.awaited |= {
            node: True
            for node in watch.nodes
            if silence.is_overdue(node, now) and not silence.has_timed_out(node, now)
        }
    result.silent = _widest(candidates, result.deferred)
    return result


def _fell_together(nodes: Sequence[str], silence: NodeSilence) -> list[str]:
    """Leave out nodes that had timed out before the last heartbeat of the others: another cause."""
    latest = max((silence.last_heartbeat[node] for node in nodes), default=0.0)
    return [node for node in nodes if silence.last_heartbeat[node] > latest - silence.limit_seconds]


def _widest(
    candidates: list[tuple[int, int, DomainSilence]], deferred: dict[str, bool]
) -> list[DomainSilence]:
    """Return the widest domains that explain the silence, and narrower ones only for the nodes left over.

    The domain with more silent nodes is the wider; among equals, that of the wider kind. A domain with nodes that may belong to
    a wider one is deferred with all its nodes: they are added to `deferred`.
    """
    chosen: list[DomainSilence] = []
    explained: dict[str, bool] = {}
    for _, _, domain in sorted(candidates, key=lambda each: each[:2], reverse=True):
        left = [node for node in domain.nodes if node not in explained]
        if any(node in deferred for node in left):
            deferred |= dict.fromkeys(left, True)
        elif left:
            chosen.append(domain)
            explained |= dict.fromkeys(domain.nodes, True)
    return chosen
