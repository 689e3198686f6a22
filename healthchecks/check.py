"""The contract of a check: its input, what it measures, and how the verdict follows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from healthchecks.levels import Level

Rule = Literal["at least", "at most", "noted"]
# On which side of its peers' values (nodes of the same hardware class) a value should be, or that all should be the same. "": it is
# compared with none.
Better = Literal["", "higher", "lower", "same"]
GpuVendor = Literal["", "amd", "nvidia"]


class Outcome(StrEnum):
    """Three values, for unknown is not healthy."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured value and its limit. `value` is None when it could not be measured.

    A value that is only "noted" has no limit and no part in the verdict.
    """

    name: str
    value: float | None
    unit: str = ""
    rule: Rule = "noted"
    limit: float | None = None
    # Of the limit.
    source: str = ""
    # What was measured: a folder, a file, a clock.
    subject: str = ""
    # Context of the number, such as an error's text.
    note: str = ""
    # What a person does where the node is short of it.
    way_out: str = ""
    # Being short of it keeps no node from serving.
    is_advice: bool = False
    # The supervisor compares it with the values of other nodes of this class.
    better: Better = ""
    # It was not measured, for something else used what is measured; the node may be measured later.
    is_busy: bool = False

    @property
    def outcome(self) -> Outcome | None:
        """Compare value and limit; NaN and infinities are no measurement. None for what is only noted."""
        if self.rule == "noted":
            return None
        if self.limit is None or self.value is None:
            return Outcome.UNKNOWN
        if not (math.isfinite(self.value) and math.isfinite(self.limit)):
            return Outcome.UNKNOWN
        held = self.value >= self.limit if self.rule == "at least" else self.value <= self.limit
        return Outcome.PASS if held else Outcome.FAIL


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of one check. The outcome follows from the evidence; it cannot be set."""

    check: str
    evidence: tuple[Evidence, ...] = ()
    # Why the check did not complete: it hung, died or raised.
    trouble: str = ""
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """FAIL if any measured value is beyond its limit, PASS if all were measured and hold, else UNKNOWN.

        Advice keeps no verdict from PASS of which anything was measured.
        """
        judged = [each for each in self.evidence if each.outcome is not None]
        outcomes = [each.outcome for each in judged if not is_shortage(each)]
        if any(is_shortage(each) and each.outcome is Outcome.FAIL for each in judged):
            outcomes.append(Outcome.PASS)
        if Outcome.FAIL in outcomes:
            return Outcome.FAIL
        if self.trouble or not outcomes or Outcome.UNKNOWN in outcomes:
            return Outcome.UNKNOWN
        return Outcome.PASS

    @property
    def is_busy(self) -> bool:
        """Whether it is UNKNOWN for nothing but that something else used what is measured."""
        unknown = [each for each in self.evidence if each.outcome is Outcome.UNKNOWN]
        is_unknown = self.outcome is Outcome.UNKNOWN and not self.trouble
        return is_unknown and bool(unknown) and all(each.is_busy for each in unknown)

    @property
    def reason(self) -> str:
        """What keeps this verdict from PASS, for an operator; empty for PASS."""
        wanted = self.outcome
        parts = [self.trouble] if self.trouble else []
        parts += [
            _with_way_out(each)
            for each in self.evidence
            if each.outcome in (wanted, Outcome.FAIL) and not is_shortage(each)
        ]
        if wanted is Outcome.UNKNOWN and not parts:
            parts = ["nothing was measured"]
        return "" if wanted is Outcome.PASS else "; ".join(parts)

    @property
    def shortage(self) -> str:
        """What the node is short of although it may serve, each with the way out; empty when it has enough."""
        return "; ".join(_with_way_out(each) for each in self.evidence if is_shortage(each))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Facts about the node that a check needs. Paths are absolute."""

    # Where runs write: state, checkpoints, scratch.
    folders: tuple[str, ...] = ()
    shared_memory: str = "/dev/shm"  # noqa: S108 - only inspected, never written
    kernel_log: str = "/dev/kmsg"
    # Of memory that the pattern test writes and reads.
    pattern_bytes: int = 64 << 20
    # How long clocks are compared.
    clock_seconds: float = 0.5
    # Ranks that the node can hold at once.
    slots: int = 1
    num_gpus: int = 0
    # Whose they are; "": it is not known.
    gpu_vendor: GpuVendor = ""
    # What the node should have; 0: it is not known.
    num_cores: int = 0
    memory_bytes: int = 0
    num_ports: int = 0
    # Folders or files that runs read from, besides `folders`.
    storage: tuple[str, ...] = ()
    # A program of the site's own that ends with 0 on a healthy node; "": there is none.
    site_script: str = ""
    # Where the kernel shows its devices: another folder for a recorded tree.
    sysfs: str = "/sys"
    # The interpreter of the node's runs, which may have torch; "": there is none.
    python: str = ""
    # How thorough a check is to be, and the time it may take: sizes follow from them.
    level: Level = "passive"
    seconds: float = 1.0
    # When it is killed; what it starts itself must end before.
    deadline_seconds: float = 30.0


class Judge:
    """Compares values with named limits: those that the check declares, or the command line overrides."""

    def __init__(self, limits: Mapping[str, Evidence]) -> None:
        self._limits = limits

    def __call__(
        self,
        name: str,
        value: float | None,
        *,
        subject: str = "",
        note: str = "",
        is_busy: bool = False,
    ) -> Evidence:
        """Return `value` as evidence beside the limit `name`. A KeyError is a bug of the check itself."""
        like = self._limits[name]
        return Evidence(
            name=name,
            value=value,
            unit=like.unit,
            rule=like.rule,
            limit=like.limit,
            source=like.source,
            subject=subject,
            note=note,
            way_out=like.way_out,
            is_advice=like.is_advice,
            better=like.better,
            is_busy=is_busy,
        )


def is_shortage(evidence: Evidence) -> bool:
    """Whether a value is beyond a limit that is advice alone, or could not be measured."""
    return evidence.is_advice and evidence.outcome in (Outcome.FAIL, Outcome.UNKNOWN)


def describe(evidence: Evidence) -> str:
    """Format one piece of evidence for an operator: `free_bytes of /data 12 MiB, at least 100 MiB`."""
    name = evidence.name.partition(".")[2] or evidence.name
    subject = f" of {evidence.subject}" if evidence.subject else ""
    value = _amount(evidence.value, evidence.unit)
    limit = ""
    if evidence.limit is not None:
        limit = f", {evidence.rule} {_amount(evidence.limit, evidence.unit)}"
    note = f" ({evidence.note})" if evidence.note else ""
    return f"{name}{subject} {value}{limit}{note}"


def _with_way_out(evidence: Evidence) -> str:
    way_out = f": {evidence.way_out}" if evidence.way_out else ""
    return f"{describe(evidence)}{way_out}"


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "not measured"
    if unit == "bytes" and value >= 1 << 40:
        value, unit = value / (1 << 40), "TiB"
    elif unit == "bytes" and value >= 1 << 20:
        value, unit = value / (1 << 20), "MiB"
    # In six digits a million would be 1e+06.
    digits = ",.0f" if abs(value) >= 1e6 else ",.6g"
    return f"{value:{digits}} {unit}".strip()


def to_plain(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as what json prints. Numbers that are not finite become None: they are no measurement."""
    return {
        "kind": "check",
        "check": verdict.check,
        "outcome": str(verdict.outcome),
        "reason": verdict.reason,
        "shortage": verdict.shortage,
        "seconds": round(verdict.seconds, 3),
        "evidence": [
            {
                "name": each.name,
                "subject": each.subject,
                "value": _finite(each.value),
                "unit": each.unit,
                "rule": each.rule,
                "limit": _finite(each.limit),
                "outcome": None if each.outcome is None else str(each.outcome),
                "source": each.source,
                "note": each.note,
                "way_out": "" if each.outcome is Outcome.PASS else each.way_out,
                "is_advice": each.is_advice,
                "better": each.better,
                "is_busy": each.is_busy,
            }
            for each in verdict.evidence
        ],
        "trouble": verdict.trouble,
        "is_busy": verdict.is_busy,
    }


def from_plain(plain: Any, *, check: str) -> Verdict:
    """Parse what `to_plain` made of `check`; the outcome is computed again. Raises ValueError for anything else."""
    try:
        if plain["check"] != check:
            raise ValueError(f"a verdict on {plain['check']!r} instead of {check!r}")
        evidence = tuple(_evidence(each) for each in plain["evidence"])
        return Verdict(check=check, evidence=evidence, trouble=str(plain["trouble"]))
    except (LookupError, TypeError) as error:
        raise ValueError(f"no verdict: {type(error).__name__} {error}") from error


def _evidence(plain: Any) -> Evidence:
    keys = ("name", "unit", "source", "subject", "note", "way_out")
    texts = {key: str(plain[key]) for key in keys}
    rule: Rule
    match plain["rule"]:
        case "at least" | "at most" | "noted" as rule:
            pass
        case other:
            raise ValueError(f"no rule {other!r}; known: at least, at most, noted")
    better: Better
    match plain["better"]:
        case "" | "higher" | "lower" | "same" as better:
            pass
        case other:
            raise ValueError(f"no side {other!r}; known: higher, lower, same, or none")
    return Evidence(
        rule=rule,
        better=better,
        value=_number(plain["value"]),
        limit=_number(plain["limit"]),
        is_advice=plain["is_advice"] is True,
        is_busy=plain["is_busy"] is True,
        **texts,
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
