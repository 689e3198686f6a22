"""Scan: bytes of a log in, matches of signatures and step records out. Raw logs go no further than this.

Blocks may have any size; lines cut between two blocks are joined. An engine searches for all patterns at once, and Python reads
only the lines with a hit, so the cost depends on the bytes and not on the size of the tables.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from runner.collect.catalogues.catalogues import Catalogues, all_catalogues
from runner.collect.catalogues.line_search import CataloguedLines, LineHits
from runner.collect.engines import Engine, JoinedEngine, make_engine
from runner.collect.lines import ANSI, Bare, bare_prefix, num_ends, shown_part, unwrapped
from runner.collect.step_formats.epoch_steps import ANNOUNCED
from runner.collect.step_formats.formats import FORMATS, MetricLines
from runner.collect.step_formats.formats import own_format as own_format_of
from runner.collect.step_formats.line_shapes import Shapes
from runner.collect.step_formats.name_value_pairs import Reading
from runner.collect.step_formats.printed_tables import HEADER, PrintedTables, TableRow
from runner.collect.step_formats.value_tables import FIRST_ROW, ValueTables
from runner.errors import UserError
from runner.facts.matches import MAX_TEXT, Match, Role
from runner.facts.messages.signals import StepRecord
from runner.rootcause.context.quotations import is_quotation
from runner.rootcause.signatures import SIGNATURES, Signature

# To feed at a time: the best between 64 KB and 4 MB, which differ by 15 % (measured).
BLOCK_BYTES = 256 * 1024
# Longer lines are searched in pieces that overlap, so that no memory holds them whole. These and all below are chosen.
MAX_LINE_BYTES = 256 * 1024
OVERLAP_BYTES = 4096
# Of the end of a line with a step.
MAX_METRIC_BYTES = 64 * 1024
# At the start of a log, by which the prefix of its lines is recognised.
PREFIX_BYTES = 64 * 1024
# Of one signature in one log; later ones are only counted: the first ones matter.
MAX_MATCHES = 1000
# Of lines at which a traceback may begin.
_TRACEBACK_ROLES: tuple[Role, ...] = ("traceback", "frame")
_BACKSPACES = re.compile(rb"\x08+")
# A block, the number of its first line, offsets of lines in it, and what a bare number before its lines is.
OnBlock = Callable[[bytes, int, Sequence[int], Bare | None], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedLine:
    """A line with a match, a step record, or numbers whose step is shown by a progress bar elsewhere; exactly one of the three.

    `with_numbers`: the bytes of a line of the last two kinds; of a row of a table, behind the names of its columns. `scores`: of
    such a row.
    """

    line: int
    match: Match | None = None
    record: StepRecord | None = None
    unnumbered: Reading | None = None
    with_numbers: bytes = b""
    scores: Mapping[str, float] | None = None


class Scan:
    """Searches one log from its start."""

    def __init__(  # noqa: PLR0913 - tests and offline callers search for other tables, or by one engine
        self,
        file: str,
        *,
        signatures: Sequence[Signature] = SIGNATURES,
        own_format: str | None = None,
        engine: Engine | None = None,
        catalogues: Catalogues | None = None,
        first_line: int = 1,
        max_matches: int | None = MAX_MATCHES,
    ) -> None:
        """`file` names the log in matches. `own_format`: a pattern for the metric lines of a trainer of no known format.

        `catalogues`: default: those of this release. `first_line`: the number of the first line. `max_matches`: of one
        signature, or one row of a catalogue; None: all.
        """
        self.file = file
        self._signatures = signatures
        # Patterns of an engine: signatures, formats, lines that announce an epoch, and first lines of tables.
        self._first_format = len(signatures)
        self._announced = self._first_format + (len(FORMATS) if own_format is None else 1)
        self._header = self._announced + 1
        self._first_row = self._header + 1
        self._tables, self._values = PrintedTables(), ValueTables()
        # Lines of their own have losses, so that tables only repeat them.
        self._has_losses = False
        self._metrics = MetricLines(own_format)
        self._shapes = Shapes(self._metrics.read)
        self._engine = engine or engine_for(signatures, own_format)
        self._catalogued = CataloguedLines(catalogues or all_catalogues(), max_matches)
        self._patterns = [re.compile(signature.pattern) for signature in signatures]
        # An unfinished line, its number, and how many bytes of it were searched for signatures and for steps.
        self._rest, self._line, self._first_line = b"", first_line, first_line
        self._num_searched = self._num_read = 0
        self._num_matches: Counter[str] = Counter()
        self._max_matches = max_matches
        # Gets each block of lines that was searched, with the offsets of lines that are a part of a traceback.
        self.on_block: OnBlock | None = None
        self._of_tracebacks = frozenset(
            index for index, one in enumerate(signatures) if one.role in _TRACEBACK_ROLES
        )
        # What a bare number or name before each line is.
        self._bare: Bare | None = None
        self.num_bytes = 0
        self._num_folded = 0

    @property
    def num_folded(self) -> int:
        """Matches beyond `max_matches`, which were only counted."""
        return self._num_folded + self._catalogued.num_folded

    @property
    def num_lines(self) -> int:
        """Lines that were read to their ends."""
        return self._line - self._first_line

    def is_harmless(self, text: str) -> bool:
        """Whether an emitter writes this line at a level below that of errors, and nothing that it does as an error."""
        return self._catalogued.is_harmless(text)

    def feed(self, block: bytes) -> Iterator[ScannedLine]:
        """Add bytes; yield the matches and records of lines that are complete now, in order."""
        if not self.num_bytes:
            first = block[:PREFIX_BYTES].decode(errors="replace").splitlines()
            self._bare = bare_prefix(first[:-1])
        self.num_bytes += len(block)
        end = block.rfind(b"\n") + 1
        if end == 0 and len(self._rest) + len(block) <= MAX_LINE_BYTES:
            self._rest += block
            return
        if end == 0:
            # Of a line that is too long, keep the part in which a match may have begun.
            whole = self._rest + block
            yield from self._search(whole)
            self._rest = whole[-OVERLAP_BYTES:]
            self._num_searched = self._num_read = OVERLAP_BYTES
            return
        whole = b"".join((self._rest, memoryview(block)[:end]))
        rest = block[end:]
        yield from self._search(whole)
        self._rest, self._num_searched, self._num_read = rest, 0, 0

    def flush(self) -> list[ScannedLine]:
        """Return the matches and records of the unfinished line, which may go on."""
        # A step's numbers may be cut in two, so they are read when their line, or the state of their bar, is whole.
        is_state = self._rest.endswith(b"\r")
        found = (
            list(self._search(self._rest, reads_steps=is_state, reads_tables=False))
            if self._rest
            else []
        )
        self._num_searched = len(self._rest)
        if is_state:
            self._num_read = len(self._rest)
        return found

    def finish(self) -> Iterator[ScannedLine]:
        """Yield the matches and records of a last line without an end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._search(rest)

    def _search(
        self, block: bytes, *, reads_steps: bool = True, reads_tables: bool = True
    ) -> Iterator[ScannedLine]:
        # Offset of a line -> index of a pattern -> end.
        hits: dict[int, dict[int, int]] = {}

        def on_match(index: int, end: int) -> None:
            is_step = index >= self._first_format
            if is_step and not reads_steps:
                return
            if end <= (self._num_read if is_step else self._num_searched):
                # It was yielded with the piece before.
                return
            start = block.rfind(b"\n", 0, max(end - 1, 0)) + 1
            hits.setdefault(start, {}).setdefault(index, end)

        self._engine.search(block, on_match)
        catalogued = self._catalogued.search(block, self._num_searched)
        if self.on_block is not None:
            starts = [at for at in sorted(hits) if not self._of_tracebacks.isdisjoint(hits[at])]
            self.on_block(block, self._line, starts, self._bare)
        rows = self._rows(block, hits) if reads_tables else {}
        counted = 0
        for start in sorted({**hits, **catalogued, **rows}):
            self._line += num_ends(block, counted, start)
            counted = start
            end = block.find(b"\n", start)
            line = block[start : len(block) if end < 0 else end]
            indexes = hits.get(start, {})
            yield from self._read(line, start, indexes)
            if start in rows and not self._has_losses:
                yield self._read_row(line, rows[start])
            if start in catalogued:
                yield from self._read_catalogued(line, catalogued[start], indexes)
        self._line += num_ends(block, counted)

    def _rows(self, block: bytes, hits: Mapping[int, Mapping[int, int]]) -> Mapping[int, TableRow]:
        headers = sorted(start for start, indexes in hits.items() if self._header in indexes)
        values = sorted(start for start, indexes in hits.items() if self._first_row in indexes)
        rows = self._tables.rows(block, headers, self._bare)
        return {**rows, **self._values.rows(block, values, self._bare)}

    def _read_row(self, line: bytes, row: TableRow) -> ScannedLine:
        record = row.reading.record()
        unnumbered = row.reading if record is None else None
        with_numbers = row.header + b" " + line
        return ScannedLine(
            line=self._line,
            record=record,
            unnumbered=unnumbered,
            with_numbers=with_numbers,
            scores=row.scores,
        )

    def _read(self, line: bytes, start: int, indexes: dict[int, int]) -> Iterator[ScannedLine]:
        if self._announced in indexes:
            self._metrics.announce_epoch(line[-MAX_METRIC_BYTES:].decode(errors="replace"))
        if any(self._first_format <= index < self._announced for index in indexes):
            for found in self._steps(line, self._num_read if start == 0 else 0):
                if isinstance(found, StepRecord):
                    self._has_losses |= found.loss is not None
                    yield ScannedLine(line=self._line, record=found, with_numbers=line)
                else:
                    yield ScannedLine(line=self._line, unnumbered=found, with_numbers=line)
        for index in sorted(indexes):
            if index >= self._first_format:
                break
            if self._signatures[index].role == "frame":
                # It only shows where a traceback is.
                continue
            match = self._match(index, line, indexes[index] - start)
            if match is not None:
                yield ScannedLine(line=self._line, match=match)

    def _read_catalogued(
        self, line: bytes, hits: LineHits, indexes: Iterable[int]
    ) -> Iterator[ScannedLine]:
        known = [self._signatures[index] for index in indexes if index < self._first_format]
        match = self._catalogued.match(line, hits, self._bare, known)
        if match is not None and not is_quotation(match.text, match.fault):
            match = replace(match, file=self.file, line=self._line)
            yield ScannedLine(line=self._line, match=match)

    def _steps(self, line: bytes, num_read: int) -> list[StepRecord | Reading]:
        """Read the step of a line; of a progress bar, those of all states after the first `num_read` bytes."""
        read = self._metrics.read if self._metrics.counts_epochs else self._shapes.read
        if b"\b" in line:
            # Keras' bars went back so.
            line = _BACKSPACES.sub(_as_return, line)
        if b"\r" in line.rstrip(b"\r"):
            first = line.rfind(b"\r", 0, num_read) + 1
            return self._metrics.read_states(_text(line[first:]), read)
        text = _text(line[-MAX_METRIC_BYTES:])
        record = read(text)
        found = self._metrics.unnumbered(text) if record is None else record
        return [] if found is None else [found]

    def _match(self, index: int, line: bytes, end: int) -> Match | None:
        signature = self._signatures[index]
        self._num_matches[signature.name] += 1
        num = self._num_matches[signature.name]
        is_enough = self._max_matches is not None and num > self._max_matches
        if is_enough and signature.weight != "benign":
            self._num_folded += 1
            return None
        wrapped = shown_part(line, end).decode(errors="replace")
        shown = unwrapped(wrapped, self._bare)
        if signature.fault and is_quotation(shown.text, signature.fault):
            return None
        pattern = self._patterns[index]
        # Some matches lie within the wrapping, or go across it.
        found = pattern.search(shown.text) or pattern.search(wrapped)
        if found is None:
            # The engine matched a line that Python's `re` does not.
            return None
        named = {name: value for name, value in found.groupdict().items() if value}
        rank = int(named["rank"]) if "rank" in named else None
        first = 0 if found.start() < MAX_TEXT else found.start() - MAX_TEXT // 2
        return Match(
            signature=signature.name,
            fault=signature.fault,
            layer=signature.layer,
            scope=signature.scope,
            weight=signature.weight,
            role=signature.role,
            is_lasting=signature.is_lasting,
            file=self.file,
            line=self._line,
            text=shown.text[first : first + MAX_TEXT],
            rank=rank if shown.rank is None else shown.rank,
            node=shown.node or "",
            at=shown.at,
            named=named,
        )


def _as_return(backspaces: re.Match[bytes]) -> bytes:
    """Return a carriage return for backspaces, as long as they are."""
    return b"\r".rjust(len(backspaces[0]))


def _text(line: bytes) -> str:
    """Return a line with numbers, without the colours between a name and its number."""
    text = line.decode(errors="replace")
    return ANSI.sub("", text) if "\x1b" in text else text


def engine_for(
    signatures: Sequence[Signature] = SIGNATURES, own_format: str | None = None
) -> Engine:
    """Return an engine for signatures and metric formats; it serves any number of scans, one after the other.

    Raises UserError for an own pattern that no engine can search for.
    """
    patterns = [signature.pattern for signature in signatures]
    every = make_engine(
        [*patterns, *(known.mark for known in FORMATS), ANNOUNCED, HEADER, FIRST_ROW]
    )
    if own_format is None:
        return every
    mark = own_format_of(own_format).mark
    try:
        # Compiling all of them again takes longer than a short run.
        return JoinedEngine(every, len(patterns), make_engine([mark, ANNOUNCED]))
    except ValueError as error:
        raise UserError(
            f"metric pattern {own_format!r} cannot be searched for: {error}; "
            "write it without look-around and back-references"
        ) from error
