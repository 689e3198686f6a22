"""Tables of nodes. A fleet of thousands is shown as counts, and as the few nodes that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from runner.cli import output
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus, SparesStatus
from runner.facts.wording import printable

# Rows of a table that is shown whole. Chosen, not measured.
FEW = 50
# Characters of a hardware's name in a table. Chosen, not measured.
SHORT = 16
# States that need no attention.
PLAIN_STATES = ("active", "spare")

_COLUMNS: tuple[tuple[str, Callable[[NodeStatus, float], str]], ...] = (
    ("node", lambda n, _: n.node),
    ("state", lambda n, _: n.state),
    ("since", lambda n, now: "-" if n.since is None else output.seconds(max(0.0, now - n.since))),
    ("attempt", lambda n, _: str(n.attempt or "-")),
    ("ranks", lambda n, _: ranks_text(n.ranks_alive)),
    ("last heartbeat", lambda n, _: _last_heartbeat(n)),
    ("memory", lambda n, _: output.size(n.agent_resident_bytes)),
    ("warm", lambda n, _: warm_text(n)),
    ("hardware", lambda n, _: short_hardware(n.hardware)),
    ("faults", lambda n, _: str(n.hardware_faults) if n.hardware_faults else "-"),
    ("domain", lambda n, _: printable(n.domain, 40) or "-"),
    ("why", lambda n, now: _why(n, now)),
)
# Columns that are omitted when empty.
_MAY_BE_LEFT_OUT = ("warm", "faults", "domain")


def nodes_table(some: Sequence[NodeStatus], now: float) -> str:
    """Lay out nodes; `now` is the status's. Some columns are omitted if all their cells are empty."""
    if not some:
        return "no node yet"
    kept = []
    for name, cell in _COLUMNS:
        cells = [cell(node, now) for node in some]
        if name not in _MAY_BE_LEFT_OUT or any(text != "-" for text in cells):
            kept.append((name, cells))
    rows = zip(*(cells for _, cells in kept), strict=True)
    return output.table([name for name, _ in kept], list(rows))


def fleet_summary(status: ClusterStatus) -> str:
    """Count the nodes by state, and describe the spares."""
    counts = Counter(node.state for node in status.nodes)
    text = ", ".join(f"{num} {state}" for state, num in sorted(counts.items(), key=_by_number))
    leaving = sum(node.pending_drain is not None for node in status.nodes)
    text += f"; {leaving} draining" if leaving else ""
    lines = [f"{len(status.nodes)} nodes: {text}"] if status.nodes else []
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


def shown_nodes(
    status: ClusterStatus, *, states: Sequence[str], everything: bool
) -> Sequence[NodeStatus]:
    """Choose the nodes of a table: all of a small fleet; of a large one those that need attention."""
    some = [node for node in status.nodes if not states or node.state in states]
    if everything or len(some) <= FEW:
        return some
    return some if states else [node for node in some if not is_plain(node)]


def is_plain(node: NodeStatus) -> bool:
    """Whether a node needs no attention."""
    return node.state in PLAIN_STATES and node.pending_drain is None and not node.hardware_faults


def omitted_note(
    status: ClusterStatus, shown: Sequence[NodeStatus], *, states: Sequence[str]
) -> str:
    """Describe which nodes a table omits and how to list them; "" when it shows all that match."""
    matching = sum(not states or node.state in states for node in status.nodes)
    if matching == len(shown):
        return ""
    return f"{matching - len(shown)} active and spare nodes are not shown: `--all` lists them, `--state spare` the spares"


def short_hardware(hardware: str) -> str:
    """Shorten a hardware's name to its kind and its end, where serial numbers differ."""
    text = printable(hardware, 200)
    if len(text) <= SHORT:
        return text or "-"
    kind, colon, _ = text.partition(":")
    prefix = f"{kind}:" if colon and len(kind) <= 6 else ""
    return f"{prefix}..{text[len(prefix) + 2 - SHORT :]}"


def _by_number(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def ranks_text(ranks: Sequence[int]) -> str:
    """Write ranks, runs of them short: "0-7"."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks)) or "-"


def _last_heartbeat(node: NodeStatus) -> str:
    return (
        "-"
        if node.last_heartbeat_seconds_ago is None
        else f"{node.last_heartbeat_seconds_ago:.1f} s ago"
    )


def warm_text(node: NodeStatus) -> str:
    """Return the state of a node's warm process: "ready 480 MB"."""
    size = output.size(node.warm_resident_bytes) if node.warm_resident_bytes else ""
    return f"{printable(node.warm, 60)} {size}".strip() or "-"


def _why(node: NodeStatus, now: float) -> str:
    parts = [drain_text(node, now)] if node.pending_drain is not None else []
    parts += [f"down with {node.domain_down}"] if node.domain_down else []
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
