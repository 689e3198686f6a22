"""Scan: bytes of a log in, the lines that signatures or metric formats know out. Raw logs go no further than this.

Bytes come in blocks of any size; a line that is cut between two of them is put together. All patterns are searched for at once
(`engines`), and only lines that were hit are looked at in Python: what a scan costs depends on the bytes, not on the table.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from runner.collect.engines import Engine, engine
from runner.collect.lines import Bare, Line, bare_prefix, unwrapped
from runner.collect.step_formats.formats import FORMATS, MetricLines
from runner.collect.step_formats.formats import own_format as own_format_of
from runner.collect.step_formats.line_shapes import Shapes
from runner.errors import UserError
from runner.facts.matches import MAX_TEXT, Match
from runner.facts.messages.signals import StepRecord
from runner.rootcause.signatures import SIGNATURES, Signature

# To feed at a time: between 64 KB and 4 MB it makes 15 % of difference, and this is the best (measured).
BLOCK_BYTES = 256 * 1024
# Of a line: what is longer is searched in pieces that overlap, so that no memory holds all of it; both chosen.
MAX_LINE_BYTES = 256 * 1024
OVERLAP_BYTES = 4096
# Around a match that is told, when its line is longer; chosen.
SHOWN_BYTES = 2048
# Of the end of a line that tells of a step; chosen.
MAX_METRIC_BYTES = 64 * 1024
# at the beginning of a log, that show what its lines begin with; chosen
PREFIX_BYTES = 64 * 1024
# Of one signature in one log: later ones are counted, not told. A table of causes needs the first ones; chosen.
MAX_TOLD = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a line holds. Exactly one of both is there; `offset`: of the line's first byte."""

    offset: int
    line: int
    match: Match | None = None
    record: StepRecord | None = None


class Scan:
    """Searches one log, front to back."""

    def __init__(
        self,
        file: str,
        *,
        signatures: Sequence[Signature] = SIGNATURES,
        own_format: str | None = None,
        searching: Engine | None = None,
        first_line: int = 1,
        most_told: int | None = MAX_TOLD,
    ) -> None:
        """`file` names the log in what is found. `own_format`: a pattern for the metric lines of a trainer nobody knows.

        `first_line`: the number of the line that is fed first. `most_told`: matches of one signature; None: all.
        """
        self.file = file
        self._signatures = signatures
        self._metrics = MetricLines(own_format)
        self._shapes = Shapes(self._metrics.read)
        self._engine = searching or engine_for(signatures, own_format)
        self._patterns = [re.compile(signature.pattern) for signature in signatures]
        # of a line whose end has not come yet
        self._rest = b""
        # bytes of it that were searched already
        self._num_searched = 0
        # the same, for steps
        self._num_read = 0
        # of the first byte of `_rest`
        self._offset = 0
        # its number
        self._line = first_line
        self._told: Counter[str] = Counter()
        self._most_told = most_told
        # what a bare number or name before each line is
        self._bare: Bare | None = None
        self.num_bytes = self.num_folded = 0

    def feed(self, block: bytes) -> Iterator[Found]:
        """Take more bytes in; yield what the lines that are complete now hold, in order."""
        if not self.num_bytes:
            first = block[:PREFIX_BYTES].decode(errors="replace").splitlines()
            self._bare = bare_prefix(first[:-1])
        self.num_bytes += len(block)
        end = block.rfind(b"\n") + 1
        if end == 0 and len(self._rest) + len(block) <= MAX_LINE_BYTES:
            self._rest += block
            return
        # a line without end: let go of all of it but what a match may have begun in
        if end == 0:
            whole = self._rest + block
            yield from self._search(whole)
            self._rest = whole[-OVERLAP_BYTES:]
            self._num_searched = self._num_read = OVERLAP_BYTES
            self._offset += len(whole) - OVERLAP_BYTES
            return
        whole, rest = self._rest + block[:end] if self._rest else block[:end], block[end:]
        yield from self._search(whole)
        self._offset += len(whole)
        self._rest, self._num_searched, self._num_read = rest, 0, 0

    def flush(self) -> list[Found]:
        """Return what the line holds that waits for its end; it may go on."""
        found = list(self._search(self._rest)) if self._rest else []
        self._num_searched = len(self._rest)
        # a picture of a progress bar, whole
        if self._rest.endswith(b"\r"):
            self._num_read = len(self._rest)
            return found
        # The numbers of a step may be cut in two: they are read when their line is whole.
        return [one for one in found if one.match is not None]

    def finish(self) -> Iterator[Found]:
        """Yield what the last line holds, if it has no end."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._search(rest)
            self._offset += len(rest)

    def _search(self, block: bytes) -> Iterator[Found]:
        # offset of a line -> index of a pattern -> end
        hits: dict[int, dict[int, int]] = {}

        def found(index: int, end: int) -> None:
            is_step = index >= len(self._signatures)
            if end <= (self._num_read if is_step else self._num_searched):
                # told with the piece before
                return
            start = block.rfind(b"\n", 0, max(end - 1, 0)) + 1
            hits.setdefault(start, {}).setdefault(index, end)

        self._engine.search(block, found)
        counted = 0
        for start in sorted(hits):
            self._line += block.count(b"\n", counted, start)
            counted = start
            end = block.find(b"\n", start)
            line = block[start : len(block) if end < 0 else end]
            yield from self._look(line, start, hits[start])
        self._line += block.count(b"\n", counted)

    def _look(self, line: bytes, start: int, indexes: dict[int, int]) -> Iterator[Found]:
        offset, number = self._offset + start, self._line
        if max(indexes) >= len(self._signatures):
            record = self._step(line)
            if record is not None:
                yield Found(offset=offset, line=number, record=record)
        for index in sorted(indexes):
            if index >= len(self._signatures):
                break
            match = self._match(index, line, indexes[index] - start, number)
            if match is not None:
                yield Found(offset=offset, line=number, match=match)

    def _step(self, line: bytes) -> StepRecord | None:
        text = line[-MAX_METRIC_BYTES:].decode(errors="replace")
        # Of a progress bar drawn over and over, the last picture counts, and the step may stand in one before it.
        return self._metrics.read(text) if "\r" in text else self._shapes.read(text)

    def _match(self, index: int, line: bytes, end: int, number: int) -> Match | None:
        signature = self._signatures[index]
        self._told[signature.name] += 1
        is_enough = self._most_told is not None and self._told[signature.name] > self._most_told
        if is_enough and signature.weight != "excuses":
            self.num_folded += 1
            return None
        wrapped = _shown(line, end).decode(errors="replace")
        known = unwrapped(wrapped, self._bare)
        searched = self._patterns[index].search(known.text)
        # it stands in what the line is wrapped in, or goes across it
        if searched is None:
            searched = self._patterns[index].search(wrapped)
        # an engine's idea of a line that Python does not share
        if searched is None:
            return None
        named = {name: said for name, said in searched.groupdict().items() if said}
        return _match_of(signature, known, named, self.file, number, searched.start())


def engine_for(
    signatures: Sequence[Signature] = SIGNATURES, own_format: str | None = None
) -> Engine:
    """Return an engine for signatures and metric formats together; one serves any number of scans, one after the other.

    Raises UserError for a pattern of one's own that no engine can search for.
    """
    patterns = [signature.pattern for signature in signatures]
    if own_format is None:
        return engine([*patterns, *(known.mark for known in FORMATS)])
    mark = own_format_of(own_format).mark
    try:
        return engine([*patterns, mark])
    except ValueError as error:
        raise UserError(
            f"metric pattern {own_format!r} cannot be searched for: {error}; write it without look-around and back-references"
        ) from error


def _match_of(
    signature: Signature, line: Line, named: dict[str, str], file: str, number: int, at: int
) -> Match:
    text = line.text if at < MAX_TEXT else line.text[at - MAX_TEXT // 2 :]
    match = Match(
        signature=signature.name,
        fault=signature.fault,
        layer=signature.layer,
        scope=signature.scope,
        weight=signature.weight,
        role=signature.role,
        is_lasting=signature.is_lasting,
        file=file,
        line=number,
        text=text[:MAX_TEXT],
        rank=line.rank,
        node=line.node or "",
        at=line.at,
        named=named,
    )
    if "rank" in named and line.rank is None:
        return replace(match, rank=int(named["rank"]))
    return match


def _shown(line: bytes, end: int) -> bytes:
    """Return the part of a line around a match that ends there: of progress bars the segment it stands in."""
    first = line.rfind(b"\r", 0, max(end - 1, 0)) + 1
    last = line.find(b"\r", end)
    segment = line[first : len(line) if last < 0 else last]
    if len(segment) <= 2 * SHOWN_BYTES:
        return segment
    middle = end - first
    return segment[max(0, middle - SHOWN_BYTES) : middle + SHOWN_BYTES]
