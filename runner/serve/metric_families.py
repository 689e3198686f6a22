"""Families of metrics of the cluster, its store, nodes, runs and incidents; each name has its unit.

`stoker_node_state` has one row a node, for its present state only, so that fleets of thousands can
be scraped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from runner.facts import lifecycles
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus, RunStatus
from runner.facts.messages.records import NodeStateName, RunStateName
from runner.history.run_accounting import CAUSES
from runner.serve.status_reader import StoreStatus

NODE_STATES: tuple[str, ...] = get_args(NodeStateName)
RUN_STATES: tuple[str, ...] = get_args(RunStateName)
INCIDENT_STATES = tuple(lifecycles.INCIDENT)
VERDICTS = ("quarantined", "retired")

Row = tuple[Sequence[str], float | None]

# Of each run: name, help and value.
_RUN_GAUGES: tuple[tuple[str, str, Callable[[RunStatus], float | None]], ...] = (
    ("stoker_run_step", "Last finished step of the newest attempt.", lambda r: r.step),
    ("stoker_run_best_step", "Furthest step any attempt reached.", lambda r: r.best_step),
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
    ("stoker_run_loss", "Loss of the last step.", lambda r: r.last.loss if r.last else None),
    (
        "stoker_run_grad_norm",
        "Gradient norm before clipping.",
        lambda r: r.last.grad_norm if r.last else None,
    ),
    (
        "stoker_run_learning_rate",
        "Learning rate of the last step.",
        lambda r: r.last.lr if r.last else None,
    ),
    (
        "stoker_run_loss_scale",
        "Loss scale of the last step.",
        lambda r: r.last.loss_scale if r.last else None,
    ),
    (
        "stoker_run_tokens_per_second",
        "Tokens per second, whole run.",
        lambda r: r.last.tokens_per_second if r.last else None,
    ),
    (
        "stoker_run_mfu_ratio",
        "Model FLOPs utilisation.",
        lambda r: r.last.mfu_ratio if r.last else None,
    ),
    (
        "stoker_run_peak_memory_bytes",
        "Largest peak memory of a rank.",
        lambda r: r.last.peak_memory_bytes_max if r.last else None,
    ),
)


def gauge(name: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Metric:
    """Make a family of gauges; rows whose value is None are left out."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def counter(name: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Metric:
    """Make a family of counters; rows whose value is None are left out."""
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def store(status: StoreStatus) -> Iterator[Metric]:
    """Yield what the store itself knows: lease, standbys, length of the journal."""
    left = status.lease_left_seconds
    text = (
        "Time until the supervisor's lease runs out unless it is renewed; 0: no supervisor leads."
    )
    yield gauge("stoker_lease_remaining_seconds", text, (), [((), left or 0.0)])
    token = status.lease_token or None
    yield gauge(
        "stoker_lease_token", "Number of the lease; it rises with each holder.", (), [((), token)]
    )
    text = "Standby supervisors."
    yield gauge("stoker_standby_supervisors", text, (), [((), status.num_standbys)])
    entries = [
        (("store",), float(status.journal_stored)),
        (("files",), float(status.journal_archived)),
    ]
    text = "Entries of the journal, by place."
    yield gauge("stoker_journal_stored_entries", text, ("where",), entries)


def cluster(status: ClusterStatus) -> Iterator[Metric]:
    """Yield the lease holder, the age of the status, and what the supervisor costs."""
    info = ("cluster", "holder")
    yield gauge(
        "stoker_cluster_info",
        "The cluster and its supervisor.",
        info,
        [((status.cluster, status.holder), 1)],
    )
    age = max(0.0, time.time() - status.wall)
    yield gauge(
        "stoker_status_age_seconds", "Age of the status behind these metrics.", (), [((), age)]
    )
    yield counter(
        "stoker_journal_entries", "Entries in the journal.", (), [((), status.journal_sequence)]
    )
    failures = status.decision_failures
    yield counter("stoker_decision_failures", "Decisions that raised.", (), [((), failures)])
    yield gauge(
        "stoker_open_actions", "Actions without an outcome.", (), [((), len(status.open_actions))]
    )
    resident = status.supervisor_resident_bytes or None
    yield gauge(
        "stoker_supervisor_resident_bytes", "Memory of the supervisor.", (), [((), resident)]
    )
    cpu = status.supervisor_cpu_seconds
    yield counter("stoker_supervisor_cpu_seconds", "CPU time of the supervisor.", (), [((), cpu)])
    text = "1: the cluster shuts down, or has shut down in order."
    yield gauge("stoker_cluster_closing", text, (), [((), float(status.closing))])
    unsigned = float(status.unsigned)
    yield gauge("stoker_messages_unsigned", "1: messages are not signed.", (), [((), unsigned)])
    refused = [((why,), float(count)) for why, count in status.refused_messages.items()]
    text = "Refused messages, by reason."
    yield counter("stoker_messages_refused", text, ("reason",), refused)
    events = [((name,), float(count)) for name, count in status.counters.items()]
    yield counter(
        "stoker_events", "Events that the controller counted, by name.", ("event",), events
    )


def nodes(nodes: Sequence[NodeStatus]) -> Iterator[Metric]:
    """Yield each node's state, last heartbeat, and memory of its processes."""
    counts = Counter(node.state for node in nodes)
    by_state = [((state,), float(counts[state])) for state in NODE_STATES]
    yield gauge("stoker_nodes", "Nodes by state.", ("state",), by_state)
    states = [((n.node, n.state), 1.0) for n in nodes]
    yield gauge(
        "stoker_node_state", "1, labelled with the node's state.", ("node", "state"), states
    )
    leaving = sum(node.pending_drain is not None for node in nodes)
    text = "Nodes that leave service at the next checkpoint."
    yield gauge("stoker_draining_nodes", text, (), [((), leaving)])
    heartbeat_ages = [((n.node,), n.last_heartbeat_seconds_ago) for n in nodes]
    yield gauge(
        "stoker_node_heartbeat_age_seconds",
        "Time since a node's last heartbeat.",
        ("node",),
        heartbeat_ages,
    )
    ranks = [((n.node,), float(len(n.ranks_alive))) for n in nodes]
    yield gauge("stoker_node_ranks", "Ranks alive on a node.", ("node",), ranks)
    memory = [((n.node,), n.agent_resident_bytes or None) for n in nodes]
    yield gauge("stoker_agent_resident_bytes", "Memory of a node's agent.", ("node",), memory)
    warm = [((n.node,), n.warm_resident_bytes or None) for n in nodes]
    text = "Memory of a node's warm process."
    yield gauge("stoker_warm_resident_bytes", text, ("node",), warm)
    ready = sum(node.warm == "ready" for node in nodes)
    text = "Nodes with a warm process that is ready to fork ranks."
    yield gauge("stoker_warm_nodes", text, (), [((), ready)])


def hardware(status: ClusterStatus) -> Iterator[Metric]:
    """Yield the spares, refused hardware, and failure domains that are down."""
    spares = sum(node.state == "spare" for node in status.nodes)
    yield gauge("stoker_spare_nodes", "Spare nodes.", (), [((), spares)])
    if status.pool is not None:
        text = "Spares that are enough in 99 % of all cases."
        yield gauge("stoker_recommended_spares", text, (), [((), status.pool.recommended)])
        low = float(status.pool.low)
        yield gauge("stoker_spares_low", "Whether there are too few spares.", (), [((), low)])
    text = "Hardware faults that still count."
    yield gauge("stoker_hardware_faults", text, (), [((), status.hardware_faults)])
    refused = [((verdict,), float(status.hardware_refused.get(verdict, 0))) for verdict in VERDICTS]
    text = "Pieces of hardware that may not serve."
    yield gauge("stoker_hardware_refused", text, ("verdict",), refused)
    down = [((name,), float(len(fallen))) for name, fallen in status.domains_down.items()]
    text = "Nodes of a failure domain that is down."
    yield gauge("stoker_domain_down_nodes", text, ("domain",), down)
    yield gauge("stoker_domains_down", "Failure domains that are down.", (), [((), len(down))])


def runs(runs: Sequence[RunStatus]) -> Iterator[Metric]:
    """Describe how far each run is, and where its time went."""
    labels = ("run", "name")
    for name, text, value in _RUN_GAUGES:
        yield gauge(name, text, labels, [((str(run.run), run.name), value(run)) for run in runs])
    states = [((str(r.run), r.name, s), float(r.state == s)) for r in runs for s in RUN_STATES]
    yield gauge("stoker_run_state", "1 for the state a run is in.", (*labels, "state"), states)
    lost = [
        ((str(run.run), run.name, cause), run.lost_seconds.get(cause, 0.0))
        for run in runs
        for cause in CAUSES
    ]
    text = "Time that went into no contributing step, by cause."
    yield gauge("stoker_run_lost_seconds", text, (*labels, "cause"), lost)


def incidents(status: ClusterStatus) -> Iterator[Metric]:
    """Yield counts of incidents, and the states of the newest."""
    prefix = "incidents_"
    opened = [
        ((name.removeprefix(prefix),), float(count))
        for name, count in status.counters.items()
        if name.startswith(prefix)
    ]
    yield counter(
        "stoker_incidents", "Incidents opened, by the fault that opened them.", ("fault",), opened
    )
    faults = dict.fromkeys(incident.fault for incident in status.incidents)
    shown = [
        (
            (fault, state),
            float(sum(i.fault == fault and i.state == state for i in status.incidents)),
        )
        for fault in faults
        for state in INCIDENT_STATES
    ]
    text = "Incidents by fault and state, the newest hundred."
    yield gauge("stoker_recent_incidents", text, ("fault", "state"), shown)
