"""All detectors behind one door: a heartbeat or the passing of time in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from runner.detect.gang_liveness import GangLiveness
from runner.detect.heartbeat_timeout import HeartbeatTimeout
from runner.detect.numerics.live import LiveNumerics
from runner.detect.progress import GangProgress
from runner.detect.resource_growth import ResourceGrowth
from runner.detect.start_times import StartTimes
from runner.detect.stragglers import StragglerDetector
from runner.facts.faults import Finding
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

# of one detector, before it is let be; chosen
MAX_FAILURES = 10
SOFT: Mapping[str, Callable[[], Any]] = {
    "stragglers": StragglerDetector,
    "growth": ResourceGrowth,
    "numbers": LiveNumerics,
}


class DetectorRegistry:
    """The detectors of one cluster. What they find is durable; what they remember is not."""

    def __init__(self, silence_seconds: float) -> None:
        self.silence = HeartbeatTimeout(silence_seconds)
        self.progress = GangProgress(silence_seconds)
        self.starts = StartTimes()
        self.advances = GangLiveness(silence_seconds)
        self.stragglers = StragglerDetector()
        self.growth = ResourceGrowth()
        self.numbers = LiveNumerics()
        self._watch = WatchList()
        self._failures = dict.fromkeys(SOFT, 0)

    def watch(self, watch: WatchList) -> None:
        """Take over what is to be watched from now on."""
        self._watch = watch

    def heard(self, beat: Heartbeat, now: float) -> list[object]:
        """Take a heartbeat in. One of another life than the node's agent has is not the node: it says nothing of it."""
        life = self._watch.lives.get(beat.node, "")
        if life and beat.life and beat.life != life:
            return []
        found: list[object] = [
            *self.silence.heard(beat, self._watch, now),
            *self.progress.heard(beat, now),
            *self.starts.heard(beat, self._watch, now),
            *self.advances.heard(beat, self._watch, self.silence, now),
        ]
        if (
            beat.computed
            # now and then, as the next one: a large fleet is heard thousands of times a second
        ):
            found += self._softly("stragglers", beat, now)
        if beat.holdings:
            found += self._softly("growth", beat, now)
        if beat.steps or beat.read_steps:
            found += self._softly("numbers", beat, now)
        return found

    def _softly(self, name: str, beat: Heartbeat, now: float) -> list[Finding]:
        """Ask a detector that nothing depends on: one that fails over what ranks say begins anew, and in the end is let be."""
        if self._failures[name] >= MAX_FAILURES:
            return []
        try:
            found: list[Finding] = getattr(self, name).heard(beat, self._watch, now)
        except Exception as error:  # noqa: BLE001 - a bulkhead: what ranks say is hostile, and others are to be judged
            self._failures[name] += 1
            setattr(self, name, SOFT[name]())
            words = f"the detector of {name} failed over what {beat.node} said, and begins anew: {error!r}"
            return [Finding(fault="decision_failed", evidence=words[:300], node=beat.node)]
        return found

    def tick(self, now: float) -> list[object]:
        """Find what the passing of time has made true."""
        return [
            *self.silence.tick(self._watch, now),
            *self.progress.tick(self._watch, now),
            *self.starts.tick(self._watch, now),
        ]

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        self.silence.begin_anew()
        self.progress.shift(seconds)
        self.starts.shift(seconds)
        self.advances.shift()
        self.stragglers.shift(seconds)

    def due_at(self) -> float | None:
        """Return when `tick` has something to say at the earliest, if nothing is heard."""
        times = (
            self.silence.due_at(self._watch),
            self.progress.due_at(self._watch),
            self.starts.due_at(),
        )
        return min((time for time in times if time is not None), default=None)
