"""Texts of expressions: what a string expression of Python evaluates to, with a `{}` for each part that varies."""

import ast
import re
import string
from collections.abc import Iterator, Mapping

# Alternatives of one expression that are followed (`a if c else b`, names assigned twice); chosen.
MAX_ALTERNATIVES = 4
# Names that refer to names; chosen.
MAX_DEPTH = 4
FIELD = "{}"
_CONVERSION = re.compile(
    r"%(?:(?P<percent>%)|(?:\(\w+\))?[#0 +-]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?[diouxXeEfFgGcrsa])"
)
_FIELDS = re.compile(r"\{\}(?:\s*\{\})+")
# Methods that leave the words of a text as they are.
_TRANSPARENT = ("strip", "lstrip", "rstrip", "lower", "capitalize", "replace", "encode")

# The values that a name may have where a message is written.
Names = Mapping[str, tuple[ast.expr, ...]]


def texts(node: ast.expr, names: Names, depth: int = 0) -> list[str]:
    """Return what an expression may evaluate to; `{}` alone where nothing of it is constant."""
    found = list(dict.fromkeys(_FIELDS.sub(FIELD, text) for text in _texts(node, names, depth)))
    return found[:MAX_ALTERNATIVES] or [FIELD]


def percent_fields(text: str) -> str:
    """Return a literal text with `%` conversions as one with braces; its own braces are escaped."""
    return _CONVERSION.sub(lambda found: "%" if found["percent"] else FIELD, escaped(text))


def escaped(text: str) -> str:
    """Return a literal text as it stands in a format with braces."""
    return text.replace("{", "{{").replace("}", "}}")


def literal(text: str) -> str:
    """Return a format's constant words, with a blank for each field."""
    return text.replace("{{", "(").replace("}}", ")").replace(FIELD, " ")


def _texts(node: ast.expr, names: Names, depth: int) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(value)):
            yield escaped(value)
        case ast.JoinedStr(values=values):
            yield "".join(_part(value) for value in values)
        case ast.Name(id=name) if name in names and depth < MAX_DEPTH:
            for assigned in names[name][-MAX_ALTERNATIVES:]:
                yield from texts(assigned, names, depth + 1)
        case ast.IfExp(body=body, orelse=other):
            yield from texts(body, names, depth)
            yield from texts(other, names, depth)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            for first in texts(left, names, depth):
                for last in texts(right, names, depth):
                    yield first + last
        case ast.BinOp(left=left, op=ast.Mod()):
            yield from (_with_fields(text) for text in texts(left, names, depth))
        case ast.Call():
            yield from _of_call(node, names, depth)
        case _:
            yield FIELD


def _part(node: ast.expr) -> str:
    """Return a part of an f-string."""
    if isinstance(node, ast.Constant):
        return escaped(str(node.value))
    match node:
        case ast.FormattedValue(value=ast.Constant(value=str(value))):
            return escaped(value)
        case _:
            return FIELD


def _with_fields(text: str) -> str:
    """Return a text that `%` fills: `text` is a format with braces already."""
    return _CONVERSION.sub(lambda found: "%" if found["percent"] else FIELD, text)


def _of_call(node: ast.Call, names: Names, depth: int) -> Iterator[str]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    called = name or (node.func.id if isinstance(node.func, ast.Name) else "")
    if isinstance(node.func, ast.Attribute) and name == "format":
        for text in texts(node.func.value, names, depth):
            yield _formatted(text)
    elif isinstance(node.func, ast.Attribute) and name in _TRANSPARENT:
        yield from texts(node.func.value, names, depth)
    elif called in ("dedent", "cleandoc", "str", "fill", "_") and node.args:
        yield from texts(node.args[0], names, depth)
    elif isinstance(node.func, ast.Name) and called in names and depth < MAX_DEPTH:
        for value in names[called][-MAX_ALTERNATIVES:]:
            yield from texts(value, names, depth + 1)
    else:
        yield FIELD


def _formatted(text: str) -> str:
    """Return a text that `.format` fills, escaped as a literal by then, with its fields as `{}`."""
    raw = text.replace("{{", "{").replace("}}", "}")
    try:
        parts = list(string.Formatter().parse(raw))
    except ValueError:
        return text
    return "".join(escaped(words) + ("" if name is None else FIELD) for words, name, _, _ in parts)
