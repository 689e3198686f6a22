"""What one remedy is: its bounds, how it joins those a run has, its words, and how what a trainer reads back is compared."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

RemedyName = Literal[
    "lr_peak",
    "lr",
    "lr_factor",
    "skip_steps",
    "clip",
    "betas",
    "precision",
    "optimizer",
    "loss_scale_reset",
    "optimizer_reset",
]
# A number, a text, or a list of those or of lists: plain JSON, in the remedy's own unit.
RemedyValue: TypeAlias = Any
# Both values went through JSON.
TOLERANCE = 1e-6


class Remedy(ABC):
    """What one remedy is; never instantiated. Each `value` is a requested change in the remedy's own unit."""

    name: ClassVar[RemedyName]
    # The command that asks for it: answers to its requests begin with it.
    command: ClassVar[str] = "remedy"
    # What an operator calls it beside its value, in an answer.
    label: ClassVar[str]
    # What the value looks like, for help and refusals.
    form: ClassVar[str]
    # A page's ladder may order it, within its bounds; any other takes a person.
    is_automatic: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Return a run's remedies with this one among them; its value is within bounds."""

    @classmethod
    @abstractmethod
    def words(cls, value: Any) -> str:
        """Write the change as an operator does, and what it changes."""

    @classmethod
    @abstractmethod
    def problem(cls, value: Any) -> str:
        """Return why this value is refused; "" when it is within bounds."""

    @classmethod
    def automatic_problem(cls, _value: Any) -> str:
        """Return why a ladder may not order this value, which is within bounds; "" when it may."""
        return "" if cls.is_automatic else f"{cls.name} is never ordered without a person"

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Any:
        """Read what a person wrote; raises ValueError that says what would do."""

    @classmethod
    def disagreement(cls, wanted: Any, settings: Mapping[str, Any]) -> str:
        """Compare a run's composed value with the settings that its trainer read back; "" when they agree."""
        read = settings.get(cls.name)
        if agrees(wanted, read):
            return ""
        return f"{cls.name} was to be {value_text(wanted)}, the trainer read back {read}"


def agrees(wanted: Any, read: Any) -> bool:
    """Whether two plain values are the same, numbers to 1e-6."""
    if isinstance(wanted, list | tuple) and isinstance(read, list | tuple):
        pairs = zip(wanted, read, strict=False)
        return len(wanted) == len(read) and all(agrees(*pair) for pair in pairs)
    if is_number(wanted) and is_number(read):
        return bool(abs(read - wanted) <= TOLERANCE * abs(wanted))
    return type(wanted) is type(read) and bool(wanted == read)


def value_text(value: Any) -> str:
    """Write a value as `0.9`, `bf16` or `[[5, 6]]`."""
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value)


def is_number(value: object) -> bool:
    """Whether it is a number, which True is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_positive(value: object) -> bool:
    """Whether it is a finite number above 0."""
    return is_number(value) and math.isfinite(value) and value > 0  # type: ignore[arg-type,operator]


def parsed_number(text: str, form: str) -> float:
    """Read a number; raises ValueError that names the form."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number; write {form}") from None


def parsed_list(text: str, form: str) -> list[str]:
    """Split `a,b` or `a b`; raises ValueError for nothing."""
    parts = text.replace(",", " ").split()
    if not parts:
        raise ValueError(f"{text!r} is empty; write {form}")
    return parts


def without(remedies: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the remedies without some."""
    left_out = set(names)
    return {name: value for name, value in remedies.items() if name not in left_out}
