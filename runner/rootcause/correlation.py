"""Correlation: many matches of one run become one verdict: its fault, its evidence, and a culprit where one can be named.

The fault of the deepest layer counts (`facts.matches.LAYERS`), and in it the first match: later ones, and those of layers above,
are its echoes. What the run survived is no incident, unless it lasts. Acting on the wrong node costs more than acting on none, so
a culprit is named only when the others do not report the same of themselves.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from runner.facts.causes import Cause, Culprit, Verdict
from runner.facts.faults import FAULTS, ActionClass, fault_kind
from runner.facts.matches import DEEP, ECHOES, LAYERS, Layer, LoggedStep, Match, Role
from runner.rootcause.fingerprints import masked
from runner.rootcause.line_context import in_context

# Confidence in a fault that only this layer names; chosen, in the order of how often such lines were the cause in real logs.
CONFIDENCE: dict[Layer, float] = {
    "device": 0.95,
    "link": 0.9,
    "machine": 0.9,
    "program": 0.85,
    "metrics": 0.8,
    "consequence": 0.6,
    "network": 0.75,
    "collective": 0.6,
    "scheduler": 0.9,
    "launcher": 0.5,
    "other": 0.4,
}
# Times that, when the same layer names other faults too; chosen.
DISPUTED = 0.8
# Lines that a verdict quotes; chosen.
MAX_EVIDENCE = 12
# Lines that a cause quotes; chosen.
MAX_LINES = 6
# Of a sequence number.
MAX_DIGITS = 19
# Collectives that a late rank may lag behind; chosen.
NEAR_SEQUENCES = 8
# Between a line that names a GPU and one about its fault; chosen.
NEAR_LINES = 3
_T = TypeVar("_T")
_PCI_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")


@dataclass(slots=True, kw_only=True)
class _Log:
    """What one file shows besides its matches. Lines count from 1."""

    # 0: it did not.
    ended_well: int = 0
    # The line with the newest step.
    last_step: int = 0
    best: int = -1
    # Lines of launchers about a rank that died.
    deaths: list[int] = field(default_factory=list)


def correlate(matches: Iterable[Match], steps: Iterable[LoggedStep] = ()) -> list[Verdict]:
    """Return the verdicts on a run, none for a healthy one. Matches come in the order of their files."""
    placed = in_context(list(matches))
    logs = _logs(placed, steps)
    counting = [match for match in placed if match.fault and _counts(match, logs)]
    naming = [match for match in counting if match.weight == "primary"]
    if not naming:
        return _guess(placed, logs)
    depth = min(LAYERS.index(match.layer) for match in naming)
    deepest = [match for match in naming if LAYERS.index(match.layer) == depth]
    root = _first(deepest)
    raised = [match for match in naming if match.layer == "other"]
    if raised and root.layer == "launcher" and root.fault == "preemption":
        # The job was ended because of this error.
        deepest, root = raised, _first(raised)
    verdicts = [_verdict(root, _of_fault(naming, root), deepest, placed)]
    sick = [match for match in naming if match.layer == "metrics"]
    # It was sick before it died, or went on.
    if sick and root.layer != "metrics" and not fault_kind(root.fault).outlasts_steps:
        first = _first(sick)
        verdicts.append(_verdict(first, _of_fault(naming, first), sick, sick))
    return verdicts


def relevant_matches(matches: Iterable[Match], steps: Iterable[LoggedStep] = ()) -> list[Match]:
    """Return the matches of some logs that count when judged with others: in context, without noise."""
    placed = in_context(list(matches))
    logs = _logs(placed, steps)
    return [
        replace(match, role="" if match.role in _CONTEXTUAL else match.role)
        for match in placed
        if match.role in _NAMING or (match.fault and _counts(match, logs))
    ]


def _of_fault(naming: Sequence[Match], root: Match) -> list[Match]:
    return [match for match in naming if match.fault == root.fault]


# Roles that mean something beside other lines only, and those that count although they name no fault.
_CONTEXTUAL: tuple[Role, ...] = ("exception", "exception-of-code", "missing-file", "disk-full")
_NAMING: tuple[Role, ...] = ("names-rank", "root-cause", "waited-in-vain", "ended-well")


def _logs(matches: Iterable[Match], steps: Iterable[LoggedStep]) -> dict[str, _Log]:
    logs: dict[str, _Log] = {}
    for match in matches:
        log = logs.setdefault(match.file, _Log())
        if match.role == "ended-well":
            log.ended_well = match.line
        elif match.role in ("death", "root-cause"):
            log.deaths.append(match.line)
    for step in steps:
        log = logs.setdefault(step.file, _Log())
        if step.step > log.best:
            log.best, log.last_step = step.step, step.line
    for log in logs.values():
        if log.last_step > log.ended_well:
            # Only a phase was over.
            log.ended_well = 0
    return logs


def _counts(match: Match, logs: Mapping[str, _Log]) -> bool:
    """Whether a match can have ended the run, or will affect it again."""
    log = logs[match.file]
    if match.layer == "metrics" or (match.is_lasting and match.layer in DEEP):
        return True
    if match.layer in ECHOES and any(other.ended_well for other in logs.values()):
        # Ranks that finished first were missed by the others.
        return False
    if log.ended_well and match.line > log.ended_well:
        return match.layer in DEEP or match.fault == "checkpoint_io"
    over = log.ended_well or log.last_step
    lived_on = match.line < over
    if fault_kind(match.fault).outlasts_steps and not log.ended_well:
        return True
    return not lived_on or any(match.line < died < over for died in log.deaths)


def _first(matches: Sequence[Match]) -> Match:
    """Return the first match: by line within a file (not all lines have a time), by time between files."""
    firsts: dict[str, Match] = {}
    for match in sorted(matches, key=lambda match: (match.line, match.fault == "unknown")):
        firsts.setdefault(match.file, match)
    return min(firsts.values(), key=lambda match: (match.at is None, match.at or 0.0))


# ---- culprit


def _verdict(
    root: Match, same: Sequence[Match], deepest: Sequence[Match], placed: Sequence[Match]
) -> Verdict:
    culprit = _culprit(root, same, placed)
    confidence = CONFIDENCE[root.layer]
    if any(match.fault != root.fault for match in deepest):
        confidence *= DISPUTED
    evidence = _evidence(root, same, placed)
    cause = Cause(
        fault=root.fault,
        scope=root.scope,
        culprit=culprit,
        node=root.node,
        confidence=round(confidence, 2),
        action_class=_action(root, same, culprit),
        lines=_quoted(evidence),
        template=masked(root.text) if root.fault == "unknown" else "",
    )
    return Verdict(cause=cause, evidence=evidence)


def _only(values: Iterable[_T]) -> _T | None:
    """Return the value that all of these are; None if they differ, and for none."""
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else None


def _culprit(root: Match, same: Sequence[Match], placed: Sequence[Match]) -> Culprit | None:
    if root.layer in ("device", "link", "consequence") and (gpu := _gpu(root, placed)):
        return Culprit(kind="gpu", id=gpu)
    if root.fault == "nccl_timeout":
        return _late_rank(placed)
    peer = _only(match.named["peer"] for match in same if "peer" in match.named)
    if root.fault == "nccl_network" and peer is not None:
        return Culprit(kind="node", id=peer)
    if root.scope == "node" and (node := root.named.get("node") or root.named.get("named")):
        return Culprit(kind="node", id=node)
    if root.scope in ("storage", "fabric", "scheduler"):
        return None
    rank = _only_rank_affected(root, same, placed)
    return Culprit(kind="rank", id=str(rank)) if rank is not None else None


def _gpu(root: Match, placed: Sequence[Match]) -> str:
    """Return the GPU named in the root match, or just above it."""
    if gpu := root.named.get("gpu"):
        return gpu
    if address := _PCI_ADDRESS.search(root.text):
        return address[0]
    for match in placed:
        is_near = match.file == root.file and 0 <= root.line - match.line <= NEAR_LINES
        if match.role == "names-gpu" and is_near:
            return match.named.get("gpu", "")
    return ""


def _late_rank(placed: Sequence[Match]) -> Culprit | None:
    """Return the one rank that missed a collective: by name, or because its last one came before."""
    late = [match.named["late"] for match in placed if "late" in match.named]
    if (rank := _only(late)) is not None:
        return Culprit(kind="rank", id=rank)
    reached = {
        match.rank: int(sequence)
        for match in reversed(placed)
        if match.role == "waited-in-vain"
        and match.rank is not None
        and (sequence := match.named.get("sequence", "")).isascii()
        and sequence.isdigit()
        and len(sequence) < MAX_DIGITS
    }
    if late or len(reached) < 2:
        return None
    first = min(reached.values())
    behind = [rank for rank, sequence in reached.items() if sequence == first]
    others = _only(sequence for sequence in reached.values() if sequence != first)
    # Groups of ranks count apart from each other: only one that was just behind all the others is late.
    if len(behind) != 1 or others is None or others - first > NEAR_SEQUENCES:
        return None
    return Culprit(kind="rank", id=str(behind[0]))


def _only_rank_affected(root: Match, same: Sequence[Match], placed: Sequence[Match]) -> int | None:
    """Return the rank that its launcher saw fail first; else the only one affected of several that wrote.

    A fault of the program or its settings affects all ranks: which of them is shown first means nothing.
    """
    if (failed := _failed_first(placed)) is not None:
        return failed
    wrote = dict.fromkeys(match.rank for match in placed if match.rank is not None)
    if root.scope == "user" or len(wrote) < 2:
        return None
    return _only(match.rank for match in same if match.rank is not None)


def _failed_first(placed: Sequence[Match]) -> int | None:
    """Return the rank that a launcher's summary calls the root cause, or the only one that it names."""
    named = [match for match in placed if match.role == "names-rank" and match.rank is not None]
    for root in placed:
        if root.role == "root-cause":
            below = [match for match in named if match.file == root.file and match.line > root.line]
            if below:
                return min(below, key=lambda match: match.line).rank
    return _only(match.rank for match in named)


# ---- evidence


def _evidence(root: Match, same: Sequence[Match], placed: Sequence[Match]) -> tuple[Match, ...]:
    others = [match for match in placed if match.fault and match.fault != root.fault]
    chosen = [root, *(match for match in same if match is not root), *others]
    seen: dict[tuple[str, int], Match] = {}
    for match in chosen:
        seen.setdefault((match.file, match.line), match)
    return tuple(list(seen.values())[:MAX_EVIDENCE])


def _quoted(evidence: Sequence[Match]) -> tuple[str, ...]:
    return tuple(f"{one.file}:{one.line}: {one.text[:300]}" for one in evidence[:MAX_LINES])


def _action(root: Match, same: Sequence[Match], culprit: Culprit | None) -> ActionClass:
    kind, lasts = fault_kind(root.fault), any(match.is_lasting for match in same)
    if kind.action == "swap":
        return "swap" if lasts else "restart"
    is_named = culprit is not None and culprit.kind != "rank"
    return "swap" if kind.swaps_culprit and lasts and is_named else kind.action


def _guess(placed: Sequence[Match], logs: Mapping[str, _Log]) -> list[Verdict]:
    """Judge a log without a fault that shows a traceback whose last line is missing."""
    frames = [
        match
        for match in placed
        if match.role in ("traceback", "frame-of-imports") and _counts(match, logs)
    ]
    if not frames:
        return []
    imports = [match for match in frames if match.role == "frame-of-imports"]
    root = (imports or frames)[0]
    fault = "config_error" if imports else "unknown"
    cause = Cause(
        fault=fault,
        scope=FAULTS[fault].scope,
        culprit=None,
        node=frames[0].node,
        confidence=0.3,
        action_class=FAULTS[fault].action,
        lines=_quoted(frames),
        template="" if imports else masked(root.text),
    )
    return [Verdict(cause=cause, evidence=tuple(frames[:MAX_EVIDENCE]))]
