"""Families of metrics of the cluster, its store, nodes and incidents; each name has its unit.

`stoker_node_state` has one row a node, for its present state only, so that fleets of thousands can
be scraped.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from runner.facts import lifecycles
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus
from runner.facts.messages.records import NodeStateName
from runner.serve.exposition import MetricFamily, counter, gauge
from runner.serve.status_reader import StoreStatus


def store(status: StoreStatus) -> Iterator[MetricFamily]:
    """Yield what the store itself knows: lease, standbys, length of the journal."""
    text = (
        "Time until the supervisor's lease runs out unless it is renewed; 0: no supervisor leads."
    )
    yield gauge("stoker_lease_remaining_seconds", text, status.lease_left_seconds or 0.0)
    text = "Number of the lease; it rises with each holder."
    yield gauge("stoker_lease_token", text, status.lease_token or None)
    yield gauge("stoker_standby_supervisors", "Standby supervisors.", status.num_standbys)
    entries = {"store": status.journal_stored, "files": status.journal_archived}
    yield gauge(
        "stoker_journal_stored_entries", "Entries of the journal, by place.", entries, "where"
    )
    text = "Time that this scrape waited for the store."
    yield gauge("stoker_store_read_seconds", text, status.read_seconds)


def cluster(status: ClusterStatus) -> Iterator[MetricFamily]:
    """Yield the lease holder, the age of the status, and what the supervisor costs."""
    info = {(status.cluster, status.holder): 1}
    yield gauge("stoker_cluster_info", "The cluster and its supervisor.", info, "cluster", "holder")
    age = max(0.0, time.time() - status.wall)
    yield gauge("stoker_status_age_seconds", "Age of the status behind these metrics.", age)
    yield counter("stoker_journal_entries", "Entries in the journal.", status.journal_sequence)
    yield counter("stoker_decision_failures", "Decisions that raised.", status.decision_failures)
    yield gauge("stoker_open_actions", "Actions without an outcome.", len(status.open_actions))
    resident = status.supervisor_resident_bytes or None
    yield gauge("stoker_supervisor_resident_bytes", "Memory of the supervisor.", resident)
    cpu = status.supervisor_cpu_seconds
    yield counter("stoker_supervisor_cpu_seconds", "CPU time of the supervisor.", cpu)
    text = "Time that the present supervisor waited for the store to append entries to the journal."
    seconds = status.journal_append_seconds
    yield counter("stoker_journal_append_seconds", text, seconds)
    text = "How often the present supervisor appended entries to the journal."
    yield counter("stoker_journal_appends", text, status.num_journal_appends)
    text = "1: the cluster shuts down, or has shut down in order."
    yield gauge("stoker_cluster_closing", text, status.closing)
    yield gauge("stoker_messages_unsigned", "1: messages are not signed.", status.unsigned)
    refused = status.refused_messages
    yield counter("stoker_messages_refused", "Refused messages, by reason.", refused, "reason")
    text = "Events that the controller counted, by name."
    yield counter("stoker_events", text, status.counters, "event")


def nodes(nodes: Sequence[NodeStatus]) -> Iterator[MetricFamily]:
    """Yield each node's state, last heartbeat, and memory of its processes."""
    counts = Counter(node.state for node in nodes)
    by_state = {state: counts[state] for state in get_args(NodeStateName)}
    yield gauge("stoker_nodes", "Nodes by state.", by_state, "state")
    states = {(node.node, node.state): 1 for node in nodes}
    yield gauge("stoker_node_state", "1, labelled with the node's state.", states, "node", "state")
    leaving = sum(node.pending_drain is not None for node in nodes)
    text = "Nodes that leave service at the next checkpoint."
    yield gauge("stoker_draining_nodes", text, leaving)
    heartbeat_ages = {n.node: n.last_heartbeat_seconds_ago for n in nodes}
    text = "Time since a node's last heartbeat."
    yield gauge("stoker_node_heartbeat_age_seconds", text, heartbeat_ages, "node")
    ahead = {node.node: node.clock_ahead_seconds for node in nodes}
    text = (
        "By how much a node's clock is before the supervisor's; 0: they agree within five seconds."
    )
    yield gauge("stoker_node_clock_ahead_seconds", text, ahead, "node")
    ranks = {node.node: len(node.ranks_alive) for node in nodes}
    yield gauge("stoker_node_ranks", "Ranks alive on a node.", ranks, "node")
    memory = {node.node: node.agent_resident_bytes or None for node in nodes}
    yield gauge("stoker_agent_resident_bytes", "Memory of a node's agent.", memory, "node")
    warm = {node.node: node.warm_resident_bytes or None for node in nodes}
    yield gauge("stoker_warm_resident_bytes", "Memory of a node's warm process.", warm, "node")
    ready = sum(node.warm == "ready" for node in nodes)
    text = "Nodes with a warm process that is ready to fork ranks."
    yield gauge("stoker_warm_nodes", text, ready)


def hardware(status: ClusterStatus) -> Iterator[MetricFamily]:
    """Yield the spares, refused hardware, and failure domains that are down."""
    spares = sum(node.state == "spare" for node in status.nodes)
    yield gauge("stoker_spare_nodes", "Spare nodes.", spares)
    if status.pool is not None:
        text = "Spares that are enough in 99 % of all cases."
        yield gauge("stoker_recommended_spares", text, status.pool.recommended)
        yield gauge("stoker_spares_low", "Whether there are too few spares.", status.pool.low)
    faults = status.hardware_faults
    yield gauge("stoker_hardware_faults", "Hardware faults that still count.", faults)
    refused = {
        verdict: status.hardware_refused.get(verdict, 0) for verdict in ("quarantined", "retired")
    }
    text = "Pieces of hardware that may not serve."
    yield gauge("stoker_hardware_refused", text, refused, "verdict")
    down = {name: len(fallen) for name, fallen in status.domains_down.items()}
    text = "Nodes of a failure domain that is down."
    yield gauge("stoker_domain_down_nodes", text, down, "domain")
    yield gauge("stoker_domains_down", "Failure domains that are down.", len(down))


def incidents(status: ClusterStatus) -> Iterator[MetricFamily]:
    """Yield counts of incidents, and the states of the newest."""
    prefix = "incidents_"
    opened = {
        name.removeprefix(prefix): count
        for name, count in status.counters.items()
        if name.startswith(prefix)
    }
    text = "Incidents opened, by the fault that opened them."
    yield counter("stoker_incidents", text, opened, "fault")
    counts = Counter((incident.fault, incident.state) for incident in status.incidents)
    faults = dict.fromkeys(incident.fault for incident in status.incidents)
    shown = {
        (fault, state): counts[fault, state] for fault in faults for state in lifecycles.INCIDENT
    }
    text = "Incidents by fault and state, the newest hundred."
    yield gauge("stoker_recent_incidents", text, shown, "fault", "state")
    ill = [one.run for one in status.incidents if one.on_trial and one.closed_at is None]
    text = "1 while an incident about the run's numbers is open, also after its end."
    values = {(str(run.run), run.name): run.run in ill for run in status.runs}
    yield gauge("stoker_run_numbers_incident", text, values, "run", "name")
