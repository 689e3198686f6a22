"""training_step: repetitions that differ and NaN fail; a fault that repeats shows in the fingerprint."""

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.active.training_step import judge_numbers
from tests.healthchecks.check_harness import named
from tests.healthchecks.probes.probe_harness import Fault, judged, numbers_of, real_verdict

pytestmark = pytest.mark.trainer


def verdict_here(*faults: Fault) -> Verdict:
    """Train twice."""
    numbers = numbers_of("training_step", {"device": "cpu"}, seconds=0.0, faults=faults)
    return judged("training_step", lambda judge: judge_numbers(numbers, judge))


def test_sound_devices_have_the_same_fingerprint_in_every_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here and in a child with more threads; the hash is in the note, and the loss falls."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    here, there = verdict_here(), real_verdict("training_step", seconds=1.0)
    for verdict in (here, there):
        assert verdict.outcome is Outcome.PASS, verdict.reason
    prints = [named(verdict, "fingerprint") for verdict in (here, there)]
    assert prints[0].value == prints[1].value
    assert prints[0].note == prints[1].note
    assert int(prints[0].note[:12], 16) == prints[0].value


@pytest.mark.proves("training_step.differing_repetitions")
def test_a_repetition_with_other_weights_fails() -> None:
    """One flipped bit, the lowest one, of one weight."""
    verdict = verdict_here({"kind": "flip", "repetition": 1})
    assert named(verdict, "differing_repetitions").value == 1
    assert verdict.outcome is Outcome.FAIL


def test_a_fault_in_each_repetition_changes_the_fingerprint() -> None:
    """The node passes by itself; its peers have another number."""
    verdict, sound = verdict_here({"kind": "flip"}), verdict_here()
    assert verdict.outcome is Outcome.PASS
    assert named(verdict, "fingerprint").value != named(sound, "fingerprint").value


@pytest.mark.proves("training_step.not_numbers")
def test_not_a_number_fails() -> None:
    """The same NaN each time: the hashes agree, the losses are none."""
    verdict = verdict_here({"kind": "nan"})
    assert named(verdict, "differing_repetitions").value == 0
    assert named(verdict, "not_numbers").value == 3
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.proves("training_step.loss_ratio")
def test_a_loss_that_does_not_fall_fails() -> None:
    """Weights that learn nothing are wrong, however often they are the same."""
    verdict = verdict_here({"kind": "frozen"})
    assert named(verdict, "differing_repetitions").value == 0
    assert named(verdict, "loss_ratio").outcome is Outcome.FAIL
