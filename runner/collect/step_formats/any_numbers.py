"""Numbers of trainers without a row of their own: any line that names a loss, a gradient norm or a loss scale with a number.

The step is the one that the line names; else the place in its epoch (`epoch_steps`), from which `MetricLines` makes a step; else
the line has none, and a bar beside it or the order of the lines gives one.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from runner.collect.step_formats import sentences
from runner.collect.step_formats.epoch_steps import (
    Place,
    is_of_validation,
    is_validation_pass,
    place_in,
)
from runner.collect.step_formats.name_value_pairs import (
    MAX_NAMES,
    MEANINGS,
    Reading,
    is_measured_beside,
    normal,
    number,
    pairs,
    quoted,
    whole,
)

# Straight and typographic ones; a set engine knows bytes, so these are no class of characters.
_QUOTES = r"""(?:['"]|’|”)?"""
_VALUE = r"""(?:(?:tf\.)?[Tt]ensor\(|\[|\()?(?:['"]|‘|“)?[-+]?(?:\d|\.\d|(?i:nan|inf))"""
_NAMED = sentences.NAMED
# Of terminals, in a line that is not yet without them.
_COLOURS = r"(?:\x1b\[[\d;]{0,20}m)*"
# Every line that may have numbers of ours. Parts of a name may follow: loss_train, Loss/train.
MARK = (
    # One word may follow the name: "Loss Total : 1.5".
    rf"{_NAMED}[\w/.\-]{{0,24}}{_QUOTES}{_COLOURS}"
    rf"(?:(?: [A-Za-z]{{1,12}})?\s*(?:[:=]|：|＝){_COLOURS}\s*|\s+(?:{sentences.COPULA}\s+)?){_COLOURS}{_VALUE}"
    rf"|{sentences.MARK}|{sentences.SPELLED}"
    # The number is a part of the name: "loss_-4.06". Of "loss_1" it numbers one of several losses.
    rf"|{_NAMED}_(?:[-+]?\d+\.\d|(?i:nan|inf)\b)|{sentences.RATE}"
    rf"|loss为\s?\d|(?:(?i:mse)|L_total)\s?[:= ]\s?-?(?:\d|(?i:nan|inf))"
)
_JOINED = re.compile(
    r"(?<=[A-Za-z])_(?=(?:[-+]?\d+\.\d+(?:[eE][-+]?\d+)?|[-+]?(?:[Nn]a[Nn]|[Ii]nf))(?:[\s,;|)\]]|$))"
)
# Where in a program a line comes from, as loggers write it: "ctc-loss.cc:182".
_SOURCE = re.compile(r"[\w\-]{1,60}\.(?:py|cc|cpp|cxx|cu|h|hpp|go|rs|jl|lua|[RcC]):\d{1,6}\b")
# Sentences about a loss, which report no step.
_SENTENCE = re.compile(
    r"(?i)\b(?:load(?:ed|ing)|sav(?:ed|ing)|checkpoint|resum\w+|restor\w+|best|improved?|expected|target|threshold|config|"
    r"default|arguments?|patience|error|exception|traceback|assert\w*|quantiz\w+|layers?|trials?|candidates?|packets?)\b"
)
# Of a command: "python train.py --loss 1.0 --steps 100".
_OPTION = re.compile(r"[\s\[(]--[a-z][\w\-]{1,40}(?:[ =]|$)")
# Of money, and of plans of a database.
_OTHER_COST = re.compile(
    r"(?i)\bcost\W{0,4}\d[\d.,]{0,20}(?:\.\.\d| ?(?:usd|eur|gbp|cents|\$|€)(?!\w)| rows=)|\bcost\W{0,4}[$€£]"
)
# Names that mean a loss beside a step or an epoch, where no other does; but not of codecs of pictures.
_ERRORS, _NO_ERROR = ("mse", "rmse"), "psnr"
_QUOTED_LOSS = re.compile(r"['\"][^'\"]{0,60}(?:loss|norm)[^'\"]{0,20}['\"]\s*:", re.IGNORECASE)
# "(step 1,000)" of fairseq2, "[70] loss=" of CLU's writers.
# "[100]	training's binary_logloss: 0.5" of LightGBM.
# "step_100: loss 0.5".
_STEP_ALONE = re.compile(
    r"\(step ([\d,]{1,15})\)|\[(\d{1,12})\](?: \w+=|\s+training's | \| )|\b[Ss]tep(?:_| #)(\d{1,12})\b"
)
# A counter in brackets of its own is none of an epoch: "[Iteration 45457][Wall Clock 197331.8s]".
_BRACKETED_STEP = re.compile(r"\[[Ii]ter(?:ation)? \d{1,12}\]")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COPULA = re.compile(rf"_{sentences.COPULA}$")
_WORDS = re.compile(r"[a-z]+|\d+")

_LOSSES = ("loss", "losses", "cost", "nll", "xent", "crossentropy", "entropy", "objective")
_PLAIN_WORDS = (
    *("train", "training", "trn", "total", "avg", "average", "mean", "running", "reduced", "lm"),
    *("step", "epoch", "batch", "current", "smooth", "smoothed", "global", "iter", "mini", "cross"),
)
_HELD_OUT = ("val", "valid", "validation", "eval", "evaluation", "test", "dev")
_NO_METRIC = (
    *(
        "min",
        "max",
        "best",
        "lowest",
        "prev",
        "previous",
        "delta",
        "diff",
        "weight",
        "weights",
        "coef",
    ),
    *(
        "lambda",
        "fn",
        "function",
        "time",
        "ratio",
        "type",
        "target",
        "threshold",
        "patience",
        "window",
    ),
    *(
        "initial",
        "init",
        "clip",
        "param",
        "params",
        "limit",
        "coeff",
        "alpha",
        "beta",
        "gamma",
        "factor",
    ),
    *("ppl", "acc", "accuracy", "steps", "power", "hysteresis", "interval", "every", "std", "var"),
)
# Places among the names of a field: after those that are known by name. Beyond MAX_EXACT, a name has words besides those of its
# field: it is one of several.
MAX_EXACT = _PART = 100
_COUNTERS = (
    "step",
    "iter",
    "iteration",
    "steps",
    "it",
    "batch",
    "update",
    "updates",
    "upd",
    "itr",
    "minibatch",
)
_WEAK_PLACE = 1000
# What has these units is no step and no loss: "step=15s", "packet loss 20%".
_WRONG_UNITS: Mapping[str, tuple[str, ...]] = {
    "step": ("s", "%"),
    "loss": ("%",),
    "validation_loss": ("%",),
}
_NONE: tuple[str, ...] = ()
_DIGITS = re.compile(r"\d+")
_GLOBAL = (
    "global_step",
    "global_steps",
    "num_updates",
    "total_steps",
    "training_step",
    "train_step",
)
_OF_OTHERS = (
    *("val", "valid", "validate", "validation", "eval", "evaluation", "test", "micro", "max"),
    *("total", "warmup", "per", "at", "from", "save", "checkpoint", "decay", "skip"),
    "accumulation",
)


def read_any(text: str) -> Reading | None:
    """Read the numbers of a line; None: it has none of ours."""
    if "Namespace(" in text or ("--" in text and _OPTION.search(text)):
        # The arguments of a program, as `argparse` prints them, or as they are given.
        return None
    if "ost" in text and _OTHER_COST.search(text):
        return None
    if ":" in text:
        text = _SOURCE.sub("", text)
    text = sentences.as_pairs(_JOINED.sub("=", text))
    found = quoted(text) if _QUOTED_LOSS.search(text) else pairs(text)
    best, counter_name = _numbers(found)
    numbers = {name: value for name, (_, value, _) in best.items()}
    counter = numbers.pop("step", None)
    rate = sentences.sample_rate(text)
    if rate is not None:
        numbers.setdefault("samples_per_second", rate)
    if not any(name in numbers for name in ("loss", "validation_loss", "grad_norm", "loss_scale")):
        if rate is not None:
            return _of_rate(text, counter, rate)
        taken = sentences.taken_seconds(text)
        return (
            None
            if taken is None
            else Reading(step=taken[0], numbers={"step_seconds_max": taken[1]})
        )
    tokens = sentences.token_rate(text)
    if tokens is not None:
        numbers.setdefault("tokens_per_second", tokens)
    seconds = sentences.step_seconds(text)
    if seconds is not None:
        numbers.setdefault("step_seconds_max", seconds)
    is_validation = is_validation_pass(text)
    if is_validation and "validation_loss" not in numbers:
        if "loss" not in numbers:
            return None
        return Reading(numbers={"validation_loss": numbers["loss"]})
    if "loss" in numbers and "validation_loss" not in numbers and is_of_validation(text):
        numbers = {"validation_loss": numbers["loss"]}
    alone = _STEP_ALONE.search(text)
    if alone is not None and counter is None:
        counter = float((alone[1] or alone[2] or alone[3]).replace(",", ""))
        counter_name = "global_step"
    step, place = whole(counter), None
    if counter_name not in _GLOBAL and not _BRACKETED_STEP.search(text):
        # "valid accuracy: 0.9" behind both losses makes no line of a validation.
        place = place_in(text, is_training={"loss", "validation_loss"} <= numbers.keys())
        step, place = _settled(step, place)
    if step is None and place is None and (_SENTENCE.search(text) or _is_refused(counter, numbers)):
        return None
    loss_place, _, loss_name = best.get("loss", (0, 0.0, ""))
    if loss_place == _WEAK_PLACE:
        # Errors at steps into the future are none of a training.
        is_of_epoch = place is not None and place.epoch is not None
        is_named = loss_name.startswith("tr") and (step, place) != (None, None)
        if _NO_ERROR in text or not (is_of_epoch or is_named):
            return None
    return Reading(
        step=step, place=place, numbers=numbers, loss_name=loss_name, loss_place=loss_place
    )


def _of_rate(text: str, counter: float | None, rate: float) -> Reading | None:
    """Return the reading of a line whose only number of ours is how many samples a second it makes."""
    if is_validation_pass(text) or is_of_validation(text):
        return None
    step, place = _settled(whole(counter), place_in(text))
    return Reading(step=step, place=place, numbers={"samples_per_second": rate})


def _settled(step: int | None, place: Place | None) -> tuple[int | None, Place | None]:
    """Prefer a step that is named; but a step within an epoch is a place."""
    if place is None or (step is not None and place.epoch is None):
        return step, None
    if step is not None and place.index is None and place.total is None:
        return None, Place(
            index=step, epoch=place.epoch, num_epochs=place.num_epochs, base=place.base
        )
    return None, place


def _is_refused(counter: float | None, numbers: dict[str, float]) -> bool:
    """Whether the line names a step that can be none, and holds nothing that is wrong by itself."""
    return counter is not None and "loss" not in numbers


def _numbers(
    found: Iterator[tuple[str, str]],
) -> tuple[dict[str, tuple[int, float, str]], str]:
    """Return the place, value and name, without digits, of each field, and the name of the counter of steps."""
    best: dict[str, tuple[int, float, str]] = {}
    counter_name = ""
    for key, value in found:
        name = _COPULA.sub("", normal(key))
        if name not in MEANINGS and (split := _CAMEL.sub("_", key)) != key:
            # "trainLossPerBatch", "TestLoss"
            name = normal(split)
        meaning = meaning_of(name)
        if meaning is None:
            meaning = _meaning_of_error(name)
        if meaning is None or value.endswith(_WRONG_UNITS.get(meaning[0], _NONE)):
            continue
        field_name, factor, place = meaning
        read = number(value, factor)
        before = best.get(field_name, (1 << 30, 0.0, ""))
        if read is None or (place >= before[0] and not is_measured_beside(name, before[1])):
            continue
        best[field_name] = (place, read, _DIGITS.sub("", name))
        if field_name == "step":
            counter_name = name
    if best.get("mfu_ratio", (0, 0.0))[1] < 0.0:
        del best["mfu_ratio"]
    return best, counter_name


@lru_cache(MAX_NAMES)
def _meaning_of_error(name: str) -> tuple[str, float, int] | None:
    """Return what the name of a mean error means, as `meaning_of`; None: it is none."""
    if name == "l_total":
        return ("loss", 1.0, _WEAK_PLACE - 1)
    words = _WORDS.findall(name)
    others = [word for word in words if word not in _PLAIN_WORDS]
    if not others or others[-1] not in _ERRORS or words[-1] not in _ERRORS:
        return None
    if others[:-1] and not (len(others) == 2 and others[0] in _HELD_OUT):
        return None
    return ("validation_loss" if len(others) > 1 else "loss", 1.0, _WEAK_PLACE)


@lru_cache(MAX_NAMES)
def meaning_of(name: str) -> tuple[str, float, int] | None:
    """Return the field that a name means, the factor to its unit, and its place among the names of that field."""
    known = MEANINGS.get(name)
    if known is not None:
        return known
    words = _WORDS.findall(name)
    if not words or any(word in _NO_METRIC for word in words):
        return None
    if words[-1] in _COUNTERS:
        is_own = not any(word in _OF_OTHERS for word in words)
        return ("step", 1.0, _PART + (words[-1] in ("batch", "it"))) if is_own else None
    if "scale" in words or "scaler" in words:
        is_scale = any(word in ("loss", "grad", "amp", "scaler") for word in words)
        return ("loss_scale", 1.0, _PART) if is_scale else None
    if "norm" in words or words[-1] == "gnorm":
        is_gradient = len(words) == 1 or any(word.startswith(("grad", "gnorm")) for word in words)
        return ("grad_norm", 1.0, _PART) if is_gradient else None
    if "lr" in words or "learning" in words:
        return ("lr", 1.0, _PART)
    if any(word in _LOSSES or word.endswith("loss") for word in words):
        return _loss(words)
    return None


def _loss(words: list[str]) -> tuple[str, float, int]:
    if any(word in _HELD_OUT for word in words):
        return ("validation_loss", 1.0, _PART)
    num_others = sum(word not in _PLAIN_WORDS and word not in _LOSSES for word in words)
    return ("loss", 1.0, _PART + min(num_others, 9) + 10 * ("loss" not in words))
