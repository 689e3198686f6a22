"""Single losses of a short log that are far above those before and after them."""

import math

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Points, Samples, are_positive
from runner.facts.faults import Fault

# A spike: samples before and after it, of all, its ratio to the highest other one, and how many
# times their range it lies above that. All chosen: losses of single small batches differ by a factor of four, and have that range.
SIDE_SAMPLES, SPIKE_SAMPLES, SPIKE_RATIO, SPIKE_RANGES = 2, 6, 4.0, 4.0
# A smaller one off calm losses: samples before and after it, its ratio to the highest of the others, and that in times of their
# range, both as logarithms. Chosen: a batch that differs so much from all others is none of the same data.
CALM_SIDE, CALM_RATIO, CALM_RANGES = 4, 1.6, 10.0
# One that falls back step by step, and is not back yet: samples before it and after it, its ratio to the highest before, that where
# no learning rate is printed, and times the range of those before; and in times of which learning rate a schedule begins again.
# Chosen: a schedule that begins again with a higher rate takes a loss up by a fifth, and lets it fall so.
MIN_CALM, MIN_FALLING, FALLING_RATIO, FALLING_RATIO_ALONE, FALLING_RANGES, RAISED_RATE = (
    4,
    2,
    1.25,
    1.5,
    8.0,
    1.2,
)
# Losses after a first one that is no beginning near 0, and their ratio to it; chosen.
MIN_FAR, LEAST_FIRST, FAR_RATIO = 2, 1.0, 100.0
# The first ratio where the gradient norm of the same line jumps to so many times the highest before; chosen.
FALLING_RATIO_BACKED, NORM_RATIO = 1.12, 8.0
# Of losses that may be below 0: times the range and the size of all others. Several spikes: samples in all, the most of them that
# are spikes, and their ratio to the highest other one. All chosen.
SIGNED_RANGES, MIN_WITH_SPIKES, MOST_SPIKES, SPIKES_RATIO = 20.0, 8, 0.34, 10.0

# Validation losses that lie so close together, and the next one in times of the highest before; the least one that is no rounding.
# Chosen: the same data are judged each time, so that their losses have little noise.
MIN_VALIDATIONS, CLOSE_RATIO, VALIDATION_RATIO, LEAST_VALIDATION = 4, 1.2, 3.0, 0.01


def single_spike(samples: Samples) -> NumericFinding | None:
    """Find one loss far above all others, on both sides of it."""
    losses = samples.losses()
    if len(losses) < SPIKE_SAMPLES or not are_positive(value for _, value in losses):
        return _spike_of_any_sign(losses)
    step, highest = max(losses, key=lambda one: one[1])
    index = losses.index((step, highest))
    if not SIDE_SAMPLES <= index < len(losses) - SIDE_SAMPLES:
        return None
    others = [math.log(value) for at, value in losses if at != step]
    limit = max(math.log(SPIKE_RATIO), SPIKE_RANGES * (max(others) - min(others)))
    if CALM_SIDE <= index < len(losses) - CALM_SIDE:
        calm = max(math.log(CALM_RATIO), CALM_RANGES * (max(others) - min(others)))
        limit = min(limit, calm)
    if math.log(highest) - max(others) < limit:
        return None
    evidence = (
        f"loss {number(highest)} at step {step}: the {len(others)} samples before and after it are between "
        f"{number(math.exp(min(others)))} and {number(math.exp(max(others)))} (limit {number(math.exp(max(others) + limit))})"
    )
    return incident("loss_spike", step, losses[-1][0], evidence)


def _norm_jumps(samples: Samples, step: int) -> bool:
    """Whether the gradient norm of a step is far above all before."""
    norms = [(at, norm) for at, _, norm in samples.losses_and_norms() if norm > 0]
    before = [norm for at, norm in norms if at < step]
    return bool(before) and any(
        at == step and norm >= NORM_RATIO * max(before) for at, norm in norms
    )


def far_above_first(samples: Samples) -> NumericFinding | None:
    """Find a first loss that all later ones, two at least, exceed a hundred times."""
    points = samples.losses()
    values = [value for _, value in points]
    if len(values) <= MIN_FAR or not are_positive(values) or values[0] < LEAST_FIRST:
        return None
    if min(values[1:]) < FAR_RATIO * values[0]:
        return None
    fault: Fault = "divergence" if values[-1] >= values[1] else "loss_spike"
    evidence = (
        f"the loss is {number(min(values[1:]))} and more in all {len(values) - 1} samples after the first one, "
        f"{number(values[0])}"
    )
    return incident(fault, points[1][0], points[-1][0], evidence)


def falling_spike(samples: Samples) -> NumericFinding | None:
    """Find a jump off calm losses from which each later one falls, to the end of the log, and none is back."""
    losses, rates = samples.losses(), samples.rates()
    if not are_positive(value for _, value in losses):
        return None
    logs = [math.log(value) for _, value in losses]
    for index in range(MIN_CALM, len(logs) - MIN_FALLING):
        before, after = logs[:index], logs[index:]
        ratio = FALLING_RATIO if rates else FALLING_RATIO_ALONE
        if _norm_jumps(samples, losses[index][0]):
            ratio = FALLING_RATIO_BACKED
        limit = max(math.log(ratio), FALLING_RANGES * (max(before) - min(before)))
        if after[0] - max(before) < limit or after != sorted(set(after), reverse=True):
            continue
        if after[-1] <= max(before) or (
            rates and max(rates[index:]) > RAISED_RATE * rates[index - 1]
        ):
            continue
        step, value = losses[index]
        evidence = (
            f"loss {number(value)} at step {step}, from which it falls, to {number(losses[-1][1])}: the {index} samples before are "
            f"between {number(math.exp(min(before)))} and {number(math.exp(max(before)))}"
        )
        return incident("loss_spike", step, losses[-1][0], evidence)
    return None


def validation_spike(samples: Samples) -> NumericFinding | None:
    """Find a validation loss at the end of a log that is far above all before, which lie close together."""
    known = [(one.step, one.validation_loss) for one in samples.records]
    points = [(step, value) for step, value in known if value is not None]
    values = [value for _, value in points]
    if len(values) <= MIN_VALIDATIONS or not are_positive(values):
        return None
    before = values[-1 - MIN_VALIDATIONS : -1]
    close = max(before) <= CLOSE_RATIO * min(before)
    if (
        not close
        or values[-1] < VALIDATION_RATIO * max(values[:-1])
        or min(values) < LEAST_VALIDATION
    ):
        return None
    step, value = points[-1]
    evidence = (
        f"validation loss {number(value)} at step {step}: the {MIN_VALIDATIONS} before were between {number(min(before))} and "
        f"{number(max(before))} (limit {VALIDATION_RATIO:g} times)"
    )
    return incident("loss_spike", step, step, evidence)


def _spike_of_any_sign(losses: Points) -> NumericFinding | None:
    """Find one loss above all others by many times their range, where losses may be below 0."""
    if len(losses) < SPIKE_SAMPLES or not all(math.isfinite(value) for _, value in losses):
        return None
    step, highest = max(losses, key=lambda one: one[1])
    index = losses.index((step, highest))
    others = [value for at, value in losses if at != step]
    width = max(others) - min(others)
    limit = max(others) + SIGNED_RANGES * max(width, max(map(abs, others)))
    if not SIDE_SAMPLES <= index < len(losses) - SIDE_SAMPLES or highest < limit or not width:
        return None
    evidence = (
        f"loss {number(highest)} at step {step}: the {len(others)} samples before and after it are between {number(min(others))} "
        f"and {number(max(others))} (limit {number(limit)})"
    )
    return incident("loss_spike", step, losses[-1][0], evidence)


def repeated_spikes(samples: Samples) -> NumericFinding | None:
    """Find a few losses far above all others, at least one of them with others on both sides."""
    losses = samples.losses()
    if len(losses) < MIN_WITH_SPIKES or not are_positive(value for _, value in losses):
        return None
    ordered = sorted(math.log(value) for _, value in losses)
    usual = ordered[: len(ordered) - int(MOST_SPIKES * len(ordered))]
    limit = usual[-1] + max(math.log(SPIKES_RATIO), SPIKE_RANGES * (usual[-1] - usual[0]))
    high = [at for at, (_, value) in enumerate(losses) if math.log(value) > usual[-1]]
    if not high or any(math.log(losses[at][1]) < limit for at in high):
        return None
    alone = [
        at
        for at in high
        if SIDE_SAMPLES <= at < len(losses) - SIDE_SAMPLES
        if not {at - 2, at - 1, at + 1, at + 2} & set(high)
    ]
    if not alone:
        return None
    step, value = losses[alone[0]]
    evidence = (
        f"loss {number(value)} at step {step}, one of {len(high)} that are {SPIKES_RATIO:g} times and more above the others, "
        f"between {number(math.exp(usual[0]))} and {number(math.exp(usual[-1]))}"
    )
    return incident("loss_spike", step, losses[-1][0], evidence)
