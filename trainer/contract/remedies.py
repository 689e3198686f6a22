"""Remedies of the run, as the rank gets them: read within their bounds, and what they change in the settings."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.errors import SpecError
from runner.facts.remedies import REMEDIES, Reset
from runner.facts.remedies.training import OptimizerStretch
from trainer.config.settings import Settings

# All that Stoker knows; the hello names them.
SUPPORTED = tuple(REMEDIES)
RESETS = tuple(name for name, kind in REMEDIES.items() if issubclass(kind, Reset))
# Of these a run's value is a list of the values that were ordered.
_LISTED = (OptimizerStretch.name, *RESETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """Durable changes to the run. None: as the settings say. `resets`: kind -> names of those that are to have happened."""

    lr_factor: float = 1.0
    lr_peak: float | None = None
    lr: float | None = None
    skip_steps: tuple[tuple[int, int], ...] = ()
    clip: float | None = None
    betas: tuple[float, float] | None = None
    precision: str | None = None
    # First and last training step of stretches of plain SGD.
    sgd: tuple[tuple[int, int], ...] = ()
    resets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def changed(self, settings: Settings) -> Settings:
        """Return the settings with what remedies replace of them."""
        optimizer, precision = settings.optimizer, settings.precision
        if self.clip is not None:
            optimizer = dataclasses.replace(optimizer, clip=self.clip)
        if self.betas is not None:
            optimizer = dataclasses.replace(optimizer, betas=self.betas)
        if self.precision is not None:
            precision = dataclasses.replace(precision, dtype=self.precision)  # type: ignore[arg-type]
        return dataclasses.replace(settings, optimizer=optimizer, precision=precision)


def read_remedies(text: str) -> Remedies:
    """Read STOKER_REMEDIES; raises SpecError that names remedy and value. What this release does not know is passed over."""
    try:
        plain = json.loads(text)
        known = {name: value for name, value in plain.items() if name in REMEDIES}
    except (AttributeError, ValueError) as error:
        raise SpecError(f"STOKER_REMEDIES cannot be read: {error}; it is {text!r}") from error
    for name, value in known.items():
        _check(name, value)
    return Remedies(
        lr_factor=float(known.get("lr_factor", 1.0)),
        lr_peak=known.get("lr_peak"),
        lr=known.get("lr"),
        skip_steps=tuple((first, last) for first, last in known.get("skip_steps", ())),
        clip=known.get("clip"),
        betas=tuple(known["betas"]) if "betas" in known else None,
        precision=known.get("precision"),
        sgd=tuple((first, last) for _, first, last in known.get("optimizer", ())),
        resets={name: tuple(known.get(name, ())) for name in RESETS},
    )


def _check(name: str, value: Any) -> None:
    """Raise SpecError for a value out of bounds. The product of several factors may exceed what one may have."""
    kind = REMEDIES[name]
    is_listed = name in _LISTED
    if is_listed and not isinstance(value, list):
        raise SpecError(f"STOKER_REMEDIES: {name} = {value!r}; it must be a list of {kind.form}")
    for each in value if is_listed else [value]:
        wrong = kind.problem(min(each, 1.0) if name == "lr_factor" else each)
        if wrong:
            raise SpecError(f"STOKER_REMEDIES: {name} = {value!r}: {wrong}")
