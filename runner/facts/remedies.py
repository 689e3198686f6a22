"""Remedies: changes to how a run trains, in effect from its next attempt on. One class per remedy.

A class says its bounds, how it joins the remedies that a run has already, and its words. A run keeps its remedies as a mapping
name -> value, in such an order that adding them one by one gives the same mapping again. Ranks get that mapping in their
launch plan, and report each value under the same name among the settings in effect (docs/contract.md).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

RemedyName = Literal["lr_peak", "lr_factor"]
# One request may at most double the learning rate; a typo must not ruin a run. Chosen, not measured.
MAX_LR_FACTOR = 2.0


class Remedy(ABC):
    """What one remedy is; never instantiated. Each `value` is a requested change in the remedy's own unit."""

    name: ClassVar[RemedyName]
    # The command that asks for it: answers to its requests begin with it.
    command: ClassVar[str]
    # What an operator calls it beside its value, in an answer.
    label: ClassVar[str]

    @classmethod
    @abstractmethod
    def joined(cls, remedies: Mapping[str, float], value: float) -> dict[str, float]:
        """Return a run's remedies with this one among them."""

    @classmethod
    @abstractmethod
    def words(cls, value: float) -> str:
        """Write the change as an operator does, and what it changes."""

    @classmethod
    @abstractmethod
    def problem(cls, value: float) -> str:
        """Return why this value is refused; "" when it is within bounds."""


class LearningRate(Remedy):
    """A change to the learning rate."""

    command = "lr"

    @classmethod
    def problem(cls, value: float) -> str:
        """Refuse what is no positive number."""
        if math.isfinite(value) and value > 0:
            return ""
        way_out = "give a positive number such as x0.9 or 5.4e-5"
        return f"{cls.command}: {value} is no learning rate or factor; {way_out}"


class LrFactor(LearningRate):
    """Multiply the whole learning-rate schedule."""

    name = "lr_factor"
    label = "factor"

    @classmethod
    def joined(cls, remedies: Mapping[str, float], value: float) -> dict[str, float]:
        """Factors multiply."""
        return {**remedies, cls.name: remedies.get(cls.name, 1.0) * value}

    @classmethod
    def problem(cls, value: float) -> str:
        """Refuse what more than doubles the rate, too."""
        if math.isfinite(value) and value > MAX_LR_FACTOR:
            limit = f"x{MAX_LR_FACTOR:g} in one request"
            return f"{cls.command}: x{value:g} is more than {limit}; raise it in steps"
        return super().problem(value)

    @classmethod
    def words(cls, value: float) -> str:
        """`learning rate x0.9`."""
        return f"learning rate x{value:g}"


class LrPeak(LearningRate):
    """Set the highest learning rate of the schedule."""

    name = "lr_peak"
    label = "peak"

    @classmethod
    def joined(cls, remedies: Mapping[str, float], value: float) -> dict[str, float]:
        """A new peak replaces the one before and the factors on it."""
        others = {name: known for name, known in remedies.items() if name != LrFactor.name}
        return {**others, cls.name: value}

    @classmethod
    def words(cls, value: float) -> str:
        """`learning rate peak 5.4e-05`."""
        return f"learning rate peak {value:g}"


REMEDIES: dict[str, type[Remedy]] = {kind.name: kind for kind in (LrPeak, LrFactor)}
assert tuple(REMEDIES) == get_args(RemedyName)


def rate_in_words(settings: Mapping[str, Any]) -> str:
    """Write the learning rate that a trainer read back, its parts, and other remedies."""
    of_rate, others = list[str](), list[str]()
    for name, kind in REMEDIES.items():
        if issubclass(kind, LearningRate):
            of_rate.append(f"{kind.label} {settings.get(name)}")
        elif name in settings:
            others.append(f", {kind.label} {settings[name]}")
    return f"lr {settings.get('lr')} ({', '.join(of_rate)}){''.join(others)}"
