"""Sources as tokens: text without comments, the arguments of a call, and what literals say."""

import re

_STRING = r'"(?:\\.|[^"\\\n])*"'
_RAW = r"`[^`]*`"
_CHARACTER = r"'(?:\\[^'\n]{1,4}|[^'\\\n])'"
_COMMENTS = re.compile(rf"/\*.*?\*/|//[^\n]*|{_STRING}|{_CHARACTER}", re.DOTALL)
# A name and its opening parenthesis; literals are matched first, so that no name in a text counts.
CALLS = re.compile(rf"{_STRING}|{_CHARACTER}|\b(?P<name>[A-Za-z_][\w.]*)\s*\(")
_BRACKETS = re.compile(rf"{_STRING}|{_RAW}|{_CHARACTER}|[()\[\]{{}},;]")
_TOKENS = re.compile(rf"{_STRING}|{_RAW}|{_CHARACTER}|[A-Za-z_]\w*|\S")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "f": "", "v": "", "0": ""}
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|u[0-9A-Fa-f]{4}|.)", re.DOTALL)
# Characters of the arguments of one call; chosen. What is longer is no call that logs.
_MAX_ARGUMENTS = 20_000


def without_comments(text: str) -> str:
    """Return the text with each comment replaced by a space, and with continued lines joined."""
    text = text.replace("\\\r\n", " ").replace("\\\n", " ")
    return _COMMENTS.sub(lambda one: " " if one[0].startswith("/") else one[0], text)


def arguments(text: str, start: int) -> list[str]:
    """Return the arguments of the call whose opening parenthesis ends at `start`; [] where it never closes."""
    found: list[str] = []
    depth, begin = 0, start
    for one in _BRACKETS.finditer(text, start, start + _MAX_ARGUMENTS):
        token = one[0]
        if token in "([{":
            depth += 1
        elif token in ")]}" and depth:
            depth -= 1
        elif token == ")":
            found.append(text[begin : one.start()].strip())
            return found
        elif token == "," and not depth:
            found.append(text[begin : one.start()].strip())
            begin = one.end()
        elif token == ";" and not depth:
            return []
    return []


def tokens(text: str) -> list[str]:
    """Return the literals, names and single other characters of an expression."""
    return _TOKENS.findall(text)


def is_literal(token: str) -> bool:
    """Whether a token is a text in quotes."""
    return token[0] in '"`' and len(token) > 1


def literal_text(token: str) -> str:
    """Return what a literal stands for, escapes resolved."""
    if token[0] == "`":
        return token[1:-1]
    return _ESCAPE.sub(_unescaped, token[1:-1])


def _unescaped(one: re.Match[str]) -> str:
    code = one[1]
    if code[0] in "xu":
        return chr(int(code[1:], 16)) if int(code[1:], 16) >= ord(" ") else ""
    if code.isdigit() and len(code) > 1:
        return chr(int(code, 8)) if int(code, 8) >= ord(" ") else ""
    return _ESCAPES.get(code, code)
