"""Steps that a line of their own announces: "Learning iteration 20/1500", and lines of numbers below it."""

from dataclasses import replace

from runner.collect.step_formats.any_numbers import MAX_EXACT
from runner.collect.step_formats.name_value_pairs import Reading

_OF_STEPS = ("loss", "grad_norm")


class AnnouncedSteps:
    """Gives the numbers below such lines of one log their step, until a line has its own.

    Of several losses below one step the first counts, and from then on those that are called like it; or those of a better name.
    Losses whose names are those of parts have no step below the first such line, since their sum may follow.
    """

    def __init__(self) -> None:
        self._step: int | None = None
        self._num_steps = 0
        # As it was announced last, and the steps of the epochs before, where the counter begins again with each.
        self._last = self._offset = 0
        self._is_new_epoch = False
        # Numbers that the step has by now.
        self._known: set[str] = set()
        # Of the loss that counts.
        self._place: int | None = None
        self._name = ""

    def announce_epoch(self) -> None:
        """Note that an epoch began."""
        self._is_new_epoch = True

    def announce(self, step: int) -> None:
        """Note a step."""
        if self._is_new_epoch and step < self._last:
            self._offset += self._last
        self._last, self._is_new_epoch = step, False
        self._step, self._known = self._offset + step, set()
        self._num_steps += 1

    def numbered(self, reading: Reading) -> Reading:
        """Return the reading of a line with its step, where it is one of the numbers below an announced one."""
        if self._step is None:
            return reading
        if reading.step is not None or reading.place is not None:
            self._step = None
            return reading
        names = reading.numbers.keys()
        if names.isdisjoint(_OF_STEPS) or "skipped" in names:
            return reading
        if "loss" in names:
            if self._num_steps == 1 and reading.loss_place > MAX_EXACT:
                return replace(reading, numbers={})
            is_better = self._place is not None and reading.loss_place < self._place
            if self._place is not None and not is_better and reading.loss_name != self._name:
                return reading
            if is_better:
                self._known.discard("loss")
            self._place, self._name = reading.loss_place, reading.loss_name
        if not self._known.isdisjoint(names):
            return reading
        self._known |= names
        return replace(reading, step=self._step)
