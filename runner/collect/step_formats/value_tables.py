"""Tables of two columns in a log: a name and its value on each line, all of one step.

Loggers that descend from those of Baselines print them (improved-diffusion, guided-diffusion, Stable Baselines). Lines are in the
order of the names, so the step of a table is known when it is over.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from runner.collect.lines import Bare, unwrapped
from runner.collect.step_formats.any_numbers import meaning_of
from runner.collect.step_formats.loss_scalers import MAX_EXPONENT
from runner.collect.step_formats.name_value_pairs import Reading, normal, number, whole
from runner.collect.step_formats.printed_tables import TableRow

_NUMBER = r"[-+]?(?:\d[\d.]{0,20}(?:e[-+]?\d{1,3})?|nan|inf)"
# The first line of a table that counts, for a set engine: those before it have nothing of ours.
FIRST_ROW = (
    r"\|[ \t]+(?:(?:\w{1,20}/)?(?:\w{0,20}_)?loss|grad_norm|lg_loss_scale)[ \t]+\|"
    rf"[ \t]*{_NUMBER}[ \t]*\|[ \t]*(?:[\r\n]|$)"
)
_ROW = re.compile(rf"\|\s*(?P<name>[\w/ .()\-]{{1,60}}?)\s*\|\s*(?P<value>{_NUMBER})?\s*\|")
# Names in tables of reinforcement learning.
_OF_POLICIES = ("ep_rew_mean", "ep_len_mean", "exploration_rate", "n_updates", "policy_loss")
# The logarithm, to the base 2, of the loss scale.
_POWER = "lg_loss_scale"
# Bytes of a line, and lines of a table; both chosen.
MAX_LINE, MAX_LINES = 300, 200


class ValueTables:
    """Reads the tables of two columns of one log."""

    def __init__(self) -> None:
        # Of an open table, by name; None: there is none.
        self._values: dict[str, float] | None = None
        self._num_lines = 0

    def rows(
        self, block: bytes, starts: Sequence[int], bare: Bare | None
    ) -> Mapping[int, TableRow]:
        """Return what each table in a block of whole lines shows, by the offset of the line behind its last one.

        `starts`: offsets of the lines in which FIRST_ROW was found, in order. `bare`: what a bare number before each line is.
        """
        found: dict[int, TableRow] = {}
        known = frozenset(starts)
        at = 0 if self._values is not None else min(known, default=len(block))
        while at < len(block):
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            if self._values is None and at in known:
                self._open(block, at, bare)
            if self._values is not None and not self._add(block[at:end], bare):
                if (reading := _reading_of(self._values)) is not None:
                    found[at] = TableRow(reading, " ".join(self._values).encode(), {})
                self._values = None
            at = end + 1
            if self._values is None:
                place = bisect_left(starts, at)
                at = starts[place] if place < len(starts) else len(block)
        return found

    def _open(self, block: bytes, at: int, bare: Bare | None) -> None:
        """Open a table with the lines before its first one with a mark."""
        self._values, self._num_lines = {}, 0
        while at > 0:
            begin = block.rfind(b"\n", 0, at - 1) + 1
            if not self._add(block[begin : at - 1], bare):
                break
            at = begin

    def _add(self, line: bytes, bare: Bare | None) -> bool:
        """Add a line to the open table; return whether it is one of it."""
        self._num_lines += 1
        if self._values is None or len(line) > MAX_LINE or self._num_lines > MAX_LINES:
            return False
        row = _ROW.fullmatch(unwrapped(line.decode(errors="replace"), bare).text.strip())
        if row is None:
            return False
        value = number(row["value"]) if row["value"] else None
        if value is not None:
            self._values[normal(row["name"])] = value
        return True


def _reading_of(values: Mapping[str, float]) -> Reading | None:
    """Return the numbers of a table; None: it has no loss and no gradient norm."""
    best: dict[str, tuple[int, float]] = {}
    for name, value in values.items():
        if name == _POWER:
            if abs(value) <= MAX_EXPONENT:
                best["loss_scale"] = (0, 2.0**value)
            continue
        meaning = meaning_of(name.rpartition("/")[2])
        if meaning is None:
            continue
        field_name, factor, place = meaning
        if place < best.get(field_name, (1 << 30, 0.0))[0]:
            best[field_name] = (place, value * factor)
    numbers = {name: value for name, (_, value) in best.items()}
    if any(name.rpartition("/")[2] in _OF_POLICIES for name in values):
        # Losses of reinforcement learning rise and wander in healthy runs.
        numbers = {
            name: value
            for name, value in numbers.items()
            if name != "loss" or not math.isfinite(value)
        }
    step = whole(numbers.pop("step", None))
    if numbers.keys().isdisjoint(("loss", "grad_norm", "validation_loss")):
        return None
    return Reading(step=step, numbers=numbers)
