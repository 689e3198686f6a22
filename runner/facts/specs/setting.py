"""What the documentation and the loader need to know of a field that a person writes into a file.

It hangs on the field's type, so that field, limits and page cannot drift apart: `Annotated[Seconds, "...", Default("none")]` has
the limits of `Seconds`, the text says what the field means, and `Default` what the loader computes when it is left out.
"""

from dataclasses import dataclass
from typing import Annotated

# A year: longer than anything waits; chosen, not measured.
LONGEST_SECONDS = 366 * 24 * 3600.0


class Default(str):
    """What the loader computes when the field is left out, in words."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Limits:
    """Unit and limits of a number; `least` and `most` are allowed, `above` is not."""

    unit: str = ""
    least: float | None = None
    above: float | None = None
    most: float | None = None


Nodes = Annotated[int, Limits("nodes", least=0, most=4096)]
Ranks = Annotated[int, Limits("ranks", least=1, most=1024)]
Seconds = Annotated[float, Limits("seconds", least=0, most=3600)]
PositiveSeconds = Annotated[float, Limits("seconds", above=0, most=3600)]
LongSeconds = Annotated[float, Limits("seconds", least=0, most=LONGEST_SECONDS)]
LongPositiveSeconds = Annotated[float, Limits("seconds", above=0, most=LONGEST_SECONDS)]
