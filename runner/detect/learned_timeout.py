"""Learned timeouts: the gaps between signs of progress that a run shows while healthy, and the gap at which it counts as hung.

A *gap* is the time between two signs of progress: a new step, a change of phase, or, of ranks that report nothing, a write to
their output. It belongs to the phase it was in. From the longest gap seen a limit follows, across attempts
and supervisors. A false alarm costs more trust than a hang costs time (users ask for hang detection, and complain first about
being killed in evaluations and long steps), so every rule here leans to waiting:

- A limit is a multiple of the *longest* gap, never of a usual one, never under a floor, and never over the limit that
  run.yaml sets (`start_seconds`, `progress_seconds`), which alone holds until there is evidence, and in phases never seen.
- Evidence is many gaps, and having watched the phase for at least as long as one would now wait; for phases that ranks announce,
  ten times as long, since what comes once in hours must have had its chance.
- What was compiled for the first step may have to be compiled again: a step, and an evaluation, may take twice as long as the
  longest start. Without a start seen, steps have no limit but that of run.yaml.
- Ranks of a run that never named an evaluation or a checkpoint do not announce them. Their first long one must not be taken for
  a hang, so they get as long as their attempt has been at work: a false alarm then throws away no more than the wait would
  have cost. After `progress_seconds` of work that limit is `progress_seconds`.
- Ranks that only write are held to a limit once they have written regularly in this very attempt: what they print while they
  start proves nothing. If ten times their longest gap is more than `progress_seconds`, there is no limit.
  Once a rank has ended, how long the others take to follow was never seen: then their limit is `progress_seconds` itself.
- A limit that has ended an attempt is doubted: it counts again once the phase was watched for three times as long as before.
  If the alarm was false, the run comes by the same place meanwhile, and the limit has learned how long it takes.

NVRx learns its section timeouts as 5 x the longest. With that factor, evidence of once the limit and no allowance for compiling,
3 of 6 virtual runs of 90 days with steps of 105 s raised a false alarm, and 6 of 6 of 15 days with steps of 20 s; with the rules as
they are none did (`tests/detect/virtual_run.py`, whose tails are chosen). All other numbers are chosen, not measured.
"""

from dataclasses import dataclass

# What any step may take, in longest starts; chosen.
COMPILE_FACTOR = 2.0
# Phases that may compile.
COMPILING = ("step", "evaluate")
# Times the evidence of before, after a limit has ended an attempt; chosen.
DOUBT_FACTOR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutRule:
    """How a limit follows from the gaps seen. `least`: gaps needed; `evidence`: how many times the limit was watched for."""

    factor: float
    floor_seconds: float
    least: int
    evidence: float = 1.0


RULES = {
    # The floor is high, since caches differ between starts.
    "start": TimeoutRule(factor=10.0, floor_seconds=180.0, least=3),
    "step": TimeoutRule(factor=10.0, floor_seconds=60.0, least=20, evidence=10.0),
    "evaluate": TimeoutRule(factor=10.0, floor_seconds=60.0, least=3, evidence=10.0),
    "checkpoint": TimeoutRule(factor=10.0, floor_seconds=60.0, least=3, evidence=10.0),
    # Steps of ranks that announce no other phase, and writes of ranks that report nothing.
    "steps alone": TimeoutRule(factor=10.0, floor_seconds=60.0, least=20),
    "writes": TimeoutRule(factor=10.0, floor_seconds=60.0, least=20),
}
# If ranks are in several, the first one counts.
PHASES = ("start", "checkpoint", "evaluate", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class GapLimit:
    """How long a gap may be, and where that comes from."""

    seconds: float
    source: str


@dataclass(slots=True, kw_only=True)
class LearnedTimeout:
    """What one run has shown in one phase. All times are seconds."""

    rule: TimeoutRule
    num_gaps: int = 0
    longest_seconds: float = 0.0
    watched_seconds: float = 0.0
    # Of watching, before a doubted limit counts again.
    needed_seconds: float = 0.0

    def add(self, gap_seconds: float) -> None:
        """Learn from a gap that ended well."""
        self.merge(num_gaps=1, longest_seconds=gap_seconds, watched_seconds=gap_seconds)

    def merge(self, *, num_gaps: int, longest_seconds: float, watched_seconds: float) -> None:
        """Learn from what an agent has watched."""
        self.num_gaps += num_gaps
        self.longest_seconds = max(self.longest_seconds, longest_seconds)
        self.watched_seconds += watched_seconds

    def doubt(self) -> None:
        """Trust the limit less: it has ended an attempt, and may have been wrong."""
        self.needed_seconds = DOUBT_FACTOR * self.watched_seconds

    def limit(self, cap_seconds: float, *, least_seconds: float = 0.0) -> GapLimit | None:
        """Return the limit for ranks that announce their phases; None where the cap is all there is (0: no limit).

        `least_seconds`: what must be allowed, whatever was seen in this phase.
        """
        multiple = self.rule.factor * self.longest_seconds
        seconds = max(self.rule.floor_seconds, multiple, least_seconds)
        if seconds >= cap_seconds or not self._is_known(least_seconds=self.rule.evidence * seconds):
            return None
        return self._limit(seconds)

    def limit_unannounced(self, cap_seconds: float, *, at_work_seconds: float) -> GapLimit | None:
        """Return the limit for ranks that announce nothing and have been at work for so long; None: there is none.

        It may be the cap itself, for ranks that have no other limit.
        """
        multiple = self.rule.factor * self.longest_seconds
        seconds = min(cap_seconds, max(self.rule.floor_seconds, multiple, at_work_seconds))
        floor_seconds = min(cap_seconds, self.rule.floor_seconds)
        if cap_seconds <= 0 or multiple > cap_seconds:
            return None
        return self._limit(seconds) if self._is_known(least_seconds=floor_seconds) else None

    def _is_known(self, *, least_seconds: float) -> bool:
        least = max(least_seconds, self.needed_seconds)
        return self.num_gaps >= self.rule.least and self.watched_seconds >= least

    def _limit(self, seconds: float) -> GapLimit:
        source = f"learned: the longest of {self.num_gaps} was {self.longest_seconds:.1f} s"
        return GapLimit(seconds=seconds, source=source)
