"""What ranks report over their channel, as values. The text is not trusted: what does not fit is malformed, never an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from runner.errors import WireError
from runner.facts.wire import Value, from_plain

# The contract's limit.
MAX_PACKET_BYTES = 64 * 1024
# JSON readers disagree on larger ones.
MAX_STEP = 2**53
# Of a pipeline; chosen.
MAX_STAGE = 2**16
# Requests, remedies or phase timings that one rank may name; chosen.
MAX_NAMES = 32
# Characters of a path; chosen.
MAX_TEXT = 4096
# Characters of a name of a layer, phase or request; chosen.
MAX_NAME = 200
# Characters about replicas that disagree; chosen.
MAX_DETAIL = 1000
# Of replicas; more outliers than this are not a matter of ranks; chosen.
MAX_MINORITY_RANKS = 64
# Chosen.
MAX_RANK = 2**24


class Report(Value):
    """One line that a rank reports."""


class HelloReport(Report):
    """What a rank understands."""

    requests: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()


class PhaseReport(Report):
    """What a rank is doing from now on."""

    phase: Literal["start", "step", "evaluate", "checkpoint"]


class TimingReport(Report):
    """How long a part of the start took."""

    name: str
    seconds: float


class SettingsReport(Report):
    """Settings in effect, read back after loading."""

    step: int
    values: Mapping[str, Any] = field(default_factory=dict)


class StepReport(Report):
    """A finished step as one rank saw it."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    local_grad_norm: float | None = None
    compute_seconds: float | None = None
    data_wait_seconds: float | None = None
    step_seconds: float | None = None
    lr: float | None = None
    loss_scale: float | None = None
    skipped: bool | None = None
    tokens_per_second: float | None = None
    model_tflops_per_second: float | None = None
    mfu_ratio: float | None = None
    peak_memory_bytes: int | None = None
    first_nonfinite_layer: str | None = None
    # Of the pipeline, from 0.
    stage: int | None = None


class ValidationReport(Report):
    """A held-out loss."""

    step: int
    loss: float


class SealReport(Report):
    """A checkpoint's manifest is written."""

    step: int
    path: str


class RequestReport(Report):
    """The step after which a request takes effect."""

    request: str
    step: int


class ReplicasReport(Report):
    """What must be the same on several ranks, or at two moments, differs. `ranks`: the outliers; empty: not known."""

    # Steps done when the difference appeared.
    step: int
    what: Literal["weight", "master", "moment", "gradient"]
    ranks: tuple[int, ...] = ()
    detail: str = ""


_KINDS: dict[str, type[Report]] = {
    "hello": HelloReport,
    "phase": PhaseReport,
    "timing": TimingReport,
    "settings": SettingsReport,
    "step": StepReport,
    "validation": ValidationReport,
    "checkpoint": SealReport,
    "taken": RequestReport,
    "replicas": ReplicasReport,
}


def read_packet(packet: bytes) -> tuple[list[Report], list[str]]:
    """Parse the lines of one packet: reports, and for each malformed line the reason."""
    if len(packet) > MAX_PACKET_BYTES:
        return [], [f"a packet of more than {MAX_PACKET_BYTES} bytes"]
    reports: list[Report] = []
    malformed: list[str] = []
    for line in packet.split(b"\n"):
        if not line.strip():
            continue
        try:
            reports.append(_parse(line))
        except (WireError, ValueError, RecursionError) as error:
            malformed.append(f"{line[:80]!r}: {error}"[:300])
    return reports, malformed


def _parse(line: bytes) -> Report:
    plain = json.loads(line)
    if not isinstance(plain, dict):
        raise WireError("not a JSON object")
    kind = plain.get("kind")
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise WireError(f"unknown kind {str(kind)[:40]!r}; known: {', '.join(_KINDS)}")
    report: Report = from_plain(cls, plain)
    _check_bounds(report)
    return report


def _check_bounds(report: Report) -> None:
    step = getattr(report, "step", 0)
    if not 0 <= step < MAX_STEP:
        raise WireError(f"step {str(step)[:40]} is out of range")
    stage = getattr(report, "stage", None)
    if stage is not None and not 0 <= stage < MAX_STAGE:
        raise WireError(f"stage {str(stage)[:40]} is out of range")
    if (
        isinstance(report, HelloReport)
        and max(len(report.requests), len(report.remedies)) > MAX_NAMES
    ):
        raise WireError(f"more than {MAX_NAMES} names")
    if isinstance(report, ReplicasReport):
        if len(report.ranks) > MAX_MINORITY_RANKS:
            raise WireError(f"{len(report.ranks)} odd ranks; at most {MAX_MINORITY_RANKS}")
        if not all(0 <= rank < MAX_RANK for rank in report.ranks):
            raise WireError("a rank is out of range")
    for name in ("path", "detail", "request", "name", "first_nonfinite_layer"):
        text = getattr(report, name, None)
        limit = {"path": MAX_TEXT, "detail": MAX_DETAIL}.get(name, MAX_NAME)
        if text is not None and len(text) > limit:
            raise WireError(f"{name} of {len(text)} characters; at most {limit}")
