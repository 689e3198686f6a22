"""Data steps that are left out: ranges, their union, and which data step a training step reads.

A data step is the batch that a training step of a run without skips reads under the same number. Ranges are `[first, last]`,
both left out, counted from 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from runner.facts.remedies.remedy import Remedy, parsed_list, without

Ranges = Iterable[Sequence[int]]
# Of one request: a typo must not leave out an epoch. Chosen, not measured.
MAX_SKIPPED = 100_000
MAX_RANGES = 100
# What a ladder may leave out at once: PaLM's team left out 200 to 500 batches around a spike.
MAX_AUTOMATIC_SKIPPED = 500


class SkipSteps(Remedy):
    """Leave out data steps. Its value is a list of ranges."""

    name = "skip_steps"
    label = "skipped data"
    form = "ranges of data steps such as 500-520 or 500-520,610-612"
    command = "skip"
    is_automatic = True

    @classmethod
    def joined(cls, remedies: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """Ranges unite."""
        ranges = union([*remedies.get(cls.name, ()), *value])
        return {**without(remedies, [cls.name]), cls.name: ranges}

    @classmethod
    def problem(cls, value: Any) -> str:
        """Refuse what is no list of ranges, or leaves out very much."""
        if not isinstance(value, list | tuple) or not value or not all(map(_is_range, value)):
            return f"{cls.command}: {value} is no list of ranges [first, last], counted from 1; write {cls.form}"
        if len(value) > MAX_RANGES or num_skipped(value) > MAX_SKIPPED:
            most = f"{MAX_SKIPPED} data steps in {MAX_RANGES} ranges in one request"
            return f"{cls.command}: {num_skipped(value)} data steps in {len(value)} ranges are more than {most}"
        return ""

    @classmethod
    def automatic_problem(cls, value: Any) -> str:
        """A ladder leaves out a few hundred at once."""
        if num_skipped(value) <= MAX_AUTOMATIC_SKIPPED:
            return ""
        return f"{cls.command}: a ladder may leave out {MAX_AUTOMATIC_SKIPPED} data steps at once, not {num_skipped(value)}"

    @classmethod
    def words(cls, value: Any) -> str:
        """`data steps 500-520 left out`."""
        return f"data steps {ranges_text(value)} left out"

    @classmethod
    def parse(cls, text: str) -> Any:
        """Read `500-520,610`."""
        ranges = []
        for part in parsed_list(text, cls.form):
            first, dash, last = part.partition("-")
            last = last if dash else first
            if not first.isdecimal() or not last.isdecimal():
                raise ValueError(f"{part!r} is no range of data steps; write {cls.form}")
            ranges.append([int(first), int(last)])
        return tuple(ranges)


def _is_range(item: Any) -> bool:
    return (
        isinstance(item, list | tuple)
        and len(item) == 2
        and all(type(step) is int for step in item)
        and 1 <= item[0] <= item[1]
    )


def union(ranges: Ranges) -> list[list[int]]:
    """Return the same data steps as ranges in order that neither overlap nor touch."""
    united: list[list[int]] = []
    for first, last in sorted((first, last) for first, last in ranges):
        if united and first <= united[-1][1] + 1:
            united[-1][1] = max(united[-1][1], last)
        else:
            united.append([first, last])
    return united


def num_skipped(ranges: Ranges) -> int:
    """Return how many data steps the ranges leave out."""
    return sum(last - first + 1 for first, last in union(ranges))


def ranges_text(ranges: Ranges) -> str:
    """Write ranges as a person does: `500-520,610`."""
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges)


def data_step(step: int, skipped: Ranges = (), *, after: tuple[int, int] = (0, 0)) -> int:
    """Return the data step that a training step, counted from 1, reads.

    `after`: a training step and the data step that it had read, from which the order goes on: that of the checkpoint resumed from.
    What was read by then is neither read again nor changed by ranges that came later. Raises ValueError for a step not after it.
    """
    done, read = after
    if step <= done:
        raise ValueError(f"step {step}: steps are counted from 1, and {done} are done")
    position, end = read + step - done, read
    for first, last in union(skipped):
        # What is read already is not left out any more.
        first = max(first, end + 1)
        if first > position:
            break
        position += max(0, last - first + 1)
        end = max(end, last)
    return position
