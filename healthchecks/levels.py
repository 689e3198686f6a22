"""The time that a check has at a level."""

from collections.abc import Mapping

from runner.facts.specs.check_levels import BUDGET_SECONDS, LEVELS, Level

__all__ = ["BUDGET_SECONDS", "LEVELS", "Level", "seconds_at"]


def seconds_at(seconds: Mapping[Level, float], level: Level) -> float | None:
    """Return the time that a check has at a level: what it declares for it or the nearest lower one; None where it does not run."""
    for lower in reversed(LEVELS[: LEVELS.index(level) + 1]):
        if lower in seconds:
            return seconds[lower]
    return None
