"""Catalogues: judge a line by all rows that it may be of. The most specific row wins, whatever its level."""

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from runner.collect.catalogues.cache import FOLDER, load_table
from runner.collect.catalogues.formats import line_pattern
from runner.collect.catalogues.table import Row, Table
from runner.collect.engines import LiteralEngine
from runner.facts.matches import Layer, Weight

# All chosen. Rows that stay decoded and compiled; words of a line that are looked up, and rows that are tried.
MAX_ROWS_COMPILED, MAX_WORDS, MAX_TRIED = 512, 400, 4000
# Layers of programs of their own: the kernel, schedulers, launchers.
OF_DAEMONS: tuple[Layer, ...] = ("machine", "scheduler", "launcher")
_WORD = re.compile(r"\w+")
_WORD_BYTES = re.compile(rb"[\w\x80-\xff]+")


class Catalogues:
    """The rows of all catalogues, and the engine that finds lines which may be of one. One thread at a time may use it."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.defects = table.defects
        self._engine = LiteralEngine(bytes(table.prefixes)) if len(table.prefixes) else None
        # Without an engine, words of the rows of which lines count are searched for.
        self._words = frozenset(() if self._engine else _acting_words(table))
        table.release()
        self._pattern = lru_cache(MAX_ROWS_COMPILED)(_compiled)
        self._row = lru_cache(MAX_ROWS_COMPILED)(table.row)
        self._group = lru_cache(MAX_ROWS_COMPILED)(table.group)

    def search(self, block: bytes, on_match: Callable[[int, int], None]) -> None:
        """Call `on_match(number of a literal, offset at which it ends)` for what may be of a row of which lines count."""
        if self._engine is not None:

            def on_prefix(prefix: int, end: int) -> None:
                for literal, end_of_literal in self._group(prefix).literals_at(block, end):
                    on_match(literal, end_of_literal)

            self._engine.search(block, on_prefix)
        elif self._words:
            for found in _WORD_BYTES.finditer(block.lower()):
                word = zlib.crc32(found[0])
                if word in self._words:
                    on_match(word, found.end())

    def row_of(
        self, text: str, whole: str, *, is_raised: bool = False
    ) -> tuple[Row, Weight] | None:
        """Return the row that a line is of, and what the line is evidence of; None: it is of none.

        `text`: without its wrapping, `whole`: with it. `is_raised`: the line is the message of an exception, which no daemon
        writes unless it is named there. A row of an error and one of a lower level that explain equally much of a line leave it
        open whether it failed: it only supports others.
        """
        found = self._rows_of(text, whole.lower())
        if is_raised:
            found = [row for row in found if row.requires or row.layer not in OF_DAEMONS]
        errors = [row for row in found if row.level == "error"]
        lower = max((row for row in found if row.level != "error"), key=_order, default=None)
        best = max(errors, key=_order, default=None)
        if lower is not None and (best is None or lower.specificity > best.specificity):
            return lower, "supporting" if lower.acts else "benign"
        if best is None:
            return None
        # The row of the error that a longer one quotes may be known better; one without conversions quotes none.
        may_quote = not best.fault and any(mark in best.format for mark in "%{")
        named = [row for row in errors if row.fault and (may_quote or row.emitter == best.emitter)]
        known = max(named, key=_order, default=best)
        is_open = lower is not None and lower.specificity >= known.specificity
        return known, "supporting" if is_open else "primary"

    def _rows_of(self, text: str, whole: str) -> list[Row]:
        lowered = text.lower()
        words = dict.fromkeys(_WORD.findall(lowered))
        found = list[Row]()
        for num, number in enumerate(self.table.numbers(list(words)[:MAX_WORDS])):
            if num >= MAX_TRIED:
                break
            row = self._row(number)
            if row.literal not in lowered or not _has_any(row.requires, whole):
                continue
            if self._pattern(row.format, row.style).search(text) is not None:
                found.append(row)
        return found


@lru_cache(4)
def all_catalogues(folder: Path = FOLDER) -> Catalogues:
    """Return the catalogues of this release, loaded once by a process."""
    return Catalogues(load_table(folder))


def _acting_words(table: Table) -> Iterator[int]:
    """Yield the hashes of the words by which rows are looked up of which lines are evidence."""
    return (word for word, rows in table.index() if any(table.row(row).acts for row in rows))


def _compiled(text: str, style: str) -> re.Pattern[str]:
    return re.compile(line_pattern(text, style).regex, re.IGNORECASE)  # type: ignore[arg-type]


def _has_any(words: Sequence[str], text: str) -> bool:
    return not words or any(word in text for word in words)


def _order(row: Row) -> tuple[int, int, bool, str, str, str]:
    """Order rows by how specific they are; then those that require a word, then by name, so that all readers agree."""
    return (
        row.specificity,
        len(row.requires) > 0,
        bool(row.fault),
        row.emitter,
        row.at,
        row.format,
    )
