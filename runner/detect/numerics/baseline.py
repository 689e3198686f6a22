"""What a run has shown it can do: its throughput, learned over attempts and kept between them.

A restart may come back slower without a word (another kernel, a slow link, a GPU at half its clock). So the baseline never sinks by
itself: only a rise is learned, and who changes what a step is (batch, sequence length, number of nodes) says so and begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# behind a baseline; chosen
LEARNED_SAMPLES = 64
# a lasting rise by less is noise; chosen
RISE_RATIO = 0.02


@dataclass(slots=True)
class Baseline:
    """The usual throughput of a run, in its own unit; None as long as too little was seen."""

    throughput: float | None = None
    # of single samples around it
    spread: float = 0.0

    def learn(self, median: float, spread: float) -> None:
        """Take in the level of `LEARNED_SAMPLES` samples: the first one, or a better one."""
        if self.throughput is None or median > self.throughput * (1 + RISE_RATIO):
            self.throughput, self.spread = median, spread

    def dump(self) -> dict[str, float]:
        """Return what to keep between attempts, as plain numbers."""
        if self.throughput is None:
            return {}
        return {"throughput": self.throughput, "spread": self.spread}

    @staticmethod
    def load(kept: Mapping[str, float]) -> Baseline:
        """Return the baseline that was kept; a new one from numbers that make no sense."""
        throughput, spread = kept.get("throughput"), kept.get("spread", 0.0)
        is_sensible = isinstance(throughput, float | int) and 0 < throughput < float("inf")
        if not is_sensible or not 0 <= spread < float("inf"):
            return Baseline()
        return Baseline(throughput=throughput, spread=spread)
