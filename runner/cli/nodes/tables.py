"""Tables of nodes. A fleet of thousands is shown as counts, and as the few nodes that need attention."""

from collections import Counter
from collections.abc import Callable, Sequence

from runner.cli import output
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus, SparesStatus
from runner.facts.wording import counted, printable
from runner.serve.status_words import PLAIN_STATES
from runner.serve.status_words import ranks_text as ranks_text

# Chosen, not measured.
MAX_ROWS_SHOWN = 50
MAX_HARDWARE_CHARACTERS = 16
_GRAVITY = {
    state: at
    for at, state in enumerate(
        ("lost", "suspect", "quarantined", "maintenance", "active", "spare", "checking", "joining")
    )
}


def nodes_table(some: Sequence[NodeStatus], now: float) -> str:
    """Lay out nodes; `now` is the status's. Some columns are omitted if all their cells are empty."""
    if not some:
        return "no node yet"
    columns: dict[str, Callable[[NodeStatus], str]] = {
        "node": lambda n: n.node,
        "state": lambda n: n.state,
        "since": lambda n: output.seconds(_ago(n.since, now)),
        "attempt": lambda n: str(n.attempt or "-"),
        "ranks": lambda n: ranks_text(n.ranks_alive),
        "last heartbeat": _last_heartbeat,
        "memory": lambda n: output.size(n.agent_resident_bytes),
        "warm": warm_text,
        "hardware": lambda n: short_hardware(n.hardware),
        "faults": lambda n: str(n.hardware_faults or "-"),
        "domain": lambda n: printable(n.domain, 40) or "-",
        "why": lambda n: _why(n, now),
    }
    return output.table(columns, some, optional=("warm", "faults", "domain"))


def fleet_summary(status: ClusterStatus) -> str:
    """Count the nodes by state, and describe the spares."""
    counts = Counter(node.state for node in status.nodes)
    text = ", ".join(
        f"{num} {state}"
        for state, num in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    leaving = sum(node.pending_drain is not None for node in status.nodes)
    text += f"; {leaving} draining" if leaving else ""
    lines = [f"{counted(len(status.nodes), 'node')}: {text}"] if status.nodes else []
    if status.pool is not None:
        lines.append(spares_text(status.pool))
    return "\n".join(lines)


def spares_text(pool: SparesStatus) -> str:
    """Describe how many spares there are, the minimum, and the recommended number."""
    marks = [f"minimum {pool.low_mark}"] if pool.low_mark else []
    if pool.recommended is not None:
        marks.append(f"{pool.recommended} recommended")
    if pool.low and pool.spares >= pool.low_mark:
        marks.append("none fits a waiting run")
    text = f"spares: {pool.spares}" + (f" ({', '.join(marks)})" if marks else "")
    return f"SPARES ARE LOW; {text}" if pool.low else text


def shown_nodes(nodes: Sequence[NodeStatus]) -> Sequence[NodeStatus]:
    """Choose the nodes of a table: all of a small fleet; of a large one those that need attention."""
    if len(nodes) <= MAX_ROWS_SHOWN:
        return nodes
    return [node for node in nodes if _needs_attention(node)]


def unusual_nodes(nodes: Sequence[NodeStatus]) -> list[NodeStatus]:
    """Return the nodes that need attention, the gravest state first, then those that changed last."""
    found = [node for node in nodes if _needs_attention(node) or _is_short(node)]
    return sorted(
        found, key=lambda node: (_GRAVITY.get(node.state, len(_GRAVITY)), -(node.since or 0.0))
    )


def node_attention(node: NodeStatus, now: float) -> str:
    """Say why a node needs attention, "" where its state says all; `now`: the status's."""
    faults = f"{counted(node.hardware_faults, 'hardware fault')}; " if node.hardware_faults else ""
    return faults + _why(node, now)


def _needs_attention(node: NodeStatus) -> bool:
    return (
        node.state not in PLAIN_STATES
        or node.pending_drain is not None
        or bool(node.hardware_faults)
    )


def _is_short(node: NodeStatus) -> bool:
    return bool(node.shortage or node.clock_ahead_seconds)


def short_hardware(hardware: str) -> str:
    """Shorten a hardware's name to its kind and its end, where serial numbers differ."""
    text = printable(hardware, 200)
    if len(text) <= MAX_HARDWARE_CHARACTERS:
        return text or "-"
    kind, colon, _ = text.partition(":")
    prefix = f"{kind}:" if colon and len(kind) <= 6 else ""
    return f"{prefix}..{text[len(prefix) + 2 - MAX_HARDWARE_CHARACTERS :]}"


def _ago(moment: float | None, now: float) -> float | None:
    return None if moment is None else max(0.0, now - moment)


def _last_heartbeat(node: NodeStatus) -> str:
    age = node.last_heartbeat_seconds_ago
    return "-" if age is None else f"{age:.1f} s ago"


def warm_text(node: NodeStatus) -> str:
    """Return the state of a node's warm process: "ready 480 MB"."""
    size = output.size(node.warm_resident_bytes) if node.warm_resident_bytes else ""
    return f"{printable(node.warm, 60)} {size}".strip() or "-"


def _why(node: NodeStatus, now: float) -> str:
    parts = [drain_text(node, now)] if node.pending_drain is not None else []
    parts += [f"down with {node.domain_down}"] if node.domain_down else []
    ahead = node.clock_ahead_seconds
    parts += [f"clock {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"] if ahead else []
    parts += [f"short: {node.shortage}"] if node.shortage else []
    parts += [node.reason] if node.reason else []
    return printable("; ".join(parts), 100)


def drain_text(node: NodeStatus, now: float) -> str:
    """Describe a node's drain: its target state, start and reason; "" without one."""
    leaving = node.pending_drain
    if leaving is None:
        return ""
    text = f"leaves for {leaving.to} since {output.seconds(max(0.0, now - leaving.since))}"
    text += f", {leaving.spare} replaces it" if leaving.spare else ""
    if leaving.by_time is not None:
        text += f", within {output.seconds(max(0.0, leaving.by_time - now))} in any case"
    return text + (f": {leaving.reason}" if leaving.reason else "")
