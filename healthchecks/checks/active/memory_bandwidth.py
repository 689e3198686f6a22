"""memory_bandwidth: how fast each GPU copies within its memory, and from and to the host; without GPUs, how fast the host copies.

In windows over a while: the median, and how far the slowest windows fall below it. Every word of the last copy must be the one
that was written. A GPU of a known model must reach the floor of that model (`healthchecks/rates/floors.py`); whatever the model,
the median is there to be compared with peers. While other programs keep the processors or the GPU busy, rates are unknown. The
probe is `rates`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Outcome, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_least, at_most
from healthchecks.probe import devices_of, judge_answers, num_threads, run_probes
from healthchecks.rates.busyness import percent_between, read_busyness
from healthchecks.rates.series import FLOOR_LIMIT, LEAST_WINDOWS, RateNames, busyness_of, rates_of

NAME = "memory_bandwidth"
PROBE = "rates"
NAMES = RateNames(check=NAME, name="gb_per_second", unit="GB/s", scale=1e9)
# Of each of two regions, at most. Chosen, not measured.
MOST_BYTES = 1 << 30


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Measure all GPUs at the same time, or the CPU, and how busy others are meanwhile."""
    devices = devices_of(node, with_cpu=False)
    asked = [ask(device) for device in devices]
    before = read_busyness()
    answers = run_probes(PROBE, node, asked)
    percent, measure = percent_between(before, read_busyness())
    evidence = judge_answers(
        zip(devices, answers, strict=True),
        lambda numbers: judge_numbers(numbers, percent, measure, judge),
        lambda device, why: judge("memory_bandwidth.dip_ratio", None, subject=device, note=why),
    )
    return Verdict(check=NAME, evidence=evidence)


def ask(device: str) -> dict[str, Any]:
    """Return what the probe of one device is asked."""
    common = {"device": device, "num_threads": num_threads(), "least_windows": LEAST_WINDOWS}
    return {**common, "measure": "copies", "most_bytes": MOST_BYTES}


def judge_numbers(
    numbers: Mapping[str, Any], percent: float, measure: str, judge: Judge
) -> Iterator[Evidence]:
    """Judge one device, of a node of which others took so many percent."""
    busyness = tuple(busyness_of(NAMES, percent, measure, numbers, judge))
    yield from busyness
    is_busy = any(each.outcome is not Outcome.PASS for each in busyness)
    yield from rates_of(NAMES, numbers, judge, is_busy=is_busy)
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
        # Tools that measure nodes take pressure above 20 % for another program's.
        "memory_bandwidth.cpu_pressure": at_most(20, "percent", CHOSEN, most=100),
        "memory_bandwidth.foreign_bytes": at_most(2 << 30, "bytes", CHOSEN, most=1e12),
        "memory_bandwidth.dip_ratio": at_least(0.5, "ratio", CHOSEN, least=0.001, most=1),
        "memory_bandwidth.floor_ratio": FLOOR_LIMIT,
        "memory_bandwidth.wrong_words": at_most(0, "words", DEFINED, most=0),
    },
)
