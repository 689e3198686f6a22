"""Objects: one traceback as it was read, with all exceptions of its chain. Every text and every list is bounded by the reader."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# How an exception goes with the one printed before it: "cause": raised `from` it; "context": while it was handled; "original": it
# is the one that the exception before quotes, of a worker; "member": of the exception group before.
Relation = Literal["", "cause", "context", "original", "member"]
Kind = Literal["python", "cpp", "fatal"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One call, with its line of source where it is shown: `code_at` is the line of the log with it, 0: none."""

    file: str
    line: int
    function: str
    code: str = ""
    code_at: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """One exception: its class with the module, its message, and its frames, the outermost first.

    `line`: of its own text in the log, from 1. `source`: the C++ file that raised it, where its text names one.
    """

    name: str
    message: str
    line: int
    text: str
    frames: tuple[Frame, ...] = ()
    relation: Relation = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traceback:
    """A traceback: its lines in `file`, and the exceptions in the order in which they were printed.

    `owner`: the process or thread that its introduction names. `is_ignored`: the interpreter ignored it. `is_logged`: it was
    logged, and the program went on. `is_torn`: lines of several writers are mixed in it. `is_cut`: its start or its end is
    missing; an exception that was not printed has no name.
    """

    file: str
    first: int
    last: int
    chain: tuple[Raised, ...]
    kind: Kind = "python"
    rank: int | None = None
    node: str = ""
    at: float | None = None
    owner: str = ""
    is_ignored: bool = False
    is_logged: bool = False
    is_torn: bool = False
    is_cut: bool = False


def by_cause(chain: tuple[Raised, ...]) -> list[Raised]:
    """Return the exceptions of a chain, the one that came first in time first."""
    ordered: list[Raised] = []
    # The index of the exception that was printed last, and of the one that the members of a group belong to.
    newest = group = 0
    for one in chain:
        if one.relation == "original" and ordered:
            # The one above it quotes it, and may be quoted itself: an actor's error in that of the task that called it.
            ordered.insert(newest, one)
            group += newest <= group
        elif one.relation == "member" and ordered:
            ordered.insert(group, one)
            newest, group = group, group + 1
        else:
            ordered.append(one)
            newest = group = len(ordered) - 1
    return ordered


def quoting(chain: tuple[Raised, ...]) -> list[Raised]:
    """Return the exceptions of a chain that quote another one, which was printed below them."""
    return [one for one, below in pairwise(chain) if below.relation == "original"]
