"""Validation losses of a short log that is over, and that leave the training loss: by a rise since the best one, or far above."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.slow_trends import INCIDENT_RISE, NOTE_RISE
from runner.detect.numerics.windows.orders import order, spread_around_curve
from runner.detect.numerics.windows.samples import Samples

# Evaluations in a row whose validation loss rises, and training loss falls, since the best one, and the rise in times of the noise
# that second differences show. Chosen.
MIN_RISING, RISE_OVER_NOISE = 5, 25.0
# The same with fewer evaluations in a row, among so many, and a rise as for an incident of long curves. Chosen.
MIN_MARKED, MIN_WITH_MARKED, MARKED_OVER_NOISE = 3, 6, 10.0
# Two more in a row, among more, and a smaller rise; chosen.
MIN_SMOOTH, MIN_WITH_SMOOTH, SMOOTH_RISE = 5, 8, 0.06
# Evaluations at the start, while the curve is steep, which are no noise; left out where as many as above remain. Chosen.
NUM_STEEP = 3
# The same where some rises are interrupted: evaluations since the best one, the rise in all, also in times of the noise, and the
# share of their pairs that are in order, less that of those that are not. Chosen: of orders of nine, noise alone reaches it in one
# of ten thousand, and rises then by five times itself.
MIN_ORDERED, ORDERED_RISE, ORDERED_OVER_NOISE, LEAST_ORDER = 9, 0.05, 8.0, 0.8
# Fewer of them, and a clearer order, where the rise is as far above the noise as above. Chosen.
MIN_CLEAR, CLEAR_ORDER = 6, 0.85
# A validation loss so many times the training loss, that rises (as for a note of long curves) while the training loss falls to that
# share of what it was at the best evaluation; its rise in times of the noise, where there are three evaluations or more. Chosen.
APART_RATIO, FALLEN_SHARE, APART_OVER_NOISE = 3.0, 0.8, 8.0
# The same in a few evaluations, whose noise is not known: rises in a row, their sum, the validation loss in times of the training
# loss, and what is left of that since the best evaluation. All chosen: what was learned since then is the training data by heart.
MIN_MEMORISED, MEMORISED_RISE, MEMORISED_RATIO, MEMORISED_SHARE = 2, 0.1, 10.0, 0.5
# The same in any number of evaluations, two at least: the validation loss in times of its best, and what is left of the training
# loss. Chosen: nothing else doubles the one while it takes nine tenths off the other.
HEART_RISE, HEART_SHARE = 2.0, 0.1
# A rise in order that is small: the rise in all, and the order of the validation losses, which noise reaches in one of 50,000
# orders, and of the training losses. Chosen.
SMALL_RISE, STRICT_ORDER, FALLING_ORDER = 0.025, 0.9, 0.6
# A validation loss so many times the training loss that all training data are known by heart, whether more is learned or not; rises
# in a row, and their sum. Chosen.
KNOWN_RATIO, MIN_KNOWN_RISES, KNOWN_RISE = 30.0, 2, 0.05
# Evaluations in all, each with a validation loss so many times the training loss, and how much higher its mean of the later half is
# than that of the earlier one, while the training loss falls as above: noise hides the rise, but not the distance. Chosen.
MIN_FAR_APART, FAR_APART_RATIO, FAR_APART_RISE = 6, 5.0, 0.05
# Evaluations in all, during which the training loss falls in each, and how far in all; the first ones, among which the best one is;
# the rise of the last one, and the rise between the means of both halves in times of its error by noise. All chosen.
MIN_WIDENING, WIDENING_FALL, FIRST_SHARE, WIDENING_RISE, WIDENING_OVER_NOISE = (
    8,
    0.1,
    0.25,
    0.1,
    4.5,
)
# Evaluations in a row at which the validation accuracy falls, those before, and the share that is left at last. Chosen: noise falls
# three times in a row, but not so far.
MIN_ACCURACY_FALLS, MIN_BEFORE_FALL, LEFT_ACCURACY = 3, 2, 0.75
# Fewer falls are enough beside a validation loss that rises by so much; chosen.
FALLS_BESIDE_RISE, BESIDE_RISE = 2, 0.05
# Evaluations that show their noise, or else how many intervals between two of them the run is old. Chosen.
MIN_KNOWN, BEGIN_INTERVALS = 4, 2

# Step, training loss and validation loss of each.
_Evaluations = Sequence[tuple[int, float, float]]


@dataclass(frozen=True, slots=True)
class _Rise:
    """The rise of the validation loss since its best evaluation. `since`: that one and all later ones, two or more."""

    evaluations: _Evaluations
    since: _Evaluations

    @property
    def size(self) -> float:
        """By how much the last validation loss is above the best one."""
        return self.since[-1][2] - self.since[0][2]

    @property
    def share(self) -> float:
        """The same in times of the best one."""
        return self.size / self.since[0][2]

    @property
    def noise(self) -> float:
        """Return the noise of the evaluations, without the steep start of the curve."""
        has_steep = len(self.evaluations) >= NUM_STEEP + MIN_WITH_MARKED
        return _noise(self.evaluations[NUM_STEEP:] if has_steep else self.evaluations)

    @property
    def is_clear(self) -> bool:
        """Whether it is far above the noise."""
        return self.size >= MARKED_OVER_NOISE * self.noise

    def is_unbroken(self) -> bool:
        """Whether the validation loss rises, and the training loss falls, from each evaluation to the next."""
        return all(
            now[2] > before[2] and now[1] < before[1] for before, now in pairwise(self.since)
        )

    def is_ordered(self) -> bool:
        """Whether both do so over many evaluations, with interruptions."""
        validation = [value for _, _, value in self.since]
        least = min(order(validation), order([-value for _, value, _ in self.since]))
        num = len(self.since)
        is_long = num >= MIN_ORDERED and least >= LEAST_ORDER
        is_long = is_long and self.size >= ORDERED_OVER_NOISE * self.noise
        is_short = num >= MIN_CLEAR and least >= CLEAR_ORDER and self.is_clear
        return self.share >= ORDERED_RISE and (is_long or is_short)

    def is_by_heart(self) -> bool:
        """Whether the validation loss is a multiple of its best, and next to nothing is left of the training loss."""
        return self.share >= HEART_RISE - 1 and self._ends_above(MEMORISED_RATIO, HEART_SHARE)

    def is_small_and_ordered(self) -> bool:
        """Whether the validation loss rises by little, but nearly always, while the training loss falls."""
        validation = [value for _, _, value in self.since]
        is_long = len(self.since) >= MIN_ORDERED and self.share >= SMALL_RISE
        if not is_long or order(validation) < STRICT_ORDER:
            return False
        falling = order([-value for _, value, _ in self.since])
        return falling >= FALLING_ORDER and self.size >= ORDERED_OVER_NOISE * self.noise

    def is_smooth(self) -> bool:
        """Whether it is a few rises in a row, far above the noise of many evaluations."""
        is_long = len(self.since) > MIN_SMOOTH and len(self.evaluations) >= MIN_WITH_SMOOTH
        return is_long and self.share >= SMOOTH_RISE and self.is_clear

    def is_steady(self) -> bool:
        """Whether it is many rises in a row, along a smooth line."""
        is_long = len(self.since) > MIN_RISING
        return is_long and self.size >= RISE_OVER_NOISE * _noise(self.since)

    def is_marked(self) -> bool:
        """Whether it is some rises in a row, and a large one."""
        is_long = len(self.since) > MIN_MARKED and len(self.evaluations) >= MIN_WITH_MARKED
        return is_long and self.share >= INCIDENT_RISE and self.is_clear

    def is_of_known_data(self) -> bool:
        """Whether the validation loss rises in a row where nothing of the training loss is left."""
        is_long = len(self.since) > MIN_KNOWN_RISES and self.share >= KNOWN_RISE
        rises = all(now[2] > before[2] for before, now in pairwise(self.since))
        return is_long and rises and all(one >= KNOWN_RATIO * loss for _, loss, one in self.since)

    def is_apart(self) -> bool:
        """Whether it ends far above a training loss that has fallen."""
        if not self._ends_above(APART_RATIO, FALLEN_SHARE):
            return False
        if len(self.evaluations) >= MIN_KNOWN:
            return self.size >= APART_OVER_NOISE * _noise(self.evaluations)
        # The first evaluations of a run may rise before the weights are worth anything.
        (best_step, *_), (next_step, *_) = self.since[:2]
        return best_step >= BEGIN_INTERVALS * (next_step - best_step)

    def is_memorised(self) -> bool:
        """Whether it ends so far above the training loss that no noise matters."""
        is_long = len(self.since) > MIN_MEMORISED and self.share >= MEMORISED_RISE
        return is_long and self._ends_above(MEMORISED_RATIO, MEMORISED_SHARE)

    def _ends_above(self, ratio: float, share: float) -> bool:
        _, train, validation = self.since[-1]
        return validation >= ratio * train and train <= share * self.since[0][1]


def leaving_validation(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that rises while the training loss falls: steadily, in order, or far above it."""
    evaluations = samples.evaluations()
    if len(evaluations) < 2:
        return None
    best = min(range(len(evaluations)), key=lambda at: (evaluations[at][2], -at))
    rise = _Rise(evaluations, evaluations[best:])
    is_small = rise.is_small_and_ordered()
    if rise.share < NOTE_RISE and not is_small:
        return None
    in_a_row = (rise.is_steady, rise.is_smooth, rise.is_marked, rise.is_apart, rise.is_memorised)
    in_order = is_small or rise.is_ordered() or rise.is_by_heart() or rise.is_of_known_data()
    if not (in_order or (rise.is_unbroken() and any(judge() for judge in in_a_row))):
        return None
    (_, best_train, best_validation), (step, train, validation) = rise.since[0], rise.since[-1]
    evidence = (
        f"the validation loss rose from {number(best_validation)}, its best, to {number(validation)} at step {step}, while the "
        f"training loss fell from {number(best_train)} to {number(train)}"
    )
    return incident("validation_divergence", rise.since[1][0], step, evidence)


def fitted_far_apart(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that is always far above the training loss, and higher in the later half than in the earlier one."""
    evaluations = samples.evaluations()
    if len(evaluations) < MIN_FAR_APART:
        return None
    if any(validation < FAR_APART_RATIO * train for _, train, validation in evaluations):
        return None
    half = len(evaluations) // 2
    earlier = fmean(validation for _, _, validation in evaluations[:half])
    later = fmean(validation for _, _, validation in evaluations[-half:])
    has_fallen = evaluations[-1][1] <= FALLEN_SHARE * evaluations[0][1]
    if not has_fallen or later < (1 + FAR_APART_RISE) * earlier:
        return None
    evidence = (
        f"the validation loss is {FAR_APART_RATIO:g} times the training loss and more at each of {len(evaluations)} evaluations, "
        f"and rose from {number(earlier)} on average in the earlier half to {number(later)} in the later one"
    )
    return incident("validation_divergence", evaluations[half][0], evaluations[-1][0], evidence)


def widening_gap(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that is best at the start and rises through noise while the training loss falls each time."""
    evaluations = samples.evaluations()
    num = len(evaluations)
    if num < MIN_WIDENING:
        return None
    training = [value for _, value, _ in evaluations]
    validation = [value for _, _, value in evaluations]
    has_fallen = training[-1] <= (1 - WIDENING_FALL) * training[0]
    if not has_fallen or training != sorted(set(training), reverse=True):
        return None
    best = min(validation)
    if validation.index(best) >= FIRST_SHARE * num or validation[-1] < (1 + WIDENING_RISE) * best:
        return None
    half = num // 2
    rise = fmean(validation[-half:]) - fmean(validation[:half])
    if rise < WIDENING_OVER_NOISE * _noise(evaluations) * math.sqrt(2 / half):
        return None
    evidence = (
        f"the validation loss rose from {number(best)}, its best, to {number(validation[-1])} over {num} evaluations, at each of "
        f"which the training loss fell, from {number(training[0])} to {number(training[-1])}"
    )
    return incident("validation_divergence", evaluations[half][0], evaluations[-1][0], evidence)


def falling_accuracy(samples: Samples) -> NumericFinding | None:
    """Find a validation accuracy that falls at each of the last evaluations, far below its best; the training's does not fall."""
    rows = samples.evaluated_scores("accuracy")
    validation, training = [one for *_, one in rows], [one for _, _, one, _ in rows]
    if len(rows) < MIN_BEFORE_FALL + MIN_ACCURACY_FALLS:
        return None
    # The last one of several.
    best = max(range(len(rows)), key=lambda at: (validation[at], at))
    since, losses = validation[best:], [one for *_, one in samples.evaluations()]
    least = (
        FALLS_BESIDE_RISE if losses[-1] > (1 + BESIDE_RISE) * min(losses) else MIN_ACCURACY_FALLS
    )
    has_fallen = since == sorted(set(since), reverse=True) and len(since) > least
    if not has_fallen or since[-1] > LEFT_ACCURACY * since[0] or training[-1] < training[best]:
        return None
    evidence = (
        f"the validation accuracy fell at each of the last {len(since) - 1} evaluations, from {number(since[0])} to "
        f"{number(since[-1])}, while the training accuracy went from {number(training[best])} to {number(training[-1])}"
    )
    return incident("validation_divergence", rows[best + 1][0], rows[-1][0], evidence)


def _noise(evaluations: _Evaluations) -> float:
    """Return the spread of validation losses around a smooth line; 0 of fewer than three."""
    return spread_around_curve([value for _, _, value in evaluations])
