"""Metric lines of foreign trainers: the format of a log is recognised by its lines.

No two formats read the same line (`tests/collect/test_formats.py`), so the format that matched last is tried first and the order
does not matter. A line is read from its end: the last state of a progress bar counts. A line without a step has numbers
(`parse`), but makes no record (`read`): it is counted in `num_unnumbered`.
"""

import re
from dataclasses import replace

from runner.collect.lines import plain
from runner.collect.step_formats.name_value_pairs import Reading, number, whole
from runner.collect.step_formats.table import FORMATS, Format
from runner.errors import UserError
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.metric_pattern import OWN_GROUPS, pattern_problem

__all__ = ["FORMATS", "OWN_GROUPS", "Format", "MetricLines", "Reading", "own_format"]

# Characters of a line, or of one state of a progress bar, of which the last ones are read. All
# chosen; together they are bounded so that hostile text takes little time.
MAX_SEGMENT, MAX_SEGMENTS = 4_000, 50
MAX_CHARACTERS = 4 * MAX_SEGMENT
_TQDM_BAR = re.compile(r"\|\s*(\d+)/\d+ \[")


class MetricLines:
    """Reads the metric lines of one log. `own`: a pattern of the user, which then is the only format. Raises UserError.

    `name` is that of the format in use; None: no line matched yet. `num_unnumbered`: lines with
    numbers and without a step.
    """

    def __init__(self, own: str | None = None) -> None:
        formats = FORMATS if own is None else (own_format(own),)
        self._formats = {known.name: known for known in formats}
        self.name: str | None = None
        self.num_unnumbered = 0
        # Format and values of the current block.
        self._block: tuple[str, Reading] | None = None

    def read(self, text: str) -> StepRecord | None:
        """Read one line; None: it has no step."""
        reading = self.parse(text)
        if reading is None:
            return None
        if reading.step is None:
            self.num_unnumbered += 1
        return reading.record()

    def beside_bar(self, text: str) -> Reading | None:
        """Parse one line of a trainer that shows its steps by a progress bar alone; None: it is none, or has its step."""
        reading = self.parse(text)
        known = self._formats.get(self.name or "")
        is_beside = reading is not None and reading.step is None and known is not None and known.bar
        return reading if is_beside else None

    def parse(self, text: str) -> Reading | None:
        """Parse one line, with or without a step; None: it is no metric line."""
        text = plain(text)
        left = MAX_CHARACTERS
        for segment in reversed(text.rsplit("\r", MAX_SEGMENTS)):
            found = self._find(segment[: min(left, MAX_SEGMENT)])
            left -= min(left, len(segment))
            if found is not None:
                known, reading = found
                self.name = known.name
                bars = _TQDM_BAR.findall(text) if known.bar else []
                if bars and reading.step is None and "loss" in reading.numbers:
                    reading = replace(reading, step=int(bars[-1]))
                return self._in_block(known, reading) if known.block else reading
        return None

    def _find(self, segment: str) -> tuple[Format, Reading] | None:
        last = self._formats.get(self.name or "")
        for known in (*((last,) if last else ()), *self._formats.values()):
            if known.pattern.search(segment):
                reading = known.parse(segment)
                if reading is not None:
                    return known, reading
        return None

    def _in_block(self, known: Format, reading: Reading) -> Reading:
        """Add a line to its block, whose first line holds the step; return all numbers of the block so far."""
        if reading.step is not None:
            self._block = (known.name, reading)
            return reading
        if self._block is None or self._block[0] != known.name:
            return reading
        before = self._block[1]
        reading = replace(before, numbers={**before.numbers, **reading.numbers})
        self._block = (known.name, reading)
        return reading


def own_format(pattern: str) -> Format:
    """Make a format of the user's regular expression. Raises UserError that names the error and the known groups."""
    if wrong := pattern_problem(pattern):
        raise UserError(f"metric pattern '{pattern}' {wrong}")
    compiled = re.compile(pattern)

    def parse(text: str) -> Reading | None:
        match = compiled.search(text)
        if match is None:
            return None
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        read = {OWN_GROUPS[name]: number(text) for name, text in groups.items()}
        numbers = {name: value for name, value in read.items() if value is not None}
        return Reading(step=whole(numbers.pop("step", None)), numbers=numbers)

    return Format("own", pattern, sample="", holds={}, parser=parse)
