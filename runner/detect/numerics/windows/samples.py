"""The numbers of a short log, step by step: what the judges of whole windows look at."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from runner.facts.messages.signals import StepRecord

# Steps of a log that is short: with more of them the detectors of long curves have a level. Their rises are seen late, since the
# level is a median of 48, so for a trend more steps are kept.
MAX_SAMPLES, MAX_OF_TREND = 24, 160

Points = Sequence[tuple[int, float]]


class Samples:
    """The records of one log, one for each step; it forgets them once they are too many."""

    def __init__(self) -> None:
        self._records: list[StepRecord] = []
        self._is_judged = True
        # Step -> the accuracies that its line has, in their order.
        self._accuracies: dict[int, Sequence[float]] = {}
        # Step -> its scores, by name.
        self._scores: dict[int, Mapping[str, float]] = {}
        # Step -> the seconds that it took, and how many of them it waited for data.
        self._data_seconds: dict[int, tuple[float, float]] = {}
        # Each line with a record has a batch size, and it is always the same.
        self.has_one_batch_size = False
        # Its steps are passes over the data, each of many updates.
        self.steps_are_passes = False
        # The first line that says how far it is within a pass over the data is no longer at its start.
        self.is_past_start = False
        # Each line that names a pass over the data names one that is not the first.
        self.is_past_passes = False
        # Step -> steps skipped since the line before.
        self._skips: dict[int, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether another record may still be looked at."""
        return self._is_judged

    @property
    def is_short(self) -> bool:
        """Whether all records are so few that single ones count."""
        return len(self._records) <= MAX_SAMPLES

    @property
    def records(self) -> Sequence[StepRecord]:
        """The records in order; none of a log that is too long, or whose steps run backwards."""
        return self._records

    @property
    def data_seconds(self) -> Sequence[tuple[float, float]]:
        """Seconds of each step whose line says how many of them it waited for data, and those."""
        return list(self._data_seconds.values())

    def add(
        self,
        record: StepRecord,
        accuracies: Sequence[float] = (),
        wait: tuple[float, float] | None = None,
        scores: Mapping[str, float] | None = None,
    ) -> None:
        """Add a record. One of the same step as the last completes it: a bar and its last line, a step and its validation."""
        if not self._is_judged:
            return
        self._accuracies[record.step] = accuracies or self._accuracies.get(record.step, ())
        if scores:
            self._scores[record.step] = {**self._scores.get(record.step, {}), **scores}
        if wait is not None:
            self._data_seconds[record.step] = wait
        last = self._records[-1] if self._records else None
        if last is not None and record.step == last.step:
            self._records[-1] = _merged(last, record)
        elif len(self._records) == MAX_OF_TREND or (last is not None and record.step < last.step):
            self._is_judged = False
            self._records, self._accuracies, self._data_seconds, self._scores = [], {}, {}, {}
        else:
            self._records.append(record)

    def note_skips(self, step: int, num: int) -> None:
        """Note how many steps were skipped up to this step, since the line before."""
        self._skips[step] = num

    def skip_counts(self) -> Sequence[tuple[int, int, int]]:
        """Return step, steps since the line before, and how many of these were skipped, of each line that counts them."""
        steps = [one.step for one in self._records if one.step in self._skips]
        intervals = [later - step for step, later in pairwise(steps)]
        return [
            (step, interval, self._skips[step])
            for step, interval in zip(steps, [*intervals[:1], *intervals], strict=False)
        ]

    def losses(self) -> Points:
        """Return the losses, none of skipped steps. Where only some lines have a validation loss, theirs are of another kind."""
        known = [one for one in self._records if one.loss is not None and not one.skipped]
        plain = [one for one in known if one.validation_loss is None]
        return [(one.step, one.loss) for one in plain or known if one.loss is not None]

    def losses_and_norms(self) -> Sequence[tuple[int, float, float]]:
        """Return step, loss and gradient norm where one record has both, none of skipped steps."""
        return [
            (one.step, one.loss, one.grad_norm)
            for one in self._records
            if one.loss is not None and one.grad_norm is not None and not one.skipped
        ]

    def evaluations(self) -> Sequence[tuple[int, float, float]]:
        """Return step, training loss and validation loss where one record has both, finite and above 0."""
        return [
            (one.step, one.loss, one.validation_loss)
            for one in self._records
            if one.loss is not None and one.validation_loss is not None
            if 0 < one.loss < math.inf and 0 < one.validation_loss < math.inf
        ]

    def accuracies(self) -> Sequence[Sequence[float]]:
        """Return each accuracy that all steps with a loss have, one value for each of these."""
        rows = [self._accuracies[one.step] for one in self._records if one.loss is not None]
        return list(zip(*rows, strict=False))

    def evaluated_scores(self, kind: str) -> Sequence[tuple[int, float, float, float]]:
        """Return step, training loss, training and validation score of this kind of each evaluation; empty where one lacks them."""
        evaluations = self.evaluations()
        scores = [self._scores.get(step, {}) for step, _, _ in evaluations]
        if any(kind not in one or f"validation_{kind}" not in one for one in scores):
            return []
        return [
            (step, loss, one[kind], one[f"validation_{kind}"])
            for (step, loss, _), one in zip(evaluations, scores, strict=True)
        ]

    def scores(self, kind: str) -> Sequence[tuple[int, float, float]]:
        """Return step, loss and score of this kind of each record with a loss; empty where one lacks the score."""
        records = [(one.step, one.loss) for one in self._records if one.loss is not None]
        if any(kind not in self._scores.get(step, {}) for step, _ in records):
            return []
        return [(step, loss, self._scores[step][kind]) for step, loss in records]

    def rates(self) -> Sequence[float]:
        """Return the learning rate of each of the losses; empty where one has none."""
        steps = {step for step, _ in self.losses()}
        rates = [one.lr for one in self._records if one.step in steps]
        known = [rate for rate in rates if rate is not None]
        return known if len(known) == len(rates) else []


def _merged(last: StepRecord, record: StepRecord) -> StepRecord:
    known = {
        name: value
        for name in record.__struct_fields__
        if name not in ("step", "skipped") and (value := getattr(record, name)) is not None
    }
    return replace(last, skipped=last.skipped or record.skipped, **known)


def are_positive(values: Iterable[float]) -> bool:
    """Whether all values are finite and above 0."""
    return all(0 < value < math.inf for value in values)
