"""Baseline: the throughput that a run has shown, learned over attempts and kept between them.

A run may be slower after a restart without any error (another kernel, a slow link, a GPU at half its clock). So the baseline
never sinks by itself: only a rise is learned. A planned change of what a step is (batch, sequence length, nodes) resets it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

# Behind a baseline; chosen.
LEARNED_SAMPLES = 64
# A lasting rise by less is noise; chosen.
RISE_RATIO = 0.02


@dataclass(slots=True)
class Baseline:
    """The usual throughput of a run, in its own unit; None until enough samples."""

    throughput: float | None = None
    # Of single samples around it.
    spread: float = 0.0

    def learn(self, median: float, spread: float) -> None:
        """Learn the level of `LEARNED_SAMPLES` samples if it is the first, or better."""
        if self.throughput is None or median > self.throughput * (1 + RISE_RATIO):
            self.throughput, self.spread = median, spread

    def dump(self) -> dict[str, float]:
        """Return it as plain numbers, to keep between attempts."""
        if self.throughput is None:
            return {}
        return {"throughput": self.throughput, "spread": self.spread}

    @staticmethod
    def load(dumped: Mapping[str, float]) -> "Baseline":
        """Return the baseline of dumped numbers; a new one if they make no sense."""
        throughput, spread = dumped.get("throughput"), dumped.get("spread", 0.0)
        is_sensible = isinstance(throughput, float | int) and 0 < throughput < float("inf")
        if not is_sensible or not 0 <= spread < float("inf"):
            return Baseline()
        return Baseline(throughput=throughput, spread=spread)
