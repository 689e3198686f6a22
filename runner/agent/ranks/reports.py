"""What ranks report over their channel, as values. The text is not trusted: what does not fit is malformed, never an error."""

import json
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import field

from runner.errors import WireError
from runner.facts.launch_conditions import MAX_FINGERPRINT
from runner.facts.wire import Value, from_plain

# The contract's limit.
MAX_PACKET_BYTES = 64 * 1024
# JSON readers disagree on larger ones.
MAX_STEP = 2**53
# Chosen, not measured.
MAX_STAGE = 2**16
MAX_RANK = 2**24
MAX_NAMES = 32
MAX_DETAIL = 1000
# Chosen: more outliers are not a matter of ranks.
MAX_MINORITY_RANKS = 64
# Characters of texts; chosen, not measured.
_MAX_CHARACTERS = {
    "path": 4096,
    "detail": MAX_DETAIL,
    "request": 200,
    "name": 200,
    "fingerprint": MAX_FINGERPRINT,
    "first_nonfinite_layer": 200,
}


def _union(known: tuple[str, ...], later: tuple[str, ...]) -> tuple[str, ...]:
    return (*known, *(name for name in later if name not in known))[:MAX_NAMES]


class Report(Value):
    """One line that a rank reports."""


class HelloReport(Report):
    """What a rank understands."""

    requests: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    checks_checkpoints: bool = False
    drills: tuple[str, ...] = ()

    def joined(self, later: "HelloReport") -> "HelloReport":
        """Add what a later hello names: parts of a script learn one after the other what it can do."""
        return HelloReport(
            requests=_union(self.requests, later.requests),
            remedies=_union(self.remedies, later.remedies),
            checks_checkpoints=self.checks_checkpoints or later.checks_checkpoints,
            drills=_union(self.drills, later.drills),
        )


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


class DataReport(Report):
    """What a rank trains on."""

    fingerprint: str


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
    # Of the pipeline.
    stage: int | None = None
    activation_norm: float | None = None
    # Which batch it read: its number in the order without skips.
    data_step: int | None = None


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
    """What must be the same on several ranks, or at two moments, differs. `ranks`: the outliers; empty: not known.

    `suspects`: without a majority, the ranks of which one is wrong. `agreed_step`: after it all still agreed; None: not known.
    """

    step: int
    what: Literal["weight", "master", "moment", "gradient"]
    ranks: tuple[int, ...] = ()
    detail: str = ""
    suspects: tuple[int, ...] = ()
    agreed_step: int | None = None


_KINDS: dict[str, type[Report]] = {
    "hello": HelloReport,
    "phase": PhaseReport,
    "timing": TimingReport,
    "settings": SettingsReport,
    "data": DataReport,
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
    for name, end in (("step", MAX_STEP), ("stage", MAX_STAGE)):
        number = getattr(report, name, None)
        if number is not None and not 0 <= number < end:
            raise WireError(f"{name} {str(number)[:40]} is out of range")
    for name, limit in _MAX_CHARACTERS.items():
        text = getattr(report, name, None)
        if text is not None and len(text) > limit:
            raise WireError(f"{name} of {len(text)} characters; at most {limit}")
    match report:
        case HelloReport(requests=asked, remedies=remedies, drills=drills) if (
            max(len(asked), len(remedies), len(drills)) > MAX_NAMES
        ):
            raise WireError(f"more than {MAX_NAMES} names")
        case ReplicasReport() if len(report.ranks) > MAX_MINORITY_RANKS:
            raise WireError(f"{len(report.ranks)} odd ranks; at most {MAX_MINORITY_RANKS}")
        case ReplicasReport() if not all(0 <= rank < MAX_RANK for rank in report.ranks):
            raise WireError("a rank is out of range")
