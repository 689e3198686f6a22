"""The output of a benchmark: one line for each figure, `figure | value | limit | PASS or MISS`.

A figure without a limit (a noise floor, a part of a sum) has no verdict. Each benchmark prints its method first. A cost of
processor time is printed on the first machine's scale; the line below has its ratio to the reference loop, and the measurement.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.reference_loop import ReferenceLoop

# For the method of each benchmark that prints costs of processor time.
SCALE = "costs of processor time are ratios to the reference loop, given as time on the first machine (bench/reference_loop.py)"
# Probability that an interval holds the median.
COVERAGE_RATIO = 0.95


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor time as measured here. `unit_us`: microseconds in one unit; of a share, in each second (`rate`)."""

    value: float
    unit: str
    unit_us: float
    rate: str = " a second"


def microseconds(value: float) -> Cost:
    """Return the cost of one call or one step."""
    return Cost(value, "us", 1.0, "")


def seconds(value: float) -> Cost:
    """Return the cost of a whole piece of work."""
    return Cost(value, "s", 1e6, "")


def cores(value: float) -> Cost:
    """Return a cost in cores: 1.0 is one core in full."""
    return Cost(value, "cores", 1e6)


def percent_of_core(value: float) -> Cost:
    """Return a cost in percent of one core."""
    return Cost(value, "% of a core", 1e4)


def percent_of_machine(value: float, num_cores: int) -> Cost:
    """Return a cost in percent of all cores together."""
    return Cost(value, "% of wall x cores", 1e4 * num_cores)


class Report:
    """Prints figures as they come and remembers whether one missed its limit."""

    def __init__(self, title: str, method: str) -> None:
        self.num_missed = 0
        print(f"\n{title}\n  method: {method}", flush=True)

    def note(self, text: str) -> None:
        """Print what belongs to the figures and is none."""
        print(f"  {text}", flush=True)

    def miss(self, name: str, reason: str) -> None:
        """Count as missed what could not be measured at all."""
        self.num_missed += 1
        print(f"  {name} | - | {reason} | MISS", flush=True)

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        spread: tuple[float, float] | None = None,
    ) -> None:
        """Print one figure, with its verdict if it has a limit (given in the same unit), and the range it comes from."""
        is_missed = (at_most is not None and value > at_most) or (
            at_least is not None and value < at_least
        )
        self.num_missed += is_missed
        limit = "-" if at_most is None else f"<= {at_most:g} {unit}"
        limit = limit if at_least is None else f">= {at_least:g} {unit}"
        verdict = "-" if limit == "-" else "MISS" if is_missed else "PASS"
        around = "" if spread is None else f" ({spread[0]:.4g} to {spread[1]:.4g})"
        print(f"  {name} | {value:.4g}{around} {unit} | {limit} | {verdict}", flush=True)

    def figure_of(
        self, name: str, values: Sequence[float], unit: str, *, at_most: float | None = None
    ) -> None:
        """Print the median of several values, between their smallest and largest."""
        spread = min(values), max(values)
        self.figure(name, statistics.median(values), unit, at_most=at_most, spread=spread)

    def cost(
        self, name: str, cost: Cost, loop: ReferenceLoop, *, at_most: float | None = None
    ) -> None:
        """Print what takes processor time as the first machine would take it; `at_most` in the cost's unit, there."""
        self.figure(name, cost.value * loop.to_first_machine, cost.unit, at_most=at_most)
        ratio = cost.value * cost.unit_us / loop.us
        limit = "" if at_most is None else f", limit {at_most * cost.unit_us / loop.first_us:.4g}"
        self._print_ratio(
            f"{ratio:.4g} x the loop{cost.rate}{limit}", f"{cost.value:.4g} {cost.unit}", loop
        )

    def speed(
        self, name: str, mb_per_second: float, loop: ReferenceLoop, *, at_least: float | None = None
    ) -> None:
        """Print megabytes per second of processor time as on the first machine; `at_least` likewise."""
        self.figure(name, mb_per_second / loop.to_first_machine, "MB/s", at_least=at_least)
        limit = "" if at_least is None else f", limit {at_least * loop.first_us:.4g}"
        ratio = f"{mb_per_second * loop.us:.4g} bytes in the time of the loop{limit}"
        self._print_ratio(ratio, f"{mb_per_second:.4g} MB/s", loop)

    def _print_ratio(self, ratio: str, measured: str, loop: ReferenceLoop) -> None:
        self.note(f"  {ratio}; measured {measured}, the loop {loop.us:.4g} us")


def quantile(values: Sequence[float], ratio: float) -> float:
    """Return the value below which `ratio` of all values lie (nearest rank); ValueError if there are none."""
    if not values:
        raise ValueError("no values to take a quantile of")
    ordered = sorted(values)
    return ordered[min(int(ratio * len(ordered)), len(ordered) - 1)]


def median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return low, high and coverage of the narrowest interval between two of the values that holds the median at 95 % or more.

    By order statistics, which assume nothing of the distribution. Fewer than six values never reach 95 %: the coverage of
    the widest interval is returned then. ValueError if there are none.
    """
    if not values:
        raise ValueError("no values to give an interval for")
    ordered = sorted(values)

    def coverage_ratio(num_cut: int) -> float:
        below = sum(math.comb(len(ordered), count) for count in range(num_cut + 1))
        return 1 - below / float(2 ** (len(ordered) - 1))

    cuts = range((len(ordered) + 1) // 2)
    num_cut = max((cut for cut in cuts if coverage_ratio(cut) >= COVERAGE_RATIO), default=0)
    return ordered[num_cut], ordered[-1 - num_cut], max(0.0, coverage_ratio(num_cut))
