"""Advances: gangs that step on although a node of theirs is not heard. A gang steps together, so that node's ranks live.

What was under way when the node fell silent proves nothing: steps count from half the silence limit after its last word, which
is more than a heartbeat, and two steps more must have been made since.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from runner.detect.heartbeat_timeout import HeartbeatTimeout
from runner.facts.faults import GangStillStepping
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

# Steps that prove that all ranks live: one may have been under way, and be known to some nodes only; chosen.
LEAST_STEPS = 2
# of the silence limit, after a node's last word, from which on steps count; chosen
FROM_SHARE = 0.5
# how finely a gang's steps are kept, and how often it is judged; chosen
MARKS_PER_LIMIT = 8
# for how many silence limits they are kept; chosen
KEPT_LIMITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """The newest step that was known at a time."""

    at: float
    step: int


@dataclass(slots=True, kw_only=True)
class _Gang:
    nodes: dict[str, None]
    step: int = 0
    # oldest first
    marks: deque[_Mark] = field(default_factory=deque)
    # silent node -> what was said of it last
    told: dict[str, _Mark] = field(default_factory=dict)


class GangLiveness:
    """Follows the steps of gangs. In a large gang a beat costs nothing but now and then, and little while nobody is silent."""

    def __init__(self, silence_seconds: float) -> None:
        self._limit = silence_seconds
        self._gangs: dict[AttemptId, _Gang] = {}
        self._followed: WatchList | None = None

    def heard(
        self, beat: Heartbeat, watch: WatchList, silence: HeartbeatTimeout, now: float
    ) -> list[GangStillStepping]:
        """Take a heartbeat in; say whether its gang steps on without nodes that are found silent."""
        self._follow(watch)
        gang = self._gangs.get(beat.attempt) if beat.attempt is not None else None
        if gang is None or beat.attempt is None or beat.last_step is None:
            return []
        gang.step = max(gang.step, beat.last_step)
        if gang.marks and now < gang.marks[-1].at + self._limit / MARKS_PER_LIMIT:
            return []
        gang.marks.append(_Mark(at=now, step=gang.step))
        while gang.marks[0].at < now - KEPT_LIMITS * self._limit:
            gang.marks.popleft()
        silent = [name for name in silence.silent if name in gang.nodes]
        gang.told = {name: gang.told[name] for name in silent if name in gang.told}
        return self._judge(beat.attempt, gang, silent, silence) if silent else []

    def shift(self) -> None:
        """Begin anew after a time in which nobody listened: when steps were made in it is not known."""
        for gang in self._gangs.values():
            gang.marks.clear()
            gang.told.clear()

    def _judge(
        self, attempt: AttemptId, gang: _Gang, silent: list[str], silence: HeartbeatTimeout
    ) -> list[GangStillStepping]:
        newest, step_seconds, advancing = gang.marks[-1], 0.0, list[str]()
        for name in silent:
            base = self._base(gang, name, silence)
            if base is None or newest.step < base.step + LEAST_STEPS:
                continue
            advancing.append(name)
            gang.told[name] = newest
            seconds = (newest.at - base.at) / (newest.step - base.step)
            step_seconds = max(step_seconds, seconds)
        if not advancing:
            return []
        return [
            GangStillStepping(
                attempt=attempt,
                nodes=tuple(advancing),
                step=newest.step,
                step_seconds=step_seconds,
            )
        ]

    def _base(self, gang: _Gang, name: str, silence: HeartbeatTimeout) -> _Mark | None:
        """Return from when on steps count for a silent node; None: not yet, or something was said of it just now."""
        heard_at = silence.heard_at(name)
        if heard_at is None:
            return None
        counts_from = heard_at + FROM_SHARE * self._limit
        told = gang.told.get(name)
        if told is None or told.at < counts_from:
            return next((mark for mark in gang.marks if mark.at >= counts_from), None)
        return told if gang.marks[-1].at >= told.at + self._limit else None

    def _follow(self, watch: WatchList) -> None:
        if watch is not self._followed:
            self._followed = watch
            self._gangs = {
                watched.attempt: self._gangs.get(watched.attempt)
                or _Gang(nodes=dict.fromkeys(watched.nodes))
                for watched in watch.attempts
            }
