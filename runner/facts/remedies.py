"""Remedies: changes to how a run trains, in effect from its next attempt on. One class per remedy.

A class says its bounds, how it joins the remedies that a run has already, and its words. A run keeps its remedies as a mapping
name -> value, in such an order that adding them one by one gives the same mapping again. Ranks get that mapping in their
launch plan, and report each value under the same name among the settings in effect (docs/contract.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

RemedyName = Literal["lr_peak", "lr_factor"]
# One request may at most double the learning rate; a typo must not ruin a run. Chosen, not measured.
MAX_LR_FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Remedy(ABC):
    """One change, as requested: `value` is in the remedy's own unit."""

    value: float
    name: ClassVar[RemedyName]
    # What an operator calls it where the learning rate is the subject.
    label: ClassVar[str]

    @abstractmethod
    def joined_to(self, remedies: Mapping[str, float]) -> dict[str, float]:
        """Return a run's remedies with this one among them."""

    @abstractmethod
    def __str__(self) -> str:
        """Write the change as an operator does."""

    def problem(self) -> str:
        """Say why nobody can want this value; "" when it is within bounds."""
        if math.isfinite(self.value) and self.value > 0:
            return ""
        return (
            f"lr: {self.value} is no learning rate or factor; "
            "give a positive number such as x0.9 or 5.4e-5"
        )


class LrFactor(Remedy):
    """Multiply the whole learning-rate schedule."""

    name = "lr_factor"
    label = "factor"

    def joined_to(self, remedies: Mapping[str, float]) -> dict[str, float]:
        """Factors multiply."""
        return {**remedies, self.name: remedies.get(self.name, 1.0) * self.value}

    def problem(self) -> str:
        """Refuse what more than doubles the rate, too."""
        if math.isfinite(self.value) and self.value > MAX_LR_FACTOR:
            most = f"x{MAX_LR_FACTOR:g}"
            return f"lr: x{self.value:g} is more than {most} in one request; raise it in steps"
        return super().problem()

    def __str__(self) -> str:
        """`x0.9`."""
        return f"x{self.value:g}"


class LrPeak(Remedy):
    """Set the highest learning rate of the schedule."""

    name = "lr_peak"
    label = "peak"

    def joined_to(self, remedies: Mapping[str, float]) -> dict[str, float]:
        """A new peak replaces the one before and the factors on it."""
        others = {name: value for name, value in remedies.items() if name != LrFactor.name}
        return {**others, self.name: self.value}

    def __str__(self) -> str:
        """`peak 5.4e-05`."""
        return f"peak {self.value:g}"


REMEDIES: dict[str, type[Remedy]] = {kind.name: kind for kind in (LrPeak, LrFactor)}
assert tuple(REMEDIES) == get_args(RemedyName)


def rate_in_words(settings: Mapping[str, Any]) -> str:
    """Write the learning rate that a trainer read back, and what it is made of."""
    parts = ", ".join(f"{kind.label} {settings.get(name)}" for name, kind in REMEDIES.items())
    return f"lr {settings.get('lr')} ({parts})"
