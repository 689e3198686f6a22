"""What the detectors are to watch just now: told by the controller's state, handed over by the supervisor."""

from __future__ import annotations

from dataclasses import dataclass

from runner.facts.ids import AttemptId


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedAttempt:
    """A launched gang and its limits in seconds. `since` is when it was launched, on the controller's clock."""

    attempt: AttemptId
    nodes: tuple[str, ...]
    since: float
    start_seconds: float
    progress_seconds: float
    is_timed: bool = False  # it is known which ranks were slow to start


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Nodes that must be heard, and gangs that must advance."""

    nodes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()  # given up; worth a word if they are heard again
    attempts: tuple[WatchedAttempt, ...] = ()
