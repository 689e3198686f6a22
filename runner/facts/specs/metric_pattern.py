"""Metric patterns: a user's regular expression for the lines in which an unknown trainer reports its steps."""

import re
from collections.abc import Mapping

# Groups of such a pattern -> StepRecord's field.
OWN_GROUPS: Mapping[str, str] = {
    **{name: name for name in ("step", "loss", "grad_norm", "lr", "loss_scale", "mfu_ratio")},
    **{name: name for name in ("tokens_per_second", "samples_per_second")},
    **{name: name for name in ("model_tflops_per_second", "validation_loss")},
    "step_seconds": "step_seconds_max",
    "data_wait_seconds": "data_wait_seconds_max",
}
# Characters; chosen, not measured.
MAX_PATTERN = 2_000
# The engine that searches logs reads every byte once, for all patterns together: no look-around, no back-references.
_LOOKS_AROUND = re.compile(r"\(\?(?:<?[=!]|P=)|\\[1-9]")


def pattern_problem(pattern: str) -> str:
    """Return what is wrong with a pattern and what to do, to be read after the pattern itself; "" when it is valid."""
    known = ", ".join(OWN_GROUPS)
    if len(pattern) > MAX_PATTERN:
        return f"has {len(pattern)} characters; write {MAX_PATTERN} or fewer"
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression: {error}; write one with named groups: {known}"
    for group in compiled.groupindex:
        if group not in OWN_GROUPS:
            return f"has an unknown group {group!r}; known: {known}"
    if "step" not in compiled.groupindex:
        return "has no group 'step'; write (?P<step>\\d+) in it"
    if _LOOKS_AROUND.search(pattern.replace("\\\\", "")):
        return "looks around or back, which the engine that reads logs cannot; write it without (?=, (?!, (?<, (?P= and \\1"
    if compiled.match("") is not None:
        return "matches every line; write words around its groups"
    return ""
