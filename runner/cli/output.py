"""Forms: seconds, counts and tables as people read them, and everything as JSON for programs."""

import dataclasses
import json
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.wording import printable, visible

T = TypeVar("T")

# A longer line would be wrapped, and then not be written over.
MAX_PROGRESS_CHARACTERS = 78
BARS = "▁▂▃▄▅▆▇█"


def seconds(value: float | None) -> str:
    """Write a duration: 0.05 s, 12.3 s, 4 min 05 s, 3 h 20 min, 2 d 4 h; "-" for None."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.2f} s"
    if value < 120:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def number(value: float | None, digits: int = 4) -> str:
    """Write a figure with so many digits; "-" for None."""
    return "-" if value is None else f"{value:.{digits}g}"


def count(value: int | None) -> str:
    """Write a count; "-" for None."""
    return "-" if value is None else str(value)


def ratio(value: float | None) -> str:
    """Write a ratio with three digits; "-" for None."""
    return "-" if value is None else f"{value:.3f}"


def size(num_bytes: int) -> str:
    """Write bytes in MB; "-" for nothing known."""
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes else "-"


def because(reason: str) -> str:
    """Write a reason, which may come from outside, after what it explains; "" without one."""
    return f": {printable(reason)}" if reason else ""


def clock(wall: float) -> str:
    """Write a moment as local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(wall)) + f".{int(wall % 1 * 1000):03d}"


def moment(wall: float) -> str:
    """Write a moment with its date, local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall))


def sparkline(values: Sequence[float], width: int = 60) -> str:
    """Draw the newest values as bars, lowest to highest; NaN and infinities as "!"."""
    shown = values[-width:]
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return "!" * len(shown)
    low, high = min(finite), max(finite)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        BARS[round((value - low) * scale)] if math.isfinite(value) else "!" for value in shown
    )


def table(
    columns: Mapping[str, Callable[[T], str]], rows: Iterable[T], *, optional: Collection[str] = ()
) -> str:
    """Lay items out in columns, as wide as they need; an `optional` one without any value is omitted."""
    items, laid_out = list(rows), []
    for name, cell in columns.items():
        cells = [cell(item) for item in items]
        if name not in optional or any(text != "-" for text in cells):
            width = max(map(len, (name, *cells)))
            laid_out.append([text.ljust(width) for text in (name, *cells)])
    return "\n".join("  ".join(row).rstrip() for row in zip(*laid_out, strict=True))


def print_text(text: str = "") -> None:
    """Print for people, visible characters only."""
    print(visible(text), flush=True)


def print_answer(value: Any, text: str, *, as_json: bool) -> None:
    """Print the answer of a command: its value for programs, or its text for people."""
    if as_json:
        print_json(value)
    else:
        print_text(text)


def print_note(text: str) -> None:
    """Print what is not the answer itself, such as what is being waited for."""
    print(visible(text), file=sys.stderr, flush=True)


class ProgressLine:
    """One line on standard error that is written over, if that is a terminal; else nothing is shown."""

    def __init__(self) -> None:
        self.is_shown = sys.stderr.isatty()
        self._width = 0

    def write(self, text: str) -> None:
        """Show this instead of what is there."""
        if self.is_shown:
            text = visible(text)[:MAX_PROGRESS_CHARACTERS]
            sys.stderr.write(f"\r{text:<{self._width}}")
            sys.stderr.flush()
            self._width = len(text)

    def clear(self) -> None:
        """Leave an empty line for what is printed next."""
        if self._width:
            self.write("")
            sys.stderr.write("\r")
            sys.stderr.flush()


def print_json(value: Any) -> None:
    """Print one JSON document; dataclasses become objects with all their fields, NaN and infinities strings."""
    print(json.dumps(plain(value), allow_nan=False), flush=True)


def plain(value: Any) -> Any:
    """Turn facts into what json can print. Unlike messages, nothing is left out: programs want every key, always."""
    if isinstance(value, AttemptId):
        return str(value)
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return wire.to_plain(value)
