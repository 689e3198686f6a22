"""Relevance: which matches of a run's logs can have ended it, or will affect it again. Steps after a line show survival."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from runner.facts.faults import fault_kind
from runner.facts.matches import DEEP, ECHOES, LoggedStep, Match, Role, Weight

# Of a collective whose line names no timeout: torch's default for NCCL (ten minutes) and gloo (thirty), the longer one.
DEFAULT_TIMEOUT_SECONDS = 1800.0
# Between the moment that a timeout counts from and the first sign of what stalled it; chosen.
PRECURSOR_SLACK_SECONDS = 120.0
# After the scheduler's word, or the end of a process of theirs, in which ranks still make steps; chosen.
GRACE_LINES = 40
# How emitters begin a line at level warning, or below: what they report was handled, if steps follow.
_WARNING = re.compile(
    r"(?:\S{1,40} ){0,4}\W?(?:W(?=\d)|WARN(?:ING)?\b|Warning: |\w+Warning: |(?:INFO|DEBUG)\b)"
)
# How launchers and Ray say why a process ended that had nothing left to do.
_SIGTERM = re.compile(
    r"SIGTERM|\bsignal ?: ?15\b|\bsignal 15\b|\bTerminated\b|\bowner has (?:died|exited)\b"
)
# Of one link in one log, so many times down: a cable or a port is bad, whatever its last state. Chosen.
LEAST_FLAPS = 3
# Digits of a timeout; chosen.
MAX_DIGITS = 12


@dataclass(slots=True, kw_only=True)
class LogShape:
    """What one file shows besides its matches. Lines count from 1."""

    # 0: it did not.
    ended_well: int = 0
    # Likewise; nothing above it names a fault.
    reached_end: int = 0
    # The line with the newest step.
    last_step: int = 0
    best: int = -1
    # Lines of launchers about a rank that died.
    deaths: list[int] = field(default_factory=list)
    # Lines of ranks about a process of theirs that died.
    deaths_of_workers: list[int] = field(default_factory=list)


def shapes_of(matches: Sequence[Match], steps: Iterable[LoggedStep]) -> dict[str, LogShape]:
    """Return what each file shows besides matches."""
    logs: dict[str, LogShape] = {}
    for match in matches:
        log = logs.setdefault(match.file, LogShape())
        if match.role == "ended-well":
            log.ended_well = match.line
        elif match.role == "reached-end":
            log.reached_end = match.line
        elif match.role in ("death", "root-cause"):
            log.deaths.append(match.line)
        elif match.role == "death-of-worker":
            log.deaths_of_workers.append(match.line)
    for step in steps:
        log = logs.setdefault(step.file, LogShape())
        if step.step > log.best:
            log.best, log.last_step = step.step, step.line
    for log in logs.values():
        if log.last_step > log.ended_well:
            # Only a phase was over.
            log.ended_well = 0
        if log.last_step > log.reached_end:
            log.reached_end = 0
    for match in matches:
        log = logs[match.file]
        is_of_end = log.last_step < match.line < log.reached_end
        if is_of_end and match.fault and match.weight == "primary":
            # Summaries are written after a failure too.
            log.reached_end = 0
    return logs


def counts(match: Match, logs: Mapping[str, LogShape]) -> bool:
    """Whether a match can have ended the run, or will affect it again."""
    log = logs[match.file]
    if match.layer == "metrics" or (match.is_lasting and match.layer in DEEP):
        return True
    if log.reached_end and match.line > log.reached_end and _is_of_tear_down(match):
        return False
    is_named = match.layer not in ECHOES and match.fault != "unknown"
    is_deadly = (is_named or match.fault == "nccl_timeout") and _died_of(match, log)
    if is_deadly and 0 < log.ended_well < match.line:
        # In its last save, or an exchange with its peers: it was not over yet, and no tear-down waits for a timeout.
        return True
    is_vague = match.known_by == "traceback" and match.fault == "unknown"
    if (match.layer in ECHOES or is_vague) and any(other.ended_well for other in logs.values()):
        # Ranks that finished first were missed by the others.
        return False
    if log.ended_well and match.line > log.ended_well:
        # Numbers of a model whose training has ended are those of its result.
        return match.layer in DEEP or match.fault in ("checkpoint_io", "nan_loss")
    over = log.ended_well or log.last_step
    lived_on = match.line < over
    if match.layer == "scheduler" and match.fault == "preemption" and not log.ended_well:
        # Ranks make steps until the time to end is over.
        lived_on = over - match.line > GRACE_LINES
    died_of_it = (died for died in log.deaths_of_workers if died > over)
    if any(match.line < died <= match.line + GRACE_LINES for died in died_of_it):
        # The rank made steps of what its worker had ready.
        return True
    if fault_kind(match.fault).outlasts_steps and not log.ended_well:
        return not (lived_on and _WARNING.match(match.text))
    return not lived_on or any(match.line < died < over for died in log.deaths)


def _died_of(match: Match, log: LogShape) -> bool:
    """Whether a rank died within a few lines of this one."""
    return any(match.line < died <= match.line + GRACE_LINES for died in log.deaths)


def _is_of_tear_down(match: Match) -> bool:
    """Whether a line only reports that a process got a request to end, as the remaining ones do once the work is over."""
    is_vague = match.fault in ("preemption", "unknown") and match.layer in ECHOES
    return is_vague and _SIGTERM.search(match.text) is not None


def is_recovered(match: Match, logs: Mapping[str, LogShape]) -> bool:
    """Whether a run died of what this line names and makes steps again, in the same file."""
    log = logs[match.file]
    if match.is_lasting and match.layer in DEEP:
        return False
    over = log.ended_well or log.last_step
    return match.line < over and any(match.line <= died < over for died in log.deaths)


def relevant_matches(placed: Sequence[Match], steps: Iterable[LoggedStep]) -> list[Match]:
    """Return the matches of some logs that count when judged with others, without noise. `placed`: in context."""
    logs = shapes_of(placed, steps)
    return [
        replace(match, role="" if match.role in _CONTEXTUAL else match.role)
        for match in placed
        if match.role in _NAMING or (match.fault and counts(match, logs))
    ]


# Roles that mean something beside other lines only, and those that count although they name no fault.
_CONTEXTUAL: tuple[Role, ...] = ("exception", "exception-of-code", "missing-file", "disk-full")
_NAMING: tuple[Role, ...] = (
    "names-rank",
    "root-cause",
    "waited-in-vain",
    "ended-well",
    "reached-end",
    "cleared",
)


# ---- interruptions


def with_precursors(placed: Sequence[Match]) -> list[Match]:
    """Return matches in which an interruption that others ran into names a fault, and one that was over before them does not.

    A link that goes down is no incident by itself: ports that nothing is plugged into do, when a machine starts. It is one where it
    was up before in the same log and stays down, or goes down again and again. And it is the cause of collectives that time out
    after it, up to the length of their timeout later, even if it came back meanwhile: what was on its way was lost.
    """
    stalls = [
        match
        for match in placed
        if match.layer in ("collective", "network") and match.weight == "primary" and match.fault
        if match.role != "interrupted"
    ]
    ends: dict[str, list[tuple[str, int]]] = {}
    num_begun: Counter[tuple[str, str]] = Counter()
    for match in placed:
        if match.role == "cleared":
            ends.setdefault(_subject(match), []).append((match.file, match.line))
        elif match.role == "interrupted" and match.layer == "network":
            num_begun[match.file, _subject(match)] += 1
    flapping = {place: num for place, num in num_begun.items() if num >= LEAST_FLAPS}
    return [
        replace(match, weight=_weight(match, stalls, ends, flapping))
        if match.role == "interrupted"
        else match
        for match in placed
    ]


def _weight(
    match: Match,
    stalls: Sequence[Match],
    ends: Mapping[str, Sequence[tuple[str, int]]],
    flapping: Mapping[tuple[str, str], int],
) -> Weight:
    subject = _subject(match)
    if any(_may_stall(match, stall) for stall in stalls) or (match.file, subject) in flapping:
        return "primary"
    lines = [line for file, line in ends.get(subject, ()) if file == match.file]
    if any(line > match.line for line in lines):
        return "supporting"
    return "primary" if any(line < match.line for line in lines) else match.weight


def _may_stall(match: Match, stall: Match) -> bool:
    """Whether a collective that failed can have waited for what was interrupted."""
    if match.at is not None and stall.at is not None:
        limit = timeout_seconds(stall) + PRECURSOR_SLACK_SECONDS
        return -PRECURSOR_SLACK_SECONDS <= stall.at - match.at <= limit
    return match.file != stall.file or match.line < stall.line


def timeout_seconds(match: Match) -> float:
    """Return how long a collective waited before this line."""
    named = match.named.get("timeout_ms", "")
    if named.isascii() and named.isdigit() and len(named) < MAX_DIGITS:
        return int(named) / 1000
    return DEFAULT_TIMEOUT_SECONDS


def _subject(match: Match) -> str:
    """Return what was interrupted: a port, a server; of lines that name none, their node."""
    named = [match.named[name] for name in _SUBJECTS if name in match.named]
    return f"{match.fault} {named[0] if named else match.node}"


# Names of groups in signatures, by the word of each emitter.
_SUBJECTS = ("subject", "target", "rank_of_server", "port")
