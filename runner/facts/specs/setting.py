"""Setting: what the documentation and the loader need to know of a field that a person writes into a file.

It hangs on the field's type, `Annotated[int, Setting("...", least=1)]`, so that field, limits and page cannot drift apart.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """Meaning and limits of one field. `default` describes what the loader computes when the field is left out."""

    meaning: str
    unit: str = ""
    default: str = ""
    # Inclusive.
    least: float | None = None
    # Exclusive.
    above: float | None = None
    # Inclusive.
    most: float | None = None
