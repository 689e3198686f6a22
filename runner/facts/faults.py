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
    "straggler",  # a rank computes more slowly than its peers, and all wait for it
    "host_memory_growth",  # a rank's memory grows, and goes on growing
    "descriptor_growth",  # so do its open files
    "replicas_disagree",  # copies that must be equal are not: silent data corruption
]
Fault = Literal[
    "rank_crash",  # a rank ended with an error or a signal
    "launch_failed",  # a node could not start its ranks
    "devices_held",  # the memory of a node's devices was not released before a launch
    "settings_refused",  # the trainer says its settings cannot work (exit code 78)
    "node_silent",  # no sign of life from a node
    "domain_silent",  # all nodes of a rack, a switch or a power supply fell silent together
    "node_unfit",  # a node failed its checks, or is a lemon
    "rank_stopped",  # a rank is in state T
    "no_progress",  # the gang is alive and makes no step
    WatchedFault,
    "decision_failed",  # Stoker's own decision raised
    "junk",  # bytes that are no message
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
    silent_seconds: float = (
        0.0  # node_silent, no_progress: how long nothing was heard before this finding
    )
    step: int | None = None  # the first that was not as it should be
    is_over: bool = False  # what was found before, of this fault and attempt, has passed by itself


@message("node_heard")
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHeard:
    """A node that was found silent speaks again."""

    node: str
    incarnation: int


@message("mass_silence")
@dataclass(frozen=True, slots=True, kw_only=True)
class MassSilence:
    """Many nodes fell silent at once: the store or the fabric is blamed, not the nodes; over when `nodes` is empty."""

    nodes: tuple[str, ...] = ()


@message("domain_silence")
@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSilence:
    """The nodes of one failure domain fell silent together: the domain is blamed, none of them is bad."""

    domain: str  # its kind: switch, rack, power
    name: str
    nodes: tuple[str, ...]
    silent_seconds: float = 0.0  # the longest of them


@message("gang_advances")
@dataclass(frozen=True, slots=True, kw_only=True)
class GangAdvances:
    """A gang makes steps though these nodes of it are not heard: it steps together, so their ranks live."""

    attempt: AttemptId
    nodes: tuple[str, ...]
    step: int
    step_seconds: float = 0.0  # that a step took on average, while they were not heard


@message("gang_timed")
@dataclass(frozen=True, slots=True, kw_only=True)
class GangTimed:
    """A gang is up: the slowest rank of all in each phase of its start. Said once per launch, however many nodes it has."""

    attempt: AttemptId
    slowest: Mapping[str, StartPhase] = field(default_factory=dict)
