"""How a history stays small: older rows are thinned evenly by steps, and what matters about them is kept.

The steps of an attempt are divided into buckets of one width, a power of two. Of each bucket these rows stay: the last; that with
the greatest loss, a loss that is no number before all; that with the greatest gradient norm; the last with a validation loss.
Buckets of a greater width contain whole ones of the smaller, so rows that are thinned again stay even.
"""

import math
from collections.abc import Sequence

from runner.steps.rows import COLUMNS, NUM_FIXED, Packed

# The newest rows, which stay whole; more than any resume check or verification looks back. Chosen, not measured.
FINE_ROWS = 30_000
# When a history has more rows it is thinned, the older to so many. 120,000 rows have 10 MB and are read in half a second. Chosen.
MAX_ROWS = 120_000
OLD_ROWS = 50_000

_BITS = NUM_FIXED - 1
_LOSS, _NORM, _VALIDATION = (
    COLUMNS.index(name) for name in ("loss", "grad_norm", "validation_loss")
)


def bounded(rows: Sequence[Packed], width: int) -> tuple[list[Packed], int]:
    """Return rows, oldest first and the newest whole, thinned to `FINE_ROWS` + `OLD_ROWS` at most, and the width of buckets.

    `width`: that of the last time, 1 for none. Attempts of a step or two each are not thinned by any width: of those the
    oldest rows go.
    """
    old, fine = list(rows[:-FINE_ROWS]), rows[-FINE_ROWS:]
    span = int(max((row[0] for row in old), default=0))
    if len(old) > OLD_ROWS and width > 1:
        # What was thinned stays as it is.
        old = thinned(old, width)
    while len(old) > OLD_ROWS and width <= span:
        width *= 2
        old = thinned(old, width)
    return [*old[-OLD_ROWS:], *fine], width


def thinned(rows: Sequence[Packed], width: int) -> list[Packed]:
    """Return the rows that stay of buckets of so many steps, in their order."""
    buckets: dict[tuple[float, float, int], list[int]] = {}
    for index, row in enumerate(rows):
        buckets.setdefault((row[2], row[3], int(row[0]) // width), []).append(index)
    kept = sorted(index for members in buckets.values() for index in _outstanding(rows, members))
    return [rows[index] for index in kept]


def _outstanding(rows: Sequence[Packed], members: Sequence[int]) -> list[int]:
    if len(members) == 1:
        return list(members)
    highest = max(members, key=lambda index: _height(rows[index], _LOSS))
    steepest = max(members, key=lambda index: _height(rows[index], _NORM))
    kept = {members[-1]: None, highest: None, steepest: None}
    for index in reversed(members):
        if int(rows[index][_BITS]) >> _VALIDATION & 1:
            kept[index] = None
            break
    return list(kept)


def _height(row: Packed, column: int) -> float:
    """Return a value to be compared: none is least, what is no finite number is greatest."""
    if not int(row[_BITS]) >> column & 1:
        return -math.inf
    value = row[NUM_FIXED + column]
    return value if math.isfinite(value) else math.inf
