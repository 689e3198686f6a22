"""Steps of a progress bar beside a log: a trainer may print numbers to one stream, and their step as a bar to the other.

tqdm's `write` clears the bar, prints the line, and draws the bar again: each bar after a clear has the step of one printed line.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from runner.collect.step_formats.name_value_pairs import Reading
from runner.facts.messages.signals import StepRecord

# All chosen, not measured. Of a stream with bars, read at a time: some 400 bars.
READ_BYTES = 64 * 1024
# Readings that wait for their bar, the newest, and how long.
MAX_WAITING = 100
WAIT_SECONDS = 1.0
# As tqdm draws it: a carriage return, blanks over the bar, and the bar from the start of the line.
_REDRAWN = re.compile(rb"\r +\r\r[^\r\n|]{0,200}\|[^\r\n|]{0,400}\| *(\d{1,15})/\d+ \[")


@dataclass(slots=True)
class BarSteps:
    """Numbers the readings of one log by the bars in `path`, the rank's other stream.

    `mark` is called before the log is read. Bars that were there by then belong to lines that were there, too: the last of them to
    the last readings, whatever else was printed. Later bars may belong to lines that come later, so they are taken in order.
    """

    path: Path
    _marked: int = 0
    # Where the bars begin that belong to no reading yet.
    _offset: int = 0
    _waiting: list[Reading] = field(default_factory=list)
    _waiting_since: float = 0.0

    def mark(self) -> None:
        """Note how far the bars are."""
        try:
            self._marked = os.stat(self.path).st_size
        except OSError:
            # What is not there has no bars.
            self._marked = 0

    def number(self, readings: Sequence[Reading], now: float) -> list[StepRecord]:
        """Return records of the readings that have their bar by now, of earlier calls too; `now`: monotonic seconds.

        A reading without a bar is dropped after WAIT_SECONDS.
        """
        if readings and not self._waiting:
            self._waiting_since = now
        self._waiting = [*self._waiting, *readings][-MAX_WAITING:]
        if not self._waiting:
            return []
        bars = self._new_bars()
        num_before = sum(end <= self._marked for end, _ in bars)
        bars = bars[max(0, num_before - len(self._waiting)) :][: len(self._waiting)]
        if len(bars) < len(self._waiting) and now < self._waiting_since + WAIT_SECONDS:
            return []
        waiting, self._waiting = self._waiting[len(self._waiting) - len(bars) :], []
        if bars:
            self._offset = bars[-1][0]
        numbered = (replace(one, step=step) for one, (_, step) in zip(waiting, bars, strict=True))
        return [record for reading in numbered if (record := reading.record()) is not None]

    def _new_bars(self) -> list[tuple[int, int]]:
        """Return where each bar ends that was drawn after a line and belongs to no reading yet, and its step."""
        try:
            start, data = self._read_bars()
        except OSError:
            return []
        return [(start + match.end(), int(match[1])) for match in _REDRAWN.finditer(data)]

    def _read_bars(self) -> tuple[int, bytes]:
        """Return the bytes in which the bars are, and where they begin."""
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A stream that was cut back begins again.
            start = max(self._offset if self._offset <= size else 0, size - READ_BYTES)
            file.seek(start)
            return start, file.read(READ_BYTES)
