"""Hardware: what stands under a node's name, what it did, and whether it is taken.

A machine is known by what it is made of, never by its name or address: a bad one handed back under another name is
recognised, and one renamed for good reason keeps its history.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Hardware, Node, State
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec

DAY_SECONDS = 24 * 3600.0
# Hardware that may be quarantined at one time without a person: this many, or this share of the nodes (decided; DESIGN.md).
MIN_QUARANTINED, QUARANTINED_SHARE = 2, 0.02
# characters of an offence's evidence; chosen, not measured
MAX_EVIDENCE = 300
# of one piece of hardware: boards with 16 GPUs and as many links; chosen, not measured
MAX_PARTS = 64


# ---- who it is ------------------------------------------------------------------------------------------------------


def identify(state: State, hardware: str, parts: Sequence[str]) -> str:
    """Return the name under which this hardware is known, or its own: by id, board, file, GPU, and at last by network card.

    Refused hardware comes first where several would do: it must not get in by parts that it shares with others.
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
    """Whether what stands under a node's name is this (recognised) hardware; unknown hardware is not held to be another.

    Releases before hardware had parts wrote the bare serial, which now has its kind before it.
    """
    if not node.hardware or not hardware or node.hardware == hardware:
        return True
    serials = [part.partition(":")[2] for part in (hardware, *parts)]
    return node.hardware not in state.hardware and node.hardware in serials


def see(decision: Decision, *, hardware: str, node: str, parts: Sequence[str]) -> None:
    """Note what stands under a node's name, if that is news. Refused hardware is still known by parts that it has lost."""
    known = decision.state.hardware.get(hardware)
    if not hardware:
        return
    kept = list(parts)
    if known is not None and known.verdict:
        kept += [part for part in known.parts if part not in kept]
    kept = kept[:MAX_PARTS]
    if known is None or known.nodes[-1:] != [node] or known.parts != kept:
        decision.add(r.HardwareSeen(hardware=hardware, node=node, parts=tuple(kept)))


def is_refused(state: State, hardware: str) -> bool:
    """Whether this hardware may have no ranks, under any name."""
    known = state.hardware.get(hardware)
    return known is not None and bool(known.verdict)


# ---- what it did ----------------------------------------------------------------------------------------------------


def recent_hardware_faults(known: Hardware, cluster: ClusterSpec, now: float) -> int:
    """Return how many of its offences are not older than `lemon_days`."""
    first = now - cluster.lemon_days * DAY_SECONDS
    return sum(offence.at > first for offence in known.offences)


def record_hardware_fault(
    decision: Decision, node: Node, *, fault: str, evidence: str, incident: str | None = None
) -> None:
    """Note an offence of a node's hardware; one too many makes it a lemon, and the node is quarantined.

    A node that fell silent with many others, or with its failure domain, did nothing.
    """
    innocent = node.domain_down or node.node in decision.state.silent_en_masse
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
    if num < cluster.lemon_offences or is_judged(decision, node):
        return
    days = f"{cluster.lemon_days:g} days"
    reason = f"a lemon: {num} offences within {days}, the last one {fault}"
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
    """Whether a node's hardware is refused, by this very decision too; or the node was kept out by it."""
    is_new = any(
        (isinstance(record, r.HardwareJudged) and record.hardware == node.hardware)
        or (
            isinstance(record, r.NodeChanged)
            and record.node == node.node
            and record.state == "quarantined"
        )
        for record in decision.records
    )
    return is_new or is_refused(decision.state, node.hardware)


def may_quarantine(decision: Decision) -> bool:
    """Whether one more may be quarantined without a person: taking out many at once costs more than it saves."""
    limit = max(MIN_QUARANTINED, int(QUARANTINED_SHARE * len(decision.state.nodes)))
    return _quarantined(decision.state) < limit


def _quarantined(state: State) -> int:
    return sum(known.verdict == "quarantined" and not known.by for known in state.hardware.values())


def quarantine(
    decision: Decision, node: Node, *, reason: str, incident: str | None = None, by: str = ""
) -> None:
    """Refuse a node's hardware from now on, and take the node out."""
    if node.hardware:
        decision.add(
            r.HardwareJudged(hardware=node.hardware, verdict="quarantined", reason=reason, by=by)
        )
    decision.add(
        r.NodeChanged(node=node.node, state="quarantined", reason=reason, incident=incident)
    )
