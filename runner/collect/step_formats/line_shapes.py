"""Line shapes: a trainer's lines differ in their numbers only, so the field of each number is learned once.

A format's parser is the truth, and a shape a cache of it: used after it agreed with several lines,
compared again with every CHECKED_EVERY-th line, and dropped at the first difference. A line with
two equal numbers is ambiguous, so no shape is learned of it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from runner.facts.messages.signals import StepRecord

# All chosen, not measured.
AGREED = 3
CHECKED_EVERY = 64
MAX_SHAPES = 256
MAX_CHARACTERS = 2000
# Signs are part of the shape: a negative number may mean something else.
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d*)?(?:[eE][-+]?\d+)?")
_FACTORS = (1.0, 1e-3, 1e-6, 1e-2, 1e3, 1e6, 1e9, 1e12)


@dataclass(slots=True)
class _Shape:
    """The fields of a line's numbers: (field, index among the line's numbers, factor)."""

    places: tuple[tuple[str, int, float], ...]
    num_agreed: int = 0
    num_used: int = 0
    is_wrong: bool = False


class Shapes:
    """Caches how the lines of one log are parsed."""

    def __init__(self, read: Callable[[str], StepRecord | None]) -> None:
        """`read`: the format's parser."""
        self._read = read
        self._known: dict[str, _Shape] = {}

    def read(self, text: str) -> StepRecord | None:
        """Return the same as `read`."""
        if len(text) > MAX_CHARACTERS:
            return self._read(text)
        outline = _NUMBER.sub(_outlined if "," in text else "#", text)
        shape = self._known.get(outline)
        if shape is None:
            return self._learn(outline, text)
        if shape.is_wrong:
            return self._read(text)
        shape.num_used += 1
        if shape.num_agreed >= AGREED and shape.num_used % CHECKED_EVERY:
            return _apply(shape, text)
        record = self._read(text)
        if record == _apply(shape, text):
            shape.num_agreed += 1
        else:
            shape.is_wrong = True
        return record

    def _learn(self, outline: str, text: str) -> StepRecord | None:
        record = self._read(text)
        if record is not None and record.loss is not None and len(self._known) < MAX_SHAPES:
            places = _places(record, text)
            if places is not None:
                self._known[outline] = _Shape(places)
        return record


def _outlined(number: re.Match[str]) -> str:
    """Return what stands for a number: a format may read `1024` where it does not read `1,024`."""
    return "#,#" if "," in number[0] else "#"


def _places(record: StepRecord, text: str) -> tuple[tuple[str, int, float], ...] | None:
    """Return which number of the line each field of a record is; None: it is ambiguous."""
    values = [_value(number) for number in _NUMBER.findall(text)]
    places = []
    for name in StepRecord.__struct_fields__:
        value = getattr(record, name)
        if value is None or value is False:
            continue
        if value is True or not isinstance(value, int | float):
            return None
        candidates = [
            (name, place, factor)
            for place, number in enumerate(values)
            for factor in _FACTORS
            if number and number * factor == value
        ]
        if len(candidates) != 1:
            return None
        places.append(candidates[0])
    return tuple(places)


def _apply(shape: _Shape, text: str) -> StepRecord | None:
    numbers = _NUMBER.findall(text)
    fields: dict[str, float | int] = {}
    for name, place, factor in shape.places:
        value = _value(numbers[place])
        if name == "step":
            if not math.isfinite(value) or value != int(value):
                return None
            fields[name] = int(value)
        else:
            fields[name] = value * factor if factor != 1.0 else value
    return StepRecord(**fields)  # type: ignore[arg-type]


def _value(number: str) -> float:
    return float(number.replace(",", "")) if "," in number else float(number)
