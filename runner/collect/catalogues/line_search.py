"""Line search: the lines of one log that a catalogue explains, as matches, with what bounds the work for a flood of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from runner.collect.catalogues.catalogues import Catalogues
from runner.collect.catalogues.table import Row
from runner.collect.lines import Bare, Line, shown_part, unwrapped
from runner.facts.matches import MAX_TEXT, Match, Role, Weight
from runner.rootcause.signatures import Signature

# Parts of a long line that are looked at, each around a literal; chosen.
MAX_PARTS = 8
# Lines with a literal that were of no row, or of a harmless one; later lines with it are not looked at. Chosen: two seconds' work.
MAX_FRUITLESS = 20_000
# Of the letters of a line, those that a row has that makes it harmless, however its emitter goes on; chosen.
LEAST_EXPLAINED = 0.3
# Of signatures that know no more than that there is an exception, or an error.
_GENERIC: tuple[Role, ...] = ("exception", "exception-of-code", "error-of-any-kind")
_OF_EXCEPTIONS: tuple[Role, ...] = ("exception", "exception-of-code")

# Literals within one line: the offset at which each ends, from the start of the line.
LineHits = Mapping[int, int]


class _Found(NamedTuple):
    """The row of a line, what the line is evidence of, and its text."""

    row: Row
    weight: Weight
    shown: Line


class CataloguedLines:
    """Finds the lines of one log."""

    def __init__(self, catalogues: Catalogues, max_matches: int | None) -> None:
        """`max_matches`: of one row; None: all."""
        self.num_folded = 0
        self._catalogues = catalogues
        self._max_matches = max_matches
        self._num_matches: Counter[str] = Counter()
        # By literal: lines that made a match, or one too many, and lines that made none.
        self._num_lines: Counter[int] = Counter()
        self._num_fruitless: Counter[int] = Counter()

    def search(self, block: bytes, num_searched: int) -> dict[int, LineHits]:
        """Return the literals in a block, beyond its first bytes that were searched before, by the start of their line."""
        hits: dict[int, dict[int, int]] = {}

        def on_match(literal: int, end: int) -> None:
            if end > num_searched:
                start = block.rfind(b"\n", 0, max(end - 1, 0)) + 1
                hits.setdefault(start, {}).setdefault(literal, end - start)

        self._catalogues.search(block, on_match)
        return {start: found for start, found in hits.items() if not self._is_over(found)}

    def is_harmless(self, text: str) -> bool:
        """Whether a row of a level below errors is the one that explains most of a line, and enough of it."""
        found = self._catalogues.row_of(text, text)
        if found is None or found[1] != "benign":
            return False
        return found[0].specificity >= LEAST_EXPLAINED * sum(map(str.isalpha, text))

    def match(
        self, line: bytes, hits: LineHits, bare: Bare | None, known: Sequence[Signature]
    ) -> Match | None:
        """Return the match of a line, without its place; None: there is none. `known`: the signatures that match this line."""
        if any(not one.role or (one.fault and one.role not in _GENERIC) for one in known):
            # A signature says what this line is, be it evidence or not.
            return None
        naming = [one for one in known if one.fault]
        is_raised = any(one.role in _OF_EXCEPTIONS for one in naming)
        found = self._found(line, hits, bare, is_raised=is_raised)
        if found is None or found.weight == "benign" or (naming and not found.row.fault):
            self._num_fruitless.update(hits)
            return None
        row = found.row
        self._num_lines.update(hits)
        self._num_matches[row.name] += 1
        if self._max_matches is not None and self._num_matches[row.name] > self._max_matches:
            self.num_folded += 1
            return None
        return _match(found, role="raised" if is_raised and row.layer == "program" else "")

    def _is_over(self, hits: LineHits) -> bool:
        """Whether each literal of a line had lines enough; such a line is counted only."""
        most = self._max_matches
        is_over = most is not None and all(
            self._num_lines[literal] > most or self._num_fruitless[literal] > MAX_FRUITLESS
            for literal in hits
        )
        self.num_folded += is_over
        return is_over

    def _found(
        self, line: bytes, hits: LineHits, bare: Bare | None, *, is_raised: bool
    ) -> _Found | None:
        parts = dict.fromkeys(shown_part(line, end) for end in sorted(hits.values())[:MAX_PARTS])
        for part in parts:
            whole = part.decode(errors="replace")
            shown = unwrapped(whole, bare)
            found = self._catalogues.row_of(shown.text, whole, is_raised=is_raised)
            if found is not None:
                return _Found(*found, shown)
        return None


def _match(found: _Found, role: Role) -> Match:
    row, shown = found.row, found.shown
    return Match(
        signature=row.name,
        fault=row.fault or "unknown",
        layer=row.layer if row.fault else "other",
        scope=row.scope,
        weight=found.weight,
        role=role,
        is_lasting=row.is_lasting,
        known_by="catalogue",
        text=shown.text[:MAX_TEXT],
        rank=shown.rank,
        node=shown.node or "",
        at=shown.at,
    )
