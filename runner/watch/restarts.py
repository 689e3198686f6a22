"""Restarts that only the printed steps show: they go back, and go on from there.

Where no process is known, this is how a job that was started again is told from one that goes on. Two counters in turn go back with
every line, and one that counts in each epoch goes back to 1: neither is a restart.
"""

from collections.abc import Iterable

from runner.facts.messages.signals import StepRecord

# Steps in a row from where they went back; and how far apart they may be, in distances between those before. Chosen.
CONFIRMING = 3
STRIDE_FACTOR = 3
# Without a line about a fault, going back to the first step takes a pause of so many times the usual one, and so long. Chosen.
PAUSE_FACTOR = 5.0
LEAST_PAUSE_SECONDS = 2.0


class Restarts:
    """Divides the steps of one log into those of one start after the other."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._stride = 1
        self._last_at = 0.0
        self._usual_pause = 0.0
        # Steps that may be those of another start.
        self._held: list[StepRecord] = []

    def divide(
        self, records: Iterable[StepRecord], now: float, *, has_fault: bool
    ) -> list[list[StepRecord]]:
        """Return the new steps: first those of the present start, then those of each that followed.

        `has_fault`: a line about one came since the last step. Steps that went back are held until the next ones confirm it.
        """
        found: list[list[StepRecord]] = [[]]
        for record in records:
            if self._held:
                self._add_to_held(record, found)
            elif self._goes_back(record, now, has_fault=has_fault):
                self._held = [record]
            else:
                self._add(record, found)
        if found != [[]] or self._held:
            pause = now - self._last_at if self._last_at else 0.0
            self._usual_pause = (
                pause if not self._usual_pause else min(pause, 2 * self._usual_pause)
            )
            self._last_at = now
        return found

    def _add_to_held(self, record: StepRecord, found: list[list[StepRecord]]) -> None:
        distance = record.step - self._held[-1].step
        if distance == 0:
            return
        if not 0 < distance <= STRIDE_FACTOR * self._stride:
            # Another counter.
            found[-1] += self._held
            self._held = []
            self._add(record, found)
            return
        self._held.append(record)
        if len(self._held) >= CONFIRMING:
            found.append(self._held)
            self._last, self._held = record.step, []

    def _goes_back(self, record: StepRecord, now: float, *, has_fault: bool) -> bool:
        if self._last is None or record.step >= self._last:
            return False
        pause = now - self._last_at
        has_paused = pause >= max(LEAST_PAUSE_SECONDS, PAUSE_FACTOR * self._usual_pause)
        return record.step > 1 or has_fault or has_paused

    def _add(self, record: StepRecord, found: list[list[StepRecord]]) -> None:
        if self._last is not None and record.step > self._last:
            self._stride = record.step - self._last
        self._last = record.step
        found[-1].append(record)
