"""Results of examining a store: one PASS, FAIL or UNKNOWN per check, with a reason that ends in the way out.

A back end checks its own server or files (`Store.examine`); `runner.journal.doctor` checks what any store must do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

PASS, FAIL, UNKNOWN = "PASS", "FAIL", "UNKNOWN"

Finding = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """The outcome of one check. An unknown outcome is not healthy."""

    check: str
    outcome: str
    reason: str


def run_checks(
    checks: Mapping[str, Callable[[], Finding]],
    *,
    fail_on: tuple[type[Exception], ...],
    describe: Callable[[Exception], str] = str,
) -> Iterator[StoreCheck]:
    """Run checks one by one and yield each result; an exception of `fail_on` is a FAIL."""
    for name, check in checks.items():
        try:
            outcome, reason = check()
        except fail_on as error:
            outcome, reason = FAIL, describe(error)
        yield StoreCheck(check=name, outcome=outcome, reason=reason)


def overall(results: Iterable[StoreCheck]) -> str:
    """Return the worst outcome: FAIL before UNKNOWN before PASS."""
    outcomes = {result.outcome for result in results}
    return next((outcome for outcome in (FAIL, UNKNOWN) if outcome in outcomes), PASS)
