"""Records about what a run is launched with, and about drift: that an attempt runs with something else than the one before."""

from collections.abc import Mapping

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions
from runner.facts.wire import Value


class ConditionsRecorded(Value, kind="conditions_recorded"):
    """What an attempt runs with on a node. `differences` from what the run is known to run with, in words; empty: it is the same.

    `is_approved`: a person approved beforehand of what differs.
    """

    attempt: AttemptId
    node: str
    conditions: LaunchConditions
    differences: tuple[str, ...] = ()
    is_approved: bool = False


class NodesCompared(Value, kind="nodes_compared"):
    """How the nodes of a gang compare with what their run is known to run with.

    `digests`: all that there are of each part. `differences`: which nodes differ in what, in words; empty: none does. `asked`:
    the nodes that are asked for all of it -> the nodes like it, in words. `approved`: digests that count for the run from now on.
    """

    attempt: AttemptId
    digests: Mapping[str, tuple[str, ...]]
    differences: tuple[str, ...] = ()
    asked: Mapping[str, str] = field(default_factory=dict)
    approved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    num_missing: int = 0


class ConditionsKept(Value, kind="conditions_kept"):
    """A run that was started again under its name is compared with the one that it goes on from, number `before`."""

    run: int
    before: int


class DriftAccepted(Value, kind="drift_accepted"):
    """A person approves of what differs: what the next attempt runs with, on each of its nodes, counts from then on."""

    run: int
    by: str = ""
    request: str = ""
    reason: str = ""
