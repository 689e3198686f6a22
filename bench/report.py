"""How a benchmark says what it found: one line a figure, `figure | value | limit | PASS or MISS`.

A figure without a limit (a noise floor, a part of a sum) has no verdict. Each benchmark prints its method first.
"""

from __future__ import annotations

from collections.abc import Sequence


class Report:
    """Prints figures as they come and remembers whether one missed its limit."""

    def __init__(self, title: str, method: str) -> None:
        self.num_missed = 0
        print(f"\n{title}\n  method: {method}", flush=True)

    def figure(self, name: str, value: float, unit: str, *, at_most: float | None = None) -> None:
        """Print one figure, with its verdict if it has a limit (given in the same unit)."""
        is_missed = at_most is not None and value > at_most
        self.num_missed += is_missed
        limit = "-" if at_most is None else f"<= {at_most:g} {unit}"
        verdict = "-" if at_most is None else "MISS" if is_missed else "PASS"
        print(f"  {name} | {value:.4g} {unit} | {limit} | {verdict}", flush=True)


def quantile(values: Sequence[float], ratio: float) -> float:
    """Return the value below which `ratio` of all values lie (nearest rank); ValueError if there are none."""
    if not values:
        raise ValueError("no values to take a quantile of")
    ordered = sorted(values)
    return ordered[min(int(ratio * len(ordered)), len(ordered) - 1)]
