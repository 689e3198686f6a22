"""Progress: gangs that live and make no step, and ranks that are stopped. Liveness is not progress."""

from __future__ import annotations

from dataclasses import dataclass, field

from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.signals import Heartbeat
from runner.facts.watch import Watch, WatchedAttempt


@dataclass(slots=True, kw_only=True)
class _Gang:
    last_step: int | None = None
    advanced_at: float = 0.0
    found: dict[str, bool] = field(default_factory=dict)  # findings already made, by name


class GangProgress:
    """Watches launched gangs. A gang that never reported a step is held to its start limit only if its ranks speak at all."""

    def __init__(self) -> None:
        self._gangs: dict[AttemptId, _Gang] = {}
        self._speaking: dict[AttemptId, bool] = {}

    def heard(self, beat: Heartbeat, now: float) -> list[Finding]:
        """Note steps and stopped ranks."""
        if beat.attempt is None:
            return []
        gang = self._gangs.get(beat.attempt)
        if gang is None:
            return []
        if beat.phases or beat.last_step is not None:
            self._speaking[beat.attempt] = True
        if beat.last_step is not None and (
            gang.last_step is None or beat.last_step > gang.last_step
        ):
            gang.last_step, gang.advanced_at = beat.last_step, now
        found = []
        for rank in beat.ranks_stopped:
            if not gang.found.get(f"stopped {rank}"):
                gang.found[f"stopped {rank}"] = True
                evidence = f"rank {rank} on {beat.node} is stopped (state T)"
                found.append(
                    Finding(
                        fault="rank_stopped",
                        evidence=evidence,
                        attempt=beat.attempt,
                        node=beat.node,
                        rank=rank,
                    )
                )
        return found

    def tick(self, watch: Watch, now: float) -> list[Finding]:
        """Return findings about gangs past their limit."""
        self._follow(watch)
        found = []
        for watched in watch.attempts:
            gang = self._gangs[watched.attempt]
            since, limit, phase = self._limit(watched, gang)
            if limit > 0 and now >= since + limit and not gang.found.get("no_progress"):
                gang.found["no_progress"] = True
                evidence = f"no step of {watched.attempt} for {now - since:.1f} s in phase {phase} (limit {limit:g} s)"
                found.append(
                    Finding(
                        fault="no_progress",
                        evidence=evidence,
                        attempt=watched.attempt,
                        silent_seconds=now - since,
                    )
                )
        return found

    def _limit(self, watched: WatchedAttempt, gang: _Gang) -> tuple[float, float, str]:
        """Return (since, limit, phase): no limit for ranks that have never said a word."""
        if gang.last_step is not None:
            return gang.advanced_at, watched.progress_seconds, "step"
        speaks = self._speaking.get(watched.attempt, False)
        return (
            max(watched.since, gang.advanced_at),
            watched.start_seconds if speaks else 0.0,
            "start",
        )

    def _follow(self, watch: Watch) -> None:
        current = {watched.attempt: watched for watched in watch.attempts}
        self._gangs = {
            name: self._gangs.get(name) or _Gang(advanced_at=w.since) for name, w in current.items()
        }
        self._speaking = {name: self._speaking.get(name, False) for name in current}

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        for gang in self._gangs.values():
            gang.advanced_at += seconds

    def due_at(self, watch: Watch) -> float | None:
        """Return when the next gang passes its limit if it makes no step."""
        times = []
        for watched in watch.attempts:
            gang = self._gangs.get(watched.attempt)
            if gang is not None and not gang.found.get("no_progress"):
                since, limit, _ = self._limit(watched, gang)
                times += [since + limit] if limit > 0 else []
        return min(times, default=None)
