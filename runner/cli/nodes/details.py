"""One node in detail, and the hardware behind the names of nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from runner.cli import output
from runner.cli.nodes.tables import drain_text, ranks_text, warm_text
from runner.decide.nodes.checks.check_results import peers_of
from runner.decide.nodes.checks.fleet_rules import describe, key_of, number_text
from runner.decide.nodes.hardware import recent_hardware_faults
from runner.decide.state.cluster_state import Hardware, Node, State
from runner.facts.messages.cluster_status import MAX_CLOCK_SECONDS, NodeStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import printable, printable_words


def node_details(node: NodeStatus, state: State, *, cluster: ClusterSpec, now: float) -> str:
    """Describe one node: its state, agent and hardware, with the hardware's history."""
    known, hardware = state.nodes.get(node.node), state.hardware.get(node.hardware)
    since = "" if node.since is None else f" for {output.seconds(max(0.0, now - node.since))}"
    lines = [f"{node.node}: {node.state}{since}{output.because(node.reason)}"]
    facts: dict[str, str] = {
        "serves": f"{node.attempt}, ranks {ranks_text(node.ranks_alive)}" if node.attempt else "",
        "agent": _agent(node, known),
        "warm": warm_text(node) if node.warm else "",
        "unread": f"{output.size(node.log_bytes_skipped)} of its ranks' output, in floods"
        if node.log_bytes_skipped
        else "",
        "domains": ", ".join(domains_of(cluster, node.node)),
        "down with": node.domain_down,
        "leaves": printable(drain_text(node, now).removeprefix("leaves ")),
        "clock": _clock(node),
        "last check": _checked(known, now),
        "check due": printable(known.check_wanted, 300) if known is not None else "",
    }
    lines += _aligned(facts)
    for group in known.check_outcomes if known is not None else ():
        level = f", {group.level}" if group.level else ""
        ago = output.seconds(max(0.0, now - group.at))
        lines.append(f"    {group.outcome:<7}  {printable_words(group.checks)} ({ago} ago{level})")
    if hardware is not None:
        lines += ["", *hardware_details(hardware, state, cluster=cluster, now=now)]
    elif node.hardware:
        lines += ["", f"hardware {printable(node.hardware)}"]
    return "\n".join(lines)


def hardware_details(
    hardware: Hardware, state: State, *, cluster: ClusterSpec, now: float
) -> list[str]:
    """Describe hardware: its names, verdict, checks beside those of its peers, and faults with dates and incidents."""
    facts = {
        "parts": ", ".join(printable(part, 80) for part in hardware.parts),
        "names": printable_words(hardware.node_names),
        "verdict": verdict_text(hardware),
        "faults": f"{recent_hardware_faults(hardware, cluster, now)} count, of the last "
        f"{cluster.lemon_days:g} days; {cluster.lemon_faults} make a lemon",
        "class": printable(hardware.hardware_class),
        "passed": _passed(hardware),
        "behind": printable("; ".join(hardware.behind)),
    }
    lines = [f"hardware {printable(hardware.hardware)}", *_aligned(facts)]
    for hardware_fault in hardware.faults:
        incident = f" ({hardware_fault.incident})" if hardware_fault.incident else ""
        text = f"{hardware_fault.fault} as {hardware_fault.node}{output.because(hardware_fault.evidence)}{incident}"
        lines.append(f"    {output.moment(hardware_fault.at)}  {text}")
    return [*lines, *_measured(hardware, state, cluster=cluster, now=now)]


def _passed(hardware: Hardware) -> str:
    """Say when its checks passed last, and how many passes it owes."""
    due = hardware.passes_due
    owed = f"owes {due} more in a row before it serves" if due else ""
    if hardware.passed_at is None:
        return owed
    level = f" at level {hardware.passed_level}" if hardware.passed_level else ""
    return "; ".join(filter(None, [f"{output.moment(hardware.passed_at)}{level}", owed]))


def _measured(
    hardware: Hardware, state: State, *, cluster: ClusterSpec, now: float
) -> Iterator[str]:
    """List what was measured last, each beside the median of its peers."""
    if not hardware.values or hardware.measured_at is None:
        return
    peers = peers_of(state, hardware.hardware, hardware.hardware_class, cluster=cluster, now=now)
    yield f"  measured {output.moment(hardware.measured_at)}"
    for value in hardware.values:
        others = peers.get(key_of(value), [])
        middle = number_text(value, median(others)) if others else ""
        beside = f"median of {len(others)} peers {middle}" if others else "no peers"
        yield f"    {printable(describe(value))}  ({beside})"


def hardware_table(some: Sequence[Hardware], *, cluster: ClusterSpec, now: float) -> str:
    """Lay out hardware."""
    columns: dict[str, Callable[[Hardware], str]] = {
        "hardware": lambda known: printable(known.hardware, 80),
        "names": lambda known: printable_words(known.node_names),
        "verdict": lambda known: known.verdict or "-",
        "faults": lambda known: str(recent_hardware_faults(known, cluster, now) or "-"),
        "last": lambda known: output.moment(known.faults[-1].at) if known.faults else "-",
        "why": lambda known: printable(
            known.reason or (known.faults[-1].fault if known.faults else ""), 80
        ),
    }
    return output.table(columns, some)


def is_notable(hardware: Hardware) -> bool:
    """Whether hardware has a verdict, faults, or several names."""
    return bool(hardware.verdict or hardware.faults or len(hardware.node_names) > 1)


def verdict_text(hardware: Hardware) -> str:
    """Describe whether hardware may serve, since when, by whose decision and why."""
    if not hardware.verdict:
        return "may serve"
    since = "" if hardware.judged_at is None else f" since {output.moment(hardware.judged_at)}"
    by = f" by {printable(hardware.by, 60)}" if hardware.by else ""
    return f"{hardware.verdict}{since}{by}{output.because(hardware.reason)}"


def domains_of(cluster: ClusterSpec, node: str) -> list[str]:
    """Return a node's failure domains, the nearest first: "switch s1", "rack r2"."""
    return [
        f"{kind} {name}"
        for kind, domains in cluster.domains.items()
        for name, nodes in domains.items()
        if node in nodes
    ]


def _agent(node: NodeStatus, known: Node | None) -> str:
    parts = [f"pid {node.agent_pid}"] if node.agent_pid else []
    parts += [f"{output.size(node.agent_resident_bytes)}"] if node.agent_resident_bytes else []
    parts += [f"at {printable(node.address, 60)}"] if node.address else []
    parts += [f"incarnation {known.incarnation}"] if known is not None and known.incarnation else []
    parts += [f"{node.slots} slots"] if node.slots else []
    age = node.last_heartbeat_seconds_ago
    parts.append("no heartbeat" if age is None else f"last heartbeat {age:.1f} s ago")
    return ", ".join(parts)


def _clock(node: NodeStatus) -> str:
    """Describe a clock that is off; "" for one that agrees with the supervisor's."""
    ahead = node.clock_ahead_seconds
    if not ahead:
        return ""
    side = "ahead of" if ahead > 0 else "behind"
    return (
        f"{abs(ahead):.0f} s {side} the supervisor's, limit {MAX_CLOCK_SECONDS:g} s: set it by a time service (NTP); "
        "its next join may be refused as stale"
    )


def _checked(known: Node | None, now: float) -> str:
    if known is None or known.checked is None:
        return ""
    ago = output.seconds(max(0.0, now - known.checked.at))
    message = "" if known.checked.message == known.checked.outcome else known.checked.message
    return f"{known.checked.outcome or 'no answer'}, {ago} ago{output.because(message)}"


def _aligned(facts: Mapping[str, str]) -> list[str]:
    return [f"  {name:<10}  {text}" for name, text in facts.items() if text]
