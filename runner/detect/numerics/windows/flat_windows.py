"""Losses and scores of a short log that is over, and that do not move from its first pass over the data on."""

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.constant_loss import MIN_DIGITS, has_digits
from runner.detect.numerics.windows.samples import Samples

# Passes whose training and validation losses are all within this share of the first training loss, from the first or second pass of
# the run on. All chosen: a first pass changes most of all, the losses of two sets of data differ by more unless the model answers
# the same to all of both, and eight numbers agree by no chance.
MIN_FLAT_PASSES, FLAT_SHARE, FIRST_PASSES = 4, 1e-3, (0, 1)


def flat_from_start(samples: Samples) -> NumericFinding | None:
    """Find losses that stay where the first pass left them, of the training and of the validation alike."""
    evaluations = samples.evaluations()
    if not samples.steps_are_passes or len(evaluations) < MIN_FLAT_PASSES:
        return None
    first_step, first, _ = evaluations[0]
    values = [value for _, *losses in evaluations for value in losses]
    if samples.records[0].step not in FIRST_PASSES or first_step not in FIRST_PASSES:
        return None
    if any(abs(value - first) > FLAT_SHARE * first for value in values):
        return None
    if not any(has_digits(value, MIN_DIGITS) for value in values):
        return None
    evidence = (
        f"training and validation loss are between {number(min(values))} and {number(max(values))} in all {len(evaluations)} "
        f"passes over the data, the first ones included (limit {FLAT_SHARE:.1%}): the model answers the same to all data"
    )
    return incident("plateau", first_step, samples.records[-1].step, evidence)
