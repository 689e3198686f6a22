"""Single lines: the fault of an exception of which only its own line is in the log, by its class and its message."""

import re
from collections.abc import Iterator

from runner.rootcause.tracebacks.exception_classes import Family
from runner.rootcause.tracebacks.families import family_of
from runner.rootcause.tracebacks.messages import unclassed
from runner.rootcause.tracebacks.objects import Raised
from runner.rootcause.tracebacks.package_subjects import PACKAGES
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
# Of a line: an exception and its message are at its start, and what is said of others is short. Chosen.
_MAX_TEXT, _MAX_RAISED = 4096, 16
_EMPTY = Stack(frames=(), places=(), phase="unknown")
# Their frames, or other lines, show what they are about.
_OPEN: tuple[Family, ...] = ("value", "other", "code", "lookup", "os", "import")
# What reports a run may fail, and the run goes on.
_OF_SERVICES: tuple[Family, ...] = ("connection", "timeout", "peer", "other")
# Clients of object stores, and of the Hub.
_STORES = ("boto3", "botocore", "s3transfer", "s3fs", "gcsfs", "adlfs", "azure", "huggingface_hub")
_OF_STORES = ShownFault("filesystem", "package")
_OF_TRACKING = ShownFault("unknown", "nothing", "other")


def finding_of_line(text: str) -> ShownFault | None:
    """Return the fault of an exception without frames; None where its class and its message do not show one.

    The fault is "unknown" where it reports only that another process failed, or what reports the run.
    """
    for raised in _raised_in(text):
        family = family_of(raised)
        if family in _OF_SERVICES and _is_of_tracking(raised.name):
            return _OF_TRACKING
        if family in _OF_SERVICES[:2] and raised.name.partition(".")[0] in _STORES:
            return _OF_STORES
        is_status = family == "code" and "." in raised.name
        if family in _OPEN and not is_status:
            continue
        finding = finding_of(raised, family, _EMPTY)
        if family == "launcher" or (finding.by == "class" and finding.fault):
            return finding
    return None


def finding_of_message(text: str) -> ShownFault | None:
    """Return the fault of an exception of Python whose class is missing, by its message; None for any other line."""
    raised = unclassed(text)
    return finding_of(raised, family_of(raised), _EMPTY) if raised is not None else None


def _is_of_tracking(name: str) -> bool:
    """Whether a package that reports runs defines a class."""
    return PACKAGES.get(f"{name.partition('.')[0]}/") == "tracking"


def _raised_in(text: str) -> Iterator[Raised]:
    """Yield what may be the exception of a line: behind "Error: ", another may follow."""
    text, position = text[:_MAX_TEXT], 0
    for _ in range(_MAX_RAISED):
        if (found := _RAISED.search(text, position)) is None:
            return
        yield Raised(name=found["name"], message=found["message"], line=0, text=text)
        position = found.end("name")
