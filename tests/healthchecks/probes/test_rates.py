"""compute_rate and memory_bandwidth: dips, floors of known models and wrong words fail; a busy node is unknown."""

import multiprocessing
import os
import runpy
import time
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from healthchecks.check import Outcome, Verdict
from healthchecks.checks.active import compute_rate, memory_bandwidth
from healthchecks.limits import judge_of
from healthchecks.probe import START, num_threads
from healthchecks.rates import busyness, floors
from healthchecks.rates.floors import FLOORS, Floor, floor_of
from healthchecks.rates.series import LEAST_WINDOWS
from tests.healthchecks.check_harness import named, seen
from tests.healthchecks.probes.probe_harness import Fault, numbers_of, plant, real_verdict

pytestmark = pytest.mark.trainer

MIB = 1 << 20
H100 = "NVIDIA H100 80GB HBM3"
# Of no vendor.
RATED = "RATED-FLOAT32"
# Dips of a machine that tests share are no fault.
NO_DIPS = {"compute_rate.dip_ratio": 0.001, "memory_bandwidth.dip_ratio": 0.001}


def verdict_here(
    name: str, *faults: Fault, percent: float = 0.0, limits: dict[str, float] | None = None
) -> Verdict:
    """Measure one series in this process, beside others that took `percent`."""
    check: ModuleType = {"compute_rate": compute_rate, "memory_bandwidth": memory_bandwidth}[name]
    asked = {"device": "cpu", "num_threads": 1, "least_windows": LEAST_WINDOWS, **check.ASKED}
    asked |= {"types": ["float32"], "most_bytes": 16 * MIB}
    numbers = numbers_of("rates", asked, seconds=0.0, faults=faults)
    overrides = {key: value for key, value in (limits or {}).items() if key in check.CHECK.limits}
    judge = judge_of(check.CHECK.limits, overrides)
    evidence = check.judge_numbers(numbers, percent, busyness.MEASURE, judge)
    return seen(Verdict(check=name, evidence=tuple(evidence)))


@pytest.mark.parametrize(
    ("name", "rate"),
    [("compute_rate", "tflop_per_second"), ("memory_bandwidth", "gb_per_second")],
)
def test_a_machine_that_is_not_busy_passes(name: str, rate: str) -> None:
    """The median is there for peers, and a model without a floor says so."""
    verdict = verdict_here(name, limits=NO_DIPS)
    assert verdict.outcome is Outcome.PASS, verdict.reason
    median = named(verdict, rate)
    assert median.value is not None
    assert median.value > 0.001
    assert median.better == "higher"
    assert "there is no floor" in median.note


def test_types_that_are_not_multiplied_are_named() -> None:
    """A processor multiplies types of fewer bits as wider ones; the product of 8 bits itself runs there, too."""
    check = compute_rate
    asked = {"device": "cpu", "num_threads": 1, "least_windows": 1, **check.ASKED}
    asked |= {"types": ["float32", "float8"]}
    numbers = numbers_of("rates", asked, seconds=0.0)
    evidence = check.judge_numbers(numbers, 0.0, busyness.MEASURE, judge_of(check.CHECK.limits, {}))
    (left_out,) = (each for each in evidence if each.name == "compute_rate.not_covered")
    assert left_out.subject == "cpu float8"
    probe = runpy.run_path(str(START.with_name("rates.py")))
    import torch

    assert probe["has_float8"](torch.device("cpu"))
    ones = torch.ones(32, 32).to(probe["float8_of"](torch.device("cpu")))
    assert probe["scaled_product"](ones, ones)().tolist() == [[32.0] * 32] * 32


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("compute_rate", marks=pytest.mark.proves("compute_rate.dip_ratio")),
        pytest.param("memory_bandwidth", marks=pytest.mark.proves("memory_bandwidth.dip_ratio")),
    ],
)
def test_a_device_that_pauses_again_and_again_fails(name: str) -> None:
    """One window in six takes ten times as long."""
    verdict = verdict_here(name, {"kind": "sleep", "seconds": 0.5, "every": 6})
    assert named(verdict, "dip_ratio").outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("name", "model"),
    [
        pytest.param("compute_rate", RATED, marks=pytest.mark.proves("compute_rate.floor_ratio")),
        pytest.param(
            "memory_bandwidth", H100, marks=pytest.mark.proves("memory_bandwidth.floor_ratio")
        ),
    ],
)
def test_a_known_model_must_reach_its_floor(
    monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    """A processor that calls itself a large GPU is far below; where the limit is lowered it passes."""
    # Processors multiply in types for which no model has a floor.
    row = Floor(model=RATED, quantity="float32", value=1e14, source="this test")
    monkeypatch.setattr(floors, "FLOORS", (*FLOORS, row))
    claim = {"kind": "name", "name": model}
    slow = verdict_here(name, claim, limits=NO_DIPS)
    assert named(slow, "floor_ratio").outcome is Outcome.FAIL
    assert ("DCGM" if model == H100 else "this test") in slow.reason
    lowered = {**NO_DIPS, f"{name}.floor_ratio": 1e-6}
    assert verdict_here(name, claim, limits=lowered).outcome is Outcome.PASS


@pytest.mark.proves("memory_bandwidth.wrong_words")
def test_a_wrong_word_of_a_copy_fails() -> None:
    """However fast it was, and however busy the node."""
    flip = {"kind": "flip", "word": 70_000}
    verdict = verdict_here("memory_bandwidth", flip, percent=90.0)
    assert named(verdict, "wrong_words").value == 1
    assert verdict.outcome is Outcome.FAIL


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("compute_rate", marks=pytest.mark.proves("compute_rate.foreign_cpu")),
        pytest.param("memory_bandwidth", marks=pytest.mark.proves("memory_bandwidth.foreign_cpu")),
    ],
)
def test_rates_of_a_busy_node_are_unknown(name: str) -> None:
    """Even those below a floor."""
    faults = ({"kind": "name", "name": H100}, {"kind": "sleep", "seconds": 0.5, "every": 6})
    verdict = verdict_here(name, *faults, percent=21.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "busy with something else: other programs took processors, 21 percent" in verdict.reason
    assert verdict.is_busy


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("compute_rate", marks=pytest.mark.proves("compute_rate.foreign_bytes")),
        pytest.param(
            "memory_bandwidth", marks=pytest.mark.proves("memory_bandwidth.foreign_bytes")
        ),
    ],
)
def test_a_gpu_whose_memory_others_use_is_busy(name: str) -> None:
    """Up to what contexts take it is not."""
    for num_bytes, outcome in ((2 << 30, "PASS"), ((2 << 30) + 1, "UNKNOWN")):
        foreign = {"kind": "foreign", "bytes": num_bytes}
        verdict = verdict_here(name, foreign, limits=NO_DIPS)
        assert verdict.outcome == outcome, verdict.reason
        assert ("memory of the GPU in use" in verdict.reason) == (outcome == "UNKNOWN")
        assert verdict.is_busy == (outcome == "UNKNOWN")


def spin(seconds: float) -> None:
    """Keep a processor busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@pytest.fixture
def neighbours() -> Iterator[None]:
    """Have other programs compute: twice as many as there are processors."""
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=spin, args=(30.0,)) for _ in range(2 * num_threads())]
    for child in children:
        child.start()
    yield
    for child in children:
        child.kill()
        child.join()


@pytest.mark.usefixtures("neighbours")
def test_neighbours_that_compute_are_noticed() -> None:
    """They take far more than a fifth of the processors."""
    before = busyness.read_busyness()
    time.sleep(0.5)
    percent, measure = busyness.percent_between(before, busyness.read_busyness())
    assert 20 < percent <= 100
    assert measure == "other programs took processors"


def test_a_check_that_fills_the_processors_itself_is_not_beside_others() -> None:
    """Of what all programs took, the time of its own children does not count."""
    before = busyness.read_busyness()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=spin, args=(0.5,)) for _ in range(3 * num_threads())]
    for child in children:
        child.start()
    for child in children:
        child.join()
    after = busyness.read_busyness()
    percent, _ = busyness.percent_between(before, after)
    alike = replace(after, own_seconds=before.own_seconds)
    in_all, _ = busyness.percent_between(before, alike)
    own_percent = 100 * (after.own_seconds - before.own_seconds) * os.sysconf("SC_CLK_TCK")
    own_percent /= after.all_ticks - before.all_ticks
    assert own_percent > 10
    assert percent == pytest.approx(max(0.0, in_all - own_percent), abs=1)


def test_every_floor_is_that_of_a_model_and_plausible() -> None:
    """Each row is found by a name as drivers give it, and no variant gets the floor of another."""
    names = (
        "NVIDIA A100-SXM4-80GB",
        "NVIDIA A100 80GB PCIe",
        H100,
        "NVIDIA H100 NVL",
        "NVIDIA H200",
        "NVIDIA B200",
        "Tesla V100-SXM2-32GB",
        "NVIDIA A30",
        "NVIDIA A40",
        "NVIDIA A10G",
        "Tesla T4",
        "AMD Instinct MI250X",
        "AMD Instinct MI300X",
        "AMD Instinct MI355X",
    )
    found = {floor_of(name, floor.quantity) for name in names for floor in FLOORS}
    assert found - {None} == set(FLOORS)
    for floor in FLOORS:
        is_product = floor.quantity in ("bfloat16", "float8")
        low, high = (1e13, 5e15) if is_product else (5e9, 1e13)
        assert low < floor.value < high
    assert floor_of("NVIDIA H100 PCIe", "bfloat16") is None
    assert floor_of("NVIDIA H200 NVL", "bfloat16") is None
    assert floor_of("NVIDIA GeForce RTX 4090", "copy") is None


def test_the_check_runs_its_probe_in_the_interpreter_of_the_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From end to end: a device that pauses fails; limits that are lifted leave no other way."""
    plant(monkeypatch, {"probe": "rates", "kind": "sleep", "seconds": 0.5, "every": 6})
    lifted = {"memory_bandwidth.foreign_cpu": 100.0}
    verdict = real_verdict("memory_bandwidth", seconds=1.0, limits=lifted)
    assert named(verdict, "dip_ratio").outcome is Outcome.FAIL, verdict
    assert named(verdict, "wrong_words").outcome is Outcome.PASS
