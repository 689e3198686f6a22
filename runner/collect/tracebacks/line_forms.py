"""Line forms: what each line of a traceback looks like. Sources: CPython's traceback.py and faulthandler.c, Rich, c10, glibc."""

import re
from typing import NamedTuple

from runner.rootcause.tracebacks.objects import Frame

# Characters that are stored; chosen.
MAX_FILE, MAX_FUNCTION, MAX_CODE = 300, 120, 200

HEADER = "Traceback (most recent call last)"
# "Exception Group Traceback", "Original Traceback" of torch's workers.
_HEADER = re.compile(
    r"(?P<prefix>.*?)(?P<words>\+ Exception Group |Original )?Traceback \(most recent call last\):?"
)
_BOX = re.compile(r"(?P<prefix>.*?)[╭┌+][─━-]+ Traceback \(most recent call last\) [─━-]+[╮┐+]")
BOX_END = re.compile(r"[╰└+][─━-]{8,}[╯┘+]\s*$")
_BOX_SIDE = re.compile(r"^\s*[│|] ?|\s*[│|]\s*$")
_BOX_FRAME = re.compile(r"(?P<file>\S.*?):(?P<line>\d+) in (?P<function>\S.*)$")
_BOX_CODE = re.compile(r"\s*❱ *\d+ (?P<code>.*)")

_FRAME = re.compile(
    r'(?P<margin>\s*)File "(?P<file>[^"]*)", line (?P<line>\d+)(?:,? in\b ?(?P<function>.*))?\s*$'
)
_PREFIXED_FRAME = re.compile(r'(?P<prefix>.{0,160}?) {2}File "[^"]+", line \d+,? in ')
# The names of an exception that Python prints; Ray adds the class of the original.
_RAISED = re.compile(
    r"(?P<name>[A-Za-z_]\w*(?:\.(?:<locals>|\w+))*(?:\([\w.]+\))?)(?P<colon>:(?= |$))? ?(?P<message>.*)$"
)
_KNOWN_NAME = re.compile(
    r"(?:Error|Exception|Exit|Interrupt|Warning|Iteration|Group|Empty|Full|Timeout|TimeoutExpired|Abort|Aborted|Failure|Fault|"
    r"Cancelled|Invalid|Expired)\d?$"
)
_LEVELS = frozenset(
    [
        "TRACE",
        "DEBUG",
        "INFO",
        "NOTICE",
        "WARN",
        "WARNING",
        "ERROR",
        "CRITICAL",
        "FATAL",
        "Error",
        "Exception",
        "Process",
        "Thread",
        "Note",
    ]
)
CHAINED = {
    "The above exception was the direct cause of the following exception": "cause",
    "During handling of the above exception, another exception occurred": "context",
}
# What Ray writes in place of the header of a remote traceback: the task, its process, and for an actor its id and its repr.
RAY_HEADER = re.compile(r"\s*ray::\S.{0,200}? \(pid=\d+, ip=[\w.:]+(?:, .*)?\)?\s*$")
SEPARATOR = re.compile(r"\s*\+-[+-]*-+ (?:\d+|\.\.\.) -+\s*$")
GROUP_END = re.compile(r"\s*\+-{8,}\s*$")
GROUP_MARGIN = re.compile(r"^\s*\| ?")
RAISED_FROM = re.compile(r"Exception raised from .{1,200} at (?P<source>[\w./\-]+):\d+")
CPP_FRAME = re.compile(
    r"\s*frame #\d+: (?P<symbol>.*?)(?: \+ 0x[0-9a-f]+)?(?: \((?:0x[0-9a-f]+ in )?(?P<file>[^()]*)\))?\s*$"
)
# The next traceback is the one that the exception above quotes.
QUOTES = re.compile(
    r"terminated with the following error|Original Traceback|^ray::|\bray::\w|(?:[Rr]emote|[Cc]hild|[Ww]orker|subprocess)\b.*"
    r"(?:traceback|error|exception)[^:]*:\s*$|RayTaskError|Caught \w+ in "
)


class Header(NamedTuple):
    """The first line of a traceback. `prefix`: what is written before it."""

    prefix: str
    is_group: bool = False
    is_box: bool = False
    is_original: bool = False


class RaisedLine(NamedTuple):
    """The line of an exception."""

    name: str
    message: str


def header_of(text: str) -> Header | None:
    """Return the header in a line."""
    if HEADER not in text:
        return None
    box = _BOX.match(text)
    if box is not None:
        return Header(box["prefix"], is_box=True)
    found = _HEADER.match(text)
    if found is None:
        return None
    words = found["words"] or ""
    return Header(found["prefix"], "Group" in words, is_original="Original" in words)


def frame_of(text: str) -> tuple[Frame, int] | None:
    """Return the frame in a line, and how far the line is indented."""
    found = _FRAME.match(text)
    if found is None:
        return None
    frame = Frame(
        found["file"][-MAX_FILE:],
        int(found["line"][:9]),
        (found["function"] or "").strip()[:MAX_FUNCTION],
    )
    return frame, len(found["margin"])


def prefix_of_frame(text: str) -> str:
    """Return what is written before a frame; "" for nothing, or no frame."""
    found = _PREFIXED_FRAME.match(text)
    return found["prefix"] if found is not None else ""


def box_text(text: str) -> str:
    """Return a line of a Rich box without its sides."""
    return _BOX_SIDE.sub("", text)


def box_frame(text: str, above: str) -> Frame | None:
    """Return the frame in a line of a Rich box; a long one begins in the line above it, and is cut anywhere."""
    text = text.strip()
    found = _BOX_FRAME.match(text)
    if text and above.startswith("/") and (found is None or not found["file"].startswith("/")):
        found = _BOX_FRAME.match(above + text) or _BOX_FRAME.match(f"{above} {text}")
    if found is None:
        return None
    function = found["function"].strip()[:MAX_FUNCTION]
    return Frame(found["file"][-MAX_FILE:], int(found["line"][:9]), function)


def box_code(text: str) -> str:
    """Return the line of source that a Rich box points at; "" for any other line."""
    found = _BOX_CODE.match(text)
    # Rich draws lines to show how far a line is indented.
    return found["code"].lstrip("│ ").strip()[:MAX_CODE] if found is not None else ""


def raised_in(text: str, *, is_sure: bool) -> RaisedLine | None:
    """Return the exception in a line. `is_sure`: frames are above it, so that any name may be one."""
    found = _RAISED.match(text)
    if found is None:
        return None
    name = found["name"]
    base = name.rpartition(".")[2].partition("(")[0]
    if name in _LEVELS and name != "Exception":
        return None
    if not found["colon"] and found["message"]:
        return None
    is_known = _KNOWN_NAME.search(base) is not None
    is_dotted = "." in name and bool(found["colon"])
    if not (is_known or is_dotted or (is_sure and name[:1].isupper())):
        return None
    return RaisedLine(name, found["message"])
