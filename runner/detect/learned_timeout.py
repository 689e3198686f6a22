"""Pace: how long a run is quiet while all is well, learned from itself, and so how long it may be quiet.

A *quiet* is the time between two signs of progress: a new step, a change of phase, or, of ranks that report nothing, a write
to their output. It belongs to the phase it was in. From the longest one seen a limit follows, across attempts, as long as
this supervisor lives. A false alarm costs people more trust than a hang costs time (they ask for hang detection, and
complain first about being killed in evaluations and long steps), so every rule here leans to waiting:

- A limit is a multiple of the *longest* quiet, never of a usual one, never under a floor, and never over the limit that
  run.yaml sets (`start_seconds`, `progress_seconds`), which alone holds until there is evidence, and in phases never seen.
- Evidence is many quiets, and having watched the phase for at least as long as one would now wait; for phases that ranks give
  notice of, ten times as long, since what comes once in hours must have had its chance.
- What was compiled for the first step may have to be compiled again: a step, and an evaluation, may take twice as long as the
  longest start; who has seen no start of a run knows no limit for its steps but that of run.yaml.
- Ranks of a run that was never seen to name an evaluation or a checkpoint give no notice of them. Their first long one must
  not be taken for a hang, so they are given as long as their attempt has been at work: an alarm, should it be false, throws away no
  more than the wait would have cost. After `progress_seconds` of work that limit is `progress_seconds`.
- Ranks that only write are held to a limit once they have written regularly, in this very attempt: what they print while
  they start says nothing. If ten times their longest quiet is more than `progress_seconds`, there is no telling, and no limit.
  Once a rank has ended, how long the others take to follow was never seen: then their limit is `progress_seconds` itself.
- A limit that has ended an attempt is doubted: it counts again once the phase was watched for three times as long as before.
  If the alarm was false, the run comes by the same place meanwhile, and the limit has learned how long it takes.

NVRx learns its section timeouts as 5 x the longest. With that factor, evidence of once the limit and nothing said of compiles,
3 of 6 virtual runs of 90 days with steps of 105 s raised a false alarm, and 6 of 6 of 15 days with steps of 20 s; with the rules as
they are none did (`tests/detect/virtual_run.py`, whose tails are chosen). All other numbers are chosen, not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

# longest start -> what any step may take; chosen
COMPILE_FACTOR = 2.0
# phases that may compile
COMPILING = ("step", "evaluate")
# more evidence than before, after a limit has ended an attempt; chosen
DOUBT_FACTOR = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a limit follows from what was seen. `least`: quiets needed; `evidence`: how many times the limit was watched for."""

    factor: float
    floor_seconds: float
    least: int
    evidence: float = 1.0


RULES = {
    # caches differ between starts
    "start": Rule(factor=10.0, floor_seconds=180.0, least=3),
    "step": Rule(factor=10.0, floor_seconds=60.0, least=20, evidence=10.0),
    "evaluate": Rule(factor=10.0, floor_seconds=60.0, least=3, evidence=10.0),
    "checkpoint": Rule(
        factor=10.0,
        floor_seconds=60.0,
        least=3,
        evidence=10.0,
        # storage has bad days
    ),
    # Steps of ranks that give no notice of what else they do, and writes of ranks that report nothing.
    "steps alone": Rule(factor=10.0, floor_seconds=60.0, least=20),
    "writes": Rule(factor=10.0, floor_seconds=60.0, least=20),
}
# of ranks in several, the first one counts
PHASES = ("start", "checkpoint", "evaluate", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How long a gang may be quiet, and where that comes from."""

    seconds: float
    source: str


@dataclass(slots=True, kw_only=True)
class LearnedTimeout:
    """What one run has shown in one phase. All times are seconds."""

    rule: Rule
    num_quiets: int = 0
    longest_seconds: float = 0.0
    watched_seconds: float = 0.0
    # watched, before a limit counts again that was doubted
    needed_seconds: float = 0.0

    def add(self, quiet_seconds: float) -> None:
        """Learn from a quiet that ended well."""
        self.num_quiets += 1
        self.longest_seconds = max(self.longest_seconds, quiet_seconds)
        self.watched_seconds += quiet_seconds

    def take_over(self, *, num_quiets: int, longest_seconds: float, watched_seconds: float) -> None:
        """Learn from what somebody else has watched."""
        self.num_quiets += num_quiets
        self.longest_seconds = max(self.longest_seconds, longest_seconds)
        self.watched_seconds += watched_seconds

    def doubt(self) -> None:
        """Trust the limit less: it has ended an attempt, and may have been wrong."""
        self.needed_seconds = DOUBT_FACTOR * self.watched_seconds

    def limit(self, cap_seconds: float, *, least_seconds: float = 0.0) -> Limit | None:
        """Return the limit for ranks that give notice of their phases; None where the cap is all there is (0: no limit).

        `least_seconds`: what must be allowed for whatever was seen in this phase.
        """
        multiple = self.rule.factor * self.longest_seconds
        seconds = max(self.rule.floor_seconds, multiple, least_seconds)
        if seconds >= cap_seconds or not self._is_known(least_seconds=self.rule.evidence * seconds):
            return None
        return self._limit(seconds)

    def limit_unannounced(self, cap_seconds: float, *, at_work_seconds: float) -> Limit | None:
        """Return the limit for ranks that give no notice and have been at work for so long; None: they are held to none.

        It may be the cap itself, for whoever has none otherwise.
        """
        multiple = self.rule.factor * self.longest_seconds
        seconds = min(cap_seconds, max(self.rule.floor_seconds, multiple, at_work_seconds))
        floor_seconds = min(cap_seconds, self.rule.floor_seconds)
        if cap_seconds <= 0 or multiple > cap_seconds:
            return None
        if not self._is_known(least_seconds=floor_seconds):
            return None
        return self._limit(seconds)

    def _is_known(self, *, least_seconds: float) -> bool:
        least = max(least_seconds, self.needed_seconds)
        return self.num_quiets >= self.rule.least and self.watched_seconds >= least

    def _limit(self, seconds: float) -> Limit:
        source = f"learned: the longest of {self.num_quiets} was {self.longest_seconds:.1f} s"
        return Limit(seconds=seconds, source=source)
