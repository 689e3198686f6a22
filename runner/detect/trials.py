"""Trials: follows the steps of runs whose remedy is on trial, and reports the verdict once. `numerics/trial.py` judges.

Which trials there are, and what they compare with, comes with the watch list. Their steps so far are kept for the next supervisor;
one that has lost them judges by the steps that are left.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from runner.detect.detector import Detector, NodeSilence, register
from runner.detect.numerics.trial import TrialSample, judge, kept, sample_of
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.trials import Trial, TrialJudged
from runner.facts.watch import WatchedAttempt, WatchList
from runner.facts.wire import Value

# Newest steps of a trial that are judged; chosen: a trial of more judges by these.
MAX_SAMPLES = 512
# Of them, steps that a summary holds; chosen.
DUMPED_SAMPLES = 40


@dataclass(slots=True)
class _Followed:
    trial: Trial
    run: int
    samples: list[TrialSample] = field(default_factory=list)
    # Of the attempt that is followed, the node whose records are judged: the first with a loss.
    attempt: AttemptId | None = None
    source: str = ""
    is_over: bool = False


class StepMemory(Value, forbid_unknown_fields=True):
    """What is kept of one step."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    skipped: bool = False


class TrialMemory(Value, forbid_unknown_fields=True):
    """What is kept of one trial. A step that is not finite ends it, and is not kept."""

    trial: Trial
    steps: tuple[StepMemory, ...] = ()


class TrialsMemory(Value, forbid_unknown_fields=True):
    """What is kept of a run's trials."""

    trials: tuple[TrialMemory, ...]


@register
class Trials(Detector):
    """Follows all trials of all runs."""

    order = 75
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._watch: WatchList | None = None
        self._attempts: Mapping[AttemptId, WatchedAttempt] = {}
        self._followed: dict[str, _Followed] = {}

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[TrialJudged]:
        """Return the verdicts that the steps of a heartbeat lead to."""
        if watch is not self._watch:
            self._read(watch)
        attempt = heartbeat.attempt
        watched = self._attempts.get(attempt) if attempt is not None else None
        steps = heartbeat.steps or heartbeat.logged_steps
        if watched is None or attempt is None or not steps:
            return []
        verdicts = []
        for trial in watched.trials:
            verdict = self._judge(self._of(trial, attempt), heartbeat.node, steps, attempt)
            verdicts += [verdict] if verdict is not None else []
        return verdicts

    def _read(self, watch: WatchList) -> None:
        """Read a new list: trials that are not on it are over, except those of runs between two attempts."""
        self._watch = watch
        self._attempts = {each.attempt: each for each in watch.attempts if each.trials}
        names = [trial.incident for each in watch.attempts for trial in each.trials]
        watched_runs = [each.attempt.run for each in watch.attempts]
        for name in [name for name in self._followed if name not in names]:
            if self._followed[name].run in watched_runs:
                del self._followed[name]

    def _of(self, trial: Trial, attempt: AttemptId) -> _Followed:
        known = self._followed.get(trial.incident)
        if known is None or known.trial != trial:
            known = self._followed[trial.incident] = _Followed(trial, attempt.run)
        return known

    def _judge(
        self, known: _Followed, node: str, steps: Iterable[StepRecord], attempt: AttemptId
    ) -> TrialJudged | None:
        if known.is_over:
            return None
        if known.attempt != attempt:
            known.attempt, known.source = attempt, ""
        for record in steps:
            if record.loss is not None and not known.source:
                known.source = node
            if node == known.source:
                known.samples = kept(known.samples, sample_of(record), most=MAX_SAMPLES)
        if not known.samples or node != known.source:
            return None
        last = known.samples[-1].step
        judgement = judge(known.trial, known.samples, last)
        if judgement is None:
            return None
        known.is_over = True
        return TrialJudged(
            incident=known.trial.incident,
            attempt=attempt,
            step=last,
            verdict=judgement.verdict,
            evidence=judgement.evidence,
            loss=judgement.loss,
        )

    def dump(self, run: int, now: float) -> object | None:
        """Return the newest steps of a run's trials: 4 KB at most."""
        known = [one for one in self._followed.values() if one.run == run]
        if not known:
            return None
        share = max(1, DUMPED_SAMPLES // len(known))
        return TrialsMemory(
            trials=tuple(
                TrialMemory(trial=one.trial, steps=tuple(_steps(one.samples[-share:])))
                for one in known
            )
        )

    def load(self, run: int, dumped: object, now: float) -> None:
        """Continue from a dump, as plain JSON; raise WireError if it does not fit."""
        memory: TrialsMemory = wire.from_plain(TrialsMemory, dumped)
        for one in memory.trials:
            samples = [TrialSample(*msgspec.structs.astuple(step)) for step in one.steps]
            self._followed[one.trial.incident] = _Followed(one.trial, run, samples)


def _steps(samples: Iterable[TrialSample]) -> Iterator[StepMemory]:
    for one in samples:
        numbers = (one.loss, one.grad_norm, one.loss_scale)
        if all(math.isfinite(value or 0.0) for value in numbers):
            yield StepMemory(**one._asdict())
