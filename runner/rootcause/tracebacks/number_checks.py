"""Exceptions of a program's own checks of its numbers: what is not finite, and what has diverged."""

import re

from runner.rootcause.tracebacks.exception_classes import Family
from runner.rootcause.tracebacks.objects import Raised

_NOT_FINITE = re.compile(
    r"(?i)\b(?:nan|nans|inf|infs|infinity|non-?finite|not finite|isnan)\b.*\b(?:loss|grad\w*|norm|weights?|param\w*|activations?|"
    r"logits?|outputs?|scale|step|iteration|tensor|values?)\b|\b(?:loss|grad\w*|norm|weights?|param\w*|activations?|logits?)\b"
    r".*\b(?:nan|inf|infinite|non-?finite|not finite)\b|cannot convert float (?:nan|infinity)"
)
# A program's own check of its loss, which was a number.
_DIVERGED = re.compile(
    r"(?i)\b(?:loss|grad\w*|norm|training|optimi[sz]ation)\b.{0,40}\b(?:diverged|diverging|exploded|exploding|blew up)\b"
)
_CHECKED = re.compile(r"^assert\b.*\bis_?(?:finite|nan|inf)\b")
# Of exceptions that programs raise by themselves.
_MAY_BE_NUMBERS: tuple[Family, ...] = ("value", "other", "code", "not-finite", "format")


def fault_of_numbers(raised: Raised, family: Family) -> str:
    """Return the fault of a check that failed, by its message, or by its line of source; "" where the exception is of none."""
    if family not in _MAY_BE_NUMBERS:
        return ""
    code = raised.frames[-1].code if raised.frames else ""
    if _NOT_FINITE.search(raised.message) or _CHECKED.search(code):
        return "nan_loss"
    return "divergence" if _DIVERGED.search(raised.message) else ""
