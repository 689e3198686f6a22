"""What the numeric detectors find in curves, when, and what they leave alone."""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bench.detectors.runs import (
    FAMILIES,
    Labelled,
    bootstrap,
    healthy,
    labelled_curves,
    residuals,
    synthetic_noise,
    with_blow_up,
    with_drift,
    with_spike,
)
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.planned_changes import PlannedChange

REAL = Path(__file__).parents[3] / "../shared/data/curves"
needs_curves = pytest.mark.skipif(
    not REAL.is_dir(), reason="the curves of others are not at hand (../shared/data/curves)"
)


def found(records: Iterable[StepRecord], numerics: Numerics | None = None) -> list[NumericFinding]:
    """Return all findings of a run."""
    numerics = numerics or Numerics()
    return [finding for record in records for finding in numerics.judge(record)]


def incidents(
    records: Iterable[StepRecord], numerics: Numerics | None = None
) -> list[NumericFinding]:
    """Return the incidents of a run."""
    return [one for one in found(records, numerics) if one.severity == "incident"]


def quiet_run(
    num_samples: int, *, seed: int = 1, family: str = "gauss", steps_per_sample: int = 1
) -> list[StepRecord]:
    """Make a healthy run."""
    chance = random.Random(f"{family}-{seed}")
    noise = synthetic_noise(family, chance)
    return list(healthy(noise, num_samples, chance, steps_per_sample=steps_per_sample))


def changed(
    records: Sequence[StepRecord], at: int, change: Callable[[StepRecord], StepRecord], count: int
) -> list[StepRecord]:
    """Change some samples of a run."""
    return [
        change(record) if at <= here < at + count else record for here, record in enumerate(records)
    ]


def scaled_loss(factor: float) -> Callable[[StepRecord], StepRecord]:
    """Multiply loss and, as in a real jump, gradient norm."""

    def change(record: StepRecord) -> StepRecord:
        assert record.loss is not None
        assert record.grad_norm is not None
        return replace(record, loss=record.loss * factor, grad_norm=record.grad_norm * 10)

    return change


CURVES = labelled_curves()


@needs_curves
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: str(curve.name))
def test_real_curves_get_the_labels_of_their_reviewers(curve: Labelled) -> None:
    """Labelled events are found within three samples, clean curves give no finding, a restart is its jump and nothing else."""
    onsets = [one.onset_step for one in incidents(curve.records)]
    reach = 3 * curve.steps_per_sample
    for event in curve.onsets:
        assert any(abs(onset - event) <= reach for onset in onsets), f"missed {event}: {onsets}"
    if curve.kind == "clean":
        assert not onsets
    if curve.kind == "restart":
        assert all(any(abs(onset - event) <= reach for event in curve.onsets) for onset in onsets)


@needs_curves
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: str(curve.name))
def test_real_curves_cut_after_a_finding_give_it_again(curve: Labelled) -> None:
    """What was found does not depend on what came later."""
    for finding in incidents(curve.records):
        cut = [record for record in curve.records if record.step <= finding.detected_step]
        assert finding in found(cut)


@needs_curves
def test_real_noise_raises_no_alarm() -> None:
    """Healthy runs composed of clean curves with the noise of others have no incident."""
    for number, curve in enumerate(curve for curve in CURVES if curve.kind == "clean"):
        chance = random.Random(number)
        run = healthy(bootstrap(residuals(curve), chance), 4_000, chance)
        assert not incidents(run)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(2))
def test_synthetic_noise_raises_no_alarm(family: str, seed: int) -> None:
    """Healthy runs with light and with heavy tails have no incident, warm-up included."""
    assert not incidents(quiet_run(3_000, seed=seed, family=family))


@pytest.mark.parametrize("steps_per_sample", [1, 100])
@pytest.mark.parametrize("seed", range(5))
def test_spikes_are_found_at_their_first_sample(seed: int, steps_per_sample: int) -> None:
    """A spike is found at its onset, whether every step is logged or every hundredth."""
    run = quiet_run(1_000, seed=seed, steps_per_sample=steps_per_sample)
    spiked = with_spike(run, 600, random.Random(seed))
    spikes = [one for one in incidents(spiked) if one.fault == "loss_spike"]
    assert [one.onset_step for one in spikes] == [600 * steps_per_sample]
    assert spikes[0].detected_step <= 602 * steps_per_sample


def test_a_spike_that_heals_is_first_waited_for_and_then_reported_as_over() -> None:
    """A spike asks for patience alone, and its end is reported with the same onset."""
    run = changed(quiet_run(800), 500, scaled_loss(2.0), 5)
    spike, end = (one for one in found(run) if one.fault == "loss_spike")
    assert (spike.severity, spike.action_class, spike.recovered) == ("incident", "wait", False)
    assert (end.onset_step, end.recovered, end.action_class) == (500, True, "none")


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_that_does_not_come_back_has_diverged(seed: int) -> None:
    """A loss that climbs and stays is rewound from where it left."""
    run = with_blow_up(quiet_run(1_200, seed=seed), 700, random.Random(seed))
    diverged = [one for one in incidents(run) if one.fault == "divergence"]
    assert len(diverged) == 1
    assert diverged[0].action_class == "rewind"
    assert 700 <= diverged[0].onset_step <= 740
    assert diverged[0].detected_step <= 840


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_rise_is_found_though_no_sample_stands_out(seed: int) -> None:
    """A loss that drifts up by a few tenths of a percent each sample is found, with an onset on its way."""
    run = with_drift(quiet_run(2_500, seed=seed), 1_500, random.Random(seed))
    diverged = incidents(run)
    assert [one.fault for one in diverged] == ["divergence"]
    assert 1_500 <= diverged[0].onset_step < diverged[0].detected_step <= 1_950


def test_one_outlier_that_the_gradient_does_not_show_is_a_note() -> None:
    """A single high loss beside an ordinary gradient norm asks for nothing."""

    def change(record: StepRecord) -> StepRecord:
        return replace(record, loss=(record.loss or 0.0) * 1.6)

    at_onset = [
        one for one in found(changed(quiet_run(800), 500, change, 1)) if one.onset_step == 500
    ]
    assert [one.severity for one in at_onset] == ["note"]


def test_a_replayed_stretch_is_no_anomaly() -> None:
    """A run that goes back to a checkpoint early in its training shows nothing new, and is watched on."""
    run = quiet_run(1_500)
    resumed = [*run[:1_200], *run[150:]]
    assert not incidents(resumed)
    spiked = [*run[:1_200], *with_spike(run, 700, random.Random(1))[150:]]
    assert {one.onset_step for one in incidents(spiked)} == {700}


def test_a_replay_from_amid_a_divergence_drops_it() -> None:
    """What was learned while the loss was high does not outlive the rewind: the same fault is found again."""
    run = changed(quiet_run(1_000), 700, scaled_loss(2.0), 300)
    twice = [*run, *run[600:]]
    diverged = [one for one in incidents(twice) if one.fault == "divergence"]
    assert [one.onset_step for one in diverged] == [700, 700]


def test_late_records_teach_nothing() -> None:
    """Records of a slower rank, a few steps behind, change nothing of what is found."""
    run = changed(quiet_run(800), 500, scaled_loss(2.0), 5)
    mixed = [one for record in run for one in (record, replace(record, step=record.step - 5))]
    assert [one.onset_step for one in incidents(mixed) if one.fault == "loss_spike"] == [500]


def test_announced_changes_are_no_finding() -> None:
    """A jump within an announced stretch is expected; the same jump a moment later is not."""
    run = changed(quiet_run(1_000), 500, scaled_loss(1.6), 500)
    plan = PlannedChange(from_step=500, to_step=520, what="data")
    assert not incidents(run, Numerics(planned=[plan]))
    assert incidents(run, Numerics(planned=[replace(plan, from_step=300, to_step=320)]))


def test_announced_changes_of_the_learning_rate_hide_no_slow_down() -> None:
    """What is announced silences what may come of it, and nothing else."""

    def change(record: StepRecord) -> StepRecord:
        return replace(record, tokens_per_second=(record.tokens_per_second or 0.0) * 0.8)

    run = changed(quiet_run(600), 300, change, 300)
    plan = PlannedChange(from_step=290, to_step=300, what="lr")
    assert [one.fault for one in incidents(run, Numerics(planned=[plan]))] == ["throughput_drop"]
    nodes = replace(plan, what="nodes")
    assert not incidents(run, Numerics(planned=[nodes]))


def test_a_missing_gradient_norm_is_reported_once() -> None:
    """A run that logs only its loss is watched by that, and one report names what is missing."""
    numerics = Numerics()
    run = [replace(record, grad_norm=None) for record in quiet_run(600)]
    assert not incidents(run[:400], numerics)
    assert [warning.split(" in ")[0] for warning in numerics.warnings] == ["no gradient norm"]
    lasting = changed(run, 450, lambda record: replace(record, loss=(record.loss or 0.0) * 2), 6)
    assert [one.onset_step for one in incidents(lasting[400:], numerics)] == [450]
    assert len(numerics.warnings) == 1


@pytest.mark.parametrize("offset", [-40.0, -3.0])
def test_losses_below_zero_are_judged_plainly(offset: float) -> None:
    """A loss that is or becomes negative is watched on, without an alarm at the passage."""
    chance = random.Random(2)
    losses = [offset + 6 * math.exp(-at / 80) + chance.gauss(0, 0.05) for at in range(800)]
    run = [StepRecord(step=at, loss=loss, grad_norm=1.0) for at, loss in enumerate(losses)]
    assert not incidents(run)
    jumped = changed(
        run, 600, lambda record: replace(record, loss=(record.loss or 0.0) + abs(offset)), 6
    )
    assert [one.onset_step for one in incidents(jumped)] == [600]


NUMBERS = st.none() | st.floats() | st.sampled_from([0.0, 1.0, 2.0, 2.1, 1e-300, 1e300, 65536.0])
RECORDS = st.builds(
    StepRecord,
    step=st.integers(-5, 200),
    loss=NUMBERS,
    grad_norm=NUMBERS,
    loss_scale=NUMBERS,
    skipped=st.booleans(),
    tokens_per_second=NUMBERS,
    step_seconds_max=NUMBERS,
    validation_loss=NUMBERS,
)


@settings(max_examples=60, deadline=None)
@given(records=st.lists(RECORDS, max_size=120), head=st.integers(0, 150))
def test_no_record_breaks_the_detectors(records: list[StepRecord], head: int) -> None:
    """For any metrics, in any order of steps, nothing raises, and findings name steps that were seen."""
    numerics = Numerics()
    seen = []
    for record in [*quiet_run(150)[:head], *records]:
        seen.append(record.step)
        for finding in numerics.judge(record, {"activation_norm": record.loss or 0.0}):
            assert finding.onset_step in seen
            assert finding.detected_step == record.step
            assert finding.evidence


def curve(*losses: float, first_step: int = 29_000) -> list[StepRecord]:
    """Make records of a run that is under way, without gradient norms."""
    return [
        StepRecord(step=first_step + 10 * number, loss=loss) for number, loss in enumerate(losses)
    ]


def test_a_leap_off_a_settled_loss_is_found_in_a_log_that_begins_in_the_middle_of_a_run() -> None:
    """Few samples are known, and they lie close together; the onset is the leap."""
    (spike,) = incidents(curve(2.61, 2.63, 2.6, 6.4, 7.9, 7.1))
    assert (spike.fault, spike.onset_step) == ("loss_spike", 29_030)


def test_the_first_samples_of_a_new_run_may_do_what_they_like() -> None:
    """They fall steeply, and rise again a little; nothing has settled."""
    assert incidents(curve(11.2, 9.4, 8.1, 9.9, 7.4, 8.8, 6.9, first_step=0)) == []
    assert incidents(curve(3.0, 3.1, 3.05, 3.9, 3.2, 3.1)) == []


def test_one_step_far_ahead_by_mistake_does_not_blind_the_run() -> None:
    """A misread number, once: what comes after it is judged again soon."""
    numerics = Numerics()
    for step in range(1, 200):
        numerics.judge(StepRecord(step=step, loss=3.0, grad_norm=1.0))
    numerics.judge(StepRecord(step=20_240_501, loss=3.0))
    found = []
    for step in range(200, 500):
        found += numerics.judge(StepRecord(step=step, loss=3.0 if step < 400 else math.nan))
    assert [one.fault for one in found if one.severity == "incident"] == ["nan_loss"]


def test_a_change_between_two_steps_that_are_logged_is_announced_too() -> None:
    """Logged every ten steps; planned from 1005 to 1006."""
    plan = PlannedChange(from_step=1005, to_step=1006, what="data")
    for planned in ((plan,), ()):
        numerics, found = Numerics(planned=planned), []
        for step in range(10, 2000, 10):
            noise = 0.01 * ((step * 7919) % 13 - 6) / 6
            found += numerics.judge(
                StepRecord(step=step, loss=(3.0 if step <= 1000 else 9.0) + noise, grad_norm=1.0)
            )
        assert bool([one for one in found if one.severity == "incident"]) != bool(planned)


def test_two_losses_in_a_row_are_enough_where_all_before_were_finite() -> None:
    """A log that ends there shows no third; a log that writes NaN for what was not measured shows it earlier."""
    nan = float("nan")
    assert [one.fault for one in incidents(curve(2.1, 2.0, nan, nan))] == ["nan_loss"]
    assert incidents(curve(2.1, 2.0, nan)) == []
    assert incidents(curve(2.1, nan, 2.0, nan, nan)) == []


def test_a_gradient_norm_counts_twice_where_the_loss_is_no_longer_printed() -> None:
    """Some trainers leave a loss out that is not finite; a search for the loss scale does too."""
    nan = float("nan")
    good = [replace(one, grad_norm=0.5) for one in curve(2.1, 2.0)]
    bad = [replace(one, loss=None, grad_norm=nan) for one in curve(0.0, 0.0, first_step=29_002)]
    assert [one.fault for one in incidents([*good, *bad])] == ["nan_loss"]
    assert incidents([*good, bad[0]]) == []
    assert incidents([*good, *(replace(one, loss_scale=65536.0) for one in bad)]) == []
