"""Hardware: which machine is behind a node's name, its faults, and whether it may serve.

A machine is identified by its parts, never by its name or address: a bad one that returns under another name is recognised,
and a renamed one keeps its history.
"""

from collections.abc import Sequence

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Hardware, Node, State
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec

DAY_SECONDS = 24 * 3600.0
# Hardware that may be quarantined at one time without a person: this many, or this share of the nodes (chosen).
MIN_QUARANTINED, QUARANTINED_SHARE = 2, 0.02
# Characters of a fault's evidence; chosen, not measured.
MAX_EVIDENCE = 300
# Of one machine: boards with 16 GPUs and as many links; chosen, not measured.
MAX_PARTS = 64


def identify(state: State, hardware: str, parts: Sequence[str]) -> str:
    """Return the name of the known hardware with these parts, or its own: by id, board, file, GPU, and last by network card.

    Of several that match, refused hardware comes first: it must not be admitted by parts that it shares with others.
    """
    if not hardware or hardware in state.hardware:
        return hardware
    wanted = dict.fromkeys(parts)
    boards = _of_kind(parts, "board")
    found: dict[str, Hardware] = {}
    alike = [
        known for known in state.hardware.values() if not wanted.keys().isdisjoint(known.parts)
    ]
    for known in sorted(alike, key=lambda known: not known.verdict):
        shared = {part.partition(":")[0]: None for part in known.parts if part in wanted}
        others = _of_kind(known.parts, "board")
        if "board" in shared:
            found.setdefault("board", known)
        elif "file" in shared and not (boards and others):
            found.setdefault("file", known)
        elif "gpu" in shared:
            found.setdefault("gpu", known)
        elif "mac" in shared and not boards and not others:
            found.setdefault("mac", known)
    ways = (found.get(kind) for kind in ("board", "file", "gpu", "mac"))
    return next((known.hardware for known in ways if known is not None), hardware)


def _of_kind(parts: Sequence[str], kind: str) -> list[str]:
    return [part for part in parts if part.partition(":")[0] == kind]


def is_same(state: State, node: Node, *, hardware: str, parts: Sequence[str]) -> bool:
    """Whether a node's hardware is this (identified) one; unknown hardware does not count as different.

    Releases before hardware had parts wrote the bare serial, which now has its kind before it.
    """
    if not node.hardware or not hardware or node.hardware == hardware:
        return True
    serials = [part.partition(":")[2] for part in (hardware, *parts)]
    return node.hardware not in state.hardware and node.hardware in serials


def record_seen(decision: Decision, *, hardware: str, node: str, parts: Sequence[str]) -> None:
    """Record the hardware of a node if it changed. Refused hardware keeps parts that it has lost."""
    known = decision.state.hardware.get(hardware)
    if not hardware:
        return
    all_parts = list(parts)
    if known is not None and known.verdict:
        all_parts += [part for part in known.parts if part not in all_parts]
    all_parts = all_parts[:MAX_PARTS]
    if known is None or known.node_names[-1:] != [node] or known.parts != all_parts:
        decision.add(r.HardwareSeen(hardware=hardware, node=node, parts=tuple(all_parts)))


def is_refused(state: State, hardware: str) -> bool:
    """Whether this hardware may run no ranks, under any name."""
    known = state.hardware.get(hardware)
    return known is not None and bool(known.verdict)


def recent_hardware_faults(known: Hardware, cluster: ClusterSpec, now: float) -> int:
    """Return how many of its faults are not older than `lemon_days`."""
    first = now - cluster.lemon_days * DAY_SECONDS
    return sum(fault.at > first for fault in known.faults)


def record_hardware_fault(
    decision: Decision, node: Node, *, fault: str, evidence: str, incident: str | None = None
) -> None:
    """Record a fault of a node's hardware; one too many makes it a lemon, and the node is quarantined.

    A node that is silent with many others, or with its failure domain, is not at fault.
    """
    innocent = node.domain_down or node.node in decision.state.correlated_silence
    if not node.hardware or innocent:
        return
    decision.add(
        r.HardwareFaultRecorded(
            hardware=node.hardware,
            node=node.node,
            fault=fault,
            evidence=evidence[:MAX_EVIDENCE],
            incident=incident,
        )
    )
    known, cluster = decision.state.hardware.get(node.hardware), decision.policy.cluster
    num = 1 + (recent_hardware_faults(known, cluster, decision.now) if known is not None else 0)
    if num < cluster.lemon_faults or is_judged(decision, node):
        return
    days = f"{cluster.lemon_days:g} days"
    reason = f"a lemon: {num} hardware faults within {days}, the last one {fault}"
    if not may_quarantine(decision):
        decision.page(
            f"{node.node} is {reason}; {_quarantined(decision.state)} nodes were quarantined without a person already, so this "
            f"one is not: `stoker quarantine {node.node}` does it",
            incident=incident,
        )
        return
    quarantine(decision, node, reason=reason, incident=incident)
    decision.page(
        f"{node.node} is quarantined: {reason}; `stoker readmit {node.node}` takes it back",
        incident=incident,
    )


def is_judged(decision: Decision, node: Node) -> bool:
    """Whether a node's hardware is refused, or its node quarantined, by the state or by this decision."""
    for x in decision.records:
        if isinstance(x, r.HardwareJudged) and x.hardware == node.hardware:
            return True
        if isinstance(x, r.NodeChanged) and (x.node, x.state) == (node.node, "quarantined"):
            return True
    return is_refused(decision.state, node.hardware)


def may_quarantine(decision: Decision) -> bool:
    """Whether one more may be quarantined without an operator: taking out many at once costs more than it saves."""
    limit = max(MIN_QUARANTINED, int(QUARANTINED_SHARE * len(decision.state.nodes)))
    judged = [x for x in decision.records if isinstance(x, r.HardwareJudged)]
    return _quarantined(decision.state) + len(judged) < limit


def _quarantined(state: State) -> int:
    return sum(known.verdict == "quarantined" and not known.by for known in state.hardware.values())


def quarantine(decision: Decision, node: Node, *, reason: str, incident: str | None = None) -> None:
    """Refuse a node's hardware from now on, and take the node out."""
    if node.hardware:
        decision.add(r.HardwareJudged(hardware=node.hardware, verdict="quarantined", reason=reason))
    decision.move_node(node.node, "quarantined", reason, incident=incident)
