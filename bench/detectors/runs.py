"""Runs to judge detectors on: healthy ones without end, and faults put into them at known steps.

Healthy noise comes from curves of others where they are at hand (stationary block bootstrap of what is left after the trend, so
that neighbours stay neighbours; Politis and Romano 1994), and from heavy-tailed synthetic runs.
"""

import csv
import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from runner.facts.messages.signals import StepRecord

CURVES = Path(__file__).parents[2] / "../shared/data/curves"
# Parameters were chosen on the first half; the second was examined afterwards.
DEVELOPMENT = (
    "clean_wmt_nadamp_s0_t1.csv",
    "deepspeech_sinv6_s2.csv",
    "gpt2_124m_first_half.csv",
    "wmt_caspr_s3_t4.csv",
)
# Of the running median that is subtracted from a curve.
TREND_SAMPLES = 41
# Left out at a curve's start, where the trend is steeper than the noise.
SETTLED_SHARE = 0.1
# samples
MEAN_BLOCK = 20.0
FAMILIES = ("gauss", "student", "laplace", "wander")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """A curve and where its faults begin."""

    name: str
    kind: str
    records: tuple[StepRecord, ...]
    onsets: tuple[int, ...]
    # Of the fault, for synthetic ones; 0: not known.
    end: int = 0

    @property
    def steps_per_sample(self) -> int:
        """How many steps lie between two samples."""
        return self.records[1].step - self.records[0].step


def labelled_curves() -> list[Labelled]:
    """Read the curves of others; none where they are not at hand."""
    if not (CURVES / "events.json").is_file():
        return []
    labels = json.loads((CURVES / "events.json").read_text())
    return [
        Labelled(
            name=name,
            kind=label["kind"],
            records=tuple(_records(CURVES / name)),
            onsets=tuple(label["events"]),
        )
        for name, label in sorted(labels.items())
    ]


def _records(path: Path) -> Iterator[StepRecord]:
    with path.open(newline="") as stream:
        for row in csv.DictReader(stream):
            yield StepRecord(
                step=int(row["step"]), loss=float(row["loss"]), grad_norm=float(row["grad_norm"])
            )


def residuals(curve: Labelled) -> list[tuple[float, float]]:
    """Return what logarithms of loss and gradient norm differ from their running medians by, once the run has settled."""
    settled = curve.records[int(SETTLED_SHARE * len(curve.records)) :]
    losses = [math.log(record.loss or 1.0) for record in settled]
    norms = [math.log(record.grad_norm or 1.0) for record in settled]
    return list(zip(_detrended(losses), _detrended(norms), strict=True))


def _detrended(values: Sequence[float]) -> list[float]:
    half = TREND_SAMPLES // 2
    return [
        values[at] - sorted(values[at - half : at + half + 1])[half]
        for at in range(half, len(values) - half)
    ]


def bootstrap(
    pool: Sequence[tuple[float, float]], chance: random.Random
) -> Iterator[tuple[float, float]]:
    """Draw noise without end, in blocks of random length."""
    at = chance.randrange(len(pool))
    while True:
        yield pool[at]
        at = (at + 1) % len(pool)
        if chance.random() < 1 / MEAN_BLOCK:
            at = chance.randrange(len(pool))


def synthetic_noise(family: str, chance: random.Random) -> Iterator[tuple[float, float]]:
    """Draw noise of a family: normal, Student's t with three degrees of freedom, Laplace, or one that also wanders slowly."""
    wander, scale = 0.0, chance.choice((0.005, 0.01, 0.02, 0.04))
    while True:
        wander = 0.98 * wander + chance.gauss(0, 0.2) if family == "wander" else 0.0
        yield scale * (wander + _draw(family, chance)), 8 * scale * _draw(family, chance)


def _draw(family: str, chance: random.Random) -> float:
    if family == "student":
        return chance.gauss(0, 1) / math.sqrt(chance.gammavariate(1.5, 2 / 3))
    if family == "laplace":
        return chance.expovariate(1) * chance.choice((-1, 1))
    return chance.gauss(0, 1)


def healthy(
    noise: Iterator[tuple[float, float]],
    num_samples: int,
    chance: random.Random,
    *,
    steps_per_sample: int = 1,
) -> Iterator[StepRecord]:
    """Make a run: a warm-up in which the loss falls steeply, then a power law; noise around it; throughput with stalls."""
    first, floor, power = chance.uniform(8, 12), chance.uniform(1, 3), chance.uniform(0.3, 0.8)
    warm_up, usual_norm = chance.uniform(20, 200), chance.uniform(0.1, 2.0)
    rate = chance.uniform(1e3, 1e6)
    for at in range(num_samples):
        loss_noise, norm_noise = next(noise)
        loss = floor + (first - floor) * (1 + at / warm_up) ** -power
        norm = usual_norm * (1 + 10 * math.exp(-at / warm_up))
        # An evaluation, a checkpoint, a slow batch.
        stall = 0.4 if chance.random() < 0.01 else 1.0
        yield StepRecord(
            step=at * steps_per_sample,
            loss=loss * math.exp(loss_noise),
            grad_norm=norm * math.exp(min(norm_noise, 50.0)),
            tokens_per_second=rate * stall * math.exp(chance.gauss(0, 0.01)),
        )


def with_spike(run: Sequence[StepRecord], at: int, chance: random.Random) -> list[StepRecord]:
    """Put a spike in: at once to between 1.4 and 4 times the loss, back within 30 samples; the norm jumps too."""
    height, samples = chance.uniform(1.4, 4.0), chance.randint(1, 30)
    return [
        _scaled(record, 1 + (height - 1) * math.exp(-3 * (here - at) / samples), 10.0)
        if at <= here < at + samples
        else record
        for here, record in enumerate(run)
    ]


def with_blow_up(run: Sequence[StepRecord], at: int, chance: random.Random) -> list[StepRecord]:
    """Let the loss climb within 5 to 60 samples to 1.5 to 3 times what it was, and stay there."""
    height, samples = chance.uniform(1.5, 3.0), chance.randint(5, 60)
    return [
        _scaled(record, 1 + (height - 1) * min((here - at + 1) / samples, 1.0), 3.0)
        if here >= at
        else record
        for here, record in enumerate(run)
    ]


def with_drift(run: Sequence[StepRecord], at: int, chance: random.Random) -> list[StepRecord]:
    """Let the loss rise slowly, by 20 to 60 % over 200 to 400 samples."""
    height, samples = chance.uniform(1.2, 1.6), chance.randint(200, 400)
    return [
        _scaled(record, 1 + (height - 1) * min((here - at + 1) / samples, 1.0), 1.0)
        if here >= at
        else record
        for here, record in enumerate(run)
    ]


FAULTS = {"spike": with_spike, "blow-up": with_blow_up, "drift": with_drift}


def _scaled(record: StepRecord, factor: float, norm_factor: float) -> StepRecord:
    assert record.loss is not None
    assert record.grad_norm is not None
    return replace(record, loss=record.loss * factor, grad_norm=record.grad_norm * norm_factor)
