"""A short log that is over, judged as a whole: what an engineer sees in a handful of pasted samples.

These judges look at samples after an onset, too, so they are of logs that are read offline. A live run has only the detectors
that judge each sample as it comes: a verdict that acts needs more evidence than one that is printed.
"""

from collections.abc import Callable, Mapping, Sequence

from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.windows.losses.loss_windows import (
    both_losses,
    falling_scale,
    growth,
    last_not_finite,
    risen_level,
    rising_together,
    rising_trend,
    zero_losses,
)
from runner.detect.numerics.windows.losses.runaway_windows import (
    absurd_loss,
    divergence_from,
    loss_without_bound,
    rising_end,
    saturated_loss,
    second_level,
    turned_loss,
)
from runner.detect.numerics.windows.losses.smooth_rises import (
    left_smooth_fall,
    smooth_rise,
    worse_passes,
)
from runner.detect.numerics.windows.losses.spike_windows import (
    falling_spike,
    far_above_first,
    repeated_spikes,
    single_spike,
    validation_spike,
)
from runner.detect.numerics.windows.norms.norm_windows import (
    absurd_norms,
    norm_and_loss,
    norm_not_finite,
    risen_norms,
    single_norm,
)
from runner.detect.numerics.windows.norms.steady_norms import (
    drifting_norms,
    jump_off_steady_norms,
)
from runner.detect.numerics.windows.rates.time_windows import (
    creeping_times,
    slower_steps,
    stalled_steps,
    starved_steps,
    uneven_steps,
)
from runner.detect.numerics.windows.samples import Samples
from runner.detect.numerics.windows.scales.skipped_windows import many_skipped, vanishing_scale
from runner.detect.numerics.windows.unlearned.flat_windows import (
    auc_of_guesses,
    equal_rewards,
    flat_from_start,
    guessed_accuracies,
    no_gradients,
    one_answer,
    same_evaluations,
    same_passes,
)
from runner.detect.numerics.windows.unlearned.guess_windows import (
    guessed_classes,
    guessed_words,
    no_norms,
    resting_at_small_accuracy,
)
from runner.detect.numerics.windows.unlearned.learning_windows import (
    fallen_to_chance,
    loss_at_chance,
    loss_without_success,
    repeated_losses,
)
from runner.detect.numerics.windows.unlearned.perplexity_windows import (
    frequencies_only,
    worse_than_guesses,
)
from runner.detect.numerics.windows.validation.memorised import (
    known_by_heart,
    rises_from_the_first,
)
from runner.detect.numerics.windows.validation.smooth_rises import bent_upwards
from runner.detect.numerics.windows.validation.validation_windows import (
    falling_accuracy,
    fitted_far_apart,
    leaving_validation,
    widening_gap,
)
from runner.facts.messages.signals import StepRecord

# A training loss that rises with the validation loss, in times of that beside the best one; chosen.
RISEN_TRAINING = 1.15

Judge = Callable[[Samples], NumericFinding | None]

# In this order: what is certain from one sample on comes before what needs many. The first finding counts.
OF_ANY_LOSS: tuple[Judge, ...] = (
    last_not_finite,
    many_skipped,
    vanishing_scale,
    norm_not_finite,
    equal_rewards,
    absurd_loss,
    absurd_norms,
)
OF_LOSSES: tuple[Judge, ...] = (
    *OF_ANY_LOSS,
    zero_losses,
    saturated_loss,
    falling_scale,
    norm_and_loss,
    both_losses,
    single_spike,
    repeated_spikes,
    falling_spike,
    growth,
    turned_loss,
    loss_without_bound,
    worse_than_guesses,
    risen_level,
    far_above_first,
    second_level,
    rising_end,
    drifting_norms,
    risen_norms,
    single_norm,
    jump_off_steady_norms,
    rising_trend,
    rising_together,
    smooth_rise,
    left_smooth_fall,
    worse_passes,
    no_gradients,
    no_norms,
    repeated_losses,
    flat_from_start,
    same_evaluations,
    same_passes,
    guessed_accuracies,
    auc_of_guesses,
    one_answer,
    loss_at_chance,
    fallen_to_chance,
    loss_without_success,
    frequencies_only,
    guessed_classes,
    guessed_words,
    resting_at_small_accuracy,
    leaving_validation,
    bent_upwards,
    known_by_heart,
    rises_from_the_first,
    fitted_far_apart,
    widening_gap,
    falling_accuracy,
    validation_spike,
)
OF_TIMES: tuple[Judge, ...] = (
    uneven_steps,
    starved_steps,
    slower_steps,
    stalled_steps,
    creeping_times,
)
# Of logs that are not short, but so short that a level of many samples is known late.
OF_LONGER: frozenset[Judge] = frozenset(
    (
        rising_trend,
        loss_without_bound,
        auc_of_guesses,
        one_answer,
        fallen_to_chance,
        worse_than_guesses,
    )
)


class ShortLog:
    """Follows one log from its start, and judges it once it is over."""

    def __init__(self) -> None:
        self._samples = Samples()
        self._judges = OF_LOSSES + OF_TIMES
        self._judges_losses = True

    @property
    def is_open(self) -> bool:
        """Whether another record may count."""
        return self._samples.is_open

    def add(
        self,
        record: StepRecord,
        accuracies: Sequence[float] = (),
        wait: tuple[float, float] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Add a record of a line, with the accuracies on it, between 0 and 1, and a step's seconds and its wait for data.

        `scores`: accuracy, auc, validation_accuracy, validation_auc, equal_rewards and perplexity, as far as the line has them.
        """
        self._samples.add(record, accuracies, wait, scores)

    def leave_out_losses(self) -> None:
        """Judge no loss: it is one of a policy or an adversary, which rises and wanders in healthy runs."""
        self._judges = OF_ANY_LOSS + OF_TIMES
        self._judges_losses = False

    def trust_times(self) -> None:
        """Take step times to be of batches of one size: each line says so."""
        self._samples.has_one_batch_size = True

    def doubt_times(self) -> None:
        """Judge no step time and no throughput: its lines have sizes, which change."""
        self._judges = tuple(one for one in self._judges if one not in OF_TIMES)

    def count_passes(self) -> None:
        """Take each step to be a pass over the data: its lines name no other counter."""
        self._samples.steps_are_passes = True

    def pass_first_passes(self) -> None:
        """Take the log to begin after a first pass over the data: its lines name later ones."""
        self._samples.is_past_passes = True

    def pass_start(self) -> None:
        """Take the log to begin long after the start of its run: its first line says how far it is."""
        self._samples.is_past_start = True

    def note_skips(self, step: int, num: int) -> None:
        """Note how many steps the line of this step counts as skipped, since the line before."""
        self._samples.note_skips(step, num)

    def training_rises_since(self, onset_step: int) -> bool:
        """Whether a training loss that is printed beside the validation loss rises, too, since the best one before this step."""
        evaluations = self._samples.evaluations()
        before = [one for one in evaluations if one[0] < onset_step]
        if not before or not self._judges_losses:
            return False
        _, training, _ = min(before, key=lambda one: one[2])
        return evaluations[-1][1] >= RISEN_TRAINING * training

    def divergence_from(self, onset_step: int) -> NumericFinding | None:
        """Return the divergence that began with a spike at this step; None: it was a spike, or the log is too long."""
        return divergence_from(self._samples, onset_step) if self._judges_losses else None

    def finding(self) -> NumericFinding | None:
        """Return what the log shows; None: nothing, or it is no short one."""
        judges = (
            self._judges
            if self._samples.is_short
            else [one for one in self._judges if one in OF_LONGER]
        )
        found = (judge(self._samples) for judge in judges)
        return next((one for one in found if one is not None), None)
