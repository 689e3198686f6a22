"""Formats: a format string of an emitter becomes the pattern of the lines that it makes.

Literals are escaped, whitespace between words is flexible, conversions become gaps: of digits where the conversion prints a
number, of any text, up to a bound, elsewhere. A gap before the first literal or after the last one is no part of the pattern. A
gap of text ends at the first place where what follows it matches, and no other is tried, which bounds the cost of hostile lines.
"""

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

Style = Literal["printf", "braces", "plain"]
STYLES: tuple[Style, ...] = get_args(Style)

# All chosen. Characters of a gap of text, and parts of a pattern between such gaps: of longer formats the first ones count.
MAX_GAP, MAX_PARTS = 256, 24
# Characters of the literal that is searched for.
MAX_LITERAL = 32
# Characters of a literal that is more than a frequent word.
LEAST_PHRASE = 7
# Letters and digits of a field at the end that another version of an emitter may lack, and of what comes before it; chosen.
MOST_TAIL, LEAST_HEAD = 6, 24
_FIELD_BEGINS = (",", ";", "(", "[")
# Letters and digits of that literal; and of all literals of a row that requires no other word, with its words.
LEAST_LITERAL, LEAST_ALONE, LEAST_WORDS = 3, 11, 2

_PRINTF = re.compile(
    r"%(?:(?P<percent>%)|(?:\d+\$)?(?:\([^)]*\))?(?P<flags>[-+ #0']*)(?P<width>\d+|\*)?"
    r"(?:\.(?:\d+|\*)?)?(?:hh|h|ll|l|q|L|j|z|Z|t(?=[diouxX]))?"
    r"(?P<kind>p(?:[mM][FR]*|[iI](?:4[hnbl]?|6c?|S[pfschnbl]*)|U[bBlL]?|[dD]\d?|V|e\b|[sSB]R?b?\b|[fF]\b|"
    r"h[CDN]?|[rR]a?\b|O[Ff]\w*|x\b|K\b|4cc|g\b|G\w|t[Rr]\w*|a[dp]?\b)?|[diouxXeEfFgGaAcsrvqTtwmnUb]))"
)
_INTEGER, _HEX = r"[-+]?\d{1,40}", r"(?:0x)?[0-9a-f]{1,40}"
_FLOAT = r"[-+]?(?:\d[\d.,]{0,40}(?:e[-+]?\d{1,4})?|\.\d{1,40}|nan|inf)"
_TYPED = {
    **dict.fromkeys("diu", _INTEGER),
    **dict.fromkeys("oxXp", _HEX),
    **dict.fromkeys("eEfFgGaA", _FLOAT),
    "c": r".",
}
# Of a field in braces, behind its colon.
_NUMERIC_FIELD = re.compile(
    r"[<>^=]?[-+ ]?(?P<hash>#?)0?\d*[_,]?(?:\.\d+)?(?P<kind>[dxXbofFeEgG%])"
)
_WORD = re.compile(r"\w+")
_SPACES = re.compile(r"\s+")
_JOINTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]{2,}|\d+")
_NOT_ONE_SPACE = re.compile(r"\s{2,}|[^\S ]")
_TRAILING = " \t.,:;!"


@dataclass(frozen=True, slots=True)
class LinePattern:
    """How lines of a format look. `literal`: its longest literal, `words`: whole words of its literals, both in small letters.

    `num_literal`: letters and digits of all literals; the more, the more specific.
    """

    regex: str
    literal: str
    words: tuple[str, ...]
    num_literal: int
    # Words, and words within identifiers such as cudaErrorIllegalAddress.
    num_words: int

    @property
    def is_specific(self) -> bool:
        """Whether a line that matches needs no other word to show who wrote it."""
        return self.num_literal >= LEAST_ALONE and self.num_words >= LEAST_WORDS

    # The literal is a single word, which may be frequent.
    is_word: bool

    @property
    def is_searchable(self) -> bool:
        """Whether lines can be searched for it at all."""
        letters = sum(character.isalnum() for character in self.literal)
        return letters >= LEAST_LITERAL and bool(self.words)


@dataclass(frozen=True, slots=True)
class _Gap:
    """A conversion. `regex`: of what it prints; "" for any text."""

    regex: str = ""


@dataclass(frozen=True, slots=True)
class _Run:
    """A literal between two gaps. `is_whole_left`: its first word does not go on in the gap before it."""

    text: str
    is_whole_left: bool = True
    is_whole_right: bool = True


_Piece = _Run | _Gap


def line_pattern(text: str, style: Style) -> LinePattern:
    """Return the pattern of a format string; of several lines, that of the line with the most letters."""
    lines = [_trimmed(list(_pieces(line, style))) for line in text.splitlines() or [""]]
    pieces = max(lines, key=_num_letters)
    runs = [piece for piece in pieces if isinstance(piece, _Run)]
    chunks = [chunk for run in runs for chunk in _NOT_ONE_SPACE.split(run.text)]
    literal = max(
        chunks, key=lambda chunk: (not _is_word(chunk), sum(map(str.isalnum, chunk))), default=""
    )
    return LinePattern(
        regex="".join(_regexes(pieces)),
        literal=_cut(literal).lower(),
        words=tuple(dict.fromkeys(word for run in runs for word in _whole_words(run))),
        num_literal=_num_letters(pieces),
        num_words=sum(len(_JOINTS.findall(run.text)) for run in runs),
        is_word=_is_word(literal),
    )


def _pieces(line: str, style: Style) -> Iterator[_Piece]:
    """Yield literals and gaps in turn. Of conversions in a row, one gap of any text: nothing divides what they print."""
    literal, is_first = "", True
    gap: _Gap | None = None
    for piece in _conversions(line, style):
        if isinstance(piece, _Gap):
            if literal:
                yield _Run(literal, is_first, is_whole_right=False)
            literal, gap = "", piece if gap is None else _Gap()
        elif piece:
            if gap is not None:
                yield gap
                gap, is_first = None, False
            literal += piece
    if gap is not None:
        yield gap
    if literal:
        yield _Run(literal, is_first)


def _conversions(line: str, style: Style) -> Iterator[str | _Gap]:
    if style == "printf":
        yield from _of_printf(line)
    elif style == "braces":
        yield from _of_braces(line)
    else:
        yield line


def _of_printf(line: str) -> Iterator[str | _Gap]:
    at = 0
    for found in _PRINTF.finditer(line):
        yield line[at : found.start()]
        at = found.end()
        if found["percent"]:
            yield "%"
        elif " " in found["flags"]:
            # "100% of", or a number with a space for its sign.
            yield _Gap()
        else:
            regex = _TYPED.get(found["kind"], "")
            is_padded = found["width"] is not None and regex
            yield _Gap(rf" {{0,40}}{regex} {{0,40}}" if is_padded else regex)
    yield line[at:]


def _of_braces(line: str) -> Iterator[str | _Gap]:
    at = 0
    while at < len(line):
        if line[at : at + 2] in ("{{", "}}"):
            yield line[at]
            at += 2
        elif line[at] == "{":
            end = _end_of_field(line, at)
            yield _Gap(_of_field(line[at + 1 : end - 1]))
            at = end
        else:
            end = next((to for to in range(at + 1, len(line)) if line[to] in "{}"), len(line))
            yield line[at:end]
            at = end


def _end_of_field(line: str, start: int) -> int:
    """Return the offset behind a field in braces, whose format may hold further fields."""
    depth = 0
    for at in range(start, len(line)):
        depth += {"{": 1, "}": -1}.get(line[at], 0)
        if not depth:
            return at + 1
    return len(line)


def _of_field(field: str) -> str:
    """Return the regex of what a field prints; "" for any text."""
    numeric = _NUMERIC_FIELD.fullmatch(field.rpartition(":")[2]) if ":" in field else None
    if numeric is None:
        return ""
    kind = numeric["kind"]
    regex = _HEX if kind in "xXbo" else _INTEGER if kind == "d" else _FLOAT
    return rf" {{0,40}}{regex} {{0,40}}"


def _trimmed(pieces: list[_Piece]) -> list[_Piece]:
    """Remove gaps and spaces at both ends: a line goes on there as it likes."""
    while pieces and (isinstance(pieces[0], _Gap) or not pieces[0].text.strip()):
        del pieces[0]
    while pieces and (isinstance(pieces[-1], _Gap) or not pieces[-1].text.strip(_TRAILING)):
        del pieces[-1]
    if not pieces:
        return []
    if _ends_with_field(pieces) and _num_letters(pieces[:-1]) >= LEAST_HEAD:
        # As ", err(%d)" behind what a driver of the kernel has always written.
        return _trimmed(pieces[:-1])
    first = pieces[0]
    if isinstance(first, _Run):
        text = first.text.lstrip()
        is_whole = first.is_whole_left or text != first.text
        pieces[0] = _Run(text, is_whole, first.is_whole_right)
    last = pieces[-1]
    if isinstance(last, _Run):
        text = last.text.rstrip(_TRAILING)
        is_whole = last.is_whole_right or text != last.text
        pieces[-1] = _Run(text, last.is_whole_left, is_whole)
    return pieces


def _ends_with_field(pieces: Sequence[_Piece]) -> bool:
    last = pieces[-1]
    text = last.text.lstrip(") ]") if isinstance(last, _Run) else ""
    is_field = not text or text.startswith(_FIELD_BEGINS)
    return is_field and _num_letters(pieces[-1:]) <= MOST_TAIL


def _regexes(pieces: Sequence[_Piece]) -> Iterator[str]:
    """Yield the regular expressions of the parts between gaps of text, each with the gap before it."""
    num_parts, part = 0, ""
    for piece in pieces:
        if piece != _Gap():
            part += piece.regex if isinstance(piece, _Gap) else _escaped(piece)
            continue
        yield _after_gap(part) if num_parts else part
        num_parts, part = num_parts + 1, ""
        if num_parts == MAX_PARTS:
            return
    yield _after_gap(part) if num_parts else part


def _after_gap(part: str) -> str:
    return rf"(?>.{{0,{MAX_GAP}}}?{part})"


def _escaped(run: _Run) -> str:
    """Return the regular expression of a literal, whose words end where they end in the format."""
    text = r"\s{1,200}".join(re.escape(word) for word in _SPACES.split(run.text))
    before = r"(?<!\w)" if run.is_whole_left and _WORD.match(run.text[:1]) else ""
    after = r"(?!\w)" if run.is_whole_right and _WORD.match(run.text[-1:]) else ""
    return before + text + after


def _whole_words(run: _Run) -> Iterator[str]:
    for found in _WORD.finditer(run.text):
        is_cut_left = found.start() == 0 and not run.is_whole_left
        is_cut_right = found.end() == len(run.text) and not run.is_whole_right
        if not is_cut_left and not is_cut_right:
            yield found[0].lower()


def _cut(literal: str) -> str:
    """Cut a literal to what is searched for; of a line across the page, what comes after it."""
    text = literal.strip()
    return (text if len(text) <= MAX_LITERAL else text.lstrip(string.punctuation + " "))[
        :MAX_LITERAL
    ].strip()


def _is_word(text: str) -> bool:
    """Whether a text is not more than one word; an identifier of several words is."""
    return len(text.strip()) < LEAST_PHRASE or len(_JOINTS.findall(text)) < LEAST_WORDS


def _num_letters(pieces: Sequence[_Piece]) -> int:
    return sum(sum(map(str.isalnum, piece.text)) for piece in pieces if isinstance(piece, _Run))
