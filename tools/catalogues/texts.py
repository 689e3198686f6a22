"""What a format string says beside its conversions."""

import re

PRINTF = re.compile(r"%[-+ #0-9.*']*(?:hh?|ll?|[Lqjzt])?(?:p[A-Za-z]\w*|[a-zA-Z%])")
_LETTERS = re.compile(r"[A-Za-z]")
# Letters of the longest literal run that make a line findable: by itself, and beside a word that must be in it; chosen.
_MIN_ALONE = 10
_MIN_BESIDE = 5


def literal_runs(text: str) -> list[str]:
    """Return what a printf format says between its conversions."""
    return [run.strip() for run in PRINTF.split(text)]


def is_findable(text: str, requires: tuple[str, ...] = ()) -> bool:
    """Whether a format says enough to be searched for."""
    letters = max((len(_LETTERS.findall(run)) for run in literal_runs(text)), default=0)
    return letters >= (_MIN_BESIDE if requires else _MIN_ALONE)
