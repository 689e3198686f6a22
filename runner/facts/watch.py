"""What the detectors watch now: derived from the controller's state, handed over by the supervisor."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.specs.planned_changes import PlannedChange
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
    # Ranks of its run are known to report steps.
    reports_steps: bool = False
    # In this attempt.
    has_stepped: bool = False
    # A rank has ended, and was no reason to end the others.
    is_ending: bool = False
    # It is known which ranks were slow to start.
    is_timed: bool = False
    # Stages, from run.yaml.
    pipeline: int = 1
    num_ranks: int = 0
    # Changes that may show in its numbers.
    planned: tuple[PlannedChange, ...] = ()


class WatchList(Value):
    """Nodes that must send heartbeats, and gangs that must advance."""

    nodes: tuple[str, ...] = ()
    # Given up; their heartbeats are reported.
    lost_nodes: tuple[str, ...] = ()
    # Their agents announced that they end: silence is expected.
    left_nodes: tuple[str, ...] = ()
    # Node -> instance of its agent; heartbeats of other instances do not count.
    instance_ids: Mapping[str, str] = field(default_factory=dict)
    # Kind -> name -> nodes, from the nearest kind to the widest.
    domains: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    attempts: tuple[WatchedAttempt, ...] = ()
