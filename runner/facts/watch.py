"""What the detectors watch now: derived from the controller's state, handed over by the supervisor."""

from collections.abc import Mapping

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.specs.planned_changes import PlannedChange
from runner.facts.trials import Trial
from runner.facts.wire import Value


class WatchedAttempt(Value):
    """A launched gang and its limits in seconds. `since` is when all its ranks were started, on the controller's clock.

    `since` None: a node has yet to start its ranks (its devices are held, its preload takes time), so no limit on progress runs.
    """

    attempt: AttemptId
    nodes: tuple[str, ...]
    since: float | None
    start_seconds: float
    progress_seconds: float
    reports_steps: bool = False
    has_stepped: bool = False
    # A rank has ended without a reason to end the others.
    is_ending: bool = False
    is_timed: bool = False
    pipeline: int = 1
    num_ranks: int = 0
    planned: tuple[PlannedChange, ...] = ()
    # Of the run's incidents: what was changed has yet to show that it helped.
    trials: tuple[Trial, ...] = ()


class WatchList(Value):
    """Nodes that must send heartbeats, and gangs that must advance. Silence of `left_nodes` is expected."""

    nodes: tuple[str, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    left_nodes: tuple[str, ...] = ()
    # Node -> instance of its agent; heartbeats of other instances do not count.
    instance_ids: Mapping[str, str] = field(default_factory=dict)
    # Kind -> name -> nodes, from the nearest kind to the widest.
    domains: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    attempts: tuple[WatchedAttempt, ...] = ()
