"""A run whose past is on its way from the step history: its heartbeats wait, so that detectors see all steps in their order."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.watch import PastStep, StepsWanted, WatchedAttempt

# Newest steps that are part of the run: many times the longest window of a metric's detector (192 samples), so that levels,
# excursions and places to go back to are there. All of them take 50 ms of the supervisor's time. Chosen.
NUM_STEPS = 3000
# From the first heartbeat on; then they are judged without a past, for the disk may hang. Chosen, as is the number.
PATIENCE_SECONDS = 30.0
MAX_HEARTBEATS = 20_000


class Waiting(NamedTuple):
    """A heartbeat that came at `now`."""

    heartbeat: Heartbeat
    watched: WatchedAttempt
    now: float


@dataclass(slots=True)
class AwaitedPast:
    """What was asked for when a gang was first watched, and the heartbeats since."""

    watched: WatchedAttempt
    waiting: list[Waiting] = field(default_factory=list)

    @property
    def wanted(self) -> StepsWanted:
        """What to ask the history for."""
        return StepsWanted(self.watched.attempt, newest=NUM_STEPS)

    def add(self, heartbeat: Heartbeat, watched: WatchedAttempt, now: float) -> bool:
        """Let a heartbeat wait; return whether the past is waited for any longer."""
        self.waiting.append(Waiting(heartbeat, watched, now))
        is_late = now >= self.waiting[0].now + PATIENCE_SECONDS
        return not is_late and len(self.waiting) < MAX_HEARTBEATS

    def before(self, steps: Sequence[PastStep]) -> list[PastStep]:
        """Leave out the steps that wait, too: heartbeats have more of them."""
        attempt = self.watched.attempt
        first = min(
            (
                record.step
                for each in self.waiting
                for record in each.heartbeat.steps or each.heartbeat.logged_steps
                if record.loss is not None and each.heartbeat.attempt == attempt
            ),
            default=math.inf,
        )
        return [one for one in steps if one.attempt < attempt or one.step < first]


def record_of(past: PastStep) -> StepRecord:
    """Return a step of the past as a node reports it."""
    return StepRecord(
        step=past.step,
        loss=past.loss,
        grad_norm=past.grad_norm,
        lr=past.lr,
        loss_scale=past.loss_scale,
        skipped=past.skipped,
        tokens_per_second=past.tokens_per_second,
        validation_loss=past.validation_loss,
        activation_norm=past.activation_norm,
        data_step=None if past.data_step is None else int(past.data_step),
    )
