"""Steps that are skipped, by counts on the lines of a short log that is over, and loss scales that are far too small."""

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Samples
from runner.facts.faults import Fault

# Lines at the end, the share of steps since the line before that were skipped, the first step that is in no search for a loss
# scale, and the scale above which another search may be on, as after a restart. All chosen.
MIN_LINES, SKIPPED_SHARE, AFTER_SEARCH, SEARCHED_SCALE = 3, 0.5, 100, 2.0**15
# Scales at the end of a log: gradients as they are printed in 16 bits vanish at such a scale. Chosen.
MIN_SMALL, SMALL_SCALE = 2, 2.0**-10


def many_skipped(samples: Samples) -> NumericFinding | None:
    """Find lines, to the end of the log, each of which counts half and more of its steps as skipped."""
    rows = samples.skip_counts()
    num = 0
    while num < len(rows) and rows[-1 - num][2] >= SKIPPED_SHARE * rows[-1 - num][1]:
        num += 1
    if num < MIN_LINES or rows[-num][0] < AFTER_SEARCH:
        return None
    scales = [one.loss_scale for one in samples.records if one.loss_scale is not None]
    if scales and scales[-1] > SEARCHED_SCALE:
        return None
    steps, skipped = sum(one[1] for one in rows[-num:]), sum(one[2] for one in rows[-num:])
    fault: Fault = "loss_scale_floor" if scales and scales[-1] <= 1 else "skipped_steps"
    at_scale = f", at a loss scale of {number(scales[-1])}" if scales else ""
    evidence = (
        f"{skipped} of {steps} steps were skipped in the last {num} of {len(rows)} lines{at_scale}"
    )
    return incident(fault, rows[-num][0], rows[-1][0], evidence)


def vanishing_scale(samples: Samples) -> NumericFinding | None:
    """Find loss scales at the end of a log at which gradients in 16 bits are 0."""
    known = [(one.step, one.loss_scale) for one in samples.records if one.loss_scale is not None]
    small = [(step, scale) for step, scale in known[-MIN_SMALL:] if 0 < scale <= SMALL_SCALE]
    if len(small) < MIN_SMALL:
        return None
    (step, _), (last_step, scale) = small[0], small[-1]
    evidence = f"the loss scale is {number(scale)} at step {last_step} (limit {SMALL_SCALE:.2g}, {MIN_SMALL} times)"
    return incident("loss_scale_floor", step, last_step, evidence)
