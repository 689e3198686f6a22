"""What a rate must reach among its peers: the median and the spread of those that belong together.

The plain median fails in pairs: when a third of the nodes are bad, up to two thirds of pairs have a bad end, and the median is a
bad pair's. Good ones are the fastest, so the estimate starts among them, and grows downwards as far as rates belong together.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# A node with fewer is not compared. Source: decision rule of the study of health checks (dlrover, SuperBench, NVSentinel).
MIN_PEERS = 4
# Standard deviations below the median, and the least share of it. Source: the same rule; SuperBench flags at 5 %.
SPREADS = 3.0
LEAST_RATIO = 0.10
# However far apart peers are, half of their rate is bad. Chosen, not measured.
MOST_RATIO = 0.40
# A normal distribution's standard deviation in median absolute deviations.
DEVIATION = 1.4826
# A median's variance in that of one of its rates, times their number, for a normal distribution: pi / 2. Few peers know less.
MEDIAN_VARIANCE = math.pi / 2
# The standard error of a median absolute deviation in its own size, times the root of the number of rates, for the same.
DEVIATION_ERROR = 1.17
# Of all rates, the fastest that the estimate starts from: with N/3 bad nodes at least N/6 of N/2 pairs are good, a third, and a
# quarter of few pairs. Those that belong to them from the start: four standard deviations of 5 % noise. Chosen, not measured.
FASTEST_SHARE = 4
START_RATIO = 0.20


@dataclass(frozen=True, slots=True)
class PeerLimit:
    """The median of peers and the least rate that belongs to them."""

    median: float
    least: float

    @property
    def ratio(self) -> float:
        """How far a rate may be below the median, of the median."""
        return 1 - self.least / self.median


def peer_limit(rates: Sequence[float], *, least_ratio: float = LEAST_RATIO) -> PeerLimit:
    """Return the limit among at least one rate; all rates are above 0. `least_ratio`: of the median, that all may be below it."""
    ordered = sorted(rates, reverse=True)
    fastest = ordered[: max(1, len(ordered) // FASTEST_SHARE)]
    together = [rate for rate in ordered if rate >= (1 - START_RATIO) * _middle(fastest)]
    while True:
        median = _middle(together)
        spread = DEVIATION * _middle(sorted(abs(rate - median) for rate in together))
        ratio = min(MOST_RATIO, max(SPREADS * spread / median, least_ratio))
        grown = [rate for rate in ordered if rate >= (1 - ratio) * median]
        if len(grown) <= len(together):
            break
        together = grown
    num = len(together)
    spread *= 1 + DEVIATION_ERROR / math.sqrt(num)
    ratio = max(SPREADS * spread / median, least_ratio) * math.sqrt(1 + MEDIAN_VARIANCE / num)
    return PeerLimit(median, (1 - min(MOST_RATIO, ratio)) * median)


def _middle(ordered: Sequence[float]) -> float:
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
