"""Runs in virtual time for the forecast: a pace that drifts, interruptions at random, checkpoints, outages of any length."""

import random
from dataclasses import dataclass

from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import RunForecast
from runner.history.forecast import forecast
from runner.history.run_accounting import IncidentAccounting, RunAccounting

STEPS, CHECKPOINT_EVERY, STEPS_PER_MARK = 10_000, 500, 50
NOISE, OUTAGE_SECONDS = 0.3, 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How runs behave: seconds of steps between failures, drift of the pace, and whether outages have a long tail."""

    mtbf_seconds: float
    drift: float
    long_tail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A forecast at `at`, and when the run was done."""

    forecast: RunForecast
    at: float
    ended_at: float


def play(kind: Kind, seed: int) -> Outcome:
    """Play a run to its end, with a forecast after a share of its steps drawn from 10 to 90 %. A step takes a second on average."""
    return _Play(kind, random.Random(seed)).play()


class _Play:
    def __init__(self, kind: Kind, rng: random.Random) -> None:
        self._kind, self._rng = kind, rng
        self._run = RunAccounting(run=1, name="simulated", admitted_at=0.0)
        self._now, self._step, self._factor = 0.0, 0, 1.0
        self._resume, self._resume_step = "", 0
        self._attempt = AttemptId(1, 1, 0)
        self._is_first, self._fails_at = True, 0.0

    def play(self) -> Outcome:
        asked_at = self._rng.uniform(0.1, 0.9) * STEPS
        found: tuple[RunForecast, float] | None = None
        self._run.planned(0.0, self._attempt)
        self._start(self._rng.uniform(20, 200))
        while self._step < STEPS:
            self._advance()
            if found is None and self._step >= asked_at:
                expected = forecast(self._run, now=self._now, step=self._step, total_steps=STEPS)
                found = expected, self._now
        assert found is not None
        return Outcome(forecast=found[0], at=found[1], ended_at=self._now)

    def _start(self, seconds: float) -> None:
        self._now += seconds
        self._fails_at = self._now + self._rng.expovariate(1 / self._kind.mtbf_seconds)
        self._step, self._is_first = self._resume_step, True

    def _advance(self) -> None:
        num = 1 if self._is_first else min(STEPS_PER_MARK, STEPS - self._step)
        self._factor = 0.98 * self._factor + 0.02 + self._rng.gauss(0, self._kind.drift)
        took = max(0.01, num * self._factor * (1 + self._rng.gauss(0, NOISE / num**0.5)))
        if self._now + took > self._fails_at:
            self._fail()
            return
        self._now, self._step, self._is_first = self._now + took, self._step + num, False
        self._run.advanced(self._now, self._attempt, self._step)
        if self._step - self._resume_step >= CHECKPOINT_EVERY:
            self._resume_step, self._resume = self._step, f"/ckpt/{self._attempt}-{self._step:08d}"
            self._run.checkpoints[self._resume] = self._attempt

    def _fail(self) -> None:
        self._now = self._fails_at
        name = f"i{self._attempt.restart + 1}"
        incident = IncidentAccounting(
            incident=name, fault="rank_crash", opened_at=self._now, failed_at=self._now
        )
        self._run.stopping(self._now, self._attempt, "failed", incident)
        self._run.ended(self._now, self._attempt)
        rng = self._rng
        self._now += OUTAGE_SECONDS * (
            rng.lognormvariate(-0.5, 1) if self._kind.long_tail else rng.expovariate(1)
        )
        self._attempt = AttemptId(1, 1, self._attempt.restart + 1)
        self._run.planned(self._now, self._attempt)
        self._run.prepared(self._attempt, self._resume, self._resume_step)
        self._start(rng.uniform(10, 30))
