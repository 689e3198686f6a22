"""One row of a step history, and its form in files.

To add a column: a field of `StepRow` before `skipped`, named as in `StepRecord`. Files of before lack it, so it reads as None
there; a release that does not know a column passes it over.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from runner.facts.ids import AttemptId

# Step, time, configuration and restart of the attempt, and bits: which columns have a value, and the topmost: skipped.
FIXED = "<qdIII"
NUM_FIXED = 5
SKIPPED = 1 << 31
MAX_COLUMNS = 31
MAX_STEP = 2**63 - 1
MAX_COUNT = 2**32 - 1

# A row as files have it: the five fixed fields, then a float for each column (0.0 for one without a value).
Packed = tuple[float, ...]


class StepRow(NamedTuple):
    """One training step of one attempt. None: the trainer did not report it.

    `at`: when it was done, seconds of the controller's clock. `lr`: the rate in effect. `grad_norm`: before clipping.
    """

    step: int
    at: float
    attempt: AttemptId
    loss: float | None = None
    grad_norm: float | None = None
    activation_norm: float | None = None
    loss_scale: float | None = None
    lr: float | None = None
    tokens_per_second: float | None = None
    validation_loss: float | None = None
    # The data step that it read.
    data_step: float | None = None
    # The optimizer left the weights alone (an overflow).
    skipped: bool = False


# What a trainer may report of a step, in the order of files. All are 8-byte floats: a loss is compared with itself after a restart.
COLUMNS = StepRow._fields[3:-1]


def layout(num_columns: int) -> struct.Struct:
    """Return the form of rows with so many columns."""
    return struct.Struct(f"{FIXED}{num_columns}d")


LAYOUT = layout(len(COLUMNS))


def packed(row: StepRow) -> Packed:
    """Return a row as files have it."""
    bits, values = SKIPPED if row.skipped else 0, []
    for index, name in enumerate(COLUMNS):
        value = getattr(row, name)
        bits |= 0 if value is None else 1 << index
        values.append(0.0 if value is None else float(value))
    return (row.step, row.at, row.attempt.configuration, row.attempt.restart, bits, *values)


def unpacker(run: int) -> Callable[[Packed], StepRow]:
    """Return what makes rows of a run of what `packed` and `translated` return."""
    # Configuration, restart and bits, which are alike in nearly all rows -> the attempt, columns without a value, skipped.
    met: dict[tuple[float, ...], tuple[AttemptId, list[int], bool]] = {}
    make = StepRow._make

    def unpack(row: Packed) -> StepRow:
        alike = row[2:NUM_FIXED]
        known = met.get(alike)
        if known is None:
            known = met[alike] = _alike(run, alike)
        attempt, missing, is_skipped = known
        if not missing:
            return make((row[0], row[1], attempt, *row[NUM_FIXED:], is_skipped))
        values: list[Any] = list(row[NUM_FIXED:])
        for place in missing:
            values[place] = None
        return make((row[0], row[1], attempt, *values, is_skipped))

    return unpack


def _alike(run: int, fixed: Packed) -> tuple[AttemptId, list[int], bool]:
    configuration, restart, bits = map(int, fixed)
    missing = [place for place in range(len(COLUMNS)) if not bits >> place & 1]
    return AttemptId(run, configuration, restart), missing, bits >= SKIPPED


def translated(rows: Sequence[Packed], columns: Sequence[str]) -> Sequence[Packed]:
    """Return rows of a file with these columns as rows of ours."""
    if tuple(columns) == COLUMNS:
        return rows
    places = [columns.index(name) if name in columns else None for name in COLUMNS]
    return [_translated(row, places) for row in rows]


def _translated(row: Packed, places: Sequence[int | None]) -> Packed:
    given = int(row[NUM_FIXED - 1])
    bits, values = given & SKIPPED, []
    for index, place in enumerate(places):
        has_value = place is not None and given >> place & 1
        bits |= 1 << index if has_value else 0
        values.append(row[NUM_FIXED + place] if place is not None and has_value else 0.0)
    return (*row[: NUM_FIXED - 1], bits, *values)
