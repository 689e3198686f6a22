"""Faults and findings. A finding is what a detector says of signals; a fault is its name, and names the runbook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runner.facts.ids import AttemptId
from runner.facts.messages.signals import StartPhase
from runner.facts.wire import message

# What a run goes on with, so that a page may say `watch`.
WatchedFault = Literal[
    "gpu_ecc",
    "gpu_lost",
    "gpu_xid_other",
    "nvlink_error",
    "thermal_power",
    "nccl_network",
    "host_oom",
    "filesystem",
    "nan_loss",
    "loss_scale_floor",
    "loss_spike",
    "grad_norm_spike",
    "divergence",
    "validation_divergence",
    "activation_norm_drift",
    "plateau",
    "skipped_steps",
    "throughput_drop",
    # a rank computes more slowly than its peers, and all wait for it
    "straggler",
    # a rank's memory grows, and goes on growing
    "host_memory_growth",
    # so do its open files
    "descriptor_growth",
    # copies that must be equal are not: silent data corruption
    "replicas_disagree",
]
Fault = Literal[
    # a rank ended with an error or a signal
    "rank_crash",
    # a node could not start its ranks
    "launch_failed",
    # the memory of a node's devices was not released before a launch
    "devices_held",
    # the trainer says its settings cannot work (exit code 78)
    "settings_refused",
    # no sign of life from a node
    "node_silent",
    # all nodes of a rack, a switch or a power supply fell silent together
    "domain_silent",
    # a node failed its checks, or is a lemon
    "node_unfit",
    # a rank is in state T
    "rank_stopped",
    # the gang is alive and makes no step
    "no_progress",
    WatchedFault,
    # Stoker's own decision raised
    "decision_failed",
    # bytes that are no message
    "junk",
]


@message("finding")
@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One observation worth deciding about. None: the detector cannot tell, or it does not apply."""

    fault: Fault
    evidence: str
    attempt: AttemptId | None = None
    node: str | None = None
    rank: int | None = None
    # node_silent, no_progress: how long nothing was heard before this finding
    silent_seconds: float = 0.0
    # the first that was not as it should be
    step: int | None = None
    # what was found before, of this fault and attempt, has passed by itself
    is_over: bool = False


@message("node_heard")
@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResumed:
    """A node that was found silent speaks again."""

    node: str
    incarnation: int


@message("mass_silence")
@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelatedSilence:
    """Many nodes fell silent at once: the store or the fabric is blamed, not the nodes; over when `nodes` is empty."""

    nodes: tuple[str, ...] = ()


@message("domain_silence")
@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSilence:
    """The nodes of one failure domain fell silent together: the domain is blamed, none of them is bad."""

    # its kind: switch, rack, power
    domain: str
    name: str
    nodes: tuple[str, ...]
    # the longest of them
    silent_seconds: float = 0.0


@message("gang_advances")
@dataclass(frozen=True, slots=True, kw_only=True)
class GangStillStepping:
    """A gang makes steps though these nodes of it are not heard: it steps together, so their ranks live."""

    attempt: AttemptId
    nodes: tuple[str, ...]
    step: int
    # that a step took on average, while they were not heard
    step_seconds: float = 0.0


@message("gang_timed")
@dataclass(frozen=True, slots=True, kw_only=True)
class GangStartTimed:
    """A gang is up: the slowest rank of all in each phase of its start. Said once per launch, however many nodes it has."""

    attempt: AttemptId
    slowest: Mapping[str, StartPhase] = field(default_factory=dict)
