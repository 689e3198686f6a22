"""fp16 loss scaling: a scale that falls without recovery or sits at its floor, and steps skipped one after the other.

Healthy are the search at the start of a run, or after a resume without the scaler's state, in which the scale is halved, and a
step skipped, until gradients fit (17 times from Megatron's 2^32 to 2^15); later a halving and a skipped step now and then. A
scale that never moves is no scaling at all (bf16 logs it as 1).

The first scales of scalers are 2^32 (Megatron-LM, DeepSpeed's class), 2^16 (PyTorch, Apex, DeepSpeed's settings) and 2^7 (fairseq,
which prints its first halving as 64). So an attempt whose first scale is lower goes on with a scale that was found before, and
searches none. At a scale S an overflow needs a gradient of 65504 / S: above a thousand at 64, above four thousand at 16.
"""

from collections import deque

from runner.detect.numerics.findings import NumericFinding, incident, note, number, recovery
from runner.detect.numerics.metric_detector import Extra, MetricDetector, register_metric
from runner.facts.messages.signals import StepRecord

# BigScience 104B: 32 times in 6 steps, then NaN. 13B: 16 times, and recovered.
NOTE_FALL = 16.0
INCIDENT_FALL = 32.0
# Samples in which a fall counts; GLM-130B's scale fell 30 steps before its loss exploded; chosen.
FALL_WINDOW = 64
# Samples without a skipped step or a lower scale that end a search; chosen.
SETTLED_SAMPLES = 10
# A scale that rises by so much at once was reset: another search; chosen.
SEARCH_RISE = 4.0
# The default of Megatron-LM and DeepSpeed.
FLOOR = 1.0
# Samples at the floor, and how far the scale fell to it, for an incident; chosen. A scale that was 4 and is 1 from then on, with no
# further skipped step, fits its gradients; one that fell as far as is an incident elsewhere has lost the small ones.
FLOOR_SAMPLES, FLOOR_DEPTH = 8, INCIDENT_FALL
# Of these, skipped ones: the scale can go no lower, and gradients do not fit; chosen.
FLOOR_SKIPPED = 2
# Times that a scale fell to its floor in an attempt, for an incident at once: gradients overflow at any scale; chosen.
FLOOR_FALL = 1024.0
# In a row, outside a search, for an incident and for a note; chosen.
RUN_SKIPPED = 8
MIN_RUN_REPORTED = 4
# In a search: from 2^32 to its floor takes 33; chosen.
SEARCH_SKIPPED = 40
# The least scale with which a search begins, as it is printed first.
LEAST_FIRST = 64.0
# In a row below that, outside a search; chosen: as many halvings as are an incident.
LOW_SKIPPED = 5
# In a search, in a row, down to such a scale: the halvings from 2^16 to it. fairseq's 2^7 is 2^-5 by then.
DEEP_SKIPPED, DEEP_SCALE = 12, 16.0


@register_metric
class LossScaleDetector(MetricDetector):
    """Follows the loss scale and the skipped steps of one run."""

    order = 20
    judges_skipped = True
    _floor: float
    _last: float | None
    _last_step: int
    _is_dynamic: bool
    _floor_step: int
    _skipped_step: int
    # Of the attempt.
    _highest: float
    # Incident -> its onset.
    _reported: dict[str, int]
    _is_fall_reported: bool
    _is_searching: bool
    _num_calm: int
    _num_skipped_at_floor: int
    # Since the last rise.
    _scales: deque[tuple[int, float]]
    _num_skipped: int
    _num_at_floor: int

    def reset(self) -> None:
        floor = self.settings.loss_scale_floor
        self._floor = FLOOR if floor is None else floor
        self._is_known = floor is not None
        self._last, self._last_step = None, -1
        self._is_dynamic = False
        self._floor_step, self._skipped_step = 0, 0
        self._reported = {}
        self._is_fall_reported = False
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Expect a search for the scale."""
        self._is_searching, self._num_calm = True, 0
        self._scales = deque(maxlen=FALL_WINDOW)
        self._num_skipped, self._num_at_floor, self._num_skipped_at_floor = 0, 0, 0
        self._highest = 0.0

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge the loss scale, if it is logged, and count skipped steps."""
        step, scale = record.step, record.loss_scale
        if not record.skipped and (scale, record.loss, record.grad_norm) == (None, None, None):
            # A line of a validation, which says nothing of its step.
            return []
        findings: list[NumericFinding] = []
        has_fallen = False
        if scale is not None and scale > 0:
            if self._last is not None and scale != self._last:
                self._is_dynamic = True
                has_fallen = scale < self._last
                if scale >= SEARCH_RISE * self._last:
                    self.begin_attempt()
            self._num_skipped_at_floor += bool(record.skipped and scale <= self._floor)
            self._highest = max(self._highest, scale)
            self._is_searching &= not self._is_dynamic or self._highest >= LEAST_FIRST
            findings += self._fall(step, scale) + self._at_floor(step, scale)
            self._last = scale
        # A scaler without sentences shows a skipped step by its scale, which fell from one step to the next.
        is_shown = self._is_searching and has_fallen and step == self._last_step + 1
        findings += self._follow_skipped(record, is_skipped=record.skipped or is_shown)
        self._last_step = step
        self._num_calm = 0 if record.skipped or has_fallen else self._num_calm + 1
        if self._num_calm >= SETTLED_SAMPLES and self._is_searching:
            self._is_searching = False
            self._scales.clear()
        return findings

    def _fall(self, step: int, scale: float) -> list[NumericFinding]:
        """Compare the scale with what it was before it began to fall."""
        if self._last is not None and scale > self._last:
            self._scales.clear()
            self._is_fall_reported = False
            if "fall" in self._reported:
                onset = self._reported.pop("fall")
                evidence = f"the loss scale rises again, to {number(scale)}"
                return [recovery("loss_scale_floor", onset, step, evidence)]
        self._scales.append((step, scale))
        highest = self._scales[0][1]
        if self._is_searching or "fall" in self._reported or scale * NOTE_FALL > highest:
            return []
        onset = next((at for at, value in self._scales if value < highest), step)
        evidence = (
            f"the loss scale fell from {number(highest)} to {number(scale)} in {len(self._scales) - 1} samples without a rise "
            f"(limit {number(INCIDENT_FALL)} times)"
        )
        if scale * INCIDENT_FALL <= highest:
            self._reported["fall"] = onset
            return [incident("loss_scale_floor", onset, step, evidence)]
        if self._is_fall_reported:
            return []
        self._is_fall_reported = True
        return [note("loss_scale_floor", onset, step, evidence)]

    def _at_floor(self, step: int, scale: float) -> list[NumericFinding]:
        if scale < self._floor and not self._is_known:
            # A scaler that goes below the usual floor has another one, or none.
            self._floor = 0.0
        if scale > self._floor or not self._is_dynamic:
            self._num_at_floor = self._num_skipped_at_floor = 0
            if "floor" not in self._reported:
                return []
            evidence = f"the loss scale left its floor, to {number(scale)}"
            return [recovery("loss_scale_floor", self._reported.pop("floor"), step, evidence)]
        self._floor_step = self._floor_step if self._num_at_floor else step
        self._num_at_floor += 1
        is_reported = "floor" in self._reported or "fall" in self._reported
        is_lasting = self._num_at_floor >= FLOOR_SAMPLES and self._highest >= FLOOR_DEPTH * scale
        is_lasting = is_lasting or self._num_skipped_at_floor >= FLOOR_SKIPPED
        has_fallen_far = self._highest >= FLOOR_FALL * scale
        if is_reported or not (is_lasting or has_fallen_far):
            return []
        self._reported["floor"] = self._floor_step
        evidence = (
            f"the loss scale has been {number(scale)} for {self._num_at_floor} samples, since step {self._floor_step} "
            f"(floor {number(self._floor)}, highest {number(self._highest)})"
        )
        return [incident("loss_scale_floor", self._floor_step, step, evidence)]

    def _follow_skipped(self, record: StepRecord, *, is_skipped: bool) -> list[NumericFinding]:
        if is_skipped:
            return self._count_skipped(record)
        num_steps = record.step - self._skipped_step
        if self._last is not None and record.loss_scale is None and num_steps <= self._num_skipped:
            # Its step is one of those of which the scaler's sentences were: a trainer prints their losses, too.
            return []
        return self._end_skipped(record.step)

    def _skipped_limit(self, scale: float) -> int:
        """Return how many steps skipped in a row are an incident. `scale`: the newest one."""
        is_low = self._is_dynamic and not ({"fall", "floor"} & set(self._reported))
        if self._is_searching:
            return DEEP_SKIPPED if is_low and scale <= DEEP_SCALE else SEARCH_SKIPPED
        return LOW_SKIPPED if is_low and scale < LEAST_FIRST else RUN_SKIPPED

    def _count_skipped(self, record: StepRecord) -> list[NumericFinding]:
        step, layer = record.step, record.first_nonfinite_layer
        self._skipped_step = self._skipped_step if self._num_skipped else step
        self._num_skipped += 1
        scale = self._last or 0.0
        limit = self._skipped_limit(scale)
        at_scale = (
            f", at a loss scale of {number(scale)}" if limit in (LOW_SKIPPED, DEEP_SKIPPED) else ""
        )
        evidence = f"{self._num_skipped} steps skipped one after the other since step {self._skipped_step}{at_scale}"
        evidence += f" (limit {limit})"
        evidence += f"; layer {layer} is the first that is not finite" if layer else ""
        if self._num_skipped >= limit and "skips" not in self._reported:
            self._reported["skips"] = self._skipped_step
            return [incident("skipped_steps", self._skipped_step, step, evidence)]
        if self._num_skipped == MIN_RUN_REPORTED and not self._is_searching:
            return [note("skipped_steps", self._skipped_step, step, evidence)]
        return []

    def _end_skipped(self, step: int) -> list[NumericFinding]:
        self._num_skipped = 0
        onset = self._reported.pop("skips", None)
        if onset is None:
            return []
        return [recovery("skipped_steps", onset, step, f"step {step} was not skipped")]
