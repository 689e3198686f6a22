"""Verdicts: what an incident is, whose it is, how sure that is, and what kind of answer it wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from runner.facts.matches import Match, Scope

ActionClass = Literal["restart", "swap", "rewind", "wait", "page", "stop", "none"]
CulpritKind = Literal["rank", "gpu", "node"]

# What answers a fault when nothing else is known; a culprit and a lasting sign sharpen it (`decide/correlate.py`).
ACTION_CLASSES: Mapping[str, ActionClass] = {
    "gpu_ecc": "swap",
    "gpu_lost": "swap",
    "gpu_xid_other": "restart",
    "nvlink_error": "swap",
    "nccl_timeout": "restart",
    "nccl_network": "restart",
    # the same layout needs the same memory again
    "cuda_oom": "stop",
    "host_oom": "restart",
    "cuda_illegal_access": "restart",
    "nan_loss": "rewind",
    "loss_scale_floor": "rewind",
    # one that comes at once tends to recover (IDEFICS); what does not is a divergence
    "loss_spike": "wait",
    "divergence": "rewind",
    "grad_norm_spike": "wait",
    # what no rewind can mend goes to a person
    "plateau": "page",
    "skipped_steps": "page",
    "throughput_drop": "page",
    "validation_divergence": "page",
    "activation_norm_drift": "page",
    "data_error": "page",
    "checkpoint_io": "page",
    "rendezvous": "restart",
    "config_error": "stop",
    "hang_no_error": "restart",
    "preemption": "wait",
    "filesystem": "wait",
    "thermal_power": "swap",
    "unknown": "restart",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """Whose fault it is. `id`: a rank's number, a GPU's PCI address or index, a node's name or address."""

    kind: CulpritKind
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """What an incident turned out to be, as it is kept and shown. `node`: where its first line stands."""

    fault: str
    scope: Scope
    culprit: Culprit | None
    node: str
    confidence: float
    action_class: ActionClass
    # "n2 rank3.err:120: ...": what decided it first
    lines: tuple[str, ...] = ()
    # of an unknown fault: by it the same one is recognised the next time
    template: str = ""
    # the last incident before this one that had the same template, or one that is alike
    seen_in: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One incident, judged. `confidence` is between 0 and 1; `evidence` has what decided it first."""

    fault: str
    scope: Scope
    culprit: Culprit | None
    confidence: float
    evidence: tuple[Match, ...]
    action_class: ActionClass
    # of an unknown fault: its first line, what differs between two lives of it masked
    template: str = ""
