"""What a detector is, and what several of them share: last heartbeats, and the gangs that are watched."""

import math
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import ClassVar, Generic, TypeVar

from runner.errors import WireError
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import PastStep, StepsWanted, WatchedAttempt, WatchList

# Of the silence limit, which is more than two heartbeats: a node without one for so long has missed one.
OVERDUE_SHARE = 0.5

Gang = TypeVar("Gang")
Kind = TypeVar("Kind", bound="type[Detector]")


@dataclass(slots=True)
class NodeSilence:
    """The time of each node's last heartbeat, in seconds, and since when nodes are silent. Only `HeartbeatTimeout` writes it."""

    limit_seconds: float = math.inf
    last_heartbeat: dict[str, float] = field(default_factory=dict)
    silent_since: dict[str, float] = field(default_factory=dict)

    def is_overdue(self, node: str, now: float) -> bool:
        """Whether a node has missed at least one heartbeat: it may turn out to be silent."""
        return now >= self.last_heartbeat[node] + OVERDUE_SHARE * self.limit_seconds

    def has_timed_out(self, node: str, now: float) -> bool:
        """Whether a node has sent no heartbeat for the whole limit."""
        return now >= self.last_heartbeat[node] + self.limit_seconds


class Detector:
    """Turns heartbeats and the passing of time into findings. A detector overrides what it needs, and is `register`ed.

    `order`: a detector may read what those of a lower order have made of the same heartbeat. `is_advisory`: no safety depends on
    it, so an error resets it instead of ending the supervisor.

    A detector that learns for longer than some seconds dumps what it has learned of a run, and loads it in the next supervisor. It
    bounds its dump, whatever the size of the gang; all together have 62 KB (`supervisor/learned.py`).
    """

    order: ClassVar[int]
    is_advisory: ClassVar[bool] = False

    def __init__(self, silence: NodeSilence | None = None) -> None:
        self.silence = silence if silence is not None else NodeSilence()

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> Sequence[object]:
        """Handle a heartbeat of a node's current agent; return findings."""
        return ()

    def tick(self, watch: WatchList, now: float) -> Sequence[object]:
        """Return findings that the passing of time has made true."""
        return ()

    def due_at(self, watch: WatchList) -> float | None:
        """Return when `tick` has a finding at the earliest if no heartbeat arrives, or a time before that; None: never."""
        return None

    def wanted(self, watch: WatchList) -> Sequence[StepsWanted]:
        """Return the steps of runs' histories that it wants to `recall`, each once; asked when the list is new."""
        return ()

    def recall(self, wanted: StepsWanted, steps: Sequence[PastStep]) -> Sequence[object]:
        """Take steps that it wanted, as far as the history has them; return findings."""
        return ()

    def dump(self, run: int, now: float) -> object | None:
        """Return what was learned of a run, as a value that is encoded at once; None: nothing."""
        return None

    def load(self, run: int, dumped: object, now: float) -> None:
        """Continue from a dump, as plain JSON, in a new detector. Raises WireError, and learns nothing, if it does not fit."""
        raise WireError(f"{type(self).__name__} keeps nothing here")

    def shift(self, seconds: float) -> None:
        """Allow for a time in which the supervisor received no heartbeats, so that it counts against no node and no gang."""


DETECTORS: list[type[Detector]] = []


def register(kind: Kind) -> Kind:
    """Add a class of detectors to `DETECTORS`."""
    DETECTORS.append(kind)
    return kind


def import_modules(package: ModuleType) -> None:
    """Import all modules of a package, so that their detectors are registered."""
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)


class WatchedGangs(Generic[Gang]):
    """What a detector knows of each watched gang: `begin` makes it, and it goes when the gang is watched no more."""

    def __init__(self, begin: Callable[[WatchedAttempt], Gang]) -> None:
        self._begin = begin
        self._watch: WatchList | None = None
        self.known: Mapping[AttemptId, Gang] = {}

    def of(self, heartbeat: Heartbeat, watch: WatchList) -> Gang | None:
        """Return the gang of a heartbeat, if it is on this list."""
        known = self.on(watch)
        return None if heartbeat.attempt is None else known.get(heartbeat.attempt)

    def on(self, watch: WatchList) -> Mapping[AttemptId, Gang]:
        """Return the gangs of a list; a list is read once."""
        if watch is not self._watch:
            self._watch = watch
            self.known = {
                watched.attempt: self.known.get(watched.attempt) or self._begin(watched)
                for watched in watch.attempts
            }
        return self.known
