"""Metric lines of foreign trainers: the format of a log is recognised by its lines.

No two formats read the same line (`tests/collect/test_formats.py`), so the format that matched last is tried first and the order
does not matter. A line is read from its end: the last state of a progress bar counts. A line without a step has numbers
(`parse`), but makes no record (`read`): it is counted in `num_unnumbered`.
"""

import re
from collections.abc import Callable
from dataclasses import replace

from runner.collect.lines import plain
from runner.collect.step_formats.announced_steps import AnnouncedSteps
from runner.collect.step_formats.epoch_steps import EpochSteps, announced_step, place_in
from runner.collect.step_formats.name_value_pairs import Reading, number, whole
from runner.collect.step_formats.sentences import LoneSeconds, LoneValidation
from runner.collect.step_formats.table import FORMATS, Format
from runner.errors import UserError
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.metric_pattern import OWN_GROUPS, pattern_problem

__all__ = ["FORMATS", "OWN_GROUPS", "Format", "MetricLines", "Reading", "own_format"]

# Characters of a line, or of one state of a progress bar, of which the last ones are read. All
# chosen; together they are bounded so that hostile text takes little time.
MAX_SEGMENT, MAX_SEGMENTS = 4_000, 50
MAX_CHARACTERS = 4 * MAX_SEGMENT
# Of one line of a bar, the newest; chosen.
MAX_STATES = 4_000
# What no format reads is skipped at once.
_MAY_HAVE_NUMBERS = re.compile(r"(?i)loss|norm|step|iter|scale|cost|nll|xent|entropy")
_TQDM_BAR = re.compile(r"\|\s*(\d+)/\d+ \[")


class MetricLines:
    """Reads the metric lines of one log. `own`: a pattern of the user, which then is the only format. Raises UserError.

    `name` is that of the format in use; None: no line matched yet. `num_unnumbered`: lines with
    numbers and without a step. `counts_epochs`: the step of a line depends on the lines before it.
    """

    def __init__(self, own: str | None = None) -> None:
        formats = FORMATS if own is None else (own_format(own),)
        self._formats = {known.name: known for known in formats}
        self.name: str | None = None
        self.num_unnumbered = 0
        self.counts_epochs = False
        self._epochs, self._announced = EpochSteps(), AnnouncedSteps()
        self._lone_seconds, self._lone_validation = LoneSeconds(), LoneValidation()
        # The line that was read last: a caller of `read` asks for the same line's numbers if it has no step.
        self._last: tuple[str, Reading | None] | None = None
        # Format and values of the current block.
        self._block: tuple[str, Reading] | None = None

    def read(self, text: str) -> StepRecord | None:
        """Read one line; None: it has no step."""
        reading = self.parse(text)
        self._last = text, reading
        if reading is None:
            return None
        if reading.step is None:
            self.num_unnumbered += 1
        return reading.record()

    def read_states(
        self, text: str, read: Callable[[str], StepRecord | None]
    ) -> list[StepRecord | Reading]:
        """Read every state of a progress bar, by `read`; of states with the same step, the last one."""
        found: list[StepRecord | Reading] = []
        bar: int | None = None
        for state in text.rsplit("\r", MAX_STATES)[-MAX_STATES:]:
            state = state[:MAX_SEGMENT]
            if drawn := _TQDM_BAR.search(state):
                bar = int(drawn[1])
            if not _MAY_HAVE_NUMBERS.search(state):
                continue
            one = read(state) or self.unnumbered(state)
            if isinstance(one, Reading) and bar is not None and "loss" in one.numbers:
                one = replace(one, step=bar).record() or one
            if one is not None and found and _is_redrawn(found[-1], one):
                found[-1] = one
            elif one is not None:
                found.append(one)
        return found

    def unnumbered(self, text: str) -> Reading | None:
        """Parse one line whose step is shown elsewhere, by a bar or by the lines around it; None: it is none, or has its step."""
        last = self._last
        reading = last[1] if last is not None and last[0] is text else self.parse(text)
        known = self._formats.get(self.name or "")
        if reading is None or reading.step is not None or known is None:
            return None
        names = reading.numbers.keys()
        # Objects of JSON may have a loss of anything; those of a training have more.
        is_of_training = known.name == "json" and not names.isdisjoint(("lr", "grad_norm"))
        return reading if known.bar or is_of_training or "skipped" in names else None

    def announce_epoch(self, text: str) -> None:
        """Note the epoch or the step that a line without numbers names, for the lines below it."""
        text = plain(text)
        step = announced_step(text)
        if step is not None:
            self._announced.announce(step)
            self.counts_epochs = True
            return
        place = place_in(text)
        if place is not None and place.epoch is not None and place.index is None:
            self._epochs.announce(place)
            self._announced.announce_epoch()
            self.counts_epochs = True

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
                if known.name != "own":
                    reading = self._lone_validation.added(reading, segment[-MAX_SEGMENT:])
                if known.places:
                    reading = self._lone_seconds.added(reading, segment[-MAX_SEGMENT:])
                    reading = self._placed(reading)
                    reading = self._announced.numbered(reading)
                bars = _TQDM_BAR.findall(text) if known.bar and reading.step is None else []
                if bars and "loss" in reading.numbers:
                    reading = replace(reading, step=int(bars[-1]))
                return self._in_block(known, reading) if known.block else reading
        return None

    def _placed(self, reading: Reading) -> Reading:
        """Give a line the step of its place in its epoch."""
        place = reading.place
        if place is None or reading.step is not None:
            return reading
        self.counts_epochs |= place.epoch is not None or place.total is not None
        step = self._epochs.step(
            place, is_validated={"loss", "validation_loss"} <= reading.numbers.keys()
        )
        if step is None and "validation_loss" in reading.numbers:
            # Its training loss is a mean over the epoch, beside losses of steps.
            loss = reading.numbers["validation_loss"]
            step, reading = (
                self._epochs.end_of(place),
                replace(reading, numbers={"validation_loss": loss}),
            )
        return replace(reading, place=None, step=step)

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


def _is_redrawn(before: StepRecord | Reading, after: StepRecord | Reading) -> bool:
    """Whether a state of a bar shows the step of the one before."""
    if not (isinstance(before, StepRecord) and isinstance(after, StepRecord)):
        return False
    return before.step == after.step and (after.loss is not None or before.loss is None)


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
