"""Families of metrics of the cluster, its store, nodes, runs and incidents; each name has its unit.

`stoker_node_state` has one row a node, for its present state only, so that fleets of thousands can
be scraped.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from runner.facts import lifecycles
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus, RunStatus
from runner.facts.messages.records import NodeStateName, RunStateName
from runner.facts.messages.signals import StepRecord
from runner.history.run_accounting import CAUSES
from runner.serve.status_reader import StoreStatus

# The value of a family without labels, or values by label; by a tuple if there are several labels.
Values = float | None | Mapping[Any, float | None]

# Of each run: name, help and value.
_RUN_GAUGES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("stoker_run_step", "Last finished step of the newest attempt.", lambda r: r.step),
    (
        "stoker_run_best_step",
        "Furthest step reached, since the run last went back.",
        lambda r: r.best_step,
    ),
    ("stoker_run_goal_steps", "Steps at which the run ends.", lambda r: r.total_steps),
    ("stoker_run_attempts", "Attempts planned so far.", lambda r: r.num_attempts),
    (
        "stoker_run_checkpoint_step",
        "Step of the newest trusted checkpoint.",
        lambda r: r.checkpoint_step,
    ),
    (
        "stoker_run_ettr_ratio",
        "Productive time / wall time since admission.",
        lambda r: r.ettr_ratio,
    ),
    (
        "stoker_run_progress_age_seconds",
        "Time since the last finished step.",
        lambda r: r.phase_seconds,
    ),
)
# Of the last step of each run that has one.
_STEP_GAUGES: tuple[tuple[str, str, Callable[[StepRecord], float | None]], ...] = (
    ("stoker_run_loss", "Loss of the last step.", lambda s: s.loss),
    ("stoker_run_grad_norm", "Gradient norm before clipping.", lambda s: s.grad_norm),
    ("stoker_run_learning_rate", "Learning rate of the last step.", lambda s: s.lr),
    ("stoker_run_loss_scale", "Loss scale of the last step.", lambda s: s.loss_scale),
    (
        "stoker_run_tokens_per_second",
        "Tokens per second, whole run.",
        lambda s: s.tokens_per_second,
    ),
    ("stoker_run_mfu_ratio", "Model FLOPs utilisation.", lambda s: s.mfu_ratio),
    (
        "stoker_run_peak_memory_bytes",
        "Largest peak memory of a rank.",
        lambda s: s.peak_memory_bytes_max,
    ),
)


def gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Make a family of gauges; values that are None are left out."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Make a family of counters; values that are None are left out."""
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Values) -> Metric:
    by_labels = values if isinstance(values, Mapping) else {(): values}
    for labels, value in by_labels.items():
        if value is not None:
            family.add_metric((labels,) if isinstance(labels, str) else labels, value)
    return family


def store(status: StoreStatus) -> Iterator[Metric]:
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


def cluster(status: ClusterStatus) -> Iterator[Metric]:
    """Yield the lease holder, the age of the status, and what the supervisor costs."""
    info = {(status.cluster, status.holder): 1}
    yield gauge("stoker_cluster_info", "The cluster and its supervisor.", info, "cluster", "holder")
    age = max(0.0, time.time() - status.wall)
    yield gauge("stoker_status_age_seconds", "Age of the status behind these metrics.", age)
    yield counter("stoker_journal_entries", "Entries in the journal.", status.journal_sequence)
    yield counter("stoker_decision_failures", "Decisions that raised.", status.decision_failures)
    yield gauge("stoker_open_actions", "Actions without an outcome.", len(status.open_actions))
    text = "Rungs that wait for `stoker approve` or `deny`."
    yield gauge("stoker_open_proposals", text, len(status.proposals))
    resident = status.supervisor_resident_bytes or None
    yield gauge("stoker_supervisor_resident_bytes", "Memory of the supervisor.", resident)
    cpu = status.supervisor_cpu_seconds
    yield counter("stoker_supervisor_cpu_seconds", "CPU time of the supervisor.", cpu)
    text = "1: the cluster shuts down, or has shut down in order."
    yield gauge("stoker_cluster_closing", text, status.closing)
    yield gauge("stoker_messages_unsigned", "1: messages are not signed.", status.unsigned)
    refused = status.refused_messages
    yield counter("stoker_messages_refused", "Refused messages, by reason.", refused, "reason")
    text = "Events that the controller counted, by name."
    yield counter("stoker_events", text, status.counters, "event")


def nodes(nodes: Sequence[NodeStatus]) -> Iterator[Metric]:
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


def hardware(status: ClusterStatus) -> Iterator[Metric]:
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


def runs(runs: Sequence[RunStatus]) -> Iterator[Metric]:
    """Describe how far each run is, and where its time went."""
    labelled = {(str(run.run), run.name): run for run in runs}
    for name, text, value in _RUN_GAUGES:
        values = {labels: value(run) for labels, run in labelled.items()}
        yield gauge(name, text, values, "run", "name")
    steps = {labels: run.last for labels, run in labelled.items() if run.last is not None}
    for name, text, figure in _STEP_GAUGES:
        values = {labels: figure(step) for labels, step in steps.items()}
        yield gauge(name, text, values, "run", "name")
    states = {
        (*labels, state): run.state == state
        for labels, run in labelled.items()
        for state in get_args(RunStateName)
    }
    yield gauge("stoker_run_state", "1 for the state a run is in.", states, "run", "name", "state")
    lost = {
        (*labels, cause): run.lost_seconds.get(cause, 0.0)
        for labels, run in labelled.items()
        for cause in CAUSES
    }
    held = {labels: run.hold is not None for labels, run in labelled.items()}
    yield gauge("stoker_run_held", "1: paused, or it waits for a person.", held, "run", "name")
    text = "Time that went into no contributing step, by cause."
    yield gauge("stoker_run_lost_seconds", text, lost, "run", "name", "cause")


def incidents(status: ClusterStatus) -> Iterator[Metric]:
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
