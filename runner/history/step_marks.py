"""Step marks: when which step of one attempt was done, as far as the journal knows, in bounded room.

The journal holds a mark every few seconds at most, not one per step. Between two marks the steps are taken to be spread
evenly: step s of a span from (t0, s0) to (t1, s1) is done at t0 + (t1 - t0) * (s - s0) / (s1 - s0).

Where there are too many, those are dropped that the others replace best: as many as the smallest error in seconds allows, by a
swinging door (Bristol, "Swinging door trending", 1990). The marks around a step that a checkpoint has stay, since a later
attempt may begin there.
"""

from bisect import bisect_left
from collections.abc import Set
from math import inf

from msgspec import field

from runner.facts.wire import MutableValue

# All chosen. Past that only half of them stay.
MAX_LIVE_MARKS = 512
# An attempt that ended keeps this many; thousands of attempts stay small.
MAX_CLOSED_MARKS = 64
# Of one that ended long ago.
MAX_ROUGH_MARKS = 4
# Newest checkpoints around which marks stay, besides those; of an attempt that ended long ago, fewer.
MAX_CHECKPOINTS, MAX_ROUGH_CHECKPOINTS = 16, 2
# The error in seconds that is tried first; twice that, and so on, until few enough marks are left.
FIRST_ERROR_SECONDS = 1 / 64


class StepMarks(MutableValue):
    """Marks of one attempt. Times are seconds of the controller's clock, steps strictly increase.

    The first mark opens the account: the time before it belongs to the start of the attempt, the first step's own seconds
    included, because nothing distinguishes them from building and warming up.
    """

    times: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    # Furthest step known; past the last mark when only an exit or a checkpoint reports it.
    reached: int = 0
    # When the attempt stopped making steps.
    closed_at: float | None = None
    # Steps of its newest checkpoints.
    checkpoints: list[int] = field(default_factory=list)

    def add(self, now: float, step: int) -> None:
        """Note that `step` was done by `now`; a step that is no news is ignored."""
        if self.closed_at is not None:
            self.reach(step)
            return
        if self.steps and step <= self.steps[-1]:
            return
        self.times.append(now)
        self.steps.append(step)
        self.reach(step)
        if len(self.steps) > MAX_LIVE_MARKS:
            self._thin(MAX_LIVE_MARKS // 2)

    def add_checkpoint(self, step: int) -> None:
        """Note that there is a checkpoint of `step`: from now on the time of that step stays as exact as it is."""
        if step not in self.checkpoints:
            self.checkpoints = sorted([*self.checkpoints, step])[-MAX_CHECKPOINTS:]

    def add_late(self, at: float, step: int) -> None:
        """Note by when a step was done, after the attempt was closed; one that is no news, or has no mark before, is ignored."""
        if self.closed_at is None or not self.steps or step <= self.steps[-1]:
            return
        self.times.append(min(max(at, self.times[-1]), self.closed_at))
        self.steps.append(step)

    def reach(self, step: int) -> None:
        """Record that the attempt got at least as far as `step`, at an unknown time."""
        self.reached = max(self.reached, step)

    def close(self, at: float) -> None:
        """No step is made after `at` (seconds)."""
        self.closed_at = at
        self._thin(MAX_CLOSED_MARKS)

    def roughen(self) -> None:
        """Keep but a few marks of an attempt that ended."""
        if self.closed_at is not None:
            self._thin(MAX_ROUGH_MARKS, MAX_ROUGH_CHECKPOINTS)

    def stepping_seconds(self, now: float) -> float:
        """Seconds from the first mark to the end of stepping, or to `now`."""
        if not self.times:
            return 0.0
        return (now if self.closed_at is None else self.closed_at) - self.times[0]

    def seconds_until(self, step: int) -> float:
        """Seconds from the first mark to the moment `step` was done; at most all steps that are known."""
        if not self.times or step <= self.steps[0]:
            return 0.0
        last = self.steps[-1]
        if step > last:
            if self.closed_at is None or self.reached <= last:
                return self.times[-1] - self.times[0]
            share = min(1.0, (step - last) / (self.reached - last))
            return self.times[-1] - self.times[0] + share * (self.closed_at - self.times[-1])
        right = bisect_left(self.steps, step)
        t0, t1 = self.times[right - 1], self.times[right]
        s0, s1 = self.steps[right - 1], self.steps[right]
        return t0 - self.times[0] + (t1 - t0) * (step - s0) / (s1 - s0)

    def _thin(self, limit: int, num_checkpoints: int = MAX_CHECKPOINTS) -> None:
        """Drop marks until `limit` are left, besides those around checkpoints; the first and the last two stay.

        The last is often an exit that was noticed late: spread over a longer span, its delay would move the checkpoint before it.
        """
        if len(self.steps) <= limit:
            return
        around = self._around_checkpoints(num_checkpoints)
        fixed = {*around, *range(len(self.steps) - 2, len(self.steps))}
        error = FIRST_ERROR_SECONDS
        while len(kept := self._kept_within(error, fixed)) > limit + len(around):
            error *= 2
        self.times = [self.times[number] for number in kept]
        self.steps = [self.steps[number] for number in kept]

    def _around_checkpoints(self, num_checkpoints: int) -> set[int]:
        """Return the numbers of the marks between which the steps of the newest checkpoints lie."""
        found = set[int]()
        for step in self.checkpoints[-num_checkpoints:]:
            right = bisect_left(self.steps, step)
            if 0 < right < len(self.steps):
                found |= {right - 1, right}
        return found

    def _kept_within(self, error: float, fixed: Set[int]) -> list[int]:
        """Return the numbers of marks that leave every other one within `error` seconds of the line through its neighbours."""
        kept = [0]
        low, high = -inf, inf
        for number in range(1, len(self.steps)):
            if not low <= self._slope(kept[-1], number) <= high:
                kept.append(number - 1)
                low, high = -inf, inf
            if number in fixed:
                kept.append(number)
                low, high = -inf, inf
                continue
            room = error / (self.steps[number] - self.steps[kept[-1]])
            slope = self._slope(kept[-1], number)
            low, high = max(low, slope - room), min(high, slope + room)
        return kept

    def _slope(self, left: int, right: int) -> float:
        """Return the seconds of a step between two marks."""
        return (self.times[right] - self.times[left]) / (self.steps[right] - self.steps[left])
