"""The numbers of short logs, from their lines to a verdict: beside other metrics, other faults, and in a live run."""

from collections.abc import Sequence

import pytest

from runner.collect.diagnosis import Diagnosis
from tests.collect.diagnosed_logs import engine_of_all, verdicts_of

SPIKE = [0.71, 0.66, 5.9, 0.74, 0.69, 0.63, 0.7]
RISING = [0.5 * 1.6**n for n in range(9)]


def lines(losses: list[float], beside: str = "") -> str:
    """Write a log of a trainer of no known name."""
    return "".join(f"step {n}: loss={loss:.4f}{beside}\n" for n, loss in enumerate(losses, 1))


def faults_of(*logs: str) -> list[str]:
    """Return the faults of the verdicts."""
    return [one.cause.fault for one in verdicts_of(*logs)]


def test_the_verdict_is_on_the_line_of_the_onset() -> None:
    """A person looks there first."""
    (verdict,) = verdicts_of(lines(SPIKE))
    assert (verdict.cause.fault, verdict.evidence[0].line) == ("loss_spike", 3)


@pytest.mark.parametrize(
    "beside",
    [
        " reward=0.31",
        " kl=0.02",
        " d_loss=0.4",
        " rewards/chosen=0.1",
        " policy_loss=0.2",
        " critic_loss=0.1",
        " lossD=0.6",
        " generator_loss=1.2",
    ],
)
def test_losses_of_policies_and_adversaries_are_not_judged(beside: str) -> None:
    """What else their lines name shows what they are."""
    assert faults_of(lines(RISING)) == ["divergence"]
    assert faults_of(lines(RISING, beside)) == []


@pytest.mark.parametrize("beside", [" cross_entropy=0.5", " tokens=100", " skill=1", " factor=2"])
def test_other_metrics_change_nothing(beside: str) -> None:
    """Words that only resemble those of policies and adversaries."""
    assert faults_of(lines(RISING, beside)) == ["divergence"]


@pytest.mark.parametrize(
    ("beside", "is_seen"),
    [
        (" acc: 0.000", True),
        (", 'accuracy': 0.0,", True),
        (", MLM_acc: 0.000, SOP_acc: 0.521", True),
        (" gradient_accumulation_steps: 0.0", False),
        (" acc: 0.25", False),
    ],
)
def test_accuracies_on_the_line_are_read(beside: str, is_seen: bool) -> None:
    """By the names that trainers use, and none of accumulation."""
    text = "".join(f"step {1000 + n}: loss={11.17 + 0.002 * (n % 3)}{beside}\n" for n in range(8))
    assert faults_of(text) == ["plateau"][: int(is_seen)]


@pytest.mark.parametrize(
    ("line", "is_seen"),
    [
        ("Epoch {n} | train loss: 0.693 | train acc: 50.1%", True),
        ("Epoch {n} | train loss: 0.693 | train acc: 0.4987", True),
        ("Epoch {n} | train loss: 0.693 | train acc: 57.1%", False),
        ("step {n} | train loss: 0.693 | train acc: 50.1%", False),
    ],
)
def test_six_epochs_at_chance_are_many_and_six_steps_are_few(line: str, *, is_seen: bool) -> None:
    """A line that counts epochs alone is of many steps."""
    text = "".join(line.format(n=n) + "\n" for n in range(1, 7))
    assert faults_of(text) == ["plateau"][: int(is_seen)]


@pytest.mark.parametrize(
    ("beside", "is_seen"),
    [
        ([" batch size: 1024"] * 8, True),
        ([" global batch size: 1024 | micro batch size: 4"] * 8, True),
        ([""] * 8, False),
        ([" batch size: 1024"] * 4 + [" batch size: 1536"] * 4, False),
        ([" batch size: 8 | seqlen: 512"] * 4 + [" batch size: 8 | seqlen: 1024"] * 4, False),
        ([" batch size: 8"] * 7 + [""], False),
    ],
)
def test_slower_steps_count_where_all_lines_have_the_same_sizes(
    beside: list[str], is_seen: bool
) -> None:
    """A larger batch or a longer sequence makes steps slower, too."""
    times = [86.0, 87.0, 88.0, 87.5, 126.0, 125.0, 127.0, 129.0]
    text = "".join(
        f"step {n}: loss=2.1 step_time={seconds}{sizes}\n"
        for n, (seconds, sizes) in enumerate(zip(times, beside, strict=True), 1)
    )
    assert faults_of(text) == ["throughput_drop"][: int(is_seen)]


def test_a_line_that_names_a_fault_counts_alone() -> None:
    """Of a log that has one, the numbers of a few samples prove nothing."""
    fault = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert faults_of(lines(SPIKE) + fault) == faults_of(fault)
    assert faults_of(lines(SPIKE), fault) == faults_of(fault)


def test_a_nan_is_the_cause_of_an_end_that_nothing_explains() -> None:
    """A spike that came back, or a fault that is known, does not give way to an unknown end, nor the other way round."""
    end = "step failed: error: giving up\nProcess exited with exit code 1\n"
    assert faults_of(lines([2.0, 2.1]) + end) == ["unknown"]
    assert faults_of(lines([2.0, float("nan")]) + end)[:1] == ["nan_loss"]
    assert faults_of(lines(SPIKE) + end) == ["unknown"]


def test_an_agent_does_not_report_them() -> None:
    """A verdict that acts on a run needs more than samples that are looked at when they are over."""
    diagnosis = Diagnosis(engine=engine_of_all())
    log = diagnosis.log("log")
    log.feed(lines(SPIKE).encode())
    log.finish()
    assert [one.cause.fault for one in diagnosis.verdicts()] == ["loss_spike"]
    assert diagnosis.scanned(100, text=200).matches == ()


def test_a_spike_that_never_comes_back_is_a_divergence() -> None:
    """Where the losses after it stay as high; one that falls again is a spike."""
    falling = [7.9, 7.1, 6.4, 6.0, 5.7, 5.5]
    assert _fault_of_losses([*falling, 410.0, 9e3, 2e5]) == "divergence"
    assert _fault_of_losses([*falling, 410.0, 380.0, 300.0]) == "loss_spike"
    assert _fault_of_losses([*falling, 410.0, 5.6, 5.4]) == "loss_spike"
    assert faults_of(lines([*falling, 410.0, 9e3, 2e5], " reward=0.1")) == ["loss_spike"]


def test_validation_losses_that_come_back_to_their_best_were_noise() -> None:
    """However far the ones before were above it."""
    high = [1.7, 2.05, 2.1, 2.14]
    assert _fault_of_losses([1.58, 1.55, 1.53, 1.52], high) == "validation_divergence"
    for back in (1.64, 1.72):
        assert _fault_of_losses([1.58, 1.55, 1.53, 1.52, 1.49], [*high, back]) == ""


def test_a_loss_that_its_own_program_calls_exploded_has_diverged() -> None:
    """It was a number."""
    raised = 'Traceback (most recent call last):\n  File "train.py", line 9, in train\n    raise Exception("x")\n'
    (verdict,) = verdicts_of(f"step 3 loss 2.25\n{raised}Exception: Loss exploded\n")
    assert verdict.cause.fault == "divergence"


def test_a_run_that_ended_well_with_an_evaluation_that_is_no_number_has_no_result() -> None:
    """Its summary says that it was completed."""
    end = "{'train_runtime': 13.4, 'train_loss': 2.2, 'epoch': 5.0}\n"
    good, bad = "{'eval_loss': 2.31, 'epoch': 5.0}\n", "{'eval_loss': nan, 'epoch': 5.0}\n"
    assert faults_of("{'loss': 2.25, 'epoch': 5.0}\n" + end + bad) == ["nan_loss"]
    assert faults_of("{'loss': 2.25, 'epoch': 5.0}\n" + end + good) == []


def _fault_of_losses(losses: Sequence[float], validation: Sequence[float] = ()) -> str:
    lines = [f"step {100 * n}: loss {loss}" for n, loss in enumerate(losses, 1)]
    for number, value in enumerate(validation):
        lines[number] += f", val_loss {value}"
    verdicts = verdicts_of("\n".join(lines) + "\n")
    return verdicts[0].cause.fault if verdicts else ""
