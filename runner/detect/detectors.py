"""All detectors behind one door: a heartbeat or the passing of time in, findings out."""

from __future__ import annotations

from runner.detect.advances import Advances
from runner.detect.growth import Growth
from runner.detect.numbers import Numbers
from runner.detect.progress import GangProgress
from runner.detect.silence import Silence
from runner.detect.starts import Starts
from runner.detect.stragglers import Stragglers
from runner.facts.signals import Heartbeat
from runner.facts.watch import Watch


class Detectors:
    """The detectors of one cluster. What they find is durable; what they remember is not."""

    def __init__(self, silence_seconds: float) -> None:
        self.silence = Silence(silence_seconds)
        self.progress = GangProgress(silence_seconds)
        self.starts = Starts()
        self.advances = Advances(silence_seconds)
        self.stragglers = Stragglers()
        self.growth = Growth()
        self.numbers = Numbers()
        self._watch = Watch()

    def watch(self, watch: Watch) -> None:
        """Take over what is to be watched from now on."""
        self._watch = watch

    def heard(self, beat: Heartbeat, now: float) -> list[object]:
        """Take a heartbeat in. One of another life than the node's agent has is not the node: it says nothing of it."""
        life = self._watch.lives.get(beat.node, "")
        if life and beat.life and beat.life != life:
            return []
        return [
            *self.silence.heard(beat, self._watch, now),
            *self.progress.heard(beat, now),
            *self.starts.heard(beat, self._watch, now),
            *self.advances.heard(beat, self._watch, self.silence, now),
            *self.stragglers.heard(beat, self._watch, now),
            *self.growth.heard(beat, self._watch, now),
            *self.numbers.heard(beat, self._watch, now),
        ]

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
