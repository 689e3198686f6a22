"""Sums over the steps of a gang since its last mark of progress: tokens, and steps that the optimizer skipped."""

from runner.facts.messages.signals import StepRecord

# What is beyond was not a throughput, a duration, or the distance of two lines. Chosen, not measured.
MAX_TOKENS_PER_SECOND, MAX_SECONDS, MAX_STEPS_APART = 1e12, 1e5, 1000


class StepSums:
    """Adds up what one source reports of its steps, a rank or the output of one; times are seconds."""

    def __init__(self, now: float) -> None:
        self._tokens, self._num_skipped = 0.0, 0
        self._last_step: int | None = None
        self._last_at = now

    def add(self, record: StepRecord, now: float) -> None:
        """Add a step. A line that reports several steps (a trainer that prints every tenth) counts as often.

        Tokens are throughput times seconds of a step; times the time since the step before, where seconds are not reported.
        """
        last, before = self._last_step, self._last_at
        if last is not None and record.step <= last:
            return
        self._last_step, self._last_at = record.step, now
        self._num_skipped += record.skipped
        throughput, seconds = record.tokens_per_second, record.step_seconds_max
        if throughput is None or not 0.0 < throughput <= MAX_TOKENS_PER_SECOND:
            return
        if seconds is not None and 0.0 < seconds <= MAX_SECONDS:
            num_steps = 1 if last is None else record.step - last
            self._tokens += (
                throughput * seconds * (num_steps if num_steps <= MAX_STEPS_APART else 1)
            )
        elif last is not None:
            self._tokens += throughput * min(now - before, MAX_SECONDS)

    def take(self) -> dict[str, int]:
        """Return the sums as fields of a mark, and begin new ones; what is less than a token is kept."""
        tokens, num_skipped = int(self._tokens), self._num_skipped
        self._tokens, self._num_skipped = self._tokens - tokens, 0
        return {"tokens": tokens, "num_skipped": num_skipped}
