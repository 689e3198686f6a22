"""Table: all rows of all catalogues in one block of bytes, to be written once and mapped into memory by every reader.

Its parts: a header (JSON: emitters, defects, sizes of the parts), the prefixes of literals compiled for an engine, what follows
each in a literal, the rows, and an index: hashes of words, and the numbers of the rows that are looked up by each. A reader decodes
a row when a line has its word, so the size of the catalogues costs no memory. Each row is looked up by the rarest word that all of
its lines have.
"""

import hashlib
import zlib
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from runner.collect import engines
from runner.collect.catalogues.files import Catalogue, CatalogueHeader, CatalogueRow, Level
from runner.collect.catalogues.formats import LinePattern, Style, line_pattern
from runner.collect.catalogues.literals import LiteralGroup, grouped
from runner.facts.matches import Layer, Scope

MAGIC = b"stoker catalogues 1\n"
# Names of emitters that healthy logs have on many lines.
FREQUENT = ("nccl", "kernel", "torch")
# Letters and digits of a row that makes lines harmless; chosen.
LEAST_HARMLESS = 8
_DIGEST_BYTES = hashlib.sha256().digest_size
_LENGTH_BYTES = 8


class Emitter(msgspec.Struct, frozen=True):
    """A catalogue in a table. `num_skipped`: rows that no line can be searched for, as they have no words of their own."""

    name: str
    version: str
    num_rows: int = 0
    num_skipped: int = 0


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is stored. `literal` and `requires` are in small letters; `specificity`: letters and digits of its literals."""

    emitter: str
    at: str
    format: str
    style: Style
    level: Level
    fault: str
    layer: Layer
    scope: Scope
    literal: str
    specificity: int
    requires: tuple[str, ...] = ()
    is_lasting: bool = False

    @property
    def name(self) -> str:
        """The name of its matches: the same as long as its format is."""
        return f"{self.emitter}:{self.at}:{zlib.crc32(self.format.encode()):08x}"

    @property
    def acts(self) -> bool:
        """Whether lines of it are evidence of a fault."""
        return is_evidence(self.level, self.fault)


def is_evidence(level: Level, fault: str) -> bool:
    """Whether lines of a row with this level and class are evidence of a fault."""
    return level == "error" or (level == "warning" and bool(fault))


class _Parts(msgspec.Struct, frozen=True):
    """The header of a table: sizes in bytes of what follows it, in this order."""

    emitters: tuple[Emitter, ...]
    defects: tuple[str, ...]
    prefixes: int
    groups: int
    group_offsets: int
    rows: int
    offsets: int
    hashes: int
    starts: int
    numbers: int


@dataclass(frozen=True, slots=True)
class _Entry:
    row: Row
    pattern: LinePattern


def pack(catalogues: Iterable[Catalogue]) -> bytes:
    """Return the table of these catalogues. Raises ValueError if the engine cannot search for their literals."""
    catalogues = list(catalogues)
    entries, emitters = list[_Entry](), list[Emitter]()
    for catalogue in catalogues:
        if catalogue.header is None:
            continue
        header, found = catalogue.header, list(_entries(catalogue.header, catalogue.rows))
        entries += found
        num = len(catalogue.rows)
        emitters.append(Emitter(header.emitter, header.version, num, num - len(found)))
    prefixes, groups = grouped(
        (literal for entry in entries for literal in _searched(entry)),
        (entry.row.literal for entry in entries if not entry.row.acts),
    )
    parts = (
        engines.compile_literals([prefix.encode() for prefix in prefixes]),
        *_packed(groups),
        *_packed(entry.row for entry in entries),
        *_index(entries),
    )
    sizes = [len(part) for part in parts]
    defects = tuple(catalogue.defect for catalogue in catalogues if catalogue.defect)
    header_bytes = msgspec.json.encode(_Parts(tuple(emitters), defects, *sizes))
    length = len(header_bytes).to_bytes(_LENGTH_BYTES, "little")
    body = b"".join((length, header_bytes, *parts))
    return MAGIC + hashlib.sha256(body).digest() + body


def is_searched(header: CatalogueHeader, row: CatalogueRow) -> bool:
    """Whether logs are searched for a row: not if it has no words of its own."""
    return next(_entries(header, [row]), None) is not None


def _entries(header: CatalogueHeader, rows: Sequence[CatalogueRow]) -> Iterator[_Entry]:
    for row in rows:
        style = row.style or header.style
        pattern = line_pattern(row.format, style)
        requires = tuple(word.lower() for word in row.requires or header.requires if word)
        acts = is_evidence(row.level, row.fault)
        # A word does not show that a line is harmless.
        is_long = acts or pattern.num_literal >= LEAST_HARMLESS
        is_specific = pattern.is_specific or (is_long and bool(requires))
        has_name = len(requires) == 1 and requires[0] not in FREQUENT
        is_frequent = acts and pattern.is_word and not has_name
        if not pattern.is_searchable or not is_specific or is_frequent:
            continue
        packed = Row(
            emitter=header.emitter,
            at=row.at,
            format=row.format,
            style=style,
            level=row.level,
            fault=row.fault,
            layer=row.layer or header.layer,
            scope=row.scope or header.scope,
            literal=pattern.literal,
            specificity=pattern.num_literal,
            requires=requires,
            is_lasting=row.lasting,
        )
        yield _Entry(packed, pattern)


def _searched(entry: _Entry) -> tuple[str, ...]:
    """Return what a log is searched for to find lines of a row: its literal, or the word that it requires where that is rarer."""
    row = entry.row
    if not row.acts:
        return ()
    # The name of an emitter is rarer than most words.
    is_rarer = len(row.requires) == 1 and len(row.literal) < 2 * len(row.requires[0])
    return row.requires if is_rarer and entry.pattern.is_word else (row.literal,)


def _packed(entries: Iterable[msgspec.Struct]) -> tuple[bytes, bytes]:
    """Return entries one after the other, and the offset of each."""
    encoded = [msgspec.msgpack.encode(entry) for entry in entries]
    offsets, at = array("I", [0]), 0
    for one in encoded:
        at += len(one)
        offsets.append(at)
    return b"".join(encoded), offsets.tobytes()


def _index(entries: Sequence[_Entry]) -> tuple[bytes, bytes, bytes]:
    """Return the index: hashes of words in order, where the numbers of each begin, and the numbers of rows."""
    num_rows = Counter(word for entry in entries for word in entry.pattern.words)
    rows_of: defaultdict[int, list[int]] = defaultdict(list)
    for number, entry in enumerate(entries):
        rarest = min(entry.pattern.words, key=lambda word: (num_rows[word], -len(word), word))
        rows_of[word_hash(rarest)].append(number)
    hashes, starts, numbers = array("I"), array("I", [0]), array("I")
    for word in sorted(rows_of):
        hashes.append(word)
        numbers.extend(rows_of[word])
        starts.append(len(numbers))
    return hashes.tobytes(), starts.tobytes(), numbers.tobytes()


def word_hash(word: str) -> int:
    """Return the hash of a word in small letters by which rows are looked up."""
    return zlib.crc32(word.encode(errors="replace"))


def is_whole(data: memoryview) -> bool:
    """Whether data is a table, and as it was written."""
    start = len(MAGIC) + _DIGEST_BYTES
    if len(data) < start + _LENGTH_BYTES or data[: len(MAGIC)] != MAGIC:
        return False
    return hashlib.sha256(data[start:]).digest() == data[len(MAGIC) : start]


class Table:
    """The rows of a table."""

    def __init__(self, data: memoryview, release: Callable[[], None] = lambda: None) -> None:
        """Read the header of a whole table; raises ValueError if it is none.

        `release`: lets go of the memory of a mapped table; what lines ask for is read again.
        """
        self.release = release
        at = len(MAGIC) + _DIGEST_BYTES
        length = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES + length
        try:
            parts = msgspec.json.decode(data[at - length : at], type=_Parts)
        except msgspec.MsgspecError as error:
            raise ValueError(f"this is no table of catalogues: {error}") from error
        self.emitters, self.defects = parts.emitters, parts.defects
        sizes = (parts.prefixes, parts.groups, parts.group_offsets, parts.rows, parts.offsets)
        views = list[memoryview]()
        for size in (*sizes, parts.hashes, parts.starts, parts.numbers):
            views.append(data[at : at + size])
            at += size
        self.prefixes, self._groups, self._rows = views[0], views[1], views[3]
        self._group_offsets, self._offsets, self._hashes, self._starts, self._numbers = (
            view.cast("I") for view in (views[2], *views[4:])
        )
        self._decoder = msgspec.msgpack.Decoder(Row)
        self._group_decoder = msgspec.msgpack.Decoder(LiteralGroup)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def row(self, number: int) -> Row:
        """Return a row."""
        return self._decoder.decode(self._rows[self._offsets[number] : self._offsets[number + 1]])

    def group(self, number: int) -> LiteralGroup:
        """Return the literals with a prefix, by the number of the prefix."""
        first, end = self._group_offsets[number : number + 2]
        return self._group_decoder.decode(self._groups[first:end])

    def index(self) -> Iterator[tuple[int, memoryview]]:
        """Yield the hash of each word, and the numbers of its rows."""
        for at, word in enumerate(self._hashes):
            yield word, self._numbers[self._starts[at] : self._starts[at + 1]]

    def numbers(self, words: Iterable[str]) -> Iterator[int]:
        """Yield the numbers of the rows that are looked up by these words, in small letters."""
        for word in words:
            number = word_hash(word)
            at = bisect_left(self._hashes, number)
            if at < len(self._hashes) and self._hashes[at] == number:
                yield from self._numbers[self._starts[at] : self._starts[at + 1]]
