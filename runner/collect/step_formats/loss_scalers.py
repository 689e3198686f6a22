"""Sentences of loss scalers: a step was skipped because its gradients overflowed, and what the loss scale is from then on.

DeepSpeed ("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", and its fused and unfused optimizers),
Apex ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0"), fairseq and its descendants ("gradient
overflow detected, ignoring gradient, setting loss scale to: 64.0"), PaddleNLP ("optimizer not run, scale_before: 65536.0,
scale_after: 32768.0"), InternEvo ("skip parameter update at step 7"), and others that say the same.
"""

import re

from runner.collect.step_formats.name_value_pairs import Reading, number

# Of a scale that is written as a power of two: those of numbers in float64.
MAX_EXPONENT = 1000
_OVERFLOW = r"(?:[Oo]verflow|OVERFLOW|[Ff]ound (?:[Ii]nf|[Nn]a[Nn]|[Oo]verflow))"
# No set engine may look around; `read_scaler` says which of these lines are no sentence of a scaler.
MARK = rf"{_OVERFLOW}.{{0,120}}?(?:(?i:skip\w* (?:\w+ )?step|scaler?\b[^\n]{{0,60}}\d)|ignoring gradient)"
MARK += r"|optimizer not run, scale_before|skip parameter update at step \d"
_SENTENCE = re.compile(MARK)
_NUMBER = r"(\d[\d.]*(?:e[-+]?\d+)?)"
# Not "Reducing hysteresis to 1".
_NEXT = re.compile(
    r"(?:(?i:reduc\w*|decreas\w*|setting|set|adjust\w*|lower\w*|chang\w*)\s+"
    rf"(?i:(?:(?:dynamic|the|loss|grad|amp)\s+)*scaler?\s+(?:from\s+\S+\s+)?)?to:?|scale_after:)\s*{_NUMBER}"
)
# Paddle writes the product, not the next scale: "current scale is: 64.0, decrease to: 64.0*0.5".
_FACTOR = re.compile(rf"\bto: {_NUMBER}\*{_NUMBER}")
_ATTEMPTED = re.compile(rf"(?i:attempted loss scale|loss scale|scale is|scale)[:=]?\s*{_NUMBER}")
# The scale as a power of two: improved-diffusion and its descendants.
_POWER = re.compile(rf"(?i:lg_loss_scale)\s+to:?\s*(-?{_NUMBER})")
# Of metric lines, whose own format reads them: "overflow: False".
_NONE = re.compile(
    r"(?i)overflow\w*(?:[ _]cond(?:ition)?)?['\"]?\s*[:=]\s*(?:false|0|no)\b|without overflow|no overflow"
)


def read_scaler(text: str) -> Reading | None:
    """Read one sentence: the step was skipped, and the loss scale of the next one where it is named; None: it is none."""
    if _SENTENCE.search(text) is None or _NONE.search(text):
        return None
    numbers = {"skipped": 1.0}
    if (power := _POWER.search(text)) is not None:
        exponent = number(power[1].rstrip("."))
        if exponent is not None and abs(exponent) <= MAX_EXPONENT:
            numbers["loss_scale"] = 2.0**exponent
        return Reading(numbers=numbers)
    matches = _NEXT.findall(text) or _ATTEMPTED.findall(text)
    scale = number(matches[-1].rstrip(".")) if matches else None
    if scale is not None and (product := _FACTOR.search(text)) is not None:
        scale *= number(product[2]) or 1.0
    if scale is not None and scale > 0:
        numbers["loss_scale"] = scale
    return Reading(numbers=numbers)
