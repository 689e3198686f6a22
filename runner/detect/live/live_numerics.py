"""Live numerics: the steps that heartbeats report. One set of numeric detectors for each run, across its attempts.

Each node of a gang reports the same step. Loss and norms are judged as one node reports them: the first of the attempt with a
loss. All nodes report whose gradient was not finite before it was reduced: a NaN came from that rank, and all others only got it
from there.

What is learned outlives attempts and supervisors, except whose gradients were not finite in the last two minutes. Where a new
supervisor finds no summary of a run, or one that is older than the run's step history, the history has the rest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.detect.live.awaited_past import AwaitedPast, record_of
from runner.detect.live.nonfinite_origins import NonfiniteOrigins
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics, NumericsMemory
from runner.detect.numerics.trial import TrialSample, kept, sample_of, trajectory_before
from runner.facts import wire
from runner.facts.faults import FAULTS, Finding, MetricNote
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.watch import PastStep, StepsWanted, WatchedAttempt, WatchList
from runner.facts.wire import Value

# A drop in throughput is reported when it has lasted that long: shared machines have slow minutes; chosen.
SLOW_SECONDS = 300.0
# Notes of these faults are reported.
SLOW_TRENDS = ("activation_norm_drift", "grad_norm_drift", "plateau", "validation_divergence")
# Between two searches for the origin, which go through all nodes; chosen.
SEARCH_SECONDS = 1.0
# For all nodes to report the step; chosen.
NAMING_SECONDS = 120.0
# Whose detectors are kept between attempts; chosen.
MAX_IDLE_RUNS = 50
# Every other one of the newest 256 steps, from among which a finding says what was usual before its onset: a rise is found up to
# 192 samples after it began (numerics/drift.py). Chosen, so that the summary for the next supervisor holds them all.
KEPT_EVERY, MAX_SAMPLES = 2, 128


@dataclass(slots=True)
class _Run:
    watched: WatchedAttempt
    numerics: Numerics
    # The node whose records are judged.
    source: str = ""
    origins: NonfiniteOrigins = field(default_factory=NonfiniteOrigins)
    # When to search for the origin again.
    search_at: float = 0.0
    unnamed_until: float = 0.0
    # Reported, without its origin so far.
    unnamed: Finding | None = None
    # A drop in throughput that was not reported yet, and since when.
    slow: tuple[float, NumericFinding] | None = None
    # Of the newest steps of the source, every other one; and how many came since the last that was kept.
    samples: list[TrialSample] = field(default_factory=list)
    num_passed_over: int = 0


class LiveNumericsMemory(Value, forbid_unknown_fields=True):
    """What is kept of a run. `slow`: a drop in throughput that was not reported yet, found so many seconds ago."""

    attempt: AttemptId
    numerics: NumericsMemory
    source: str = ""
    slow_seconds: float = 0.0
    slow: NumericFinding | None = None
    # Step, loss, and the gradient norm where it is logged.
    samples: tuple[tuple[float, ...], ...] = ()
    num_passed_over: int = 0


@register
class LiveNumerics(Detector):
    """Follows the metrics of all runs."""

    order = 70
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._runs: dict[int, _Run] = {}
        self._gangs = WatchedGangs[WatchedAttempt](lambda watched: watched)
        # Runs whose past was asked for; those for which it has not come.
        self._asked: dict[int, None] = {}
        self._awaited: dict[int, AwaitedPast] = {}

    def wanted(self, watch: WatchList) -> list[StepsWanted]:
        """Ask once for the past of each run: what its summary, if there is one, does not know."""
        new = [each for each in watch.attempts if each.attempt.run not in self._asked]
        self._asked.update(dict.fromkeys(each.attempt.run for each in new))
        self._awaited.update({each.attempt.run: AwaitedPast(each) for each in new})
        return [self._awaited[each.attempt.run].wanted for each in new]

    def recall(self, wanted: StepsWanted, steps: Sequence[PastStep]) -> list[Any]:
        """Learn from the past of a run, then judge what has come meanwhile."""
        awaited = self._awaited.pop(wanted.attempt.run, None) if wanted.newest else None
        if awaited is None:
            return []
        findings = self._learn(awaited.watched, awaited.before(steps))
        return findings + self._judge_waiting(awaited)

    def _judge_waiting(self, awaited: AwaitedPast) -> list[Any]:
        return [
            finding
            for heartbeat, watched, now in awaited.waiting
            for finding in self._judge(heartbeat, watched, now)
        ]

    def _learn(self, watched: WatchedAttempt, steps: Sequence[PastStep]) -> list[Finding]:
        """Learn from steps that a supervisor before has judged; return what no incident is open for any more, and lasts.

        What is on trial has an incident as long as it is open, and of a run whose summary is known so has all else.
        """
        number = watched.attempt.run
        known = self._runs.get(number)
        is_summarised = known is not None
        if known is not None:
            since = (known.watched.attempt, known.numerics.last_step)
            steps = [one for one in steps if (one.attempt, one.step) > since]
        if not steps:
            return []
        if known is None:
            first = replace(watched, attempt=steps[0].attempt)
            known = self._runs[number] = _Run(first, Numerics(planned=watched.planned))
            self._forget_idle()
        open_findings: dict[str, Finding] = {}
        for one in steps:
            run = self._run(replace(watched, attempt=one.attempt))
            record = record_of(one)
            for found in run.numerics.judge(record):
                for each in self._to_findings(run, found, record, one.at):
                    if isinstance(each, Finding):
                        open_findings.pop(each.fault, None)
                        if not each.recovered:
                            open_findings[each.fault] = each
            _keep(run, record)
        known.unnamed = None
        return [
            each
            for each in open_findings.values()
            if not (is_summarised or FAULTS[each.fault].on_trial)
            and each.attempt == watched.attempt
        ]

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Any]:
        """Return findings about the steps that a heartbeat reports, and notes (MetricNote) of slow trends."""
        steps = heartbeat.steps or heartbeat.logged_steps
        watched = self._gangs.of(heartbeat, watch) if steps else None
        if watched is None:
            return []
        awaited = self._awaited.get(watched.attempt.run)
        if awaited is not None:
            if awaited.add(heartbeat, watched, now):
                return []
            del self._awaited[watched.attempt.run]
            return self._judge_waiting(awaited)
        return self._judge(heartbeat, watched, now)

    def _judge(self, heartbeat: Heartbeat, watched: WatchedAttempt, now: float) -> list[Any]:
        run = self._run(watched)
        findings: list[Any] = []
        for record in heartbeat.steps or heartbeat.logged_steps:
            run.origins.record(heartbeat.node, record)
            if not run.source and record.loss is not None:
                run.source = heartbeat.node
            if heartbeat.node == run.source:
                for one in run.numerics.judge(record):
                    findings += self._to_findings(run, one, record, now)
                _keep(run, record)
        findings += self._lasting_drop(run, now)
        unnamed = run.unnamed
        if unnamed is not None and now >= run.search_at:
            run.search_at = now + SEARCH_SECONDS
            named = run.origins.named(unnamed, run.watched.nodes)
            if named is not None:
                findings = [one for one in findings if one is not unnamed] + [named]
            if named is not None or now >= run.unnamed_until:
                run.unnamed = None
        return findings

    def _run(self, watched: WatchedAttempt) -> _Run:
        number = watched.attempt.run
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = _Run(watched, Numerics(planned=watched.planned))
            self._forget_idle()
        elif run.watched.attempt != watched.attempt:
            run.numerics.begin_attempt()
            run.source, run.unnamed, run.slow = "", None, None
            run.origins = NonfiniteOrigins()
        run.watched = watched
        run.numerics.planned = watched.planned
        return run

    def dump(self, run: int, now: float) -> object | None:
        """Return what was learned of a run's metrics: 56 KB at most."""
        known = self._runs.get(run)
        if known is None:
            return None
        since, slow = known.slow or (now, None)
        return LiveNumericsMemory(
            attempt=known.watched.attempt,
            numerics=known.numerics.dump(),
            source=known.source,
            slow_seconds=max(0.0, now - since),
            slow=slow,
            samples=tuple(map(_numbers, known.samples[-MAX_SAMPLES:])),
            num_passed_over=known.num_passed_over,
        )

    def load(self, run: int, dumped: object, now: float) -> None:
        """Continue from a dump, as plain JSON; raise WireError if it does not fit."""
        memory: LiveNumericsMemory = wire.from_plain(LiveNumericsMemory, dumped)
        numerics = Numerics()
        numerics.load(memory.numerics)
        # Until its first heartbeat, only its name is known.
        watched = WatchedAttempt(
            attempt=memory.attempt, nodes=(), since=None, start_seconds=0.0, progress_seconds=0.0
        )
        slow = None if memory.slow is None else (now - memory.slow_seconds, memory.slow)
        known = self._runs[run] = _Run(watched, numerics, source=memory.source, slow=slow)
        for step, *numbers in memory.samples:
            loss, norm = [*numbers, None, None][:2]
            known.samples.append(TrialSample(int(step), loss, norm))
        known.num_passed_over = memory.num_passed_over

    def _forget_idle(self) -> None:
        """Forget runs that are not watched, except the newest: they may be between two attempts."""
        watched = [attempt.run for attempt in self._gangs.known]
        idle = [number for number in self._runs if number not in watched]
        for number in idle[: max(0, len(idle) - MAX_IDLE_RUNS)]:
            del self._runs[number]

    def _to_findings(
        self, run: _Run, one: NumericFinding, record: StepRecord, now: float
    ) -> list[Any]:
        if one.fault == "throughput_drop":
            if one.recovered:
                was_reported = run.slow is None
                run.slow = None
                return [_finding(run, one)] if was_reported else []
            if one.severity == "incident":
                run.slow = (now, one)
            return []
        if one.severity != "incident" and not one.recovered:
            return _note(run, one)
        finding = _finding(run, one)
        if not one.recovered:
            seen = [*run.samples[-MAX_SAMPLES:], sample_of(record)]
            finding = replace(finding, before=trajectory_before(seen, one.onset_step))
        if FAULTS[one.fault].scope == "rank":
            run.unnamed = None if one.recovered else finding
            run.search_at, run.unnamed_until = now, now + NAMING_SECONDS
        return [finding]

    def _lasting_drop(self, run: _Run, now: float) -> list[Finding]:
        """Report a drop in throughput that has lasted."""
        if run.slow is None or now < run.slow[0] + SLOW_SECONDS:
            return []
        one, run.slow = run.slow[1], None
        return [_finding(run, one)]


def _note(run: _Run, one: NumericFinding) -> list[Any]:
    """Tell slow trends. Notes of jumps are what healthy runs have now and then."""
    if one.fault not in SLOW_TRENDS:
        return []
    attempt, step = run.watched.attempt, one.onset_step
    return [MetricNote(attempt=attempt, fault=one.fault, step=step, evidence=one.evidence)]


def _finding(run: _Run, one: NumericFinding) -> Finding:
    return Finding(
        fault=one.fault,
        evidence=f"step {one.detected_step}, from step {one.onset_step} on: {one.evidence}",
        attempt=run.watched.attempt,
        step=one.onset_step,
        recovered=one.recovered,
    )


def _keep(run: _Run, record: StepRecord) -> None:
    """Keep every other step whose numbers are finite, with as many digits as a level needs."""
    loss, norm = record.loss, record.grad_norm
    if record.skipped or loss is None or not math.isfinite(loss) or not math.isfinite(norm or 0.0):
        return
    if run.samples and record.step <= run.samples[-1].step:
        # The run has gone back.
        run.samples = [one for one in run.samples if one.step < record.step]
        run.num_passed_over = 0
    if run.num_passed_over == 0:
        loss = float(f"{loss:.6g}")
        sample = TrialSample(record.step, loss, None if norm is None else float(f"{norm:.6g}"))
        run.samples = kept(run.samples, sample, most=MAX_SAMPLES)
    run.num_passed_over = (run.num_passed_over + 1) % KEPT_EVERY


def _numbers(sample: TrialSample) -> tuple[float, ...]:
    step, loss, norm = sample[:3]
    return (step, *(one for one in (loss, norm) if one is not None))
