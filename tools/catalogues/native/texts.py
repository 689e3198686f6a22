"""Texts that C++ joins of several arguments, of streams or of `+`: each value that is not a literal is a field `{}`."""

import re
from collections.abc import Iterator, Sequence

from tools.catalogues.c_source.tokens import arguments, is_literal, literal_text, tokens

_FIELD = "{}"
_FIELDS = re.compile(r"(?:\{\}){2,}")
# Functions that join their arguments, that format with fields, and that only wrap a literal.
_JOINS = re.compile(
    r"(?:::)?(?:c10::str|c10::detail::torchCheckMsgImpl|MakeString|GLOO_ERROR_MSG)\s*\("
)
_FORMATS = re.compile(r"(?:::)?fmt::format\s*\(")
_WRAPS = re.compile(r"(?:::)?std::(?:string|runtime_error)\s*[({]")
_SPLIT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\[^\'\n]{1,4}|[^\'\\\n])\'|<<|[()\[\]{},+?;]')


def joined(parts: Sequence[str]) -> str:
    """Return the text of what is written one after the other, with braces as `str.format` has them."""
    return _FIELDS.sub(_FIELD, "".join(_text(part.strip()) for part in parts))


def streamed(text: str, start: int) -> str:
    """Return the text of a stream whose first `<<` follows `start`; "" where there is none."""
    statement = text[start : start + 3000]
    parts = split(statement, "<<", stop=";")
    return joined(parts[1:]) if len(parts) > 1 and not parts[0].strip() else ""


def formatted(argument: str) -> str | None:
    """Return a format with fields; None where it is no literal."""
    parts = tokens(argument)
    literals = [literal_text(part) for part in parts if is_literal(part)]
    return "".join(literals) if literals and is_literal(parts[0]) else None


def lines(text: str) -> Iterator[str]:
    """Yield the lines of a text that are not empty."""
    yield from (line.strip() for line in text.split("\n") if line.strip())


def split(text: str, separator: str, *, stop: str = "") -> list[str]:
    """Split an expression at a separator outside of brackets and literals, up to `stop`."""
    found: list[str] = []
    depth = begin = 0
    for one in _SPLIT.finditer(text):
        token = one[0]
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
            if depth < 0:
                return [*found, text[begin : one.start()]]
        elif not depth and token == separator:
            found.append(text[begin : one.start()])
            begin = one.end()
        elif not depth and token == stop:
            return [*found, text[begin : one.start()]]
    return [*found, text[begin:]]


def _text(part: str) -> str:
    if not part:
        return ""
    if all(map(is_literal, tokens(part))):
        text = "".join(literal_text(one) for one in tokens(part))
        return text.replace("{", "{{").replace("}", "}}")
    for separator in ("<<", "+"):
        if len(pieces := split(part, separator)) > 1 and '"' in part:
            return "".join(_text(piece.strip()) for piece in pieces)
    if one := _JOINS.match(part):
        return joined(arguments(part, one.end()))
    if one := _FORMATS.match(part):
        given = arguments(part, one.end())
        return (formatted(given[0]) if given else None) or _FIELD
    if one := _WRAPS.match(part):
        given = arguments(part.replace("{", "(", 1).replace("}", ")"), one.end())
        return joined(given[:1])
    return _FIELD
