"""How a log ends: after its last progress come an exit, errors, waiting, or nothing. Pure; `collect.log_ends` reads the lines.

A log that ends sick is never nothing: its best line is at least an unknown fault. One that stops in the middle of healthy steps,
or ends well, is no incident.
"""

import re

from msgspec.structs import replace

from runner.facts.matches import LoggedStep, Match
from runner.facts.wire import Value
from runner.rootcause.families import family_of
from runner.rootcause.statements import statement_of, with_statement
from runner.rootcause.tracebacks.messages import unclassed

# Lines of one kind that show a hang, with times that span so long; without times, so many; all chosen.
MIN_WAITING, MIN_WAITED_SECONDS, MIN_UNTIMED = 3, 600.0, 5
# Lines of one kind in which one rank waits for its peers before any step: of emitters that write one only after it has waited for
# a while, and of any other; both chosen.
MIN_UNMET, MIN_UNMET_OF_ANY = 2, 3
# Of the end of a log, in which a single error counts where no progress came before it; chosen.
LAST_LINES = 3
# Without progress while other lines go on, in seconds and in longest gaps between two progresses before; chosen.
MIN_SILENT_SECONDS, MIN_SILENT_RATIO = 1800.0, 20.0
# How a match of a statement in plain words is called.
PLAIN_STATEMENT = "plain-statement"
# Families of the kernel: its catalogues have the lines that are errors, so that the others are none.
_CATALOGUED = (
    *("gpu-driver", "storage-device-gone", "kernel-file-systems", "kernel-hardware"),
    *("block-devices", "network-cards"),
)
# An exception with its message, behind what a program puts before it.
RAISED = re.compile(r"[:\])>] ?(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception): \S")
# A line of a start waits for one of these; a line that waits for the end of something is none.
_PEERS = re.compile(
    r"(?i)\bwait\w* (?:for|on|until)\b.{0,60}\b(?:nodes?|workers?|ranks?|peers?|hosts?|pods?|members?|participants?|replicas?"
    r"|servers?|engines?|master|chief|coordinator|rendezvous|placement groups?)\b"
)
_OF_AN_END = re.compile(
    r"(?i)\b(?:finish|exit|complet|clos|stop|shut|terminat|clean|sav|upload|download|dr?ain|writ|read(?:s|ing)?\b|batch)"
)
# How many came, of how many, as those that wait say it.
_JOINED = (
    re.compile(
        r"world_size=(?P<all>\d{1,7}), (?:worker_count|num_workers_joined)=(?P<here>\d{1,7})"
    ),
    re.compile(
        r"(?i)\b(?P<here>\d{1,7}) ?(?:/|of|out of) ?(?P<all>\d{1,7}) (?:\w+ ){0,2}"
        r"(?:joined|connected|registered|ready|arrived|here)\b"
    ),
)
_MISSING = re.compile(r"(?i)\bmissing ranks?:? *(?P<ranks>\d[\d, ]{0,80})")
# From conventions of shells and launchers: 128 + the signal.
SIGNAL_BASE = 128


class EndLine(Value):
    """One line near the end of a log. `line` counts from 1; `at`: its own time, Unix seconds.

    `num_after`: lines after it, without those of stacks and empty ones.
    """

    line: int
    text: str
    num_after: int = 0
    at: float | None = None
    rank: int | None = None
    node: str = ""


class LogEnding(Value):
    """What the end of one log shows. Errors, exits and waiting are those after the last progress.

    `num_after_errors`: lines after the last error, counted as those of a line are. `is_complete`: the last progress reached
    its total. `ended_well`: the last line that says so. `exit_code` and `signal` are those
    of `exit`, where it names them. `failures`: the last lines that read like failures and have no level; `statement`: the first
    that states a fault in plain words. `num_waiting`
    lines of one kind waited `waited_seconds` (None: they have no times), the last of them `last_waiting`. `meeting`: the last of
    `num_meeting` lines in which one rank waits for its peers at a start. `has_steps`: whether any step was read.
    `silent_seconds`: from the last progress to the last line, and `usual_seconds` between two progresses before it, where lines
    have times.
    """

    file: str
    num_lines: int
    progress: EndLine | None = None
    is_complete: bool = False
    ended_well: EndLine | None = None
    exit: EndLine | None = None
    exit_code: int | None = None
    signal: int | None = None
    first_error: EndLine | None = None
    num_errors: int = 0
    num_after_errors: int = 0
    failures: tuple[EndLine, ...] = ()
    failed_call: EndLine | None = None
    statement: EndLine | None = None
    waiting: EndLine | None = None
    last_waiting: EndLine | None = None
    num_waiting: int = 0
    meeting: EndLine | None = None
    num_meeting: int = 0
    has_steps: bool = False
    waited_seconds: float | None = None
    silent_seconds: float | None = None
    usual_seconds: float | None = None
    last: EndLine | None = None
    stacks: EndLine | None = None


def is_sick(end: LogEnding) -> bool:
    """Whether a log ends with an exit by an error, a signal, or errors that no progress follows."""
    if end.exit is not None and end.exit_code != 0:
        return True
    well = end.ended_well
    if end.first_error is None or (well is not None and well.line > end.first_error.line):
        return False
    if end.progress is not None:
        return not end.is_complete
    return end.num_after_errors < LAST_LINES


def unmet(end: LogEnding) -> EndLine | None:
    """Return the last line in which a rank waits for its peers, of a log that ends so before any step; None: it does not."""
    if end.has_steps or end.exit is not None or end.ended_well is not None:
        return None
    if end.meeting is not None and end.num_meeting >= MIN_UNMET and _is_last(end.meeting):
        return end.meeting
    last = end.last_waiting
    if last is None or end.num_waiting < MIN_UNMET_OF_ANY or not _is_last(last):
        return None
    return last if _PEERS.search(last.text) and not _OF_AN_END.search(last.text) else None


def is_hung(end: LogEnding) -> bool:
    """Whether a log ends with lines that wait, or with stacks that were dumped of what waits."""
    if end.exit is not None or end.ended_well is not None or end.is_complete:
        return False
    if end.stacks is not None and end.first_error is None:
        return True
    if _is_silent(end):
        return True
    if end.waiting is None:
        return False
    if end.waited_seconds is None:
        return end.num_waiting >= MIN_UNTIMED
    return end.num_waiting >= MIN_WAITING and end.waited_seconds >= MIN_WAITED_SECONDS


def _is_silent(end: LogEnding) -> bool:
    """Whether other lines went on for far longer than two progresses were apart."""
    if end.silent_seconds is None or end.usual_seconds is None or end.first_error is not None:
        return False
    return end.silent_seconds >= max(MIN_SILENT_SECONDS, MIN_SILENT_RATIO * end.usual_seconds)


def match_of_end(end: LogEnding) -> Match | None:
    """Return how a log ends as a match with its best line; None: it ends well, or simply stops."""
    if is_sick(end):
        # The first error after the last progress tells more than the exit.
        best = end.first_error or _known_failure(end) or end.exit
        return _match(end, "log-ends-sick", "unknown", best) if best is not None else None
    if (stated := _match_of_statement(end)) is not None:
        return stated
    if (failure := _failure(end)) is not None:
        return _match(end, "log-ends-sick", "unknown", failure)
    if (unmet_line := unmet(end)) is not None:
        missing = _missing(unmet_line.text)
        text = f"{missing}: {unmet_line.text}" if missing else unmet_line.text
        found = _match(end, "log-ends-waiting", "rendezvous", unmet_line)
        return replace(found, text=text, layer="network", scope="fabric")
    if is_hung(end):
        best = end.stacks or end.waiting or end.progress
        return _match(end, "log-ends-waiting", "hang_no_error", best) if best is not None else None
    return None


def match_of_last_step(step: LoggedStep) -> Match:
    """Return the last step that a run was to make as a match that shows how to read the lines after it."""
    return Match(
        signature="last-step",
        fault="",
        layer="other",
        scope="rank",
        weight="supporting",
        role="reached-end",
        file=step.file,
        line=step.line,
        text=f"step {step.step} is the last one",
    )


def match_of_failure(end: LogEnding) -> Match | None:
    """Return a line of the end whose family names a fault, though its emitter wrote no level; None: there is none."""
    if (stated := _match_of_statement(end)) is not None:
        return stated
    failure = _known_failure(end)
    return _match(end, "log-ends-sick", "unknown", failure) if failure is not None else None


def _known_failure(end: LogEnding) -> EndLine | None:
    """Return the line of `_failure` whose family names a fault, or that is an exception's; None: there is none."""
    failure = _failure(end)
    if failure is None:
        return None
    family = family_of(failure.text)
    is_known = (
        (family is not None and family.fault != "unknown")
        or RAISED.search(failure.text)
        or unclassed(failure.text) is not None
    )
    return failure if is_known else None


def match_of_cut(end: LogEnding) -> Match | None:
    """Return the last line of a log that ends within a traceback; None where it ended well before."""
    if end.last is None or end.ended_well is not None:
        return None
    return _match(end, "log-ends-in-a-traceback", "unknown", end.last)


def _match_of_statement(end: LogEnding) -> Match | None:
    """Return what a line of the end states in plain words; None: no line does, or the log ends well below it."""
    line = end.statement
    statement = statement_of(line.text) if line is not None else None
    if line is None or statement is None or end.is_complete or end.ended_well is not None:
        return None
    found = _match(end, PLAIN_STATEMENT, "unknown", line)
    return with_statement(found, statement)


def _failure(end: LogEnding) -> EndLine | None:
    """Return a line of the end that reads like a failure though it has no level; a family must know what it is about."""
    if end.is_complete or end.ended_well is not None:
        return None
    called = end.failed_call
    if called is not None and (end.progress is not None or _is_last(called)):
        return called
    for line in end.failures:
        if not _is_last(line):
            continue
        if RAISED.search(line.text) or unclassed(line.text) is not None:
            return line
        family = family_of(line.text)
        if family is not None and family.fault != "unknown" and family.name not in _CATALOGUED:
            return line
    return None


def _missing(text: str) -> str:
    """Return who or how many a line waits for, in words; empty where it does not say."""
    named = _MISSING.search(text)
    if named is not None:
        return f"missing ranks {named['ranks'].strip(' ,')}"
    for pattern in _JOINED:
        found = pattern.search(text)
        if found is not None and int(found["all"]) > int(found["here"]):
            return f"{int(found['all']) - int(found['here'])} of {found['all']} missing"
    return ""


def _is_last(line: EndLine) -> bool:
    return line.num_after < LAST_LINES


def _match(end: LogEnding, name: str, fault: str, best: EndLine) -> Match:
    numbers = {"exit_code": end.exit_code, "signal": end.signal}
    return Match(
        signature=name,
        fault=fault,
        layer="other",
        scope="rank",
        known_by="family",
        file=end.file,
        line=best.line,
        text=best.text,
        rank=best.rank,
        node=best.node,
        at=best.at,
        named={key: str(value) for key, value in numbers.items() if value is not None},
    )
