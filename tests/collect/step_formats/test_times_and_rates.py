"""Times of steps and of passes, and samples per second, as trainers write them beside a loss or alone."""

import pytest

from runner.collect.step_formats.formats import MetricLines
from tests.collect.diagnosed_logs import verdicts_of

STEADY = [1473.0, 1548.3, 1507.5, 1517.1, 1540.4, 1530.7]


def faults(text: str) -> list[str]:
    """Return the faults of a log."""
    return [verdict.cause.fault for verdict in verdicts_of(text)]


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("Epoch[0] Batch [2500] Speed: 356.23 samples/sec Train-accuracy=0.01", {"samples_per_second": 356.23}),
        (
            "Training: 2021-07-03 00:09:37,089-Speed 1473.00 samples/sec   Loss 48.4599   Epoch: 0   Global Step: 100",
            {"step": 100, "loss": 48.4599, "samples_per_second": 1473.0},
        ),
        ("step 7, loss 0.99, 92.09 seconds/step", {"step": 7, "loss": 0.99, "step_seconds_max": 92.09}),
        ("step 7, loss 0.99 (350 ms/batch)", {"step": 7, "loss": 0.99, "step_seconds_max": 0.35}),
        (" - 1794s - loss: 5.2443 - val_loss: 4.9384", {"loss": 5.2443, "validation_loss": 4.9384, "step_seconds_max": 1794.0}),
        # The place in a program, and a bar of samples.
        ("LOG (train:Eval():ctc-loss.cc:182) After 280196 sequences: TokenAcc = 65.6%", {}),
        ("Map: 100%|##########| 1000/1000 [00:01<00:00, 812.5 examples/s]", {}),
        ("Generating train split: 1000 examples [00:00, 1234.5 examples/s]", {}),
    ],
)  # fmt: skip
def test_lines_have_their_times_and_rates(line: str, numbers: dict[str, float]) -> None:
    """The units of the record; what is no number of the training is none."""
    lines = MetricLines()
    record = lines.read(line)
    reading = lines.parse(line)
    found = dict(reading.numbers) if reading is not None else {}
    if record is not None and "step" in numbers:
        found["step"] = record.step
    assert found == pytest.approx(numbers)


def test_samples_per_second_that_fall_are_seen_without_a_loss() -> None:
    """One line may be of the time in which it began; one slow line alone is a save."""
    line = "INFO:root:Epoch[0] Batch [{}] Speed: {:.2f} samples/sec Train-accuracy=0.01\n"
    for end, expected in (
        ([904.9, 485.2, 487.6], ["throughput_drop"]),
        ([485.2, 487.6], ["throughput_drop"]),
        ([485.2], []),
        ([485.2, 1500.0], []),
    ):
        rates = enumerate([*STEADY, *end], 1)
        assert faults("".join(line.format(50 * n, rate) for n, rate in rates)) == expected


def test_the_same_line_of_each_rank_is_one_sample() -> None:
    """Three ranks that print a step are no three samples before a jump."""
    line = "Stage [train] iter: [{}/500], data_time: {:.3f}, loss: {}, lr: 0.0001\n"
    steps = ((10, 0.0978), (50, 0.1633), (60, 0.1802))
    ranks = (1.04, 1.03, 1.02)
    assert faults("".join(line.format(n, at, loss) for n, loss in steps for at in ranks)) == []
