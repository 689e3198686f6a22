"""Faults and findings. A fault is a name, and a row of `FAULTS` says all that follows from it; a detector finds one.

To add a fault: a row here, and the name on a runbook page.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.matches import Scope
from runner.facts.messages.signals import StartPhase
from runner.facts.trials import Trajectory
from runner.facts.wire import Value

ActionClass = Literal["restart", "swap", "rewind", "wait", "page", "stop", "none"]
# Of these, `checks` are those of admission, `progress` the detectors of hangs, and `peers` compares a rank with others or itself.
JudgedBy = Literal[
    "agent", "probe", "domain", "checks", "progress", "lines", "metrics", "peers", "self"
]


class FaultKind(Value):
    """What follows from a fault's name alone."""

    scope: Scope
    judged_by: JudgedBy
    # It ends the gang. Only of the others may a page say `watch`: nothing else would start the gang again.
    is_fatal: bool = True
    # What answers it when nothing else is known; a culprit and a lasting sign sharpen it (`rootcause/correlation.py`).
    action: ActionClass = "page"
    outcome: Literal["crashed", "hung", "lost", "refused"] = "crashed"
    # A run goes on making steps while it has this: steps after it do not show that it is over.
    outlasts_steps: bool = False
    # It is in the weights: a trial of the run's steps says when it is over, and a run that ends with it ends with it open.
    on_trial: bool = False
    # A lasting sign of it at a named GPU or node makes its answer a swap.
    swaps_culprit: bool = False
    # It says how ranks ended, not why: where a cause is known, the page of the cause answers it.
    is_symptom: bool = False
    # An incident may open with it. The others explain an incident, or are held against hardware.
    opens_incident: bool = True


_AGENT = partial(FaultKind, judged_by="agent", action="restart")
# A line of hardware reports it; the gang may live on.
_LINE = partial(FaultKind, judged_by="lines", is_fatal=False)
# Lines of a dead gang explain its end by it.
_CAUSE = partial(FaultKind, judged_by="lines", opens_incident=False)
_METRIC = partial(FaultKind, judged_by="metrics", is_fatal=False)
_TRIED = partial(_METRIC, on_trial=True)
_PEERS = partial(FaultKind, scope="rank", judged_by="peers", is_fatal=False)

FAULTS: Mapping[str, FaultKind] = {
    "rank_crash": _AGENT(scope="rank", is_symptom=True),
    "launch_failed": _AGENT(scope="node", is_symptom=True),
    # All processes of all nodes ended while no supervisor led: a power cut, a reboot, a kill of all. No node's fault.
    "nodes_down": _AGENT(scope="scheduler", outcome="lost"),
    # The memory of a node's devices was not released before a launch.
    "devices_busy": _AGENT(scope="node"),
    # The trainer reports that its settings cannot work (exit code 78).
    "settings_refused": _AGENT(scope="user", action="stop", outcome="refused"),
    # An attempt runs with other code, packages or variables than those before it, without approval.
    "configuration_drift": _AGENT(scope="user", action="page", outcome="refused"),
    # What a rank loaded is not what the checkpoint's manifest says (exit code 79). The next attempt takes another one.
    "checkpoint_refused": _AGENT(scope="storage", outcome="refused"),
    "node_silent": FaultKind(scope="node", judged_by="probe", action="swap", outcome="lost"),
    "domain_silent": FaultKind(scope="fabric", judged_by="domain", action="page"),
    # A node failed its checks, or is a lemon.
    "node_unfit": FaultKind(scope="node", judged_by="checks", action="swap"),
    # A rank is in state T.
    "rank_stopped": FaultKind(
        scope="rank", judged_by="progress", action="restart", outcome="hung", is_symptom=True
    ),
    "no_progress": FaultKind(
        scope="rank", judged_by="progress", action="restart", outcome="hung", is_symptom=True
    ),
    "gpu_ecc": _LINE(scope="gpu", action="swap"),
    "gpu_lost": _LINE(scope="gpu", action="swap"),
    "gpu_xid_other": _LINE(scope="gpu", action="restart", swaps_culprit=True),
    "nvlink_error": _LINE(scope="gpu", action="swap"),
    "thermal_power": _LINE(scope="gpu", action="swap", outlasts_steps=True),
    "nccl_network": _LINE(scope="fabric", action="restart", swaps_culprit=True),
    "host_oom": _LINE(scope="node", action="restart"),
    # The scheduler or the control plane lost a node, or it rebooted, panicked or was shut down.
    "node_failure": _LINE(scope="node", action="swap"),
    # A part of a host other than a GPU is broken: processor, memory, PCIe, disk, network card, power supply, BMC.
    "host_hardware": _LINE(scope="node", action="swap"),
    # A device other than a GPU disappeared from a host that lives on: a network card, a disk.
    "device_vanished": _LINE(scope="node", action="swap"),
    "filesystem": _LINE(scope="storage", action="wait"),
    "nan_loss": _TRIED(scope="rank", action="rewind", outlasts_steps=True),
    # One step after the other is skipped, since a gradient is not finite.
    "skipped_steps": _TRIED(scope="rank", action="rewind", outlasts_steps=True),
    # The loss scale is at its floor, or falls towards it without recovery.
    "loss_scale_floor": _TRIED(scope="rank", action="rewind", outlasts_steps=True),
    # The loss jumped: one that comes at once tends to recover (IDEFICS); what does not is a divergence.
    "loss_spike": _TRIED(scope="user", action="wait", outlasts_steps=True),
    "grad_norm_spike": _TRIED(scope="user", action="wait"),
    # The norm rose slowly, and the loss with it, at a learning rate that did not fall. Without these it is a note.
    "grad_norm_drift": _TRIED(scope="user", action="rewind"),
    # The loss rose, at once or slowly, and does not come back.
    "divergence": _TRIED(scope="user", action="rewind"),
    # The rest no rewind mends: a person looks.
    "validation_divergence": _METRIC(scope="user", action="page"),
    "activation_norm_drift": _METRIC(scope="user", action="page"),
    # The loss fell steadily and stopped at once.
    "plateau": _METRIC(scope="user", action="page"),
    # The first steps after a restart are not those that were made before.
    "resume_mismatch": _METRIC(scope="user", action="page", outlasts_steps=True),
    "throughput_drop": _METRIC(scope="user", action="page"),
    "straggler": _PEERS(),
    "host_memory_growth": _PEERS(),
    "descriptor_growth": _PEERS(),
    # A file system below a run's folders does not answer the agent; ranks may go on.
    "folder_hangs": FaultKind(scope="storage", judged_by="agent", is_fatal=False, action="wait"),
    # Copies that must be equal are not: silent data corruption.
    "replicas_disagree": _PEERS(action="rewind", on_trial=True, outlasts_steps=True),
    "decision_failed": FaultKind(scope="scheduler", judged_by="self", is_fatal=False),
    "malformed_message": FaultKind(scope="scheduler", judged_by="self", is_fatal=False),
    "nccl_timeout": _CAUSE(scope="rank", action="restart"),
    # The same layout needs the same memory again.
    "cuda_oom": _CAUSE(scope="user", action="stop"),
    "cuda_illegal_access": _CAUSE(scope="rank", action="restart"),
    "data_error": _CAUSE(scope="user", action="page"),
    "checkpoint_io": _CAUSE(scope="storage", action="page"),
    "rendezvous": _CAUSE(scope="fabric", action="restart"),
    "config_error": _CAUSE(scope="user", action="stop"),
    "hang_no_error": _CAUSE(scope="rank", action="restart"),
    "preemption": _CAUSE(scope="scheduler", action="wait"),
    "unknown": _CAUSE(scope="rank", action="restart", swaps_culprit=True),
    # Processes that SIGKILL does not end hang in a driver.
    "rank_outlived_sigkill": FaultKind(scope="node", judged_by="agent", opens_incident=False),
}

# A fault that opens an incident. Readers of files and messages refuse any other name; a test looks at the names in the code.
if TYPE_CHECKING:
    Fault = str
else:
    Fault = Literal[tuple(name for name, kind in FAULTS.items() if kind.opens_incident)]


# Of a name that an agent of another release sent.
_UNLISTED = FaultKind(scope="rank", judged_by="lines", opens_incident=False)


def fault_kind(fault: str) -> FaultKind:
    """Return what follows from a fault's name; a name that is not listed only explains an incident."""
    return FAULTS.get(fault, _UNLISTED)


def awaits_probe(fault: str) -> bool:
    """Whether a fault has ended nothing yet: a probe decides."""
    return fault_kind(fault).judged_by == "probe"


class Finding(Value, kind="finding"):
    """One observation that needs a decision. None: the detector does not know, or it does not apply."""

    fault: Fault
    evidence: str
    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    silent_seconds: float | None = None
    step: int | None = None
    # The earlier finding of this fault and attempt is over.
    recovered: bool = False
    # Nodes of which one is at fault, where it is not known which.
    suspects: tuple[str, ...] = ()
    # Of a run's numbers: what they were before `step`.
    before: Trajectory | None = None


class HeartbeatResumed(Value, kind="heartbeat_resumed"):
    """A silent node sends heartbeats again."""

    node: str
    incarnation: int


class CorrelatedSilence(Value, kind="correlated_silence"):
    """Many nodes are silent at the same time: attributed to store or fabric, not to the nodes; over when `nodes` is empty."""

    nodes: tuple[str, ...] = ()


class DomainSilence(Value, kind="domain_silence"):
    """The nodes of one failure domain (a switch, rack, ...) are silent at the same time: attributed to it, to none of its nodes."""

    domain: str
    name: str
    nodes: tuple[str, ...]
    silent_seconds: float = 0.0


class GangStillStepping(Value, kind="gang_still_stepping"):
    """A gang makes steps while these nodes of it are silent: it steps together, so their ranks are alive."""

    attempt: AttemptId
    nodes: tuple[str, ...]
    step: int
    step_seconds: float = 0.0


class GangStartTimed(Value, kind="gang_start_timed"):
    """A gang is up: the slowest rank of all in each phase of its start. Emitted once per launch, whatever the number of nodes."""

    attempt: AttemptId
    slowest: Mapping[str, StartPhase] = field(default_factory=dict)


class PartVariant(Value):
    """What a part of the launch conditions is on some nodes of a gang: its digest, the first of these nodes, and their number."""

    digest: str
    nodes: tuple[str, ...]
    num_nodes: int


class LaunchSurveyed(Value, kind="launch_surveyed"):
    """What the nodes of a gang run with, by the digests that each reports: part -> what it is, in the order of the nodes.

    `missing`: the first of the nodes that have reported nothing, of `num_missing`. Emitted once, and again when there is more.
    """

    attempt: AttemptId
    parts: Mapping[str, tuple[PartVariant, ...]]
    missing: tuple[str, ...] = ()
    num_missing: int = 0


class LrObserved(Value, kind="lr_observed"):
    """The learning rate in the lines of an attempt's trainer at one of its first steps; None: its lines have none.

    `before`: the rate that the schedule had there in earlier attempts, None where that is not known.
    """

    attempt: AttemptId
    step: int
    lr: float | None = None
    before: float | None = None


class MetricNote(Value, kind="metric_note"):
    """What a run's numbers show that asks for no action: reported, and no incident. `step`: the first sample of it."""

    attempt: AttemptId
    fault: Fault
    step: int
    evidence: str
