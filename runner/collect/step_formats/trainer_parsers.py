"""Parsers of whole lines, for trainers whose numbers have no names of ours beside them (`table.py` has their rows)."""

import re

from runner.collect.step_formats.name_value_pairs import Reading, number, whole

_ANY = r"-?(?:\d[\d.]*(?:[eE][-+]?\d+)?|[Nn]a[Nn]|[Ii]nf)"

# The epoch's results, of ESPnet: "3epoch results: [train] iter_time=0.1, ..., loss=5.1, [valid] loss=6.3, ...".
ESPNET_RESULTS = r"\d{1,6}epoch results: \[train\] "
_ESPNET_LOSS = re.compile(rf"(?<![\w])loss=({_ANY})")
CATBOOST = rf"\d{{1,9}}:\s+learn: {_ANY}"
_CATBOOST_VALUES = re.compile(rf"(\d{{1,9}}):\s+learn: ({_ANY})(?:\s+test: ({_ANY}))?")
# A metric that is no loss, such as an area under a curve, begins with other letters.
_LIGHTGBM_LOSSES = (
    "binary_logloss|multi_logloss|cross_entropy|multi_error|binary_error|rmse|l1|l2|mape|huber|"
    "quantile|poisson|tweedie|gamma"
)
LIGHTGBM = rf"\[\d{{1,9}}\]\s+train\w{{0,10}}'s (?:{_LIGHTGBM_LOSSES}): -?[\dni]"
_LIGHTGBM_ROUND = re.compile(r"\[(\d{1,9})\]\s")
_LIGHTGBM_VALUE = re.compile(rf"(\w{{1,40}})'s (?:{_LIGHTGBM_LOSSES}): ({_ANY})")
TRAX = rf"Step\s+\d{{1,12}}: (?:train|eval) +\w{{0,40}}Loss\s+\|\s+{_ANY}"
_TRAX_VALUES = re.compile(rf"Step\s+(\d{{1,12}}): (train|eval) +\w{{0,40}}Loss\s+\|\s+({_ANY})")
DL4J = rf"Score at iteration \d{{1,12}} is {_ANY}"
_DL4J_VALUES = re.compile(rf"Score at iteration (\d{{1,12}}) is ({_ANY})")
BASICSR = r"\[epoch:\s*\d{1,9}, iter:\s*[\d,]{1,15}, lr:\("
_BASICSR_STEP = re.compile(r"iter:\s*([\d,]{1,15}), lr:\(([\d.e+\-]{1,20}),")
_BASICSR_LOSS = re.compile(rf"\bl_(?:g_)?(?:total|pix): ({_ANY})")
_BASICSR_SECONDS = re.compile(r"time \(data\): (\d{1,6}\.\d{1,6}) \(")
# Epoch, iteration and the time so far, of trainNetwork.
MATLAB = r"\|\s+\d{1,9} \|\s+\d{1,12} \|\s+\d\d:\d\d:\d\d \|"
_MATLAB_ROW = re.compile(r"\|\s+\d{1,9} \|\s+(\d{1,12}) \|\s+\d\d:\d\d:\d\d \|([^\n]{1,200})\|\s*$")


def _reading(step: str | None, **texts: str | None) -> Reading | None:
    """Make a reading of texts, by field; None: none is a number."""
    values = {name: number(text) for name, text in texts.items() if text}
    numbers = {name: value for name, value in values.items() if value is not None}
    own = None if step is None else whole(float(step.replace(",", "")))
    return Reading(step=own, numbers=numbers) if numbers else None


def read_espnet_results(text: str) -> Reading | None:
    """Read the loss of the validation, whose step is the last one before it."""
    _, _, validation = text.partition("[valid]")
    match = _ESPNET_LOSS.search(validation) if "epoch results: [train]" in text else None
    return None if match is None else _reading(None, validation_loss=match[1])


def read_catboost(text: str) -> Reading | None:
    """Read a round: the metric of the training, and of what is held out."""
    match = _CATBOOST_VALUES.search(text)
    return None if match is None else _reading(match[1], loss=match[2], validation_loss=match[3])


def read_lightgbm(text: str) -> Reading | None:
    """Read a round: the first loss of the training, and the first of what is held out."""
    match = _LIGHTGBM_ROUND.search(text)
    found = _LIGHTGBM_VALUE.findall(text)
    losses = [value for name, value in found if name.startswith("train")]
    others = [value for name, value in found if not name.startswith("train")]
    if match is None or not losses:
        return None
    return _reading(match[1], loss=losses[0], validation_loss=others[0] if others else None)


def read_trax(text: str) -> Reading | None:
    """Read a loss of the training or the evaluation."""
    match = _TRAX_VALUES.search(text)
    if match is None:
        return None
    return _reading(match[1], **{"loss" if match[2] == "train" else "validation_loss": match[3]})


def read_dl4j(text: str) -> Reading | None:
    """Read a score, which is the loss that is minimised."""
    match = _DL4J_VALUES.search(text)
    return None if match is None else _reading(match[1], loss=match[2])


def read_basicsr(text: str) -> Reading | None:
    """Read the loss of pixels, or the total."""
    step, loss = _BASICSR_STEP.search(text), _BASICSR_LOSS.search(text)
    seconds = _BASICSR_SECONDS.search(text)
    if step is None or loss is None:
        return None
    taken = None if seconds is None else seconds[1]
    return _reading(step[1], loss=loss[1], lr=step[2], step_seconds_max=taken)


def read_matlab(text: str) -> Reading | None:
    """Read a row. Between the time and the learning rate are accuracies in percent, or errors, and then as many losses."""
    match = _MATLAB_ROW.search(text)
    cells = [] if match is None else [cell.strip() for cell in match[2].split("|")]
    num = len(cells) - 1
    if match is None or num < 2 or num % 2:
        return None
    losses = cells[num // 2 : num]
    validation = losses[1] if len(losses) > 1 else None
    return _reading(match[1], loss=losses[0], validation_loss=validation, lr=cells[-1])
