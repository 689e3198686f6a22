"""Steps by the order of lines: what a log gives its numbers where neither a line nor a bar names the step.

Only for a log that is read whole. The numbers of one kind of line count, the first kind that comes twice; where other lines of
the log have steps, the newest of these is the step. A validation loss on a line of its own is that of the step before it, if it is
the only one up to the next step: lines of a validation that count its batches show what one batch has.
"""

import math

from runner.collect.step_formats.any_numbers import MAX_EXACT
from runner.collect.step_formats.name_value_pairs import Reading
from runner.facts.messages.signals import StepRecord

# Kinds of lines that are remembered after one line; chosen.
MAX_KINDS = 64
# Of losses, none of whose parts is of this size; chosen.
ABSURD = 1e9
_JUDGED = ("loss", "grad_norm", "step_seconds_max", "samples_per_second")


class LineOrder:
    """Numbers the readings of one log that have no step of their own."""

    def __init__(self) -> None:
        self._last_step: int | None = None
        self._has_numbered_loss = False
        self._num = 0
        # Names of the numbers of a line -> the only such line so far, and the step that the log had by then.
        self._first: dict[tuple[str, ...], tuple[int, Reading, int | None]] = {}
        self._kind: tuple[str, ...] | None = None
        # The first validation loss since the last step, its line, and how many there are.
        self._validation: tuple[int, Reading] | None = None
        self._num_validations = 0
        self._counts_batches = False

    def add_record(self, record: StepRecord) -> None:
        """Note a record with a step of its own."""
        self._last_step = record.step
        self._has_numbered_loss |= record.loss is not None

    def records(self, reading: Reading, line: int) -> list[tuple[int, StepRecord]]:
        """Return the records that are certain now, with their lines."""
        if "skipped" in reading.numbers:
            return _numbered(reading, line, self._last_step or self._num)
        if reading.numbers.keys() == {"validation_loss"}:
            self._validation = self._validation or (line, reading)
            self._num_validations += 1
            return []
        is_judged = not reading.numbers.keys().isdisjoint(_JUDGED)
        if self._has_numbered_loss or not is_judged:
            return []
        # Losses of several names are several kinds: of parts, each on a line of its own, and their sum.
        kind = (*sorted(reading.numbers), f"{reading.loss_name} ")
        if kind == self._kind or (self._is_alike(kind) and _is_absurd(reading)):
            return self._next(reading, line)
        if self._kind is not None and (_has_loss(self._kind) or not _has_loss(kind)):
            return []
        first = self._first.get(kind)
        if first is None:
            if _has_loss(kind) and self._kind is None:
                # A validation before it was one of the weights as they began.
                self._validation, self._num_validations = None, 0
            if len(self._first) < MAX_KINDS:
                self._first[kind] = (line, reading, self._last_step)
            return []
        if self._is_part(reading, first[0]):
            return []
        self._kind = kind
        self._num += 1
        step = self._step if first[2] is None else first[2]
        return [*_numbered(first[1], first[0], step), *self._next(reading, line)]

    def validation(self) -> list[tuple[int, StepRecord]]:
        """Return the validation loss since the last step, and its line, now that another step follows or the log is over."""
        found, num = self._validation, self._num_validations
        self._validation, self._num_validations = None, 0
        self._counts_batches |= num > 1
        has_step = self._last_step is not None or self._num > 0
        if found is None or not has_step or self._counts_batches:
            return []
        line, reading = found
        return _numbered(reading, line, self._step)

    def _next(self, reading: Reading, line: int) -> list[tuple[int, StepRecord]]:
        before = self.validation()
        self._num += 1
        return [*before, *_numbered(reading, line, self._step)]

    def _is_alike(self, kind: tuple[str, ...]) -> bool:
        """Whether lines of a kind have the numbers of those that count, and a loss of another name."""
        return self._kind is not None and kind[:-1] == self._kind[:-1]

    def _is_part(self, reading: Reading, first: int) -> bool:
        """Whether a loss is one of several, and a line below the first of its kind had one that is not."""
        return reading.loss_place > MAX_EXACT and any(
            line > first and 0 <= one.loss_place <= MAX_EXACT and "loss" in one.numbers
            for line, one, _ in self._first.values()
        )

    @property
    def _step(self) -> int:
        return self._num if self._last_step is None else self._last_step


def _has_loss(kind: tuple[str, ...]) -> bool:
    """Whether lines of a kind show more than how fast the run is."""
    return "loss" in kind or "grad_norm" in kind


def _is_absurd(reading: Reading) -> bool:
    """Whether a loss is one of weights that are of no use, whatever its name."""
    loss = reading.numbers.get("loss", 0.0)
    return not math.isfinite(loss) or abs(loss) >= ABSURD


def _numbered(reading: Reading, line: int, step: int) -> list[tuple[int, StepRecord]]:
    record = Reading(step=step, numbers=reading.numbers).record()
    return [] if record is None else [(line, record)]
