"""memory_bandwidth: how fast each GPU copies within its memory, and from and to the host; without GPUs, how fast the host copies.

In windows over a while: the median, and how far the slowest windows fall below it. Every word of the last copy must be the one
that was written. A GPU of a known model must reach the floor of that model (`healthchecks/rates/floors.py`); whatever the model,
the median is there to be compared with peers. While other programs keep the processors or the GPU busy, rates are unknown. The
probe is `rates`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import DEFINED, HealthCheck, at_most
from healthchecks.rates.rate_check import judge_rates, measure_rates, rate_limits
from healthchecks.rates.series import RateNames

NAME = "memory_bandwidth"
NAMES = RateNames(check=NAME, name="gb_per_second", unit="GB/s", scale=1e9)
# Of each of two regions, at most. Chosen, not measured.
MOST_BYTES = 1 << 30
# Of the probe.
ASKED = {"measure": "copies", "most_bytes": MOST_BYTES}


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Measure all GPUs at the same time, or the CPU."""
    return measure_rates(NAMES, node, judge, ASKED, judge_numbers)


def judge_numbers(
    numbers: Mapping[str, Any], percent: float, measure: str, judge: Judge
) -> Iterator[Evidence]:
    """Judge one device, of a node of which others took so many percent."""
    yield from judge_rates(NAMES, numbers, percent, measure, judge)
    for series in numbers["series"]:
        subject = f"{numbers['device']} {series['name']}"
        yield judge("memory_bandwidth.wrong_words", float(series["wrong_words"]), subject=subject)


CHECK = HealthCheck(
    name=NAME,
    position=200,
    run=check,
    needs=("num_gpus", "python"),
    seconds={"quick": 4.0, "standard": 8.0, "deep": 30.0},
    limits={
        **rate_limits(NAME),
        "memory_bandwidth.wrong_words": at_most(0, "words", DEFINED, most=0),
    },
)
