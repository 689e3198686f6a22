"""Single lines: the fault of an exception of which only its own line is in the log, by its class and its message."""

import re
from collections.abc import Iterator

from runner.rootcause.tracebacks.exception_classes import Family
from runner.rootcause.tracebacks.families import family_of
from runner.rootcause.tracebacks.objects import Raised
from runner.rootcause.tracebacks.rules import ShownFault, finding_of
from runner.rootcause.tracebacks.stacks import Stack

# The class of an exception as Python prints it, at the start of a line or behind what a logger puts there: of a module whose
# name says so, or with a last word that does. Of a set engine: without looking around.
_LAST_WORDS = (
    r"Error|Exception|Failed|Timeout|Refused|Unavailable|Died|Lost|Denied|NotFound|Mismatch|Unsupported|Overflow"
    r"|OutOfResources|Pool|LimitHit|Exceeded|Aborted|Cancelled|Conflict"
)
QUALIFIED_CLASS = (
    r"[A-Za-z_][\w.]*\.(?:_?(?:exceptions?|errors?|exc)|errors_impl)\.[A-Z]\w+"
    rf"|[a-z_][\w.]*\.[A-Z]\w*(?:{_LAST_WORDS})"
    r"|[\w.]*(?:Error|Exception)\([\w.]+\)"
)
_RAISED = re.compile(
    r"(?:^|[\s:\]>)])(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:\([\w.]+\))?): ?(?P<message>.*)",
    re.DOTALL,
)
_EMPTY = Stack(frames=(), places=(), phase="unknown")
# Their frames, or other lines, show what they are about.
_OPEN: tuple[Family, ...] = ("value", "other", "code", "lookup", "os", "import")


def finding_of_line(text: str) -> ShownFault | None:
    """Return the fault of an exception without frames; None where its class and its message do not show one.

    The fault is "unknown" where it reports only that another process failed.
    """
    for raised in _raised_in(text):
        family = family_of(raised)
        is_status = family == "code" and "." in raised.name
        if family in _OPEN and not is_status:
            continue
        finding = finding_of(raised, family, _EMPTY)
        if family == "launcher" or (finding.by == "class" and finding.fault):
            return finding
    return None


def _raised_in(text: str) -> Iterator[Raised]:
    """Yield what may be the exception of a line: behind "Error: ", another may follow."""
    position = 0
    while (found := _RAISED.search(text, position)) is not None:
        yield Raised(name=found["name"], message=found["message"], line=0, text=text)
        position = found.start("message")
