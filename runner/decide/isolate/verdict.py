"""The verdict: nodes, paths and domains, each with its reason; and when no node is blamed at all."""

from collections.abc import Iterable

from runner.decide.isolate.fleet import Pair
from runner.decide.isolate.node_states import States
from runner.decide.isolate.reasons import reason_alone, reason_in_pairs, reason_of_pair
from runner.facts.messages.isolation import (
    Judged,
    JudgedDomain,
    JudgedNode,
    JudgedPath,
    Part,
    PathVerdict,
)

Nodes = dict[str, JudgedNode]
# Of the nodes that were measured; if more are bad, it is what they have in common. Source: the study of health checks (more than
# half of the pairs); of nodes, since a third of bad nodes makes most pairs bad.
MOST_BAD_RATIO = 0.5


def judge(states: States, *, num_rounds: int) -> Judged:
    """Return the verdict on all nodes."""
    nodes = {node: _judge_node(states, node) for node in states.fleet.nodes}
    notes = _floor_notes(states)
    if len(states.able) > 1 and not states.vouched:
        notes.append("no pair is good and history knows no good node: no link is blamed")
    for part in ("compute", "link"):
        notes += _excuse_most(states, nodes, part)
    domains = _excuse_domains(states, nodes)
    paths = _judge_paths(states)
    return Judged(
        num_rounds=num_rounds,
        nodes=tuple(nodes.values()),
        paths=paths,
        domains=(*domains, *_domains_cut_off(states)),
        notes=tuple(notes),
    )


def _judge_node(states: States, node: str) -> JudgedNode:
    compute, link = states.compute[node], states.link_states[node]
    if compute == "bad":
        reason = reason_alone(states, node)
        return JudgedNode(node=node, verdict="bad", part="compute", reason=reason)
    if node in states.able and link == "bad":
        reason = reason_in_pairs(states, node)
        return JudgedNode(node=node, verdict="bad", part="link", reason=reason)
    reasons = [] if compute == "good" else [reason_alone(states, node)]
    if node in states.able and link != "good":
        reasons.append(reason_in_pairs(states, node))
    if reasons:
        return JudgedNode(node=node, verdict="undecided", reason="; ".join(reasons))
    return JudgedNode(node=node, verdict="good")


def _floor_notes(states: States) -> list[str]:
    """Name the floors that all rates of a class are beyond."""
    notes = []
    for peer_class, floor in sorted(states.readings.suspect_floors.items(), key=str):
        what = "alone" if len(peer_class) == 1 else "of pairs"
        name = " and ".join(dict.fromkeys(str(each) for each in peer_class[:2] if each))
        of_class = f" of {name}" if name else ""
        notes.append(
            f"every rate {what}{of_class} is below the floor {floor:.4g}: the floor is suspect, no node is blamed by it"
        )
    return notes


def _excuse_most(states: States, nodes: Nodes, part: Part) -> list[str]:
    """Blame no node if more than half of them would be."""
    measured = states.fleet.nodes if part == "compute" else tuple(states.able)
    bad = [node for node in measured if nodes[node].part == part]
    if len(bad) <= MOST_BAD_RATIO * len(measured) or len(measured) < 2:
        return []
    reason = f"{len(bad)} of {len(measured)} nodes are bad by their {part}: they have the cause in common"
    _excuse(nodes, bad, reason)
    return [f"{reason}; no node is blamed"]


def _excuse(nodes: Nodes, names: Iterable[str], reason: str) -> None:
    for name in names:
        words = f"{reason}; {nodes[name].reason}"
        nodes[name] = JudgedNode(node=name, verdict="undecided", reason=words)


def _excuse_domains(states: States, nodes: Nodes) -> list[JudgedDomain]:
    """Suspect a domain rather than its nodes, if none of them has a good pair."""
    found = []
    for (kind, name), members in states.dark_domains().items():
        reason = f"none of the {len(members)} nodes of {kind} {name} has a good pair"
        found.append(JudgedDomain(kind=kind, name=name, reason=reason))
        _excuse(nodes, members, f"{reason}: the {kind} is suspected")
    return found


def _judge_paths(states: States) -> tuple[JudgedPath, ...]:
    """Return the pairs that were bad between nodes that are good elsewhere."""
    paths = []
    for pair, tally in states.readings.pairs.items():
        if tally.bad and all(states.link_states[node] == "good" for node in pair):
            verdict: PathVerdict = "undecided"
            if states.is_bad_path(pair):
                verdict = "bad"
            elif tally.lead <= 0:
                verdict = "transient"
            paths.append(
                JudgedPath(
                    nodes=pair,
                    verdict=verdict,
                    domains=_crossed(states, pair),
                    reason=f"bad in {tally.bad} of {tally.num_results} measurements ({reason_of_pair(states, pair)})",
                )
            )
    return tuple(paths)


def _crossed(states: States, pair: Pair) -> tuple[str, ...]:
    fleet = states.fleet
    if not fleet.crosses(*pair):
        return ()
    return tuple(fleet.positions[node][0] for node in pair)


def _domains_cut_off(states: States) -> list[JudgedDomain]:
    kind = next(iter(states.fleet.question.domains), "")
    return [
        JudgedDomain(
            kind=kind,
            name=name.removeprefix("in "),
            reason=f"only bad paths leave it: {num} pairs across its edge, whose nodes are good inside their domains",
        )
        for name, num in states.domains_cut_off().items()
        if name.startswith("in ")
    ]
