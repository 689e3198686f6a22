"""compute_rate: how fast each GPU multiplies matrices of each type; without GPUs, how fast the CPU does.

Random data, in windows over a while: the median, and how far the slowest windows fall below it. A GPU of a known model must reach
the floor of that model (`healthchecks/rates/floors.py`); whatever the model, the median is there to be compared with peers.
While other programs keep the processors or the GPU busy, rates are unknown. The probe is `rates`. At the longer levels the GPUs are
watched meanwhile: new memory errors, clocks that heat or the supply holds down, temperature and power.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import HealthCheck
from healthchecks.rates.rate_check import judge_rates, measure_rates, rate_limits
from healthchecks.rates.series import RateNames
from healthchecks.soak.evidence import soak_limits

NAME = "compute_rate"
NAMES = RateNames(check=NAME, name="tflop_per_second", unit="TFLOP/s", scale=1e12)
TYPES = ("bfloat16", "float16", "float8", "tf32", "float32", "float64")
# Levels at which the GPUs are watched.
SOAKS = ("standard", "deep")
# Of the probe.
ASKED = {"measure": "products", "types": TYPES}


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Measure all GPUs at the same time, or the CPU."""
    return measure_rates(NAMES, node, judge, ASKED, judge_numbers, is_watched=node.level in SOAKS)


def judge_numbers(
    numbers: Mapping[str, Any], percent: float, measure: str, judge: Judge
) -> Iterator[Evidence]:
    """Judge one device, of a node of which others took so many percent."""
    yield from judge_rates(NAMES, numbers, percent, measure, judge)
    left_out = ", ".join(numbers["not_covered"])
    if left_out:
        note = "this device or its torch does not multiply them, or not at a rate of their own"
        subject = f"{numbers['device']} {left_out}"
        yield Evidence(name="compute_rate.not_covered", value=None, subject=subject, note=note)


CHECK = HealthCheck(
    name=NAME,
    position=210,
    run=check,
    needs=("num_gpus", "gpu_vendor", "sysfs", "python"),
    seconds={"quick": 7.0, "standard": 25.0, "deep": 600.0},
    limits={**rate_limits(NAME), **soak_limits(NAME)},
)
