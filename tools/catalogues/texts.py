"""What a format string says beside its conversions."""

import re

PRINTF = re.compile(r"%[-+ #0-9.*']*(?:hh?|ll?|[Lqjzt])?(?:p[A-Za-z]\w*|[a-zA-Z%])")
_LETTERS = re.compile(r"[A-Za-z]")
_WORDS = re.compile(r"[A-Za-z]{2,}")
# Letters of the longest literal run that make a line findable: by itself, and beside a word that must be in it; chosen.
_MIN_ALONE = 16
_MIN_BESIDE = 7
# Words of a run that is found by itself; chosen.
_MIN_WORDS = 3


def literal_runs(text: str) -> list[str]:
    """Return what a printf format says between its conversions."""
    return [run.strip() for run in PRINTF.split(text)]


def is_findable(text: str, requires: tuple[str, ...] = ()) -> bool:
    """Whether a format says enough to be searched for: a run of several words, or a long one beside a required word."""
    runs = literal_runs(text)
    if requires:
        return any(len(_LETTERS.findall(run)) >= _MIN_BESIDE for run in runs)
    return any(
        len(_LETTERS.findall(run)) >= _MIN_ALONE and len(_WORDS.findall(run)) >= _MIN_WORDS
        for run in runs
    )
