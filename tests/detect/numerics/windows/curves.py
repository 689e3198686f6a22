"""Short windows of healthy and of sick curves: real ones where they are at hand, and synthetic ones of many kinds."""

import csv
import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from runner.facts.messages.signals import StepRecord

REAL = Path(__file__).parents[4] / "../shared/data/curves"
MIN_SAMPLES, MAX_SAMPLES = 3, 24
# Samples around the events of a real curve that are left out of the healthy windows.
BEFORE_EVENT, AFTER_EVENT = 20, 400

Records = list[StepRecord]
Kind = Callable[[random.Random, int], Records]


def records(losses: list[float], norms: list[float], first: int = 0, stride: int = 10) -> Records:
    """Make records of logarithms."""
    return [
        StepRecord(step=first + n * stride, loss=math.exp(loss), grad_norm=math.exp(norm))
        for n, (loss, norm) in enumerate(zip(losses, norms, strict=True))
    ]


def _noise(dice: random.Random, num: int) -> Records:
    level, spread = math.log(dice.uniform(0.3, 10)), 10 ** dice.uniform(-3, -0.8)
    losses = [level + dice.gauss(0, spread) for _ in range(num)]
    return records(losses, [dice.gauss(0, 2 * spread) for _ in range(num)])


def _heavy_tails(dice: random.Random, num: int) -> Records:
    spread = 10 ** dice.uniform(-2, -1.2)

    def sample() -> float:
        squares = sum(dice.gauss(0, 1) ** 2 for _ in range(5)) / 5
        return spread * dice.gauss(0, 1) / math.sqrt(squares)

    return records([1 + sample() for _ in range(num)], [2 * sample() for _ in range(num)])


def _warm_up(dice: random.Random, num: int) -> Records:
    top, end, rate = dice.uniform(5, 12), dice.uniform(1, 4), dice.uniform(1, 40)
    begin, spread = dice.randint(0, 20), 10 ** dice.uniform(-3, -1)
    decay = [math.exp(-(n + begin) / rate) for n in range(num)]
    losses = [math.log((top - end) * each + end) + dice.gauss(0, spread) for each in decay]
    norms = [math.log(1 + 10 * each) + dice.gauss(0, 0.3) for each in decay]
    return records(losses, norms, first=begin)


def _small_batches(dice: random.Random, num: int) -> Records:
    spread = dice.uniform(0.05, 0.2)
    losses = [dice.gauss(0, spread) for _ in range(num)]
    return records(losses, [dice.gauss(0, 2 * spread) for _ in range(num)])


def _scale_search(dice: random.Random, num: int) -> Records:
    top, end = dice.choice((16, 32)), dice.randint(8, 15)
    scales = [max(2.0**end, 2.0 ** (top - n)) for n in range(num)]
    return [
        replace(one, loss_scale=scale, skipped=scale > 2.0**end)
        for one, scale in zip(_noise(dice, num), scales, strict=True)
    ]


def _late(dice: random.Random, num: int) -> Records:
    found = _warm_up(dice, num)
    if num > 4:
        at = dice.randrange(1, num - 1)
        found[at], found[at + 1] = found[at + 1], found[at]
    return found


def _restart(dice: random.Random, num: int) -> Records:
    """Resume from earlier steps, whose losses were higher."""
    found = _warm_up(dice, num)
    at = dice.randrange(1, num)
    return [*found[:at], *found[max(0, at - dice.randint(1, 8)) :]][:num]


def _wandering(dice: random.Random, num: int) -> Records:
    """Let each sample depend on the one before, as with data that changes slowly, by up to 3 %."""
    memory, spread = dice.choice((0.5, 0.8, 0.9, 0.95)), 10 ** dice.uniform(-3, -1.5)
    level, away = math.log(dice.uniform(0.3, 10)), dice.gauss(0, spread)
    losses = []
    for _ in range(num):
        away = memory * away + dice.gauss(0, spread * math.sqrt(1 - memory**2))
        losses.append(level + away)
    return records(losses, [dice.gauss(0, 0.2) for _ in range(num)])


def slow_rise(dice: random.Random, num: int) -> Records:
    """Let a loss fall for a while, and rise by a fifth and more to the end, at a learning rate that stays."""
    lowest = dice.randint(0, num // 3)
    rise, spread = dice.uniform(0.2, 1.0), 10 ** dice.uniform(-2, -1.2)
    losses = [
        (0.05 * (lowest - n) if n < lowest else rise * (n - lowest) / (num - lowest))
        + dice.gauss(0, spread)
        for n in range(num)
    ]
    return [replace(one, lr=1e-4) for one in records(losses, [0.0] * num)]


HEALTHY: dict[str, Kind] = {
    "noise": _noise,
    "heavy tails": _heavy_tails,
    "warm-up": _warm_up,
    "small batches": _small_batches,
    "search for the loss scale": _scale_search,
    "late samples": _late,
    "restart": _restart,
    "wandering": _wandering,
}


def real_curves() -> dict[str, tuple[Records, list[int]]]:
    """Return real curves and the steps of their events; none where the folder is not there."""
    if not REAL.exists():
        return {}
    events = json.loads((REAL / "events.json").read_text())
    return {name: (_read(REAL / name), known["events"]) for name, known in events.items()}


def _read(path: Path) -> Records:
    with path.open() as stream:
        return [
            StepRecord(
                step=int(float(row["step"])),
                loss=float(row["loss"]),
                grad_norm=float(row["grad_norm"]) if row["grad_norm"] else None,
            )
            for row in csv.DictReader(stream)
        ]


def healthy_windows(
    num: int, seed: int, least: int = MIN_SAMPLES, most: int = MAX_SAMPLES
) -> Iterator[tuple[str, Records]]:
    """Yield healthy windows of so many samples, half of them of real curves if these are there."""
    dice, real = random.Random(seed), real_curves()
    kinds = list(HEALTHY.items())
    for _ in range(num):
        size = dice.randint(least, most)
        name, make = dice.choice(kinds)
        if real and dice.random() < 0.5:
            yield from _real_window(dice, real, size)
        else:
            yield name, make(dice, size)


def sums(dice: random.Random, num: int) -> Records:
    """Sum losses up since the begin of an epoch, as some scripts do."""
    mean, spread, first = dice.uniform(0.3, 8), 10 ** dice.uniform(-3, -0.7), dice.randint(0, 20)
    sums = [mean * first]
    for _ in range(num):
        sums.append(sums[-1] + mean * math.exp(dice.gauss(0, spread)))
    return records([math.log(one) for one in sums[1:]], [dice.gauss(0, 0.2) for _ in range(num)])


def with_other_metrics(dice: random.Random, window: Records) -> Records:
    """Return a window with a learning rate that falls, validation losses, step times, or with none of these."""
    kind = dice.randrange(6)
    if kind == 0:
        return [replace(one, lr=1e-3 * (1 - n / 30)) for n, one in enumerate(window)]
    if kind == 1:
        return _with_validation(dice, window)
    if kind == 2:
        return _fitted(dice, window)
    if kind == 3:
        spread = 10 ** dice.uniform(-2, -0.3)
        longer = dice.choice((1, 2, 4, 8))
        return [
            replace(
                one,
                step_seconds_max=math.exp(dice.gauss(0, spread))
                * (longer if n % longer == 0 else 1),
            )
            for n, one in enumerate(window)
        ]
    return window if kind == 4 else _with_throughput(dice, window)


def _with_throughput(dice: random.Random, window: Records) -> Records:
    """Add a throughput of much noise, which is low for single samples, one in twenty."""
    level, spread = dice.uniform(1e3, 1e5), 10 ** dice.uniform(-3, -0.5)
    return [
        replace(
            one,
            tokens_per_second=level
            * math.exp(dice.gauss(0, spread))
            / (3 if dice.random() < 0.05 else 1),
        )
        for one in window
    ]


def _with_validation(dice: random.Random, window: Records) -> Records:
    """Add a validation loss that stays where it is."""
    level, spread = math.log(window[0].loss or 1), 10 ** dice.uniform(-3, -1)
    return [replace(one, validation_loss=math.exp(dice.gauss(level, spread))) for one in window]


def _fitted(dice: random.Random, window: Records) -> Records:
    """Let both losses fall, the validation loss less, from a multiple of the other."""
    level, fall = math.log(window[0].loss or 1), dice.uniform(0, 0.1)
    above, spread = math.log(dice.choice((1, 1.2, 2, 4))), 10 ** dice.uniform(-3, -1)
    return [
        replace(
            one,
            loss=math.exp(level - fall * n + dice.gauss(0, spread / 3)),
            validation_loss=math.exp(level + above - 0.3 * fall * n + dice.gauss(0, spread)),
        )
        for n, one in enumerate(window)
    ]


def _real_window(
    dice: random.Random, real: dict[str, tuple[Records, list[int]]], size: int
) -> Iterator[tuple[str, Records]]:
    while True:
        name = dice.choice(list(real))
        curve, events = real[name]
        stride = dice.choice((1, 1, 2, 5, 10))
        if len(curve) <= size * stride:
            continue
        first = dice.randrange(len(curve) - size * stride)
        window = curve[first : first + size * stride : stride]
        apart = curve[1].step - curve[0].step
        begin = window[0].step - AFTER_EVENT * apart
        end = window[-1].step + BEFORE_EVENT * apart
        if not any(begin <= event <= end for event in events):
            yield name, window
            return


def _spike(dice: random.Random, found: Records, at: int) -> Records:
    factor = dice.uniform(1.5, 5)
    return [
        one if n < at else replace(one, loss=(one.loss or 0) * (1 + (factor - 1) * 0.8 ** (n - at)))
        for n, one in enumerate(found)
    ]


def _divergence(dice: random.Random, found: Records, at: int) -> Records:
    rate = dice.uniform(1.3, 2)
    return [
        one if n < at else replace(one, loss=(one.loss or 0) * rate ** (n - at + 1))
        for n, one in enumerate(found)
    ]


def _nan(_dice: random.Random, found: Records, at: int) -> Records:
    return [one if n < at else replace(one, loss=math.nan) for n, one in enumerate(found)]


def _scale_collapse(_dice: random.Random, found: Records, at: int) -> Records:
    return [
        replace(one, loss_scale=max(1.0, 65536.0 / 2.0 ** max(0, 2 * (n - at + 1))))
        for n, one in enumerate(found)
    ]


def _explosion(dice: random.Random, found: Records, at: int) -> Records:
    factor = 10 ** dice.uniform(1.5, 5)
    return [
        one if n < at else replace(one, grad_norm=(one.grad_norm or 0) * factor)
        for n, one in enumerate(found)
    ]


SICK: dict[str, Callable[[random.Random, Records, int], Records]] = {
    "spike": _spike,
    "divergence": _divergence,
    "nan": _nan,
    "loss scale": _scale_collapse,
    "gradient": _explosion,
}


def sick_windows(num: int, seed: int) -> Iterator[tuple[str, Records]]:
    """Yield windows of 4 to 12 samples with an onset, at least three samples before it."""
    dice = random.Random(seed)
    for _ in range(num):
        size = dice.randint(4, 12)
        name = dice.choice(list(SICK))
        # A scale takes a few samples to fall.
        last = size - 3 if name == "loss scale" else size - 1
        at = dice.randint(min(3, max(2, last)), max(3, last))
        yield name, SICK[name](dice, _calm(dice, size), at)


def _calm(dice: random.Random, num: int) -> Records:
    level, spread = math.log(dice.uniform(1, 8)), 10 ** dice.uniform(-3, -1.5)
    losses = [level + dice.gauss(0, spread) for _ in range(num)]
    return records(losses, [dice.gauss(0, 0.15) for _ in range(num)])


def real_onsets() -> Iterator[tuple[str, Records]]:
    """Yield windows of 4 to 12 samples around the events of real curves, the onset after the third sample."""
    for name, (curve, events) in real_curves().items():
        for event in events:
            onset = next(n for n, one in enumerate(curve) if one.step >= event)
            for size in range(4, 13):
                for after in range(1, size - 2):
                    yield f"{name} {event}", curve[onset + after - size : onset + after]
