"""What a check declares about itself: its limits, what it needs, and whether a node must pass it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from healthchecks.check import Better, GpuVendor, Judge, NodeFacts, Verdict
from healthchecks.levels import Level

CHOSEN = "chosen, not measured"
DEFINED = "by definition"
# Areas of a node, of which `coverage` reports which were looked at.
GPUS, NETWORK = "GPUs and other accelerators", "the network between nodes"

# The value of a limit on a node, and its source.
Sizing = Callable[[NodeFacts], tuple[float, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit: value, unit, and the source of the number. `rule` says on which side of it a healthy value lies.

    A limit that every value holds, or none, is a dead rule: overrides must lie between `least` and `most`.

    `way_out`: what a person does on a node that is short of it; "" where a node beyond the limit is broken, not short. `sizing`
    gives value and source where they follow what the node is; without it they are the same everywhere.
    """

    rule: Literal["at least", "at most"]
    value: float
    unit: str
    source: str
    least: float
    most: float
    way_out: str = ""
    sizing: Sizing | None = None
    # Its values are compared with those of the node's peers, too.
    better: Better = ""

    def on(self, node: NodeFacts) -> "Limit":
        """Return the limit as it is on a node."""
        if self.sizing is None:
            return self
        value, source = self.sizing(node)
        return replace(self, value=value, source=source)


def at_least(
    value: float, unit: str, source: str, *, most: float, least: float = 1, way_out: str = ""
) -> Limit:
    """Return the limit that healthy values reach."""
    limit = Limit(rule="at least", value=value, unit=unit, source=source, least=least, most=most)
    return replace(limit, way_out=way_out)


def at_least_on(sizing: Sizing, unit: str, *, most: float, way_out: str) -> Limit:
    """Return a limit that healthy values reach, and that follows what the node is."""
    value, source = sizing(NodeFacts())
    limit = at_least(value, unit, source, most=most, way_out=way_out)
    return replace(limit, sizing=sizing)


def at_most(
    value: float, unit: str, source: str, *, most: float, least: float = 0, way_out: str = ""
) -> Limit:
    """Return the limit that healthy values do not exceed."""
    limit = Limit(rule="at most", value=value, unit=unit, source=source, least=least, most=most)
    return replace(limit, way_out=way_out)


def none_of(unit: str, source: str = DEFINED) -> Limit:
    """Return the limit of what a healthy node has none of."""
    return at_most(0, unit, source, most=1e6)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One check. `name` is its module's name, and the first part of the names of its limits.

    `position`: checks run in the order of these numbers, cheap ones first. `needs`: the fields of NodeFacts that it reads; it
    gets no others, but `level` and `seconds` always. `is_required`: a node that has not passed it is not healthy; a FAIL of any
    check counts. `seconds`: by level, from the lowest one at which it runs. `covers`: which areas it looks at.
    `needs_gpu`: on a node without GPUs it does not run, and is not missed; `gpu_vendor`: nor where they are another vendor's.
    `runs_beside`: it measures no rate and puts no load on the node, so it runs at the same time as other such checks.
    """

    name: str
    position: int
    run: Callable[[NodeFacts, Judge], Verdict]
    limits: Mapping[str, Limit]
    needs: tuple[str, ...] = ()
    is_required: bool = True
    seconds: Mapping[Level, float] = field(default_factory=lambda: {"passive": 1.0})
    covers: tuple[str, ...] = ()
    needs_gpu: bool = False
    gpu_vendor: GpuVendor = ""
    runs_beside: bool = False
