"""Whether a run that a log shows being resumed goes on as it was: by steps that are made again, or by a jump at the first new one.

A resume counts where a line says so; steps that begin again without one may be of another run in the same file.
"""

import re
from dataclasses import replace

from runner.detect.numerics.findings import NumericFinding, incident
from runner.detect.resume.comparison import ResumeRules, mismatch
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import StepRecord
from runner.facts.watch import PastStep

# Lines that say what may be done, and that weights are loaded for something else.
_IS_NO_RESUME = re.compile(
    r"(?i)\b(?:can|could|may|will|to) (?:be )?resum|\bshards\b|\bpre-?trained\b|\btokenizer\b|\bbest\b|\bstage\b"
)
# Steps before a resume that are kept; chosen.
MAX_STEPS = 4096
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

    def note_resume(self, text: str) -> None:
        """Note a line that may say that the run is resumed."""
        self._is_resuming |= _IS_NO_RESUME.search(text) is None

    def add(self, record: StepRecord, line: int) -> None:
        """Add a step of a line."""
        if record.loss is None or record.skipped:
            return
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
        if self._first is None or not self._repeated:
            return None
        first = self._first.step
        # What learning rate was due is not known.
        rules = ResumeRules(resume_step=first - 1, lr_ratio=None)
        problem = mismatch(rules, tuple(self._past.values()), self._repeated, is_last=True)
        if not problem:
            return None
        return incident("resume_mismatch", first, max(self._repeated), problem), self._line
