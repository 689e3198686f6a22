"""Whether a run that a log shows being resumed goes on as it was: by steps that are made again, or by a jump at the first new one.

A resume counts where a line says so; steps that begin again without one may be of another run in the same file.
"""

import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.orders import spread_around_curve, width
from runner.detect.numerics.windows.samples import are_positive
from runner.detect.resume.comparison import ResumeRules, mismatch
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import StepRecord
from runner.facts.watch import PastStep

# Lines that say what may be done, and that weights are loaded for something else.
_IS_NO_RESUME = re.compile(
    r"(?i)\b(?:can|could|may|will|to) (?:be )?resum|\bshards\b|\bpre-?trained\b|\btokenizer\b"
    r"|\bbest\b(?! (?:val|eval|test|dev|loss|acc|metric|score|ppl|f1|map|bleu|wer))|\bstage\b"
)
# Steps before a resume that are kept; chosen.
MAX_STEPS = 4096
# Steps before a resume and after it that show a jump which no later sample takes back: the newest and the first ones, the least of
# each, its ratio to the highest before, of few steps before a larger one, and times the range of those before. And in times of
# which learning rate a run goes on as another stage. All chosen: the data of another place change a loss by less.
MAX_BEFORE, MAX_AFTER, LEAST_BEFORE, LEAST_AFTER, LEAST_MANY = 8, 6, 2, 2, 4
JUMP_RATIO, FEW_RATIO, JUMP_RANGES, FEW_RANGES, RAISED_RATE = 1.15, 1.4, 8.0, 10.0, 1.5
# A loss that falls as at the start of a run: steps of it, the first of them, their span in times of that, the fall, and that in
# times of its noise. Chosen: a run that is so old falls by less than a hundredth in so few steps.
LEAST_FALLING, LATE_STEP, NEW_SPAN, NEW_FALL, OVER_NOISE = 4, 1000, 0.05, 0.1, 8.0
_BEFORE, _AFTER = AttemptId(1, 1, 0), AttemptId(1, 1, 1)
# What a jump at the first step after a resume is called where no resume comes before it.
_JUMPS = ("loss_spike", "divergence")


class LogResumes:
    """Follows the steps with a loss of one log, from its start."""

    def __init__(self) -> None:
        # By step, the first line of each, and the newest steps.
        self._past: dict[int, PastStep] = {}
        # Those that are made again since the newest resume, up to the last one before it.
        self._repeated: dict[int, PastStep] = {}
        self._until = 0
        # Of the newest resume that steps came before and after; None: there is none.
        self._first: StepRecord | None = None
        self._line = 0
        # A line says that the run is resumed, and no step with a loss came since.
        self._is_resuming = False
        # Losses of the last steps before the newest resume, and of the first ones after it, with the learning rates.
        self._newest: deque[StepRecord] = deque(maxlen=MAX_BEFORE)
        self._left: list[StepRecord] = []
        self._begun: list[StepRecord] | None = None
        self._begun_line = 0

    def note_resume(self, text: str) -> None:
        """Note a line that may say that the run is resumed."""
        self._is_resuming |= _IS_NO_RESUME.search(text) is None

    def add(self, record: StepRecord, line: int) -> None:
        """Add a step of a line."""
        if record.loss is None or record.skipped:
            return
        if self._is_resuming:
            self._left, self._begun, self._begun_line = list(self._newest), [], line
            self._newest.clear()
        self._newest.append(record)
        if self._begun is not None and len(self._begun) < MAX_AFTER:
            self._begun.append(record)
        if self._is_resuming and self._past:
            self._past.update(self._repeated)
            self._repeated, self._until = {}, max(self._past)
            # From the first step on it is another run, or another stage.
            self._first = record if record.step > min(self._past) else None
            self._line = line
        self._is_resuming = False
        is_again = self._first is not None and record.step <= self._until
        step = PastStep(
            _AFTER if is_again else _BEFORE, record.step, loss=record.loss, lr=record.lr
        )
        (self._repeated if is_again else self._past).setdefault(record.step, step)
        if len(self._past) > MAX_STEPS:
            del self._past[next(iter(self._past))]

    def renamed(self, finding: NumericFinding) -> NumericFinding:
        """Return a jump of the loss at the first step after a resume as a `resume_mismatch`; any other finding as it is."""
        first = self._first
        is_jump = finding.fault in _JUMPS and finding.severity == "incident"
        if first is None or not is_jump or finding.onset_step != first.step:
            return finding
        evidence = f"from the first step after a resume on: {finding.evidence}"
        return replace(finding, fault="resume_mismatch", evidence=evidence)

    def finding(self) -> tuple[NumericFinding, int] | None:
        """Return what the steps that were made again show, and the line of the first one; None: they are as they were, or few."""
        return self._of_repeated() or self._of_jump() or self._of_new_weights()

    def _of_repeated(self) -> tuple[NumericFinding, int] | None:
        """Return what the steps that were made again show."""
        if self._first is None or not self._repeated:
            return None
        first = self._first.step
        # What learning rate was due is not known.
        rules = ResumeRules(resume_step=first - 1, lr_ratio=None)
        problem = mismatch(rules, tuple(self._past.values()), self._repeated, is_last=True)
        if not problem:
            return None
        return incident("resume_mismatch", first, max(self._repeated), problem), self._line

    def _of_jump(self) -> tuple[NumericFinding, int] | None:
        """Return a jump of the loss at the resume to a level above all before."""
        before, after = _losses(self._left), _losses(self._begun or [])
        if self._first is None or min(len(before), len(after)) < LEAST_BEFORE:
            return None
        rates = (
            [one.lr for one in (self._left[-1], self._begun[0]) if one.lr] if self._begun else []
        )
        if len(rates) > 1 and rates[1] > RAISED_RATE * rates[0]:
            return None
        is_many = len(before) >= LEAST_MANY
        ratio, ranges = (JUMP_RATIO, JUMP_RANGES) if is_many else (FEW_RATIO, FEW_RANGES)
        highest = max(before)
        limit = highest * max(
            ratio, math.exp(min(700.0, ranges * width([math.log(one) for one in before])))
        )
        if after[0] < limit or min(after) <= highest or len(after) < LEAST_AFTER:
            return None
        evidence = (
            f"the loss is {number(after[0])} at the first step after a resume, and above {number(highest)}, the highest of the "
            f"{len(before)} steps before it, in all {len(after)} (limit {number(limit)})"
        )
        first, last = self._first.step, (self._begun or [self._first])[-1].step
        return incident("resume_mismatch", first, last, evidence), self._line

    def _of_new_weights(self) -> tuple[NumericFinding, int] | None:
        """Return a loss that falls from a resume on as only that of new weights does."""
        begun = self._begun or []
        losses = _losses(begun)
        if len(losses) < max(LEAST_FALLING, len(begun)) or begun[0].step < LATE_STEP:
            return None
        is_short = begun[-1].step - begun[0].step <= NEW_SPAN * begun[0].step
        fall = losses[0] - losses[-1]
        is_falling = losses == sorted(set(losses), reverse=True) and fall >= NEW_FALL * losses[0]
        if not (is_short and is_falling) or fall < OVER_NOISE * spread_around_curve(losses):
            return None
        evidence = (
            f"the loss falls from {number(losses[0])} to {number(losses[-1])} in the first {len(losses)} samples after a resume at "
            f"step {begun[0].step}, as that of new weights does"
        )
        finding = incident("resume_mismatch", begun[0].step, begun[-1].step, evidence)
        return finding, self._begun_line


def _losses(records: Sequence[StepRecord]) -> list[float]:
    """Return the losses of records; none if one is not finite and above 0."""
    losses = [one.loss for one in records if one.loss is not None]
    return losses if are_positive(losses) else []
