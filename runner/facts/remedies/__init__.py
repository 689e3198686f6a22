"""Remedies: changes to how a run trains, in effect from its next attempt on. One class per remedy.

A class says its bounds, how it joins the remedies that a run has already, and its words. A run's remedies are a mapping
name -> value, composed from those in effect in the order in which they were added, whatever was reverted
in between. Ranks get it in their launch plan, and report each value under the same name among the settings in effect
(docs/contract.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from runner.facts.remedies.learning_rate import LearningRate, LrFactor, LrNow, LrPeak
from runner.facts.remedies.remedy import Remedy, RemedyName, RemedyValue, value_text
from runner.facts.remedies.skipped_steps import SkipSteps
from runner.facts.remedies.training import (
    Betas,
    Clip,
    LossScaleReset,
    OptimizerReset,
    OptimizerStretch,
    Precision,
    Reset,
)

__all__ = [
    "REMEDIES",
    "LearningRate",
    "LrFactor",
    "LrNow",
    "LrPeak",
    "OptimizerStretch",
    "Remedy",
    "RemedyName",
    "RemedyValue",
    "Reset",
    "SkipSteps",
    "composed",
    "disagreement",
    "rate_in_words",
    "remedies_text",
    "value_text",
]

REMEDIES: dict[str, type[Remedy]] = {
    kind.name: kind
    for kind in (
        LrPeak,
        LrNow,
        LrFactor,
        SkipSteps,
        Clip,
        Betas,
        Precision,
        OptimizerStretch,
        LossScaleReset,
        OptimizerReset,
    )
}
assert tuple(REMEDIES) == get_args(RemedyName)


def composed(added: Iterable[tuple[str, RemedyValue]]) -> dict[str, Any]:
    """Compose a run's remedies from those in effect: name and value, in the order in which they were added."""
    remedies = dict[str, Any]()
    for name, value in added:
        remedies = REMEDIES[name].joined(remedies, value)
    return remedies


def disagreement(remedies: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    """Compare a run's remedies with settings read back: name of each that is not in effect -> why."""
    found = {
        name: REMEDIES[name].disagreement(wanted, settings) for name, wanted in remedies.items()
    }
    return {name: why for name, why in found.items() if why}


def remedies_text(remedies: Mapping[str, Any]) -> str:
    """List remedies with their values: `lr_factor 0.9, skip_steps [[5, 6]]`; "" for none."""
    return ", ".join(f"{name} {value_text(value)}" for name, value in remedies.items())


def rate_in_words(settings: Mapping[str, Any]) -> str:
    """Write the learning rate that a trainer read back, its parts, and other remedies."""
    of_rate, others = list[str](), list[str]()
    for name, kind in REMEDIES.items():
        if name == LrNow.name:
            continue
        if issubclass(kind, LearningRate):
            of_rate.append(f"{kind.label} {settings.get(name)}")
        elif settings.get(name) not in (None, [], ()):
            others.append(f", {kind.label} {settings[name]}")
    return f"lr {settings.get('lr')} ({', '.join(of_rate)}){''.join(others)}"
