"""Planned changes: announced in run.yaml, so that their effect on the metrics is no finding."""

from collections.abc import Mapping
from typing import Annotated, Literal

from runner.facts.specs.setting import Limits
from runner.facts.wire import Value

Metric = Literal["loss", "gradient", "throughput"]
ALL_METRICS: tuple[Metric, ...] = ("loss", "gradient", "throughput")
# What may jump with a change of this kind; an unknown kind may change everything.
EXPECTED: Mapping[str, tuple[Metric, ...]] = {
    "lr": ("loss", "gradient"),
    "data": ("loss", "gradient"),
    "nodes": ("throughput",),
    "batch": ALL_METRICS,
    "sequence_length": ALL_METRICS,
}
# What every reader of JSON keeps exactly.
MAX_STEP = 2**53


class PlannedChange(Value):
    """An announced change: from one step to another, both included, its expected effects are no finding.

    `what` is a kind (lr, data, nodes, batch, sequence_length) or any text, which means a change of everything.
    """

    from_step: Annotated[int, Limits("steps", least=1, most=MAX_STEP)]
    to_step: Annotated[int, Limits("steps", least=1, most=MAX_STEP)]
    what: str

    def expects(self, metric: Metric) -> bool:
        """Whether this metric may jump."""
        return metric in EXPECTED.get(self.what, ALL_METRICS)
