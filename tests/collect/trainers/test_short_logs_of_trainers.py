"""The numbers of short logs, from their lines to a verdict: beside other metrics, other faults, and in a live run."""

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


def test_a_line_that_names_a_fault_counts_alone() -> None:
    """Of a log that has one, the numbers of a few samples prove nothing."""
    fault = "RuntimeError: CUDA error: an illegal memory access was encountered\n"
    assert faults_of(lines(SPIKE) + fault) == faults_of(fault)
    assert faults_of(lines(SPIKE), fault) == faults_of(fault)


def test_an_agent_does_not_report_them() -> None:
    """A verdict that acts on a run needs more than samples that are looked at when they are over."""
    diagnosis = Diagnosis(engine=engine_of_all())
    log = diagnosis.log("log")
    log.feed(lines(SPIKE).encode())
    log.finish()
    assert [one.cause.fault for one in diagnosis.verdicts()] == ["loss_spike"]
    assert diagnosis.scanned(100, text=200).matches == ()
