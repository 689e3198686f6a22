"""The numbers of a short log, with their lines, for the judges of whole windows (`detect/numerics/windows/short_log.py`)."""

import re

from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord

# What lines of reinforcement and preference learning, of adversaries and of annealed divergences have beside a loss, or call one.
# Their losses rise, wander, and rest at a level in healthy runs.
OPPOSED = re.compile(
    rb"(?i)reward|polic(?:y|ies)|critic|\bactor|advantage|episode|\bkld?\b|kl_|_kl\b|generator|discriminator|adversar"
    rb"|\b(?:loss_?[dg]|[dg]_?loss|err_?[dg])(?:\b|_)|\bq_?loss|value_(?:function_)?loss|\bv?gan\b|policy_entropy"
)


class ShortLogReader:
    """Follows the lines of one log that have numbers, until they are too many."""

    def __init__(self) -> None:
        self._log = ShortLog()
        self._lines: dict[int, int] = {}

    def add_line(self, line: bytes) -> None:
        """Look at a line with numbers, for what else it names."""
        if self._log.is_open and OPPOSED.search(line) is not None:
            self._log.leave_out_losses()

    def add(self, record: StepRecord, line: int) -> None:
        """Add a record of a line."""
        if self._log.is_open:
            self._log.add(record)
            self._lines[record.step] = line

    def finding(self) -> tuple[NumericFinding, int] | None:
        """Return what the log shows once it is over, and the line of its onset; None: nothing."""
        found = self._log.finding()
        return None if found is None else (found, self._lines[found.onset_step])
