"""Levels of node checks: how thorough, and how long all checks of a level may take together.

passive    10 s    reads what the machine reports of itself, and short tests
quick      60 s    short real work on each device
standard  120 s    the same, long enough for rates
deep       soak    heat, every pattern of memory
"""

from collections.abc import Mapping
from typing import Literal

Level = Literal["passive", "quick", "standard", "deep"]

# The cheapest first.
LEVELS: tuple[Level, ...] = ("passive", "quick", "standard", "deep")
# Of all checks together; the first three are goals of the project, the last is chosen.
BUDGET_SECONDS: Mapping[Level, float] = {
    "passive": 10.0,
    "quick": 60.0,
    "standard": 120.0,
    "deep": 3600.0,
}


def covers(level: Level | str, other: Level | str) -> bool:
    """Whether what ran at `level` includes all that runs at `other`; "" is below all levels."""
    ranks = ("", *LEVELS)
    return level in ranks and other in ranks and ranks.index(level) >= ranks.index(other)
