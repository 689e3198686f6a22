"""The resume check: whether the first steps of an attempt that resumed are those that were made before (`comparison.py`).

The steps of before come from the run's step history, for which it asks when an attempt is launched. An attempt is judged once, by
the node that reports its loss; what came before a take-over is in the history, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.detect.resume.comparison import NOISE_STEPS, WINDOW, ResumeRules, mismatch
from runner.facts.faults import Finding
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import PastStep, StepsWanted, WatchedAttempt, WatchList

# Remedies after which the loss of repeated steps is what it was, for as long as they are compared. Others change it.
_HARMLESS = ("lr_factor", "lr_peak", "lr", "skip_steps")


@dataclass(slots=True)
class _Resumed:
    watched: WatchedAttempt
    rules: ResumeRules
    # The last step that is compared, as far as the history goes.
    last: int
    is_asked: bool = False
    # None: the history has not answered.
    past: Sequence[PastStep] | None = None
    repeated: dict[int, PastStep] = field(default_factory=dict)
    source: str = ""
    # Nothing is to be compared, or all was.
    is_over: bool = False


@register
class ResumeCheck(Detector):
    """Follows the first steps of every attempt that resumed."""

    order = 72
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs = WatchedGangs[_Resumed](_begin)

    def wanted(self, watch: WatchList) -> list[StepsWanted]:
        """Return the steps around each resume that was not asked for yet."""
        found = []
        for gang in self._gangs.on(watch).values():
            if not gang.is_asked and not gang.is_over:
                gang.is_asked = True
                first = max(0, gang.rules.resume_step - NOISE_STEPS)
                resumed, attempt = gang.watched.resumed, gang.watched.attempt
                without = () if resumed is None else resumed.mismatched
                found.append(StepsWanted(attempt, first, gang.last, without))
        return found

    def recall(self, wanted: StepsWanted, steps: Sequence[PastStep]) -> list[Finding]:
        """Take what the history has of these steps."""
        gang = self._gangs.known.get(wanted.attempt)
        if gang is None or gang.past is not None or wanted.newest:
            return []
        gang.past = [step for step in steps if step.attempt != wanted.attempt]
        gang.last = min(gang.last, max((step.step for step in gang.past), default=0))
        for step in steps:
            if step.attempt == wanted.attempt:
                gang.repeated.setdefault(step.step, step)
        return self._judge(gang)

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Compare the steps that a heartbeat reports."""
        steps = heartbeat.steps or heartbeat.logged_steps
        gang = self._gangs.of(heartbeat, watch) if steps else None
        if gang is None or gang.is_over:
            return []
        if not gang.source and any(record.loss is not None for record in steps):
            gang.source = heartbeat.node
        if heartbeat.node != gang.source:
            return []
        attempt = gang.watched.attempt
        for record in steps:
            if len(gang.repeated) <= WINDOW:
                gang.repeated[record.step] = PastStep(
                    attempt, record.step, record.loss, record.lr, record.data_step
                )
        return self._judge(gang)

    def _judge(self, gang: _Resumed) -> list[Finding]:
        if gang.past is None or gang.is_over:
            return []
        gang.is_over = max(gang.repeated, default=0) >= gang.last
        problem = mismatch(gang.rules, gang.past, gang.repeated, is_last=gang.is_over)
        if not problem:
            return []
        gang.is_over = True
        step = gang.rules.resume_step
        where = f"resumed at step {step}, and did not go on as {gang.rules.lr_attempt} had"
        attempt = gang.watched.attempt
        evidence = f"{where}: {problem}"
        return [Finding(fault="resume_mismatch", evidence=evidence, attempt=attempt, step=step + 1)]


def _begin(watched: WatchedAttempt) -> _Resumed:
    resumed = watched.resumed
    if resumed is None:
        return _Resumed(watched, ResumeRules(resume_step=0), last=0, is_over=True)
    before, after = resumed.remedies_before, resumed.remedies
    ends = [] if resumed.sick_from is None else [resumed.sick_from]
    if _without(before, _HARMLESS) != _without(after, _HARMLESS):
        ends.append(resumed.step)
    skips = _changed_skips(before, after)
    ends += skips
    rules = ResumeRules(
        resume_step=resumed.step,
        lr_ratio=_lr_ratio(before, after),
        lr_attempt=resumed.before,
        loss_until=min(ends, default=None),
        data_until=min(skips, default=None),
    )
    return _Resumed(watched, rules, last=resumed.step + WINDOW)


def _without(remedies: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in remedies.items() if name not in names}


def _lr_ratio(before: Mapping[str, Any], after: Mapping[str, Any]) -> float | None:
    """Return by what the remedies multiply the learning rate, compared with those of before; None: that is not known."""
    ratio = 1.0
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if name == "lr_factor" or (
            name in ("lr_peak", "lr") and old is not None and new is not None
        ):
            ratio *= _number(new, 1.0) / _number(old, 1.0)
        elif name in ("lr_peak", "lr", "optimizer") and old != new:
            return None
    return ratio


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and value else otherwise


def _changed_skips(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[int]:
    """Return the first steps of the ranges that only one of them leaves out: from there on the data is another."""
    old, new = before.get("skip_steps") or (), after.get("skip_steps") or ()
    return [int(each[0]) for each in (*old, *new) if not (each in old and each in new)]
