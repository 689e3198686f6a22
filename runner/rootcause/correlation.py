"""Correlation: many matches of one run become one verdict: its fault, its evidence, and a culprit where one can be named.

Lines of a cause outrank echoes, lines that are known outrank those of which only the family is, and the deepest layer counts
(`facts.matches.LAYERS`); in it the first match: later ones, and those of layers above, are its echoes. What the run survived is
no incident, unless it lasts; what it died of and recovered from is an incident that is over. Acting on the wrong node costs more
than acting on none, so a culprit is named only when the others do not report the same of themselves.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from runner.facts.causes import Cause, Culprit, Verdict
from runner.facts.faults import FAULTS, ActionClass, fault_kind
from runner.facts.matches import ECHOES, LAYERS, LoggedStep, Match
from runner.rootcause.confidence import confidence_in
from runner.rootcause.context.line_context import in_context
from runner.rootcause.culprits import culprit_of
from runner.rootcause.fingerprints import masked
from runner.rootcause.relevance import (
    LogShape,
    counts,
    is_recovered,
    shapes_of,
    with_precursors,
)
from runner.rootcause.relevance import relevant_matches as relevant_of_placed

# From a driver's error to the line by which the GPU is lost; chosen.
LOST_LINES = 20
# In what is over, and of which no line shows that it did harm; chosen, below what explains the end of a run.
OVER_CONFIDENCE = 0.3
# srun's lines about the tasks of a step.
_ASKED_TO_END = re.compile(r"\btasks? [\d,\-]+: Terminated\b")
# How schedulers say that a job used up its time.
_TIME_LIMIT = re.compile(r"(?i)\b(?:time[ -]?limit|wall[ -]?time|run[ -]?limit|TERM_RUNLIMIT)\b")
_CRASHED = re.compile(
    r"\btasks? [\d,\-]+: (?:Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)"
)
# Lines that a verdict quotes; chosen.
MAX_EVIDENCE = 12
# Lines that a cause quotes; chosen.
MAX_LINES = 6


def correlate(matches: Iterable[Match], steps: Iterable[LoggedStep] = ()) -> list[Verdict]:
    """Return the verdicts on a run, none for a healthy one. Matches come in the order of their files."""
    placed = with_precursors(in_context(list(matches)))
    logs = shapes_of(placed, steps)
    counting = [match for match in placed if match.fault and counts(match, logs)]
    naming = [match for match in counting if match.weight == "primary"]
    if not naming:
        return _guess(placed, logs) or _over(placed, logs)
    lasting = [match for match in naming if not is_recovered(match, logs)]
    # What the run died of last counts; if it recovered from all of it, the first of that.
    judged = lasting or naming
    root, deepest = _root(judged)
    verdicts = [_verdict(root, judged, deepest, placed, has_recovered=not lasting)]
    sick = [match for match in judged if match.layer == "metrics"]
    # It was sick before it died, or went on.
    if sick and root.layer != "metrics" and not fault_kind(root.fault).outlasts_steps:
        verdicts.append(_verdict(_first(sick), judged, sick, sick, has_recovered=not lasting))
    return verdicts


def relevant_matches(matches: Iterable[Match], steps: Iterable[LoggedStep] = ()) -> list[Match]:
    """Return the matches of some logs that count when judged with others: in context, without noise."""
    return relevant_of_placed(in_context(list(matches)), steps)


# ---- the root


def _root(naming: Sequence[Match]) -> tuple[Match, Sequence[Match]]:
    """Return the match that names the cause, and those that count as much."""
    least = min(_order(match) for match in naming)
    deepest = [match for match in naming if _order(match) == least]
    root = _first(deepest)
    if (
        root.fault in ("gpu_xid_other", "device_vanished")
        and (lost := _lost_after(root, deepest)) is not None
    ):
        root = lost
    if root.fault == "loss_spike":
        # Most spikes heal; a loss that is no number after one has not.
        spoilt = [match for match in deepest if match.fault == "nan_loss"]
        root = _first(spoilt) if spoilt else root
    raised = [match for match in naming if match.layer == "other"]
    if raised and root.layer == "launcher" and root.fault == "preemption":
        # The job was ended because of this error.
        return _first(raised), raised
    if root.layer == "program" and (taken := _taken_before(root, naming)) is not None:
        # What the ranks had, or where they ran, was gone.
        return taken, [taken]
    if root.fault == "filesystem" and (disk := _broken_disk(root, deepest)) is not None:
        # The file system met what the disk reports of itself.
        return disk, [disk]
    if root.fault == "node_failure" and (taken := _taken_back(root, naming)) is not None:
        # The node is gone because the cloud or the scheduler wanted it, or had none to give.
        return taken, [taken]
    if root.fault == "preemption" and (stalled := _stalled_before(root, naming)) is not None:
        # The time of the job ran out while ranks waited for one of them.
        return stalled, [stalled]
    if root.fault == "preemption" and (died := _died_in(root, naming)) is not None:
        # The launcher ended the other tasks of the step because of this one.
        return died, [died]
    if root.role == "stuck" and (driver := _failed_before(root, naming)) is not None:
        # The driver waits for its device.
        return driver, [driver]
    if root.fault == "rendezvous" and (died := _died_before(root, naming)) is not None:
        # The others waited for a rank that was dead.
        return died, [died]
    return root, deepest


def _order(match: Match) -> tuple[bool, bool, int]:
    """Order matches: causes before echoes; what is known before families, the unknown, and tracebacks of which only the phase is.

    Then the deepest layer first.
    """
    depth = LAYERS.index(match.layer)
    is_by_phase = match.known_by == "traceback" and match.named.get("shown") == "phase"
    is_weak = match.known_by == "family" or match.fault == "unknown" or is_by_phase
    return (match.layer in ECHOES, is_weak, depth)


def _failed_before(root: Match, naming: Sequence[Match]) -> Match | None:
    """Return the device of the same node that failed before its kernel was stuck; None where no line shows one."""
    failed = [
        match
        for match in naming
        if match.scope == "node" and match.layer == "network" and match.known_by != "family"
        if match.node == root.node and _is_before(match, root)
    ]
    return _first(failed) if failed else None


def _lost_after(root: Match, deepest: Sequence[Match]) -> Match | None:
    """Return the line just below an error of a driver, or a card's removal, by which the GPU is lost: it says what that was of."""
    return next(
        (
            match
            for match in deepest
            if match.fault == "gpu_lost" and match.file == root.file
            if 0 < match.line - root.line <= LOST_LINES
        ),
        None,
    )


def _broken_disk(root: Match, deepest: Sequence[Match]) -> Match | None:
    """Return what a disk of the same node reports of itself; None where no line shows that."""
    reports = [
        match for match in deepest if match.role == "broken-disk" and match.node == root.node
    ]
    return _first(reports) if reports else None


def _taken_back(root: Match, naming: Sequence[Match]) -> Match | None:
    """Return the line near a lost node by which it was taken back; None where no line shows that."""
    return next(
        (
            match
            for match in naming
            if match.role == "node-taken-back" and match.file == root.file
            if abs(match.line - root.line) <= LOST_LINES
        ),
        None,
    )


def _died_before(root: Match, naming: Sequence[Match]) -> Match | None:
    """Return what killed a rank before the others gave up meeting it; None where no line shows that."""
    deaths = [
        match
        for match in naming
        if match.layer == "launcher" and match.fault not in ("unknown", "preemption")
        if _is_before(match, root)
    ]
    return _first(deaths) if deaths else None


def _taken_before(root: Match, naming: Sequence[Match]) -> Match | None:
    """Return how a scheduler took the machines before a program failed in the same log; None: no line says it."""
    taken = [
        match
        for match in naming
        if match.layer == "scheduler" and match.fault == "preemption"
        if match.known_by == "signature" and match.file == root.file and match.line < root.line
    ]
    return _first(taken) if taken else None


def _stalled_before(root: Match, naming: Sequence[Match]) -> Match | None:
    """Return the collective that had timed out, with no step after it, before the job's time ran out; None: none had."""
    if not _TIME_LIMIT.search(root.text):
        return None
    stalled = [
        match
        for match in naming
        if match.fault == "nccl_timeout" and match.known_by != "family" and _is_before(match, root)
    ]
    return _first(stalled) if stalled else None


def _died_in(root: Match, naming: Sequence[Match]) -> Match | None:
    """Return the task that died by a signal of its own where a launcher's line says that another one got a request to end."""
    if not _ASKED_TO_END.search(root.text):
        return None
    died = [
        match
        for match in naming
        if match.file == root.file and match.line < root.line and _CRASHED.search(match.text)
    ]
    return _first(died) if died else None


def _is_before(one: Match, other: Match) -> bool:
    if one.at is not None and other.at is not None:
        return one.at < other.at
    return one.file == other.file and one.line < other.line


def _first(matches: Sequence[Match]) -> Match:
    """Return the first match: by line within a file (not all lines have a time), by time between files."""
    firsts: dict[str, Match] = {}
    for match in sorted(matches, key=lambda match: (match.line, match.fault == "unknown")):
        firsts.setdefault(match.file, match)
    return min(firsts.values(), key=lambda match: (match.at is None, match.at or 0.0))


def _verdict(
    root: Match,
    naming: Sequence[Match],
    deepest: Sequence[Match],
    placed: Sequence[Match],
    *,
    has_recovered: bool,
) -> Verdict:
    same = [match for match in naming if match.fault == root.fault]
    culprit = culprit_of(root, same, placed)
    evidence = _evidence(root, same, placed)
    cause = Cause(
        fault=root.fault,
        scope=root.scope,
        culprit=culprit,
        node=root.node,
        confidence=confidence_in(root, deepest),
        action_class=_action(root, same, culprit),
        lines=_quoted(evidence),
        template=masked(root.text) if root.fault == "unknown" else "",
    )
    return Verdict(cause=cause, evidence=evidence, recovered=has_recovered)


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
        if root.known_by == "family" and culprit is None:
            # What is only likely, and nowhere in particular, is no reason to take hardware out.
            return "restart"
        # A GPU may work again after a restart; a node whose hardware failed, or that is gone, is another matter.
        return "swap" if lasts or kind.scope == "node" else "restart"
    is_named = culprit is not None and culprit.kind != "rank"
    return "swap" if kind.swaps_culprit and lasts and is_named else kind.action


def _over(placed: Sequence[Match], logs: Mapping[str, LogShape]) -> list[Verdict]:
    """Judge a log that shows nothing but a file server that was silent and answers again, without steps after it."""
    silent = [
        match
        for match in placed
        if match.role == "interrupted" and match.layer == "machine" and counts(match, logs)
    ]
    if not silent:
        return []
    verdict = _verdict(silent[0], silent, silent, placed, has_recovered=True)
    return [replace(verdict, cause=replace(verdict.cause, confidence=OVER_CONFIDENCE))]


def _guess(placed: Sequence[Match], logs: Mapping[str, LogShape]) -> list[Verdict]:
    """Judge a log without a fault that shows a traceback whose last line is missing."""
    frames = [
        match
        for match in placed
        if match.role in ("traceback", "frame-of-imports") and counts(match, logs)
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
