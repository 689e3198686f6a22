"""Printed steps: what the output of ranks that report nothing shows of their progress.

A number that cannot be a step changes nothing. The furthest step never falls. A trainer that counts from 1 in each epoch, or goes
back to a checkpoint, is alive all the same: a step that differs from the one before is a mark of that.
"""

from collections.abc import Iterable

from runner.facts.messages.signals import StepRecord

# Larger numbers are no steps: a run of ten steps a second takes thirty years for so many; chosen.
MAX_STEP = 10**10
# A step further ahead than this has to be confirmed by the next ones: a second counter may have been taken for it; chosen.
JUMP_STEPS = 10_000
# Steps in a row that confirm a jump; chosen.
CONFIRMING = 3


class PrintedSteps:
    """The steps that the ranks of one gang on one node have printed."""

    def __init__(self) -> None:
        # The first step, which shows where the ranks resumed, and its loss; the furthest, the rank that printed it, and its loss.
        self.first: int | None = None
        self.first_loss: float | None = None
        self.furthest: int | None = None
        self.rank: int | None = None
        self.loss: float | None = None
        # How often a printed step differed from the one before.
        self.num_marks = 0
        self._last: int | None = None
        # Steps far ahead that are not confirmed yet.
        self._ahead: list[int] = []

    def add(self, records: Iterable[StepRecord], rank: int | None) -> bool:
        """Add steps in the order in which a rank printed them; return whether one of them is a mark of progress."""
        before = self.num_marks
        if self.rank is not None and rank is not None and rank > self.rank:
            # The lowest rank that prints decides.
            return False
        if rank is not None and rank != self.rank:
            self.first, self.first_loss = None, None
            self.furthest, self.rank = None, rank
        for record in records:
            self._add(record)
        return self.num_marks > before

    def _add(self, record: StepRecord) -> None:
        step = record.step
        if not 0 < step <= MAX_STEP or step == self._last:
            return
        if self.furthest is not None and step > self.furthest + JUMP_STEPS:
            in_order = bool(self._ahead) and step > self._ahead[-1]
            self._ahead = [*self._ahead, step] if in_order else [step]
            if len(self._ahead) < CONFIRMING:
                return
        self._ahead = []
        self._last = step
        self.num_marks += 1
        if self.first is None:
            self.first, self.first_loss = step, record.loss
        if self.furthest is None or step > self.furthest:
            self.furthest = step
            self.loss = record.loss if record.loss is not None else self.loss
