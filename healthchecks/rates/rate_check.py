"""What the checks of rates share: they measure each device by the probe `rates`, and ask how busy others were meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Outcome, Verdict
from healthchecks.declaration import CHOSEN, Limit, at_least, at_most
from healthchecks.probe import devices_of, judge_answers, num_threads, run_probes
from healthchecks.rates.busyness import MOST_FOREIGN_PERCENT, percent_between, read_busyness
from healthchecks.rates.series import FLOOR_LIMIT, LEAST_WINDOWS, RateNames, busyness_of, rates_of
from healthchecks.soak.evidence import judge_soak
from healthchecks.soak.watch import run_watched

PROBE = "rates"

# Numbers of one device, by how many percent others took the processors and by what measure, to its evidence.
JudgeNumbers = Callable[[Mapping[str, Any], float, str, Judge], Iterator[Evidence]]


def rate_limits(check: str) -> dict[str, Limit]:
    """Return the limits that every check of rates has."""
    return {
        f"{check}.foreign_cpu": at_most(MOST_FOREIGN_PERCENT, "percent", CHOSEN, most=100),
        f"{check}.foreign_bytes": at_most(2 << 30, "bytes", CHOSEN, most=1e12),
        f"{check}.dip_ratio": at_least(0.5, "ratio", CHOSEN, least=0.001, most=1),
        f"{check}.floor_ratio": FLOOR_LIMIT,
    }


def measure_rates(
    names: RateNames,
    node: NodeFacts,
    judge: Judge,
    asked: Mapping[str, Any],
    judge_numbers: JudgeNumbers,
    *,
    is_watched: bool = False,
) -> Verdict:
    """Measure all GPUs at the same time, or the CPU, and how busy others are; the probe is asked `asked` besides the device."""
    devices = devices_of(node, with_cpu=False)
    common = {"num_threads": num_threads(), "least_windows": LEAST_WINDOWS, **asked}
    before = read_busyness()
    every = [{"device": device, **common} for device in devices]
    watched = None
    if is_watched:
        answers, watched = run_watched(PROBE, node, every)
    else:
        answers = run_probes(PROBE, node, every)
    percent, measure = percent_between(before, read_busyness())
    evidence = judge_answers(
        zip(devices, answers, strict=True),
        lambda numbers: judge_numbers(numbers, percent, measure, judge),
        lambda device, why: judge(names.full("dip_ratio"), None, subject=device, note=why),
    )
    soak = tuple(judge_soak(names.check, watched, judge))
    return Verdict(check=names.check, evidence=(*evidence, *soak))


def judge_rates(
    names: RateNames, numbers: Mapping[str, Any], percent: float, measure: str, judge: Judge
) -> Iterator[Evidence]:
    """Judge one device, of a node of which others took so many percent."""
    busyness = tuple(busyness_of(names, percent, measure, numbers, judge))
    yield from busyness
    is_busy = any(each.outcome is not Outcome.PASS for each in busyness)
    yield from rates_of(names, numbers, judge, is_busy=is_busy)
