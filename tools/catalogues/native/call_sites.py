"""Calls with what surrounds them: a message is an error where the code after it gives up."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.catalogues.c_source.tokens import CALLS, arguments, without_comments

# Characters after a call that are looked at; chosen: a return is one or two statements away.
_AFTER = 400
_BRACES = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\[^\'\n]{1,4}|[^\'\\\n])\'|[(){}]')
_GIVES_UP = re.compile(
    r"\breturn\s+(?!0\s*;|ncclSuccess|NULL\s*;|nullptr|true\s*;|UCS_OK|FI_SUCCESS|count|ret\s*==)\S"
    r"|\bgoto\s+\w*(?:err|fail|exit|out|clean|close|free|unlock|destroy|release|done|end)\w*"
    r"|\b(?:throw|abort|_?exit|assert|terminate)\b\s*\(?"
    r"|\b(?:ret|rc|res|result|status|err|error)\w*\s*=\s*(?:-\s*[A-Z]|\w*(?:ERR|Error|Invalid)\w*)"
)


@dataclass(frozen=True, slots=True)
class CallSite:
    """One call: its name, its arguments, the rest of its block, and what stands before it on its statement."""

    name: str
    arguments: tuple[str, ...]
    after: str

    @property
    def gives_up(self) -> bool:
        """Whether the code that follows leaves with an error."""
        return _GIVES_UP.search(self.after) is not None


def call_sites(text: str, names: re.Pattern[str]) -> Iterator[CallSite]:
    """Yield the calls in a source file of functions whose whole name the pattern matches."""
    text = without_comments(text)
    for one in CALLS.finditer(text):
        name = one["name"]
        if not name or not names.fullmatch(name) or _is_definition(text, one.start()):
            continue
        given = arguments(text, one.end())
        yield CallSite(name, tuple(given), _rest_of_block(text, _end(text, one.end())))


def _is_definition(text: str, start: int) -> bool:
    line = text.rfind("\n", 0, start) + 1
    return text[line:start].lstrip().startswith("#define") and text[line:start].strip() == "#define"


def _end(text: str, start: int) -> int:
    """Return where the call ends whose opening parenthesis ends at `start`."""
    depth = 1
    for one in _BRACES.finditer(text, start, start + 20_000):
        depth += (one[0] == "(") - (one[0] == ")")
        if not depth:
            return one.end()
    return start


def _rest_of_block(text: str, start: int) -> str:
    depth = 0
    limit = min(len(text), start + _AFTER)
    for one in _BRACES.finditer(text, start, limit):
        depth += (one[0] == "{") - (one[0] == "}")
        if depth < 0:
            return text[start : one.start()]
    return text[start:limit]
