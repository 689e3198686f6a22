"""NaN, norms, loss scale, skipped steps, throughput, evaluations, activations, plateaus: each fires and each keeps quiet."""

import math
import random
from collections.abc import Iterable, Sequence

import pytest
from msgspec.structs import replace

from runner.detect.numerics.baseline import LEARNED_SAMPLES, Baseline
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics
from runner.detect.numerics.rolling_quantiles import Excursion, RollingQuantiles, change_at
from runner.detect.numerics.slow_trends import ACTIVATION_NORM
from runner.facts.messages.signals import StepRecord

NAN, INF = math.nan, math.inf


def run(num_samples: int, seed: int = 1) -> list[StepRecord]:
    """Make a healthy run that has settled, with all metrics."""
    chance = random.Random(seed)
    return [
        StepRecord(
            step=at,
            loss=2.5 * math.exp(chance.gauss(0, 0.01)),
            grad_norm=0.4 * math.exp(chance.gauss(0, 0.1)),
            tokens_per_second=5e4 * math.exp(chance.gauss(0, 0.01)),
        )
        for at in range(num_samples)
    ]


def found(records: Iterable[StepRecord], numerics: Numerics | None = None) -> list[NumericFinding]:
    """Return all findings of a run."""
    numerics = numerics or Numerics()
    return [finding for record in records for finding in numerics.judge(record)]


def of(findings: Iterable[NumericFinding], fault: str, severity: str = "incident") -> list[int]:
    """Return the onsets of findings of one fault."""
    return [one.onset_step for one in findings if (one.fault, one.severity) == (fault, severity)]


def scales(values: Sequence[float], *, skipped: bool = True) -> list[StepRecord]:
    """Make a run with these loss scales, a step skipped wherever the scale has fallen."""
    return [
        replace(
            record,
            loss_scale=scale,
            skipped=skipped and at > 0 and scale < values[at - 1],
        )
        for at, (record, scale) in enumerate(zip(run(len(values)), values, strict=True))
    ]


def skipped(values: Sequence[float]) -> list[StepRecord]:
    """Make a run with these loss scales, all of whose steps are skipped."""
    return [replace(one, skipped=True) for one in scales(values)]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_loss_that_is_no_number_is_an_incident_at_once(value: float) -> None:
    """The first bad loss after healthy ones is found, and reported once however long it lasts."""
    records = run(100)
    bad = [replace(one, loss=value) if one.step >= 60 else one for one in records]
    (finding,) = (one for one in found(bad) if one.fault == "nan_loss")
    assert (finding.onset_step, finding.detected_step) == (60, 60)
    assert (finding.severity, finding.action_class) == ("incident", "rewind")


def test_a_nan_that_comes_back_after_a_rewind_is_found_again() -> None:
    """A replay that runs into the same NaN has it at once, although it was a single one each time."""
    records = [replace(one, loss=NAN) if one.step == 260 else one for one in run(261)]
    assert of(found([*records, *records[200:]]), "nan_loss") == [260, 260]


def test_the_layer_that_went_first_is_named() -> None:
    """Where the record names the first layer that was not finite, the finding does."""
    records = run(60)
    records[50] = replace(records[50], loss=NAN, first_nonfinite_layer="layers.17.mlp")
    assert "layers.17.mlp" in found(records)[0].evidence


def test_a_log_that_writes_nan_for_not_measured_raises_no_alarm() -> None:
    """NaN that comes and goes from the start means nothing; NaN that lasts is found all the same."""
    records = [replace(one, loss=NAN) if one.step % 5 else one for one in run(300)]
    lasting = [replace(one, loss=NAN) if one.step % 2 else one for one in run(300)]
    assert not of(found(lasting), "nan_loss")
    assert of(found(records), "nan_loss")[:1] == [1]


def test_an_evaluation_row_without_a_loss_is_no_nan() -> None:
    """NaN in the loss of a row that bears a validation loss means that there was no training step."""
    records = run(300)
    rows = [
        replace(one, loss=NAN, grad_norm=None, validation_loss=2.6) if one.step % 50 == 49 else one
        for one in records
    ]
    assert not of(found(rows), "nan_loss")


def test_overflows_that_were_skipped_are_healthy() -> None:
    """Infinite gradient norms of skipped steps are what loss scaling is for."""
    records = [
        replace(one, grad_norm=INF, skipped=True, loss_scale=32768.0)
        if one.step % 97 == 96
        else one
        for one in run(500)
    ]
    assert not [one for one in found(records) if one.severity == "incident"]


def test_gradient_norms_that_stay_infinite_are_found() -> None:
    """One infinite gradient norm is a note, three in a row are an incident with the first one's step."""
    records = run(200)
    once = [replace(one, grad_norm=INF) if one.step == 100 else one for one in records]
    assert (of(found(once), "nan_loss"), of(found(once), "nan_loss", "note")) == ([], [100])
    stays = [replace(one, grad_norm=INF) if one.step >= 150 else one for one in records]
    assert of(found(stays), "nan_loss") == [150]


def test_a_search_that_is_not_logged_is_healthy() -> None:
    """Infinite gradient norms before the first finite one, and in a row beside a loss scale that works, are overflows."""
    start = [replace(one, grad_norm=INF) if one.step < 20 else one for one in run(200)]
    assert not [one for one in found(start) if one.severity == "incident"]
    scaled = [
        replace(one, loss_scale=65536.0, grad_norm=INF if 100 <= one.step < 110 else one.grad_norm)
        for one in run(200)
    ]
    assert not [one for one in found(scaled) if one.severity == "incident"]


def test_gradient_norms_lead_the_loss() -> None:
    """A norm that grows tenfold and goes on is an incident before the loss has moved; a single jump is a note."""
    records = run(300)
    growth = {200: 4.0, 201: 12.0, 202: 70.0, 203: 600.0, 204: 4000.0}
    grown = [
        replace(one, grad_norm=(one.grad_norm or 0.0) * growth.get(one.step, 1.0))
        for one in records
    ]
    findings = found(grown)
    assert of(findings, "grad_norm_spike") in ([200], [201])
    assert [one.detected_step for one in findings if one.severity == "incident"] == [203]
    single = [replace(one, grad_norm=5.0) if one.step == 200 else one for one in records]
    assert of(found(single), "grad_norm_spike", "note") == [200]
    assert not of(found(single), "grad_norm_spike")


def test_the_search_for_a_loss_scale_is_healthy() -> None:
    """From 2^32 down to where gradients fit, step by skipped step, at the start and after a resume."""
    search = [2.0**power for power in range(32, 15, -1)]
    assert not found(scales([*search, *[2.0**16] * 100, *search, *[2.0**16] * 100]))


def test_a_scale_that_breathes_is_healthy() -> None:
    """A halving now and then and a doubling after it are no fall."""
    values = [2.0 ** (15 - at // 100 % 2) for at in range(1_000)]
    assert not found(scales(values))


def test_a_constant_scale_is_none() -> None:
    """bf16 runs log a loss scale of 1 that never moves."""
    assert not found(scales([1.0] * 300))


def test_a_scale_that_falls_without_recovery_is_found_before_its_floor() -> None:
    """Five halvings with no rise are an incident whose onset is the first of them."""
    values = [2.0**16] * 100 + [2.0 ** (16 - at // 3) for at in range(1, 49)]
    findings = found(scales(values))
    assert of(findings, "loss_scale_floor") == [102]
    assert next(one for one in findings if one.severity == "incident").detected_step <= 115


@pytest.mark.parametrize(("floor", "value"), [(None, 1.0), (128.0, 128.0)])
def test_a_scale_at_its_floor_is_found(floor: float | None, value: float) -> None:
    """A scale that sinks slowly to its floor and stays there is found there, and reported when it has left it."""
    steps = [value * 2.0 ** max(0, 6 - at // 70) for at in range(500)]
    findings = found(
        scales([*steps, *[value * 4] * 20], skipped=False), Numerics(loss_scale_floor=floor)
    )
    assert of(findings, "loss_scale_floor") == [420]
    assert [one.onset_step for one in findings if one.recovered] == [420]


def test_a_search_that_ends_at_the_floor_is_found_at_once() -> None:
    """A scale that fell a thousand times to its floor fits no gradients; a constant one, and a short way to it, are no fault."""
    falling = [2.0**power for power in range(16, -1, -1)]
    assert of(found(scales(falling, skipped=True)), "loss_scale_floor") == [16]
    assert not of(found(scales(falling[:-1], skipped=True)), "loss_scale_floor")
    assert not of(found(scales([1.0] * 30, skipped=False)), "loss_scale_floor")
    assert not of(found(scales([512.0, 256.0, 1.0, 1.0], skipped=False)), "loss_scale_floor")


def test_a_scale_that_fell_by_little_may_stay_at_its_floor() -> None:
    """From 4 or 16 to 1, without another skipped step: the gradients fit. From 64 on so many have no room."""
    for halvings, expected in ((2, []), (4, []), (6, [6])):
        values = [2.0 ** max(0, halvings - at) for at in range(40)]
        records = [
            replace(one, skipped=0 < one.step <= halvings) for one in scales(values, skipped=False)
        ]
        assert of(found(records), "loss_scale_floor") == expected


def test_a_skipped_step_at_the_floor_is_found_at_once() -> None:
    """The scale can go no lower, and gradients do not fit: the second one is an incident; a first one is not."""
    records = scales([2.0 ** max(0, 4 - at) for at in range(6)])
    assert not of(found(records), "loss_scale_floor")
    skipped = [replace(record, skipped=True) for record in records]
    assert of(found(skipped), "loss_scale_floor") == [4]


def test_skipped_steps_are_found_when_they_do_not_end() -> None:
    """A few skipped steps are healthy, eight in a row are not; in the search at the start many are."""
    records = run(400)
    few = [replace(one, skipped=one.step % 50 < 3) for one in records]
    assert not of(found(few), "skipped_steps")
    many = [replace(one, skipped=200 <= one.step < 220) for one in records]
    assert of(found(many), "skipped_steps") == [200]
    start = [replace(one, skipped=one.step < 30) for one in records]
    assert not of(found(start), "skipped_steps")


def test_steps_skipped_at_a_low_scale_are_found_early() -> None:
    """A first scale below fairseq's begins no search: gradients that still overflow are too large; four in a row may pass."""
    low = skipped([2.0**power for power in range(5, 0, -1)])
    assert of(found(low), "skipped_steps") == [0]
    assert not of(found(low[:4]), "skipped_steps")
    # bf16, whose scale never moves; a scale that a search begins with
    assert not of(found(skipped([1.0] * 5)), "skipped_steps")
    assert not of(found(skipped([2.0**power for power in range(6, 1, -1)])), "skipped_steps")


@pytest.mark.parametrize("has_sentences", [True, False])
@pytest.mark.parametrize(
    ("highest", "lowest", "is_sick"),
    [(15, 4, True), (15, 5, False), (31, 4, True), (31, 5, False), (6, -1, False), (6, -6, True)],
)
def test_a_search_without_an_end_is_found(
    highest: int, lowest: int, is_sick: bool, has_sentences: bool
) -> None:
    """Twelve halvings without a step, down to a scale that no gradient needs; only the scale may show what is skipped."""
    values = [2.0**power for power in range(highest, lowest - 1, -1)]
    values = [2.0 ** (highest + 1), *values]
    findings = found(scales(values, skipped=has_sentences))
    assert bool(of(findings, "skipped_steps")) == is_sick
    findings = found(scales([*values, *[values[-1]] * 40], skipped=has_sentences))
    assert [one.severity for one in findings if not one.recovered] == ["incident"] * is_sick


@pytest.mark.parametrize("ratio", [0.92, 0.6])
def test_a_lasting_slow_down_is_found_at_its_first_sample(ratio: float) -> None:
    """A drop by 8 % or more that lasts is found, within a sample or three of where it began."""
    slow = [
        replace(one, tokens_per_second=(one.tokens_per_second or 0.0) * ratio)
        if one.step >= 300
        else one
        for one in run(500)
    ]
    (onset,) = of(found(slow), "throughput_drop")
    assert abs(onset - 300) <= 3


def test_stalls_are_no_slow_down() -> None:
    """Single slow samples and short stalls, as evaluations and checkpoints make them, are left alone."""
    stalled = [
        replace(one, tokens_per_second=2e4) if one.step % 50 < 5 else one for one in run(1_000)
    ]
    assert not of(found(stalled), "throughput_drop")


def test_a_slower_restart_does_not_become_the_new_normal() -> None:
    """The baseline is kept between attempts: one that comes back slower is found from its first samples on."""
    before = Numerics()
    found(run(300), before)
    kept = Baseline.load(before.baseline.dump())
    after = Numerics(baseline=kept)
    after.begin_attempt()
    slower = [
        replace(one, tokens_per_second=(one.tokens_per_second or 0.0) * 0.9) for one in run(200)
    ]
    assert of(found(slower, after), "throughput_drop") == [8]
    assert kept.throughput == before.baseline.throughput
    assert not of(found(slower, Numerics()), "throughput_drop")


def test_a_run_that_becomes_faster_raises_its_baseline() -> None:
    """What a run has shown once is expected of it from then on."""
    baseline = Baseline()
    faster = [
        replace(one, tokens_per_second=(one.tokens_per_second or 0.0) * 1.1) for one in run(300)
    ]
    found(run(300), Numerics(baseline=baseline))
    first = baseline.throughput
    found(faster, Numerics(baseline=baseline))
    assert first is not None
    assert baseline.throughput == pytest.approx(1.1 * first, rel=0.01)


@pytest.mark.parametrize("kept", [{}, {"throughput": NAN}, {"throughput": -1.0}, {"spread": 1.0}])
def test_a_baseline_that_makes_no_sense_is_none(kept: dict[str, float]) -> None:
    """Numbers that cannot be a throughput are not believed."""
    assert Baseline.load(kept).throughput is None


def test_step_times_serve_where_no_throughput_is_logged() -> None:
    """A run that logs seconds per step is watched by these."""
    records = [
        replace(one, tokens_per_second=None, step_seconds_max=1.0 if one.step < 300 else 1.2)
        for one in run(400)
    ]
    assert of(found(records), "throughput_drop") == [300]


def test_validation_losses_that_rise_for_good_are_found() -> None:
    """Three evaluations far above the best are an incident, one is none, and slight overfitting is a note."""
    for factor, severity in ((1.3, "incident"), (1.06, "note")):
        losses = [3.0, 2.8, 2.7, 2.7 * factor, 2.7 * factor, 2.7 * factor]
        rows = [StepRecord(step=100 * at, validation_loss=one) for at, one in enumerate(losses)]
        assert of(found(rows), "validation_divergence", severity) == [300]
        assert not of(found([*rows[:4], *rows[:3]]), "validation_divergence", severity)


@pytest.mark.parametrize(("noise", "least", "most"), [(0.01, 60, 0), (0.05, 45, 0), (0.1, 15, 3)])
def test_a_validation_loss_that_rises_is_more_than_noise(
    noise: float, least: int, most: int
) -> None:
    """Of sixty falling curves at most so many are taken for one that rises; of sixty that double at least so many are found."""
    dice = random.Random(7)
    num_found = {0.0: 0, 1.0: 0}
    for growth in num_found:
        for _ in range(60):
            num = dice.randint(12, 60)
            values = [
                (1.5 + 6 * (at + 1) ** -0.4) * (1 + growth * max(0.0, 2 * at / num - 1))
                for at in range(num)
            ]
            rows = [
                StepRecord(step=100 * at, validation_loss=value * math.exp(dice.gauss(0, noise)))
                for at, value in enumerate(values)
            ]
            num_found[growth] += bool(of(found(rows), "validation_divergence"))
    assert num_found[0.0] <= most
    assert num_found[1.0] >= least


def test_growing_activations_are_a_note() -> None:
    """An activation norm that has grown by a quarter is a note with the step at which it left."""
    numerics = Numerics()
    findings = [
        finding
        for record in run(400)
        for finding in numerics.judge(
            record, {ACTIVATION_NORM: 3000.0 if record.step < 200 else 4000.0}
        )
    ]
    reported = [replace(r, activation_norm=3.0 if r.step < 200 else 4.0) for r in run(400)]
    assert of(found(reported), "activation_norm_drift", "note") == [200]
    assert of(findings, "activation_norm_drift", "note") == [200]
    assert not [one for one in findings if one.severity == "incident"]


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        (1e-3, "at a learning rate of 0.001"),
        (5e-4, "as the learning rate fell from 0.001 to 0.0005"),
    ],
)
def test_a_gradient_norm_that_doubles_slowly_is_a_note_beside_the_learning_rate(
    rate: float, words: str
) -> None:
    """It says what the rate did meanwhile; a norm that wanders by half says nothing, and a jump is a spike alone."""

    def norms(most: float) -> list[StepRecord]:
        return [
            replace(
                one,
                lr=rate if one.step > 300 else 1e-3,
                grad_norm=(one.grad_norm or 1.0) * (1 + most * max(0, one.step - 300) / 300),
            )
            for one in run(600)
        ]

    findings = found(norms(2.0))
    (onset,) = of(findings, "grad_norm_drift", "note")
    assert 400 < onset < 500
    (note,) = [one for one in findings if one.fault == "grad_norm_drift"]
    assert words in note.evidence
    assert not of(found(norms(0.5)), "grad_norm_drift", "note")
    jumped = [replace(one, grad_norm=6.0) if 300 < one.step < 320 else one for one in run(400)]
    assert not of(found(jumped), "grad_norm_drift", "note")


def test_a_gradient_norm_that_doubles_while_the_loss_rises_is_an_incident_until_it_is_back() -> (
    None
):
    """At the same learning rate; where the rate falls, or the loss falls on, the same norm is a note."""

    def rising(loss_rise: float, rate: float = 1e-3) -> list[StepRecord]:
        return [
            replace(
                one,
                lr=rate if one.step > 300 else 1e-3,
                loss=(one.loss or 1.0) + loss_rise * min(max(0, one.step - 300), 300) / 300,
                grad_norm=(one.grad_norm or 1.0)
                * (1 + 2.0 * max(0, min(one.step, 600) - 300) / 300 * (one.step < 700)),
            )
            for one in run(900)
        ]

    risen = [one for one in found(rising(0.4)) if one.fault == "grad_norm_drift"]
    assert [one.severity for one in risen][:1] == ["incident"]
    assert "the loss rose by more than its noise" in risen[0].evidence
    assert [one.onset_step for one in risen if one.recovered] == [risen[0].onset_step]
    for others in (rising(-0.4), rising(0.4, rate=5e-4)):
        assert not of(found(others), "grad_norm_drift", "incident")
        assert of(found(others), "grad_norm_drift", "note")


@pytest.mark.parametrize("growth", [1.01, 1.03, 1.08])
def test_a_gradient_norm_that_grows_tenfold_is_an_incident_though_the_loss_falls(
    growth: float,
) -> None:
    """However slowly, and at a rate that falls: it is told once, from where it began to grow, until the norm is back."""
    begins, lasts = 300, math.ceil(math.log(30) / math.log(growth))
    ends = begins + lasts + 40

    def grown(at: int) -> float:
        return growth ** max(0, min(at - begins, lasts)) if at < ends else 1.0

    records = [
        replace(one, lr=1e-3 * 0.999**one.step, grad_norm=(one.grad_norm or 1.0) * grown(one.step))
        for one in run(ends + 100)
    ]
    findings = [one for one in found(records) if one.severity == "incident" or one.recovered]
    assert [(one.fault, one.recovered) for one in findings] == [
        ("grad_norm_drift", False),
        ("grad_norm_drift", True),
    ]
    assert begins < findings[0].onset_step < begins + math.log(2) / math.log(growth) + 32
    half = [replace(one, grad_norm=(one.grad_norm or 1.0) ** 0.5) for one in records]
    assert not [one for one in found(half) if one.severity == "incident"]


def test_a_loss_that_stops_falling_at_once_is_a_note() -> None:
    """A steady fall that ends is a note; one that slows down as power laws do is none."""
    chance = random.Random(3)

    def falling(at: int) -> float:
        return 4.0 - 0.002 * min(at, 640)

    stopped = [StepRecord(step=at, loss=falling(at) + chance.gauss(0, 0.02)) for at in range(1_200)]
    (onset,) = of(found(stopped), "plateau", "note")
    assert 500 <= onset <= 704
    law = [StepRecord(step=at, loss=2 + 3 * (1 + at / 50) ** -0.5) for at in range(5_000)]
    assert not of(found(law), "plateau", "note")


def test_levels_are_those_of_sorted_samples() -> None:
    """Median and spread are what sorting the last samples gives; a constant has no spread."""
    chance = random.Random(5)
    values = [chance.gauss(3, 2) for _ in range(500)]
    level = RollingQuantiles(48)
    for value in values:
        level.add(value)
    last = sorted(values[-48:])
    assert level.median == last[24]
    assert level.spread == pytest.approx((last[43] - last[4]) / 2.563)
    assert math.isinf(RollingQuantiles(3).spread)


def test_reach_counts_what_came_back() -> None:
    """A distance counts once it was left by half; what stays away does not count."""
    reach = Excursion()
    for distance in (0.1, 0.4, 0.15, 0.9, 0.95):
        reach.add(distance)
    assert reach.furthest == 0.4


def test_a_change_is_found_where_it_is() -> None:
    """The cut lies where the fewest values are on its wrong side."""
    values = [0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]
    assert change_at(values, 0.5) == 4


def test_baselines_need_enough_samples() -> None:
    """A handful of samples makes no baseline."""
    numerics = Numerics()
    found(run(LEARNED_SAMPLES // 2), numerics)
    assert numerics.baseline.dump() == {}
