"""fp16 loss scaling: a scale that falls without recovery or sits at its floor, and steps skipped one after the other.

What is healthy: the search at the start of a run, or after a resume without the scaler's state, in which the scale is halved, and
a step skipped, until gradients fit (17 times from Megatron's 2^32 to 2^15); later a halving and a skipped step now and then. A
scale that never moves is no scaling at all (bf16 logs it as 1).
"""

from __future__ import annotations

from collections import deque

from runner.detect.numerics.findings import NumericFinding, incident, note, number, recovery

# BigScience 104B: 32 times in 6 steps, then NaN. 13B: 16 times, and recovered.
NOTE_FALL = 16.0
INCIDENT_FALL = 32.0
# samples in which a fall counts; GLM-130B's scale fell 30 steps before its loss exploded; chosen
FALL_WINDOW = 64
# without a skipped step or a lower scale end the search; chosen
SETTLED_SAMPLES = 10
# a scale that rises by as much at once was set anew: another search; chosen
SEARCH_RISE = 4.0
# of Megatron-LM and DeepSpeed by default
FLOOR = 1.0
# at the floor; chosen
FLOOR_SAMPLES = 8
# one after the other, outside a search; chosen
RUN_SKIPPED = 8
# chosen
RUN_NOTED = 4
# in a search: from 2^32 to its floor takes 33; chosen
SEARCH_SKIPPED = 40


class ScaleTrack:
    """Follows the loss scale and the skipped steps of one run. `floor`: the scaler's minimum, where it is known."""

    def __init__(self, floor: float | None = None) -> None:
        self._floor = FLOOR if floor is None else floor
        self._is_known = floor is not None
        self._last: float | None = None
        # since the last rise
        self._scales: deque[tuple[int, float]] = deque(maxlen=FALL_WINDOW)
        self._is_searching = True
        self._num_quiet = 0
        self._is_dynamic = False
        self._num_at_floor, self._floor_step = 0, 0
        self._num_skipped, self._skipped_step = 0, 0
        # what was said -> its onset
        self._told: dict[str, int] = {}
        self._noted: dict[str, bool] = {}

    def begin_search(self) -> None:
        """Expect a search: an attempt began, or the run went back."""
        self._is_searching, self._num_quiet = True, 0
        self._scales.clear()
        self._num_skipped, self._num_at_floor = 0, 0

    def take(self, step: int, scale: float | None, *, skipped: bool) -> list[NumericFinding]:
        """Judge one record; a scale of None was not logged."""
        found = self._skips(step) if skipped else self._end_skips(step)
        has_fallen = False
        if scale is not None and scale > 0:
            if self._last is not None and scale != self._last:
                self._is_dynamic = True
                has_fallen = scale < self._last
                if scale >= SEARCH_RISE * self._last:
                    self.begin_search()
            found += self._fall(step, scale) + self._at_floor(step, scale)
            self._last = scale
        self._num_quiet = 0 if skipped or has_fallen else self._num_quiet + 1
        if self._num_quiet >= SETTLED_SAMPLES and self._is_searching:
            self._is_searching = False
            self._scales.clear()
        return found

    def _fall(self, step: int, scale: float) -> list[NumericFinding]:
        """Compare the scale with what it was before it began to fall."""
        if self._last is not None and scale > self._last:
            self._scales.clear()
            self._noted.pop("fall", None)
            if "fall" in self._told:
                onset = self._told.pop("fall")
                words = f"the loss scale rises again, to {number(scale)}"
                return [recovery("loss_scale_floor", onset, step, words)]
        self._scales.append((step, scale))
        highest = self._scales[0][1]
        if self._is_searching or "fall" in self._told or scale * NOTE_FALL > highest:
            return []
        onset = next((at for at, value in self._scales if value < highest), step)
        words = (
            f"the loss scale fell from {number(highest)} to {number(scale)} in {len(self._scales) - 1} samples without a rise "
            f"(limit {number(INCIDENT_FALL)} times)"
        )
        if scale * INCIDENT_FALL <= highest:
            self._told["fall"] = onset
            return [incident("loss_scale_floor", onset, step, words)]
        if "fall" in self._noted:
            return []
        self._noted["fall"] = True
        return [note("loss_scale_floor", onset, step, words)]

    def _at_floor(self, step: int, scale: float) -> list[NumericFinding]:
        if scale < self._floor and not self._is_known:
            # a scaler that goes below the usual floor has another one, or none
            self._floor = 0.0
        if scale > self._floor or not self._is_dynamic:
            self._num_at_floor = 0
            if "floor" not in self._told:
                return []
            words = f"the loss scale left its floor, to {number(scale)}"
            return [recovery("loss_scale_floor", self._told.pop("floor"), step, words)]
        self._floor_step = self._floor_step if self._num_at_floor else step
        self._num_at_floor += 1
        if self._num_at_floor < FLOOR_SAMPLES or "floor" in self._told or "fall" in self._told:
            return []
        self._told["floor"] = self._floor_step
        words = (
            f"the loss scale has been {number(scale)} for {self._num_at_floor} samples, since step {self._floor_step} "
            f"(floor {number(self._floor)})"
        )
        return [incident("loss_scale_floor", self._floor_step, step, words)]

    def _skips(self, step: int) -> list[NumericFinding]:
        self._skipped_step = self._skipped_step if self._num_skipped else step
        self._num_skipped += 1
        limit = SEARCH_SKIPPED if self._is_searching else RUN_SKIPPED
        words = f"{self._num_skipped} steps skipped one after the other since step {self._skipped_step} (limit {limit})"
        if self._num_skipped == limit:
            self._told["skips"] = self._skipped_step
            return [incident("skipped_steps", self._skipped_step, step, words)]
        if self._num_skipped == RUN_NOTED and not self._is_searching:
            return [note("skipped_steps", self._skipped_step, step, words)]
        return []

    def _end_skips(self, step: int) -> list[NumericFinding]:
        self._num_skipped = 0
        onset = self._told.pop("skips", None)
        if onset is None:
            return []
        return [recovery("skipped_steps", onset, step, f"step {step} was not skipped")]
