"""Statements that write: what a module raises, asserts, logs, warns and prints."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tools.catalogues.python.texts import Names, literal, percent_fields, texts
from tools.catalogues.rows import Level

_LEVELS: Mapping[str, Level] = {
    "error": "error",
    "exception": "error",
    "critical": "error",
    "fatal": "error",
    "warning": "warning",
    "warn": "warning",
    "warning_once": "warning",
    "warn_once": "warning",
    "info": "info",
    "info_once": "info",
    "debug": "debug",
}
_LOGGER = re.compile(r"(?i)(?:^|_)(?:log|logs|logger|logging|console)\d?$")
# Functions of the libraries that write a text, as a rule on one rank; the argument that holds it, and the level.
_WRITERS: Mapping[str, tuple[int, Level]] = {
    "warn": (0, "warning"),
    "warn_with_log": (0, "warning"),
    "rank_zero_warn": (0, "warning"),
    "rank_zero_deprecation": (0, "warning"),
    "rank_zero_info": (0, "info"),
    "rank_zero_debug": (0, "debug"),
    "warn_rank_0": (0, "warning"),
    "print_rank_0": (0, "info"),
    "print_rank_last": (0, "info"),
    "print_with_rank": (0, "info"),
    "log_rank_0": (0, "info"),
    "log_dist": (0, "info"),
    "log_single_rank": (2, "info"),
    "log_on_each_pipeline_stage": (2, "info"),
    "print": (0, "info"),
    "termerror": (0, "error"),
    "termwarn": (0, "warning"),
    "termlog": (0, "info"),
}
# Checks that raise the text that a lambda or a string holds: the argument, and what they raise.
_CHECKS: Mapping[str, tuple[int, str]] = {
    "_check": (1, "RuntimeError"),
    "_check_value": (1, "ValueError"),
    "_check_type": (1, "TypeError"),
    "_check_index": (1, "IndexError"),
    "_check_is_size": (1, "ValueError"),
    "check": (1, "RuntimeError"),
    "exit": (0, "SystemExit"),
}
_SEVERE = re.compile(r"(?i)^\W*(?:\w+\W+)?(?:error|fatal)\b")
_MILD = re.compile(r"(?i)^\W*(?:\w+\W+)?(?:warn|warning)\b")
_EXCEPTION = re.compile(
    r"(?:Error|Exception|Warning|Timeout|Interrupt|Exit|Failure)\w*$|^[A-Z]\w+$"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A text that code writes, by level; `exception` is the class that it raises, "" for a log line."""

    format: str
    level: Level
    exception: str
    line: int


def statements(source: str) -> list[Statement]:
    """Return what a module writes, in its order. Raises SyntaxError."""
    module = ast.parse(source)
    constants = {**_returned(module), **_assigned(module.body)}
    found: list[Statement] = []
    _visit(module, constants, "", found)
    return [one for one in found if literal(one.format).strip()]


def _visit(node: ast.AST, names: Names, owner: str, found: list[Statement]) -> None:
    """Add what `node` and all below it write; `owner` is the class around it."""
    for child in ast.iter_child_nodes(node):
        inner, around = names, owner
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = {**names, **_returned(child), **_assigned(list(_own_statements(child)))}
        elif isinstance(child, ast.ClassDef):
            around = child.name
            found.extend(_of_attributes(child))
        found.extend(_of(child, inner, around))
        _visit(child, inner, around, found)


# Attributes of exceptions that hold their text.
_TEXT_ATTRIBUTES = ("fmt", "msg", "message", "MSG_TEMPLATE")


def _of_attributes(node: ast.ClassDef) -> Iterator[Statement]:
    """Yield the text that an exception's class holds as an attribute, to be filled by `format`."""
    for one in node.body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _TEXT_ATTRIBUTES:
                if node.name.endswith(("Error", "Exception")):
                    call = ast.Call(ast.Attribute(value, "format"), [], [])
                    yield from _all(texts(call, {}), "error", node.name, one.lineno)
            case _:
                pass


def _own_statements(function: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a function in their order, those of functions in it excepted."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _own_statements(child)


def _assigned(body: list[ast.stmt]) -> dict[str, tuple[ast.expr, ...]]:
    """Return the expressions that each name is assigned."""
    values: dict[str, tuple[ast.expr, ...]] = {}
    for one in body:
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = (*values.get(name, ()), value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = (*values.get(name, ()), value)
            case _:
                pass
    return values


def _returned(
    module: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef,
) -> dict[str, tuple[ast.expr, ...]]:
    """Return the expressions that each function in a module or function returns: some build a message."""
    return {
        one.name: tuple(
            inner.value
            for inner in _own_statements(one)
            if isinstance(inner, ast.Return) and inner.value
        )
        for one in module.body
        if isinstance(one, ast.FunctionDef)
    }


def _of(node: ast.AST, names: Names, owner: str) -> Iterator[Statement]:
    match node:
        case ast.Raise(exc=ast.Call(func=func, args=[_, *_] as args)):
            exception = _last_name(func)
            if _EXCEPTION.search(exception):
                text = _first_text(args, names)
                yield from _all(text, "error", exception, node.lineno)
        case ast.Assert(msg=ast.expr() as message):
            yield from _all(texts(message, names), "error", "AssertionError", node.lineno)
        case ast.Call():
            yield from _of_call(node, names, owner)
        case _:
            pass


def _of_call(node: ast.Call, names: Names, owner: str) -> Iterator[Statement]:
    name, args = _last_name(node.func), node.args
    base = node.func.value if isinstance(node.func, ast.Attribute) else None
    if base is not None and name in _LEVELS and _LOGGER.search(_last_name(base)) and args:
        yield from _logged(args, names, _LEVELS[name], node.lineno)
    elif name == "error" and base is not None and _last_name(base).endswith("parser") and args:
        yield from _all(texts(args[0], names), "error", "SystemExit", node.lineno)
    elif name == "__init__" and _EXCEPTION.search(owner) and "super" in ast.unparse(node.func):
        if owner.endswith(("Error", "Exception", "Timeout")):
            yield from _all(_first_text(args, names), "error", owner, node.lineno)
    elif name in _CHECKS and len(args) > _CHECKS[name][0]:
        position, exception = _CHECKS[name]
        given = args[position]
        body = given.body if isinstance(given, ast.Lambda) else given
        yield from _all(texts(body, names), "error", exception, node.lineno)
    elif name in _WRITERS and len(args) > _WRITERS[name][0]:
        yield from _printed(node, names, *_WRITERS[name])


def _logged(args: list[ast.expr], names: Names, level: Level, line: int) -> Iterator[Statement]:
    """Yield a line of a logger; one without arguments is not formatted."""
    first = args[0]
    if len(args) > 1 and isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield from _all([percent_fields(first.value)], level, "", line)
    else:
        yield from _all(texts(first, names), level, "", line)


def _printed(node: ast.Call, names: Names, position: int, level: Level) -> Iterator[Statement]:
    levels = [_last_name(one) for one in (*node.args, *(key.value for key in node.keywords))]
    named = [_LEVELS[one.lower()] for one in levels if one in ("ERROR", "WARNING", "DEBUG")]
    found = texts(node.args[position], names)
    if _last_name(node.func) == "print" and len(node.args) > 1:
        found = [" ".join(texts(one, names)[0] for one in node.args)]
    for text in found:
        written = named[0] if named else level
        if not named and level == "info" and (_SEVERE.match(text) or _MILD.match(text)):
            written = "error" if _SEVERE.match(text) else "warning"
        yield Statement(text, written, "", node.lineno)


def _first_text(args: list[ast.expr], names: Names) -> list[str]:
    """Return the text of the first argument that has one: some classes take a code before it."""
    for one in args[:3]:
        found = [text for text in texts(one, names) if literal(text).strip()]
        if found:
            return found
    return []


def _all(found: list[str], level: Level, exception: str, line: int) -> Iterator[Statement]:
    return (Statement(text, level, exception, line) for text in found)


def _last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
        case ast.Call(func=func):
            return _last_name(func)
        case _:
            return ""
