"""Short logs whose numbers were steady, or smooth, and change by less than noisy ones would have to: sick ones and healthy ones."""

import math
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.collect.diagnosed_logs import verdicts_of
from tests.detect.numerics.windows.curves import Records
from tests.detect.numerics.windows.test_short_logs import fault_of, of


def late(window: Records, first: int = 5000) -> Records:
    """Let a window begin in the middle of a run."""
    return [replace(one, step=one.step + first) for one in window]


def of_passes(window: Records, scores: Sequence[float] = ()) -> str:
    """Judge a log whose steps are passes over the data, with a training accuracy beside each."""
    log = ShortLog()
    log.count_passes()
    for n, record in enumerate(window):
        accuracies = scores[n : n + 1]
        log.add(record, accuracies, None, {"accuracy": scores[n]} if scores else None)
    found = log.finding()
    return "" if found is None else found.fault


STEADY = [0.31, 0.30, 0.29, 0.31, 0.30, 0.32]
LOSSES = [2.05, 2.06, 2.04, 2.05, 2.05, 2.06, 2.04, 2.05, 2.06]
CONSTANT = [1e-3] * 8


@pytest.mark.parametrize(
    ("fault", "window"),
    [
        # One norm 25 times the steady ones before it, whatever the loss does; four are enough where they are closer together.
        ("grad_norm_spike", of(loss=LOSSES, grad_norm=[*STEADY, 8.1, 0.34, 0.31])),
        ("grad_norm_spike", of(loss=LOSSES[:7], grad_norm=[*STEADY, 8.1])),
        (
            "grad_norm_spike",
            of(loss=LOSSES[:7], grad_norm=[1.01, 0.98, 1.03, 0.99, 57.2, 1.1, 1.0]),
        ),
        # Norms of more noise, and one that is as much further away.
        (
            "grad_norm_spike",
            of(
                loss=LOSSES,
                grad_norm=[3.6, 3.8, 3.1, 2.5, 2.4, 2.5, 5.7, 237.0, 5.0],
            ),
        ),
        # Norms that rise in order, and the loss with them.
        (
            "grad_norm_drift",
            of(
                loss=[2.110, 2.114, 2.121, 2.126, 2.137, 2.142, 2.155, 2.161, 2.174, 2.183],
                grad_norm=[0.22, 0.26, 0.31, 0.38, 0.44, 0.52, 0.66, 0.81, 0.97, 1.2],
            ),
        ),
        # One loss of twice the others, which lie within a few percent.
        ("loss_spike", of(loss=[3.02, 3.01, 3.04, 3.0, 3.03, 6.44, 3.05, 3.04, 3.07, 3.05])),
        # A loss that turns and rises along a smooth line: by much, by less at a known rate, or in every sample of the log.
        ("divergence", of(loss=[4.91, 4.32, 4.11, 5.02, 6.91, 7.88, 7.93])),
        (
            "divergence",
            of(loss=[3.41, 3.36, 3.35, 3.39, 3.47, 3.58, 3.71, 3.88], lr=CONSTANT),
        ),
        ("divergence", of(loss=[0.88, 1.02, 1.64, 4.83, 7.92, 9.13, 9.71], lr=CONSTANT[:7])),
        # A spike that is not over; a first loss that all others are far above; a late loss that rises from its first sample on; one
        # that leaves a smooth fall.
        ("loss_spike", of(loss=[2.61, 2.6, 2.62, 2.6, 2.61, 4.9, 3.4, 2.9, 2.75, 2.68])),
        ("loss_spike", of(loss=[2.6256, 1288.1, 858.96])),
        (
            "divergence",
            late(of(loss=[6.366, 6.598, 7.315, 9.122, 10.24], lr=[6e-5] * 5)),
        ),
        ("divergence", of(loss=[0.2191, 0.1992, 0.1872, 0.1808, 0.1768, 0.275, 0.4821])),
        # A fifth more, which the norm beside it confirms; samples that are each a multiple of the one before; a rise at a known
        # rate whose steps are not those of a sum; a norm after three of a late run.
        (
            "loss_spike",
            of(
                loss=[2.52, 2.51, 2.53, 2.52, 3.02, 2.81, 2.7],
                grad_norm=[0.3, 0.31, 0.3, 0.29, 7.1, 2.2, 1.1],
            ),
        ),
        ("divergence", of(loss=[2.1, 1.8, 2.9, 11.2, 98.0])),
        ("divergence", of(loss=[1.9, 1.7, 2.6, 4.9, 7.2, 8.8], lr=CONSTANT[:6])),
        (
            "grad_norm_spike",
            late(of(loss=LOSSES[:5], grad_norm=[0.5, 0.52, 0.49, 61.0, 0.6])),
        ),
        # A validation loss that rises smoothly at the last of many evaluations.
        (
            "validation_divergence",
            of(
                loss=[6.67, 3.75, 3.48, 3.09, 2.79, 2.57, 2.39, 2.2, 2.01, 1.81, 1.62, 1.45],
                validation_loss=[
                    *(6.66, 3.9, 3.71, 3.43, 3.24, 3.174, 3.168, 3.185, 3.256, 3.325, 3.438, 3.56),
                ],
            ),
        ),
        # A validation loss that falls ever less, and then rises ever more.
        (
            "validation_divergence",
            of(
                loss=[2.31, 1.90, 1.63, 1.37, 1.12],
                validation_loss=[2.10, 1.95, 2.01, 2.158, 2.364],
            ),
        ),
        (
            "validation_divergence",
            of(
                loss=[3.9, 3.4, 3.1, 2.8, 2.4, 2.0],
                validation_loss=[4.1, 3.6, 3.41, 3.43, 3.53, 3.71],
            ),
        ),
        # A scale at which gradients in 16 bits vanish; steps that are slower from one on, to the end.
        ("loss_scale_floor", of(loss=LOSSES[:4], loss_scale=[2e-4, 1e-4, 1e-4, 1e-4])),
        ("throughput_drop", of(step_seconds_max=[11.8, 11.9, 11.8, 11.7, 36.1, 35.8, 36.3])),
        (
            "throughput_drop",
            of(step_seconds_max=[1.0, 1.1, 1.25, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 2.9]),
        ),
        # A tenth of the speed, after two samples that agree, and after one.
        ("throughput_drop", of(samples_per_second=[356.2, 357.3, 158.8, 41.3, 40.9])),
        ("throughput_drop", of(step_seconds_max=[5.59, 92.1, 91.9])),
        ("throughput_drop", of(tokens_per_second=[8000.0, 8010.0, 7990.0, 1500.0, 1490.0, 1510.0])),
        # Both losses at chance, exactly.
        ("plateau", of(loss=[2.31, *[2.3026] * 3], validation_loss=[2.3, *[2.3026] * 3])),
        # Norms of 0 beside a loss that never changes.
        ("plateau", of(loss=[0.3466] * 7, grad_norm=[0.0] * 7, lr=[1e-3] * 7)),
        # A language model that is at the loss of a guess among all words.
        (
            "plateau",
            late(
                of(
                    loss=[10.826, 10.824, 10.827, 10.825, 10.829, 10.826, 10.823, 10.827],
                    tokens_per_second=[6400.0, 6412.0] * 4,
                )
            ),
        ),
        # Gradients that are NaN in both samples of a late part of a run.
        ("nan_loss", late(of(loss=[1.6, 1.64], grad_norm=[math.nan] * 2))),
    ],
)
def test_what_leaves_a_steady_level_is_found(fault: str, window: Records) -> None:
    """Its noise is known to be small, so less is enough."""
    assert fault_of(window) == fault


@pytest.mark.parametrize(
    "window",
    [
        # Norms of a small batch, of a warm-up, and of the first steps.
        of(loss=LOSSES, grad_norm=[2.1, 0.4, 9.9, 0.9, 22.0, 0.6, 5.1, 61.0, 0.3]),
        of(loss=LOSSES, grad_norm=[1.1, 3.9, 8.2, 12.1, 5.5, 3.2, 2.4, 1.9, 1.6]),
        of(loss=LOSSES, grad_norm=[*STEADY, 2.1, 0.4, 0.31]),
        of(loss=LOSSES[:5], grad_norm=[*STEADY[:3], 8.1, 0.34]),
        # Norms that rise while the loss falls, as in a warm-up, or at a rate that rises.
        of(
            loss=[4.1, 4.0, 3.9, 3.85, 3.8, 3.75, 3.7, 3.66, 3.63, 3.6],
            grad_norm=[0.22, 0.26, 0.31, 0.38, 0.44, 0.52, 0.66, 0.81, 0.97, 1.2],
        ),
        of(
            loss=[2.110, 2.114, 2.121, 2.126, 2.137, 2.142, 2.155, 2.161, 2.174, 2.183],
            grad_norm=[0.22, 0.26, 0.31, 0.38, 0.44, 0.52, 0.66, 0.81, 0.97, 1.2],
            lr=[1e-5 * n for n in range(1, 11)],
        ),
        # A loss of small batches, one of which is odd; a schedule that begins again; losses that rise by little, or are a sum.
        of(loss=[1.1, 0.7, 1.6, 0.9, 1.3, 2.9, 0.8, 1.2, 1.5, 1.0]),
        of(
            loss=[1.96, 1.93, 1.91, 2.1, 2.2, 2.26, 2.3],
            lr=[3e-6, 2e-6, 1e-6, 1e-4, 2e-4, 2.5e-4, 3e-4],
        ),
        of(loss=[3.41, 3.36, 3.35, 3.36, 3.39, 3.4, 3.42, 3.43], lr=CONSTANT),
        of(loss=[0.5, 1.02, 1.51, 2.03, 2.5, 3.01, 3.52], lr=CONSTANT[:7]),
        of(loss=[1.2, 0.9, 0.8, 1.0, 0.9, 1.1, 1.2, 1.25]),
        # Evaluations of a small set.
        of(
            loss=[0.9, 0.8, 0.7, 0.65, 0.6],
            validation_loss=[0.71, 0.61, 0.66, 0.57, 0.69],
        ),
        of(loss=[0.52, 0.36, 0.29, 0.25, 0.21], validation_loss=[0.41, 0.36, 0.345, 0.35, 0.36]),
        # A search for the loss scale, a save, the first step, and the time since the start.
        of(loss=LOSSES[:4], loss_scale=[8.0, 4.0, 0.5, 1.0]),
        of(step_seconds_max=[11.8, 11.9, 11.8, 11.7, 46.1, 11.8, 11.9]),
        of(step_seconds_max=[61.2, 4.9, 4.3, 4.3, 4.4, 4.3, 4.3]),
        of(step_seconds_max=[10.0 * n for n in range(1, 12)]),
        # What comes back, or is a mean of fewer at first; one slow sample, and times of ten steps after one of a single step.
        of(loss=[2.61, 2.6, 2.62, 2.6, 2.61, 2.9, 2.8, 2.75, 2.7]),
        of(loss=[0.31, 1288.1, 0.38]),
        of(loss=[2.52, 2.51, 2.53, 2.52, 3.02, 2.81, 2.7]),
        of(loss=LOSSES[:5], grad_norm=[0.5, 0.52, 0.49, 61.0, 0.6]),
        of(loss=[1.9, 1.7, 3.4, 5.2, 7.0, 8.8], lr=CONSTANT[:6]),
        of(loss=[6.366, 6.598, 7.315, 9.122, 10.24], lr=[6e-5] * 5),
        of(samples_per_second=[356.2, 357.3, 158.8, 41.3, 340.9]),
        of(step_seconds_max=[5.59, 58.1, 57.9]),
        # Norms that a trainer does not measure, beside a loss that moves.
        of(loss=LOSSES, grad_norm=[0.0] * 9, lr=[1e-3] * 9),
        # A language model that begins, and one that learns.
        of(
            loss=[10.85, 10.84, 10.83, 10.83, 10.82, 10.82, 10.81, 10.81],
            tokens_per_second=[6400.0, 6412.0] * 4,
        ),
        # The first reports of a search for the loss scale.
        of(loss=[1.6, 1.64], grad_norm=[math.nan] * 2),
    ],
)
def test_what_healthy_runs_show_is_none(window: Records) -> None:
    """Noise, starts, schedules, and what is only printed so."""
    assert fault_of(window) == ""


WORSE = [1.02, 1.11, 1.27, 1.48, 1.83, 2.31]


@pytest.mark.parametrize(
    ("fault", "losses", "accuracies"),
    [
        ("divergence", WORSE, [0.64, 0.61, 0.55, 0.47, 0.34, 0.101]),
        ("plateau", [8.2511, 8.2507, 8.2514, 8.2509] * 2, [0.0003] * 8),
        # Noise of a run that has converged, data that become harder, and a run that rests at a good level.
        ("", [0.31, 0.312, 0.309, 0.313, 0.314, 0.316], [0.9, 0.9, 0.901, 0.899, 0.898, 0.897]),
        ("", [1.02, 1.05, 1.07, 1.08, 1.02, 0.98], [0.64, 0.63, 0.62, 0.615, 0.64, 0.65]),
        ("", [0.2511, 0.2510, 0.2512, 0.2511] * 2, [0.93] * 8),
    ],
)
def test_passes_that_make_both_worse(
    fault: str, losses: Sequence[float], accuracies: Sequence[float]
) -> None:
    """Loss and accuracy of the training data over whole passes, which have little noise."""
    window = [StepRecord(step=n, loss=loss) for n, loss in enumerate(losses, 30)]
    assert of_passes(window, accuracies) == fault


def test_many_passes_that_make_both_worse_nearly_always() -> None:
    """Ten passes have an order that noise seldom has."""
    losses = [0.841, 0.8435, 0.8536, 0.8509, 0.8497, 0.8604, 0.8597, 0.8686, 0.8729, 0.8688]
    accuracies = [0.7277, 0.727, 0.724, 0.7246, 0.7249, 0.7214, 0.7216, 0.7197, 0.7178, 0.7181]
    window = [StepRecord(step=n, loss=loss) for n, loss in enumerate(losses, 129)]
    assert of_passes(window, accuracies) == "divergence"
    assert of_passes(window, list(reversed(accuracies))) == ""
    assert of_passes(window[:8], accuracies[:8]) == ""


def test_absurd_norms_count_whatever_the_loss_is_of() -> None:
    """A policy's loss is not judged, and its gradient norms are."""
    lines = [
        f"step {n}: loss 0.1{n} policy_loss 0.1{n} reward 0.4 grad_norm {norm}"
        for n, norm in ((1, 2955000000.0), (28, 2217400000.0))
    ]
    assert [one.cause.fault for one in verdicts_of("\n".join(lines))] == ["grad_norm_spike"]
    assert verdicts_of("\n".join(lines).replace("000000.0", ".0").replace("400000.0", ".0")) == []


def test_passes_that_take_four_times_as_long() -> None:
    """What trains more layers has another loss from there on."""
    seconds = [24.0, 24.0, 25.0, 24.0, 97.0, 101.0, 99.0]
    for losses, fault in (
        ([0.31, 0.30, 0.29, 0.285, 0.28, 0.276, 0.27], "throughput_drop"),
        ([0.81, 0.80, 0.79, 0.785, 0.51, 0.42, 0.37], ""),
    ):
        assert of_passes(of(loss=losses, step_seconds_max=seconds)) == fault


def _megatron(step: int, skipped: int, scale: float) -> str:
    return (
        f" iteration {step:8d}/  500000 | consumed samples: {step * 512} | elapsed time per iteration (ms): 11873.4 | learning "
        f"rate: 1.5E-04 | global batch size:   512 | lm loss: 2.5{step % 7}E+00 | loss scale: {scale:.1f} | number of skipped "
        f"iterations: {skipped:3d} | number of nan iterations:   0 |"
    )


@pytest.mark.parametrize(
    ("first", "skipped", "scales", "fault"),
    [
        (21010, [6, 8, 7, 9], [64.0, 32.0, 64.0, 32.0], "skipped_steps"),
        (21010, [6, 8, 7, 9], [4.0, 1.0, 1.0, 1.0], "loss_scale_floor"),
        # A step now and then; the search of a start, and the one after a restart.
        (21010, [1, 0, 1, 0], [64.0, 32.0, 32.0, 64.0], ""),
        (10, [10, 10, 6, 0], [4194304.0, 4096.0, 64.0, 64.0], ""),
        (21010, [10, 6, 5, 5], [4194304.0, 65536.0, 131072.0, 65536.0], ""),
    ],
)
def test_counts_of_skipped_steps(
    first: int, skipped: Sequence[int], scales: Sequence[float], fault: str
) -> None:
    """Megatron-LM counts them since the line before."""
    lines = [
        _megatron(first + 10 * n, num, scale)
        for n, (num, scale) in enumerate(zip(skipped, scales, strict=True))
    ]
    assert [one.cause.fault for one in verdicts_of("\n".join(lines))] == [fault] * bool(fault)


def test_times_of_stages_are_not_compared() -> None:
    """A line that names a stage or a phase may be of other work than the one before."""
    for stage, fault in (("", ["throughput_drop"]), ("phase 2 ", [])):
        before = [f"step {n} loss 2.6 step_time 0.41{n}" for n in range(1, 6)]
        after = [f"{stage}step {n} loss 2.5 step_time 1.61{n}" for n in range(6, 10)]
        found = verdicts_of("\n".join([*before, *after]))
        assert [one.cause.fault for one in found] == fault


def test_both_losses_that_rise_are_a_divergence() -> None:
    """A validation loss alone that rises is fitted to the training data."""
    training, validation = (
        [0.41, 0.43, 0.47, 0.52, 0.60, 0.74],
        [0.44, 0.46, 0.49, 0.55, 0.64, 0.77],
    )
    for losses, fault in (
        (training, "divergence"),
        (sorted(training, reverse=True), "validation_divergence"),
    ):
        lines = [
            f"Epoch {n}/50 | train loss: {loss:.4f} | val loss: {held_out:.4f}"
            for n, (loss, held_out) in enumerate(zip(losses, validation, strict=True), 11)
        ]
        assert [one.cause.fault for one in verdicts_of("\n".join(lines))] == [fault]


def test_losses_of_policies_begin_at_zero() -> None:
    """The first that differs is no spike."""
    losses = [0.0, 0.0, 0.0, 0.0001, 0.0, 0.0002, 0.0001, 0.0003, 0.0002, 0.0004]
    lines = [f"step {n}: loss {loss:.4f} grad_norm 0.2" for n, loss in enumerate(losses, 1)]
    assert verdicts_of("\n".join(lines)) == []
