"""Numbers: what the steps in heartbeats say of runs. One set of numeric detectors for each run, across its attempts.

A gang's nodes tell the same step each for itself. Loss and norms are judged as one node tells them: the first of the attempt that
tells a loss. All nodes are heard about whose gradient was not finite before it was reduced: that rank is where a NaN came from, all
others only have it from there.

What was learned lives as long as this supervisor; the next one learns anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from msgspec.structs import replace

from runner.detect.detector import Detector, NodeSilence, register
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics
from runner.facts.faults import FAULTS, Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.watch import WatchedAttempt, WatchList

# A drop in throughput is told when it has lasted that long: machines that are shared have slow minutes; chosen.
SLOW_SECONDS = 300.0
# steps, the newest, for which it is remembered whose gradient was not finite; chosen
MAX_ORIGINS = 64
SEVERAL = 2
# between two looks whom to name; chosen
LOOK_SECONDS = 1.0
# for all nodes to have told the step; chosen
NAMING_SECONDS = 120.0
# whose numbers are remembered between attempts; chosen
MAX_IDLE_RUNS = 50
# steps that the same rank alone has spoilt, to be called the one that it comes from; chosen
LEAST_SKIPPED = 3


@dataclass(slots=True)
class _Run:
    """What is known of one run's numbers."""

    watched: WatchedAttempt
    numerics: Numerics
    # the node whose records are judged
    source: str = ""
    # step -> nodes (two at most: more say no more) with ranks whose own gradient was not finite -> that rank; None: several
    origins: dict[int, dict[str, int | None]] = field(default_factory=dict)
    # those of them that the trainer skipped
    skipped: dict[int, None] = field(default_factory=dict)
    # node -> the last step that it told
    told: dict[str, int] = field(default_factory=dict)
    # node -> steps that it did not tell, for a heartbeat was lost: the last such gap
    gaps: dict[str, range] = field(default_factory=dict)
    # when to look again whom to name
    look_at: float = 0.0
    unnamed_until: float = 0.0
    # told, without the rank that it comes from so far
    unnamed: Finding | None = None
    # since when, not told yet
    slow: tuple[float, NumericFinding] | None = None


@register
class LiveNumerics(Detector):
    """Follows the metrics of all runs."""

    order = 70
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._runs: dict[int, _Run] = {}
        self._attempts: dict[AttemptId, WatchedAttempt] = {}
        self._followed: WatchList | None = None

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Return findings about the steps that a heartbeat reports."""
        steps = heartbeat.steps or heartbeat.read_steps
        if not steps or heartbeat.attempt is None:
            return []
        self._follow(watch)
        watched = self._attempts.get(heartbeat.attempt)
        if watched is None:
            return []
        run = self._run(watched)
        found: list[Finding] = []
        for record in steps:
            self._note_origin(run, heartbeat.node, record)
            before = run.told.get(heartbeat.node, record.step - 1)
            if record.step > before + 1:
                run.gaps[heartbeat.node] = range(before + 1, record.step)
            run.told[heartbeat.node] = record.step
            if not run.source and record.loss is not None:
                run.source = heartbeat.node
            if heartbeat.node == run.source:
                for one in run.numerics.take(record):
                    found += self._judged(run, one, now)
        found += self._overdue(run, now)
        told = run.unnamed
        # a look goes through all nodes
        if told is not None and now >= run.look_at:
            run.look_at = now + LOOK_SECONDS
            named = _with_origin(run, told)
            if named is not None:
                found = [one for one in found if one is not told] + [named]
            if named is not None or now >= run.unnamed_until:
                run.unnamed = None
        return found

    def _follow(self, watch: WatchList) -> None:
        if watch is self._followed:
            return
        self._followed = watch
        self._attempts = {one.attempt: one for one in watch.attempts}

    def _run(self, watched: WatchedAttempt) -> _Run:
        number = watched.attempt.run
        run = self._runs.get(number)
        if run is None:
            run = self._runs[number] = _Run(watched, Numerics(planned=watched.planned))
            self._forget_idle()
        elif run.watched.attempt != watched.attempt:
            run.numerics.begin_attempt()
            run.source, run.unnamed, run.slow = "", None, None
            for known in (run.origins, run.skipped, run.told, run.gaps):
                known.clear()
        run.watched = watched
        return run

    def _forget_idle(self) -> None:
        """Forget runs that nobody watches, but for the newest: they may be between two attempts."""
        watched = {attempt.run: True for attempt in self._attempts}
        idle = [number for number in self._runs if number not in watched]
        for number in idle[: max(0, len(idle) - MAX_IDLE_RUNS)]:
            del self._runs[number]

    def _note_origin(self, run: _Run, node: str, record: StepRecord) -> None:
        norm, rank = record.local_grad_norm_max, record.local_grad_norm_max_rank
        if norm is None or rank is None or math.isfinite(norm):
            return
        is_alone = (record.num_nonfinite or 1) == 1
        nodes = run.origins.setdefault(record.step, {})
        if len(nodes) < SEVERAL or node in nodes:
            nodes[node] = rank if is_alone else None
        if record.skipped:
            run.skipped[record.step] = None
        if len(run.origins) > MAX_ORIGINS:
            oldest = next(iter(run.origins))
            run.skipped.pop(oldest, None)
            del run.origins[oldest]

    def _judged(self, run: _Run, one: NumericFinding, now: float) -> list[Finding]:
        if one.fault == "throughput_drop":
            if one.recovered:
                was_told = run.slow is None
                run.slow = None
                return [_finding(run, one)] if was_told else []
            if one.severity == "incident":
                run.slow = (now, one)
            return []
        if one.severity != "incident" and not one.recovered:
            return []
        finding = _finding(run, one)
        if FAULTS[one.fault].scope == "rank":
            run.unnamed = None if one.recovered else finding
            run.look_at, run.unnamed_until = now, now + NAMING_SECONDS
        return [finding]

    def _overdue(self, run: _Run, now: float) -> list[Finding]:
        """Tell of a drop in throughput that has lasted."""
        if run.slow is None or now < run.slow[0] + SLOW_SECONDS:
            return []
        one, run.slow = run.slow[1], None
        return [_finding(run, one)]


def _finding(run: _Run, one: NumericFinding) -> Finding:
    return Finding(
        fault=one.fault,
        evidence=f"step {one.detected_step}, from step {one.onset_step} on: {one.evidence}",
        attempt=run.watched.attempt,
        step=one.onset_step,
        is_over=one.recovered,
    )


def _with_origin(run: _Run, finding: Finding) -> Finding | None:
    """Name the rank that it comes from: whose own gradient, and no other's, was not finite to begin with. None: nobody knows."""
    onset = finding.step or 0
    if (
        finding.fault == "nan_loss"
        # a step's NaN is in the weights, and in the loss, at the next one
    ):
        spoilt = [step for step in run.origins if step not in run.skipped]
        first = next((step for step in (onset - 1, onset) if step in spoilt), None)
        steps, least = ([first] if first is not None else []), 1
    else:
        steps, least = [step for step in run.origins if step >= onset], LEAST_SKIPPED
    until = max([onset, *steps])
    for node in run.watched.nodes:
        has_missed = any(step in run.gaps.get(node, ()) for step in steps)
        if run.told.get(node, -1) < until or has_missed:
            # it may have it from the same step
            return None
    places = {(node, rank): True for step in steps for node, rank in run.origins[step].items()}
    nodes = {node: True for node, _ in places}
    if len(nodes) != 1 or len(steps) < least:
        return None
    node = next(iter(nodes))
    rank = next(iter(places))[1] if len(places) == 1 else None
    who = f"ranks on {node}" if rank is None else f"rank {rank} on {node}"
    said = f"{who} alone had a gradient of their own that was not finite, at step {min(steps)}"
    return replace(finding, evidence=f"{finding.evidence}; {said}", node=node, rank=rank)
