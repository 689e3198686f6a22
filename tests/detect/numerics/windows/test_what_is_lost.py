"""Short logs in which what was learned is lost, or nothing is learned: by losses that turn, by accuracies, and by their sizes."""

import math
from collections.abc import Sequence

import pytest

from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.test_short_logs import fault_of, of


@pytest.mark.parametrize(
    ("losses", "fault"),
    [
        ([15.5, 13.0, 3.8, 2.4, 1.4, 5.8, 7.1, 10.0], "divergence"),
        # Fewer falls, fewer rises, a rise that turns, one of three times, and one that begins small.
        ([13.0, 3.8, 2.4, 1.4, 5.8, 7.1, 10.0], ""),
        ([15.5, 13.0, 3.8, 2.4, 1.4, 5.8, 10.0], ""),
        ([15.5, 13.0, 3.8, 2.4, 1.4, 5.8, 10.0, 7.1], ""),
        ([15.5, 13.0, 3.8, 2.4, 1.4, 2.9, 3.1, 4.2], ""),
        ([15.5, 13.0, 3.8, 2.4, 1.4, 2.0, 4.1, 7.0], ""),
    ],
)
def test_a_loss_that_loses_most_of_what_it_learned_has_diverged(
    losses: list[float], fault: str
) -> None:
    """Step by step, to a multiple of its lowest; at a rate that rises meanwhile it may be a search for one."""
    assert fault_of(of(loss=losses)) == fault
    rates = [1e-4 * 3**n for n in range(len(losses))]
    assert fault_of(of(loss=losses, lr=rates)) == ""


@pytest.mark.parametrize(
    ("losses", "rates", "fault"),
    [
        ([1.6, 1.4, 3.4, 6.4, 5.5, 4.9, 4.9, 4.6], [7e-5] * 8, "divergence"),
        ([1.6, 1.4, 3.4, 6.4, 5.5, 4.9, 4.9, 4.6], [1e-6 * n for n in range(1, 9)], ""),
        ([1.6, 1.4, 3.0, 6.4, 5.5, 4.9, 4.9, 4.6], [7e-5] * 8, ""),
        ([1.6, 1.2, 3.4, 6.4, 5.5, 4.9, 4.9, 4.6], [7e-5] * 8, ""),
        ([1.6, 1.4, 3.4, 6.4, 5.5, 4.9, 4.9], [7e-5] * 7, ""),
    ],
)
def test_two_samples_far_below_all_later_ones_are_the_level_that_was_left(
    losses: list[float], rates: list[float], fault: str
) -> None:
    """Where the learning rate does not rise: they lie close together, and many samples follow."""
    found = fault_of(of(loss=losses, lr=rates))
    assert found in (fault, "loss_spike" if fault else "")


@pytest.mark.parametrize(
    ("losses", "fault"),
    [
        ([0.3, 1.4e19], "divergence"),
        ([-3e17, -2e6], "loss_spike"),
        ([1.8e37], "divergence"),
        ([0.26, 3.2e14, 0.25], "loss_spike"),
        # Squares of large targets, and sums of losses.
        ([3.2e16, 2.6e16, 2.1e16], ""),
        ([0.3, 4e9], ""),
    ],
)
def test_a_loss_of_absurd_size_is_a_fault(losses: list[float], fault: str) -> None:
    """In reinforcement learning, too, where losses wander."""
    log = ShortLog()
    log.leave_out_losses()
    for n, loss in enumerate(losses, 1):
        log.add(StepRecord(step=n, loss=loss))
    found = log.finding()
    assert ("" if found is None else found.fault) == fault


def test_gradient_norms_of_absurd_size_are_a_fault() -> None:
    """Twice; those that are printed with their loss scale are smaller."""
    assert fault_of(of(loss=[0.1, 0.14], grad_norm=[3e9, 2e9])) == "grad_norm_spike"
    assert fault_of(of(loss=[0.1, 0.14], grad_norm=[3e9, 2.0])) == ""
    assert fault_of(of(loss=[6.4, 6.3], grad_norm=[98_258.0, 219_645.0])) == ""


@pytest.mark.parametrize(
    ("scales", "fault"),
    [([0.125, 0.0625], "loss_scale_floor"), ([4.0, 2.0], ""), ([0.5, 0.25], "")],
)
def test_steps_that_are_skipped_far_below_a_scale_of_1_are_a_floor(
    scales: Sequence[float], fault: str
) -> None:
    """The sentence may come before the line of its step; what goes on for longer has found its scale."""
    records = [
        record
        for step, scale in enumerate(scales, 17)
        for record in (
            StepRecord(step=step, loss_scale=scale, skipped=True),
            StepRecord(step=step + 1, loss=2.0),
        )
    ]
    assert fault_of(records) == fault
    assert fault_of([*records, *(StepRecord(step=n, loss=2.0) for n in range(20, 24))]) == ""


def test_evaluations_with_the_very_same_losses_are_a_plateau() -> None:
    """Of both sets, with all digits; where one of them moves, or is rounded to few, they say nothing."""
    steps = range(1, 6)
    stuck = [StepRecord(step=n, loss=14.5063, validation_loss=14.5063) for n in steps]
    assert fault_of(stuck) == "plateau"
    assert fault_of(stuck[:3]) == ""
    rounded = [StepRecord(step=n, loss=0.01, validation_loss=0.01) for n in steps]
    assert fault_of(rounded) == ""
    moving = [StepRecord(step=n, loss=2.5 - 0.1 * n, validation_loss=14.5063) for n in steps]
    assert fault_of(moving) == ""


@pytest.mark.parametrize(
    ("accuracies", "fault"),
    [
        ((0.5, 0.5), "plateau"),
        ((0.912, 0.5, 0.5), "divergence"),
        ((0.5,), ""),
        ((0.52, 0.52), ""),
    ],
)
def test_accuracies_of_a_guess_after_each_pass_show_that_nothing_is_left(
    accuracies: tuple[float, ...], fault: str
) -> None:
    """Of two sets of data; a better one before shows that something was learned. Passes count, not steps."""
    for counts_passes, expected in ((True, fault), (False, "")):
        log = ShortLog()
        if counts_passes:
            log.count_passes()
        for n, loss in enumerate((1.36, 1.34, 1.09, 0.77, 0.73, 1.03), 210):
            log.add(StepRecord(step=n, loss=loss), accuracies)
        found = log.finding()
        assert ("" if found is None else found.fault) == expected


@pytest.mark.parametrize(
    ("validation", "training", "fault"),
    [
        ([0.93, 0.97, 0.96, 0.93, 0.88, 0.3], [0.91, 0.98, 0.99, 0.99, 0.99, 0.99], "yes"),
        ([0.93, 0.97, 0.96, 0.93, 0.88, 0.8], [0.91, 0.98, 0.99, 0.99, 0.99, 0.99], ""),
        ([0.93, 0.97, 0.96, 0.97, 0.88, 0.3], [0.91, 0.98, 0.99, 0.99, 0.99, 0.99], ""),
        ([0.93, 0.97, 0.96, 0.93, 0.88, 0.3], [0.91, 0.98, 0.9, 0.8, 0.6, 0.4], ""),
    ],
)
def test_a_validation_accuracy_that_falls_while_the_trainings_rises_diverges(
    validation: list[float], training: list[float], fault: str
) -> None:
    """Whatever the validation loss does: with penalties it falls with the training loss."""
    log = ShortLog()
    for n, (held_out, own) in enumerate(zip(validation, training, strict=True), 1):
        record = StepRecord(step=n, loss=1.0 / n, validation_loss=67.0 - 2 * n)
        log.add(record, scores={"accuracy": own, "validation_accuracy": held_out})
    found = log.finding()
    assert ("" if found is None else found.fault) == ("validation_divergence" if fault else "")


@pytest.mark.parametrize(
    ("first", "fallen", "fault"), [(21_500, 0.0, "plateau"), (500, 0.0, ""), (21_500, 0.2, "")]
)
def test_a_language_model_that_only_knows_how_often_words_are_is_stuck(
    first: int, fallen: float, fault: str
) -> None:
    """Late, and flat; one that still falls learns, and one that began just now will."""
    log = ShortLog()
    for n in range(10):
        loss = 7.63 + 0.02 * (-1) ** n - fallen * n
        scores = {"perplexity": math.exp(loss)}
        log.add(StepRecord(step=first + 500 * n, loss=loss), scores=scores)
    found = log.finding()
    assert ("" if found is None else found.fault) == fault


@pytest.mark.parametrize(
    ("validation", "training", "fault"),
    [
        ([0.038, 0.092], [0.048, 0.001], "validation_divergence"),
        ([0.038, 0.06], [0.048, 0.001], ""),
        ([0.038, 0.092], [0.048, 0.02], ""),
    ],
)
def test_two_evaluations_are_enough_where_the_training_data_are_known_by_heart(
    validation: list[float], training: list[float], fault: str
) -> None:
    """Doubled while the training loss lost nine tenths."""
    assert fault_of(of(loss=training, validation_loss=validation)) == fault


@pytest.mark.parametrize(
    ("rates", "fault"),
    [
        ([801.2, 800.7, 800.9, 796.9, 403.2, 108.6], "throughput_drop"),
        # One slow sample, a smaller drop, and rates that were never steady.
        ([801.2, 800.7, 800.9, 796.9, 403.2], ""),
        ([801.2, 800.7, 800.9, 796.9, 503.2, 498.6], ""),
        ([801.2, 600.7, 800.9, 796.9, 303.2, 108.6], ""),
    ],
)
def test_samples_per_second_that_halve_at_the_end_are_a_drop(
    rates: list[float], fault: str
) -> None:
    """Tokens per second, which are printed more often, need more samples."""
    assert fault_of(of(samples_per_second=rates)) == fault
    assert fault_of(of(tokens_per_second=rates)) == ""


@pytest.mark.parametrize(
    ("training", "validation", "fault"),
    [
        ([3.03, 3.032, 3.036, 3.041, 3.048], [3.13, 3.135, 3.14, 3.145, 3.152], "divergence"),
        ([3.03, 3.032, 3.036, 3.041], [3.13, 3.135, 3.14, 3.145], ""),
        ([3.03, 3.032, 3.036, 3.035, 3.048], [3.13, 3.135, 3.14, 3.145, 3.152], ""),
        ([3.03, 3.0301, 3.0302, 3.0303, 3.0304], [3.13, 3.135, 3.14, 3.145, 3.152], ""),
    ],
)
def test_losses_that_both_rise_with_each_pass_diverge(
    training: list[float], validation: list[float], fault: str
) -> None:
    """However little; within a pass the data may become harder."""
    for counts_passes, expected in ((True, fault), (False, "")):
        log = ShortLog()
        if counts_passes:
            log.count_passes()
        for n, (loss, held_out) in enumerate(zip(training, validation, strict=True), 3):
            log.add(StepRecord(step=n, loss=loss, validation_loss=held_out))
        found = log.finding()
        assert ("" if found is None else found.fault) == expected


@pytest.mark.parametrize(
    ("losses", "norm", "rate", "fault"),
    [
        ([12.1, 12.06, 12.0, 12.07], 0.0, 0.0, "plateau"),
        # Some trainers print 0 for what they do not measure.
        ([12.1, 12.06, 12.0, 12.07], 0.0, 3e-5, ""),
        ([12.1, 12.06, 12.0, 12.07], 0.1, 0.0, ""),
        ([12.1, 11.9, 11.6, 11.5], 0.0, 0.0, ""),
        ([12.1, 12.06, 12.0], 0.0, 0.0, ""),
    ],
)
def test_gradients_and_rates_of_0_beside_a_loss_that_rests_are_a_plateau(
    losses: list[float], norm: float, rate: float, fault: str
) -> None:
    """In each sample: nothing is learned."""
    num = len(losses)
    assert fault_of(of(loss=losses, grad_norm=[norm] * num, lr=[rate] * num)) == fault


def test_a_validation_loss_of_many_digits_that_never_moves_is_a_plateau() -> None:
    """Beside a training loss that rests, too: the model answers the same to all data."""
    held_out = 0.90144944190979
    resting = [0.9545, 0.9512, 0.9511, 0.9487, 0.9513]
    assert fault_of(of(loss=resting, validation_loss=[held_out] * 5)) == "plateau"
    assert fault_of(of(loss=[2.0, 1.8, 1.6, 1.5, 1.4], validation_loss=[held_out] * 5)) == ""
    assert fault_of(of(loss=resting, validation_loss=[0.9] * 5)) == ""


@pytest.mark.parametrize(
    ("training", "validation", "fault"),
    [
        ([0.39, 0.88, 0.77], [0.365, 0.74, 0.67], "loss_spike"),
        ([0.39, 0.78, 0.88], [0.365, 0.74, 0.77], "divergence"),
        ([0.39, 0.88, 0.42], [0.365, 0.74, 0.67], ""),
        ([0.39, 0.88, 0.77], [0.365, 0.5, 0.5], ""),
    ],
)
def test_both_losses_that_double_and_stay_are_a_jump(
    training: list[float], validation: list[float], fault: str
) -> None:
    """After one evaluation or more; one that comes back, or is of one loss alone, is none."""
    assert fault_of(of(loss=training, validation_loss=validation)) == fault


def test_a_weighted_cross_entropy_of_a_probability_of_0_is_a_divergence() -> None:
    """A multiple of the highest one, met twice; once it may be a loss like others."""
    top = round(20 * 87.33654475, 2)
    assert fault_of(of(loss=[184.354, top, top])) == "divergence"
    assert fault_of(of(loss=[184.354, top])) == ""
    assert fault_of(of(loss=[184.354, 1745.73, 1745.73])) == ""


def test_a_step_of_hours_after_steady_ones_is_a_stall() -> None:
    """Of passes over the data; a step of minutes may be one that saves."""
    assert fault_of(of(step_seconds_max=[72.0, 72.0, 73.0, 89.0, 4977.0])) == "throughput_drop"
    assert fault_of(of(step_seconds_max=[7.2, 7.2, 7.3, 8.9, 497.7])) == ""
    assert fault_of(of(step_seconds_max=[72.0, 372.0, 73.0, 89.0, 4977.0])) == ""


def test_a_loss_scale_that_ends_at_0_is_a_floor() -> None:
    """One that always was 0 is not measured."""
    scales = [4.0, 1.0, 0.0]
    assert fault_of(of(loss=[9.5, 9.4, 9.6], loss_scale=scales)) == "loss_scale_floor"
    assert fault_of(of(loss=[9.5, 9.4, 9.6], loss_scale=[0.0] * 3)) == ""


def test_a_loss_and_accuracies_that_no_pass_moves_are_a_plateau() -> None:
    """To all digits; losses below 0, too. Where much was learned before, it is an end."""
    for first, level, accuracy, fault in (
        (1.9112, 1.9105, 0.5378, "plateau"),
        (-55.0254, -55.0284, 0.1141, "plateau"),
        (3.1234, 0.2989, 0.9, ""),
    ):
        log = ShortLog()
        log.count_passes()
        for n in range(1, 7):
            log.add(StepRecord(step=n, loss=first if n == 1 else level), [accuracy])
        found = log.finding()
        assert ("" if found is None else found.fault) == fault


def test_a_schedule_that_begins_again_raises_the_loss() -> None:
    """Its learning rate is printed; at a rate that stays the same rise has another cause."""
    losses = [0.5, 0.502, 0.498, 0.501, 0.499, 0.7, 0.68, 0.66]
    assert fault_of(of(loss=losses, lr=[1e-5] * 5 + [0.1] * 3)) == ""
    assert fault_of(of(loss=losses, lr=[1e-5] * 8)) == "loss_spike"


@pytest.mark.parametrize(
    ("training", "validation", "fault"),
    [
        ([0.034, 0.034, 0.034], [3.196, 3.32, 3.37], "yes"),
        ([0.034, 0.034, 0.034], [3.196, 3.22, 3.25], ""),
        ([0.34, 0.34, 0.34], [3.196, 3.32, 3.37], ""),
    ],
)
def test_a_validation_loss_that_rises_where_nothing_is_left_to_learn_diverges(
    training: list[float], validation: list[float], fault: str
) -> None:
    """Whatever the training loss does: it is next to nothing."""
    found = fault_of(of(loss=training, validation_loss=validation))
    assert found == ("validation_divergence" if fault else "")
