"""What a format string says beside its conversions."""

import re

PRINTF = re.compile(r"%[-+ #0-9.*']*(?:hh?|ll?|[Lqjzt])?(?:p[A-Za-z]\w*|[a-zA-Z%])")
_LETTERS = re.compile(r"[A-Za-z]")
_WORDS = re.compile(r"[A-Za-z]{2,}")
# Letters of the longest literal run, which is searched for; chosen.
_MIN_RUN = 7
# Letters and words of all runs of a format that is found without a required word; chosen.
_MIN_ALONE = 16
_MIN_WORDS = 3


def literal_runs(text: str) -> list[str]:
    """Return what a printf format says between its conversions."""
    return [run.strip() for run in PRINTF.split(text)]


def is_findable(text: str, requires: tuple[str, ...] = ()) -> bool:
    """Whether a format says enough to be searched for: a run of some length, and several words where none is required."""
    runs = literal_runs(text)
    if not any(len(_LETTERS.findall(run)) >= _MIN_RUN for run in runs):
        return False
    beside = " ".join(runs)
    is_distinct = len(_LETTERS.findall(beside)) >= _MIN_ALONE
    return bool(requires) or (is_distinct and len(_WORDS.findall(beside)) >= _MIN_WORDS)
