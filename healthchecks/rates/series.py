"""Rates of devices as a series of windows: their median, their dips, and the floor of the model. Pure; for the checks of rates."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from healthchecks.check import Evidence, Judge
from healthchecks.declaration import at_least
from healthchecks.rates.busyness import BUSY
from healthchecks.rates.floors import Floor, floor_of

# Windows, at least, and of them those of warming up, which do not count. Chosen.
LEAST_WINDOWS, WARM_UP_SHARE = 12, 0.25
DIP_QUANTILE = 0.05
# Of a rate to the floor of its model. Where all peers are below it as well, the floor is suspect.
FLOOR_LIMIT = replace(
    at_least(1, "ratio", "floor of the model: healthchecks/rates/floors.py", least=1e-6, most=10),
    better="higher",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateNames:
    """How a check names what it measures: `name` in `unit`, of which one is `scale` of the probe's units."""

    check: str
    name: str
    unit: str
    scale: float

    def full(self, name: str) -> str:
        """Return the name of evidence."""
        return f"{self.check}.{name}"


def busyness_of(
    names: RateNames, percent: float, measure: str, numbers: Mapping[str, Any], judge: Judge
) -> Iterator[Evidence]:
    """Yield whether others used processors or the GPU meanwhile: within the limits evidence, beyond them unknown."""
    device = str(numbers["device"])
    for name, value, note in (
        ("foreign_cpu", percent, measure),
        ("foreign_bytes", float(numbers["foreign_bytes"]), "memory of the GPU in use"),
    ):
        evidence = judge(names.full(name), value, subject=device, note=note)
        if evidence.limit is not None and value > evidence.limit:
            note = f"{BUSY}: {note}, {value:,.4g} {evidence.unit}"
            evidence = judge(names.full(name), None, subject=device, note=note, is_busy=True)
        yield evidence


def rates_of(
    names: RateNames, numbers: Mapping[str, Any], judge: Judge, *, is_busy: bool
) -> Iterator[Evidence]:
    """Judge every series of one device. On a busy node rates are not measured."""
    for series in numbers["series"]:
        subject = f"{numbers['device']} {series['name']}"
        rates = [float(rate) for rate in series["rates"]]
        steady = rates[int(WARM_UP_SHARE * len(rates)) :]
        why = BUSY if is_busy else ""
        if len(rates) < LEAST_WINDOWS:
            why = f"half an answer: {len(rates)} windows of at least {LEAST_WINDOWS}"
        busy = why == BUSY
        model, quantity = str(numbers["model"]), str(series["name"])
        floor = floor_of(model, quantity)
        median = statistics.median(steady) if steady else 0.0
        yield Evidence(
            name=names.full(names.name),
            value=None if why else median / names.scale,
            unit=names.unit,
            subject=subject,
            note=why or _describe(names, series, steady, f"{model}, {_of_floor(floor, names)}"),
            better="higher",
            is_busy=busy,
        )
        dip = quantile(steady, DIP_QUANTILE) / median if median else None
        dip = None if why else dip
        yield judge(names.full("dip_ratio"), dip, subject=subject, note=why, is_busy=busy)
        if floor is not None:
            ratio, note = median / floor.value, _of_floor(floor, names)
            value = None if why else ratio
            name = names.full("floor_ratio")
            yield judge(name, value, subject=subject, note=why or note, is_busy=busy)


def quantile(values: Sequence[float], ratio: float) -> float:
    """Return the value below which `ratio` of all values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(int(ratio * len(ordered)), len(ordered) - 1)]


def _describe(
    names: RateNames, series: Mapping[str, Any], steady: Sequence[float], model: str
) -> str:
    low, high = (quantile(steady, ratio) / names.scale for ratio in (0.05, 0.95))
    return (
        f"{model}; {len(steady)} windows, 90 % of them from {low:,.4g} to {high:,.4g} {names.unit}; "
        f"size {series['size']}"
    )


def _of_floor(floor: Floor | None, names: RateNames) -> str:
    if floor is None:
        return "for which there is no floor: compare it with its peers"
    return f"floor {floor.value / names.scale:,.4g} {names.unit}: {floor.source}"
