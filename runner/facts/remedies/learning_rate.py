"""Remedies of the learning rate: a factor on the schedule, a new peak for it, or one rate instead of it.

They join in the order in which they are added. A peak, and a rate, replace the peak, the rate and the factors before them; a
factor multiplies what it is added to: the schedule, or the rate. So a run's remedies hold `lr`, or `lr_peak` and `lr_factor`.
"""

from collections.abc import Mapping
from typing import Any

from runner.facts.remedies.remedy import (
    Remedy,
    is_positive,
    parsed_number,
    without,
)

# One request may at most double the learning rate; a typo must not ruin a run. Chosen, not measured.
MAX_LR_FACTOR = 2.0
# What a ladder may take off at once; OPT's team multiplied by 0.9 at most times. Chosen, not measured.
LEAST_AUTOMATIC_FACTOR = 0.5
OF_RATE = ("lr_peak", "lr", "lr_factor")


class LearningRate(Remedy):
    """A change to the learning rate. Its value is a number."""

    command = "lr"
    is_automatic = True

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse what is no positive number."""
        if is_positive(value):
            return ""
        way_out = "give a positive number such as x0.9 or 5.4e-5"
        return f"{cls.command}: {value} is no learning rate or factor; {way_out}"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read a number."""
        return parsed_number(text, cls.form)


class LrFactor(LearningRate):
    """Multiply the whole learning-rate schedule, or the rate that replaced it."""

    name = "lr_factor"
    label = "factor"
    form = "a factor such as 0.9"

    @classmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Factors multiply."""
        name = LrNow.name if LrNow.name in remedies else cls.name
        return {**remedies, name: remedies.get(name, 1.0) * value}

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse what more than doubles the rate, too."""
        if is_positive(value) and value > MAX_LR_FACTOR:
            limit = f"x{MAX_LR_FACTOR:g} in one request"
            return f"{cls.command}: x{value:g} is more than {limit}; raise it in steps"
        return super().problem(value)

    @classmethod
    def automatic_problem(cls, value: Any) -> str:
        """A ladder lowers the rate, and at most to half of it at once."""
        if isinstance(value, float) and LEAST_AUTOMATIC_FACTOR <= value <= 1:
            return ""
        return f"{cls.command}: a ladder may order x{LEAST_AUTOMATIC_FACTOR:g} to x1, not x{value}"

    @classmethod
    def words(cls, value: Any) -> str:
        """`learning rate x0.9`."""
        return f"learning rate x{value:g}"


class LrPeak(LearningRate):
    """Set the highest learning rate of the schedule."""

    name = "lr_peak"
    label = "peak"
    form = "a learning rate such as 5.4e-5"

    @classmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """A new peak replaces the rate before and the factors on it."""
        return {**without(remedies, OF_RATE), cls.name: value}

    @classmethod
    def words(cls, value: Any) -> str:
        """`learning rate peak 5.4e-05`."""
        return f"learning rate peak {value:g}"


class LrNow(LearningRate):
    """Train at one learning rate from the next attempt on, whatever the schedule says."""

    name = "lr"
    label = "rate"
    form = "a learning rate such as 5.4e-5"

    @classmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """A rate replaces the schedule's peak and the factors on it."""
        return {**without(remedies, OF_RATE), cls.name: value}

    @classmethod
    def words(cls, value: Any) -> str:
        """`learning rate 4e-05 instead of the schedule's`."""
        return f"learning rate {value:g} instead of the schedule's"
