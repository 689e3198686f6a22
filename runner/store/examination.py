"""Results of examining a store: one PASS, FAIL or UNKNOWN per check, with a reason that ends in the way out.

A back end checks its own server or files (`Store.examine`); `runner.journal.doctor` checks what any store must do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

S = TypeVar("S")

PASS, FAIL, UNKNOWN = "PASS", "FAIL", "UNKNOWN"


class CheckFailed(Exception):
    """A check found something wrong; the text says what, and the way out."""


class CheckUnknown(Exception):
    """A check could not tell; the text says what to allow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCheck:
    """The outcome of one check. An unknown outcome is not healthy."""

    check: str
    outcome: str
    reason: str


def named(*checks: Callable[[S], str]) -> dict[str, Callable[[S], str]]:
    """Return checks under the names of their functions."""
    return {check.__name__.removeprefix("_"): check for check in checks}


def run_checks(
    subject: S,
    checks: Mapping[str, Callable[[S], str]],
    *fail_on: type[Exception],
    describe: Callable[[Exception], str] = str,
) -> Iterator[StoreCheck]:
    """Run checks, each of which returns the reason of its PASS; yield each result at once.

    CheckFailed and an exception of `fail_on` are a FAIL.
    """
    for name, check in checks.items():
        try:
            outcome, reason = PASS, check(subject)
        except CheckUnknown as error:
            outcome, reason = UNKNOWN, str(error)
        except CheckFailed as error:
            outcome, reason = FAIL, str(error)
        except fail_on as error:
            outcome, reason = FAIL, describe(error)
        yield StoreCheck(check=name, outcome=outcome, reason=reason)


def overall(results: Iterable[StoreCheck]) -> str:
    """Return the worst outcome: FAIL before UNKNOWN before PASS."""
    outcomes = {result.outcome for result in results}
    return next((outcome for outcome in (FAIL, UNKNOWN) if outcome in outcomes), PASS)
