"""Rows of catalogues as their emitters print them: conversions filled in with plausible values, drawn by a seed."""

import random
import re
from collections.abc import Callable

_PRINTF = re.compile(
    r"%(?:%|(?:\d+\$)?(?:\([^)]*\))?[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh|h|ll|l|q|L|j|z|Z|t(?=[diouxX]))?"
    r"(?:p(?:[mM][FR]*|[iI](?:4[hnbl]?|6c?|S[pfsc]*)|U[bBlL]?|[dD]\d?|V|e\b|[sSB]R?\b|[fF]\b|h[CDN]?|O[Ff]\w*|"
    r"[rR]a?\b|x\b|K\b|4cc|g\b|G\w|t[Rr]\w*|a[dp]?\b)?|[a-zA-Z]))"
)
_WORDS = ("mlx5_0", "10.0.3.7", "shard-0012", "/data/run7/part 3", "worker", "0000:3b:00.0", "x")


def _text(dice: random.Random) -> str:
    return dice.choice(_WORDS)


def _integer(dice: random.Random) -> str:
    return str(dice.choice((3, 17, 110, 4096, 1 << 33)))


def _hex(dice: random.Random) -> str:
    return f"{dice.randrange(1, 1 << 32):x}"


def _float(dice: random.Random) -> str:
    return f"{dice.uniform(0, 100):.3f}"


_OF_KIND: dict[str, Callable[[random.Random], str]] = {
    **dict.fromkeys("diu", _integer),
    **dict.fromkeys("oxX", _hex),
    **dict.fromkeys("eEfFgGaA", _float),
    "c": lambda dice: dice.choice("abz"),
    "p": lambda dice: "0x" + _hex(dice),
}


def rendered(text: str, style: str, dice: random.Random) -> str:
    """Return a line that an emitter with this format string could print."""
    if style == "printf":
        return _PRINTF.sub(lambda found: _conversion(found[0], dice), text)
    return _braces(text, dice) if style == "braces" else text


def _conversion(text: str, dice: random.Random) -> str:
    if text == "%%":
        return "%"
    kernel = re.search(r"p([A-Za-z]\w*)$", text)
    if kernel is not None:
        by_kind = {"M": "b8:3f:d2:01:0a:0c", "I": "10.0.3.7", "i": "10.0.3.7", "e": "-ENODEV"}
        return by_kind.get(kernel[1][0], "nvme0n1")
    return _OF_KIND.get(text[-1], _text)(dice)


def _braces(text: str, dice: random.Random) -> str:
    filled, at = "", 0
    while at < len(text):
        if text[at : at + 2] in ("{{", "}}"):
            filled, at = filled + text[at], at + 2
            continue
        if text[at] != "{":
            filled, at = filled + text[at], at + 1
            continue
        depth, end = 1, at + 1
        while depth and end < len(text):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        field = text[at + 1 : end - 1]
        kind = field[-1] if re.search(r":[^:{}'\"]*[dxXfeEgG]$", field) else "s"
        filled, at = filled + _OF_KIND.get(kind, _text)(dice), end
    return filled
