"""What the detectors watch now: derived from the controller's state, handed over by the supervisor."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.specs.planned_changes import PlannedChange
from runner.facts.trials import Trial
from runner.facts.wire import Value


class Resumed(Value):
    """Where an attempt began, and what its steps can be compared with: `before`, the last attempt that had gone on as it should.

    `sick_from`: the first sick step of an earlier attempt that this one makes again; None: none is known. `mismatched`: attempts
    that had not gone on as the run had before them.
    """

    step: int
    before: AttemptId
    remedies: Mapping[str, Any] = field(default_factory=dict)
    remedies_before: Mapping[str, Any] = field(default_factory=dict)
    sick_from: int | None = None
    mismatched: tuple[AttemptId, ...] = ()


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
    # Its steps are known by what its ranks print.
    prints_steps: bool = False
    has_stepped: bool = False
    # Its command has a placeholder for the learning rate, and its lines show what came of it.
    reads_rate: bool = False
    # A rank has ended without a reason to end the others.
    is_ending: bool = False
    is_timed: bool = False
    pipeline: int = 1
    num_ranks: int = 0
    planned: tuple[PlannedChange, ...] = ()
    # Of the run's incidents: what was changed has yet to show that it helped.
    trials: tuple[Trial, ...] = ()
    # None: it began at the first step.
    resumed: Resumed | None = None


class StepsWanted(NamedTuple):
    """Steps of a run's history, both included, that a detector wants about an attempt.

    Those that were part of the run before it, as if `without` had not been, and the attempt's own.
    `newest`, instead: so many of the newest steps of all that are part of the run now, none of them thinned.
    """

    attempt: AttemptId
    first: int = 0
    last: int = 0
    without: tuple[AttemptId, ...] = ()
    newest: int = 0


class PastStep(NamedTuple):
    """One step of a run's history, done at `at` by the controller's clock. None: not reported."""

    attempt: AttemptId
    step: int
    loss: float | None = None
    lr: float | None = None
    data_step: float | None = None
    at: float = 0.0
    grad_norm: float | None = None
    activation_norm: float | None = None
    loss_scale: float | None = None
    tokens_per_second: float | None = None
    validation_loss: float | None = None
    skipped: bool = False


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
