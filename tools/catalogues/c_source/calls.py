"""Calls that log: the format strings that a source file can write, with their level."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tools.catalogues.c_source.tokens import (
    CALLS,
    arguments,
    is_literal,
    literal_text,
    tokens,
    without_comments,
)
from tools.catalogues.rows import Level

# Of inttypes.h: the conversion's last letters; its width does not matter.
_CONVERSION = re.compile(r"PRI([diouxX])(?:8|16|32|64|MAX|PTR)$")
_DEFINE = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+("[^\n]*)$', re.MULTILINE)
_GAP = "%s"


@dataclass(frozen=True, slots=True)
class LogCall:
    """One text that a call may write; a call that chooses between two texts is two of them."""

    function: str
    level: Level
    format: str


# From a function's name and its arguments to the level; None: it does not log.
LevelOf = Callable[[str, list[str]], Level | None]


def log_calls(text: str, level_of: LevelOf, macros: Mapping[str, str] = {}) -> Iterator[LogCall]:
    """Yield what the calls in a source file can write. `macros`: names that stand for texts, beside those that it defines."""
    text = without_comments(text)
    known = {**macros, **defined_texts(text, macros)}
    for one in CALLS.finditer(text):
        name = one["name"]
        if not name or level_of(name, []) is None:
            continue
        given = arguments(text, one.end())
        level = level_of(name, given)
        if level is None:
            continue
        for line in _lines(given, known):
            yield LogCall(name, level, line)


def defined_texts(text: str, macros: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the names that a file defines as literals."""
    found: dict[str, str] = {}
    for name, value in _DEFINE.findall(text):
        for one in formats(value, {**macros, **found}):
            found[name] = one
    return found


def formats(expression: str, macros: Mapping[str, str] = {}) -> list[str]:
    """Return the texts that an expression may be: literals joined, known names replaced, both sides of a condition."""
    parts = tokens(expression)
    return _alternatives(parts, macros) if any(map(is_literal, parts)) else []


def _lines(given: list[str], macros: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the first argument that is a text; a macro may take all in parentheses of their own."""
    if len(given) == 1 and given[0].startswith("(") and (inner := arguments(given[0], 1)):
        given = inner
    for argument in given:
        if texts := formats(argument, macros):
            for text in texts:
                yield from (line.strip() for line in text.split("\n") if line.strip())
            return


def _alternatives(parts: list[str], macros: Mapping[str, str]) -> list[str]:
    parts = _without_parentheses(parts)
    if (question := _at_depth_0(parts, "?")) is not None:
        colon = _matching_colon(parts, question)
        if colon is None:
            return []
        sides = parts[question + 1 : colon], parts[colon + 1 :]
        return [one for side in sides for one in _alternatives(side, macros)]
    if not any(map(is_literal, parts)):
        return []
    joined = _joined(parts, macros)
    return [] if joined is None else [joined]


def _joined(parts: list[str], macros: Mapping[str, str]) -> str | None:
    """Return literals and names as one text; None where something else stands among them."""
    text, at = "", 0
    while at < len(parts):
        part = parts[at]
        if is_literal(part):
            text += literal_text(part)
        elif part == "+":
            pass
        elif part == "(" and at and _is_name(parts[at - 1]):
            close = _closing(parts, at)
            inner = _joined(parts[at + 1 : close], macros) if close else None
            if inner is None or close is None:
                return None
            # What a macro was given takes the place of the gap that its name left.
            text = text.removesuffix(_GAP) + inner
            at = close
        elif _is_name(part):
            text += _of_name(part, macros)
        else:
            return None
        at += 1
    return text


def _of_name(name: str, macros: Mapping[str, str]) -> str:
    if name in macros:
        return macros[name]
    if name.startswith("KERN_"):
        return ""
    if one := _CONVERSION.match(name):
        return one[1]
    return _GAP


def _is_name(part: str) -> bool:
    return part[0].isalpha() or part[0] == "_"


def _without_parentheses(parts: list[str]) -> list[str]:
    while parts and parts[0] == "(" and _closing(parts, 0) == len(parts) - 1:
        parts = parts[1:-1]
    return parts


def _closing(parts: list[str], start: int) -> int | None:
    depth = 0
    for at in range(start, len(parts)):
        depth += (parts[at] == "(") - (parts[at] == ")")
        if not depth:
            return at
    return None


def _at_depth_0(parts: list[str], wanted: str) -> int | None:
    depth = 0
    for at, part in enumerate(parts):
        depth += (part in "([") - (part in ")]")
        if part == wanted and not depth:
            return at
    return None


def _matching_colon(parts: list[str], question: int) -> int | None:
    depth = nested = 0
    for at in range(question + 1, len(parts)):
        part = parts[at]
        depth += (part in "([") - (part in ")]")
        if depth:
            continue
        if part == "?":
            nested += 1
        elif part == ":" and nested:
            nested -= 1
        elif part == ":":
            return at
    return None
