"""Sentences about a loss as name-value pairs: "Loss is V", "Loss after epoch N: V", and what else separates a name and its number.

Names and numbers are spelled as `name_value_pairs` reads them, before it reads a line.
"""

import re
from dataclasses import replace

from runner.collect.step_formats.name_value_pairs import Reading, number

_OF_LOSS = r"(?i:loss|cost|nll|xent|cross[_ \-]?entropy)"
# Words between a name and its value: "loss is 0.2", "total loss of 0.2".
COPULA = r"(?:is|was|of)"
_COUNTED = r"(?i:epochs?|steps?|iter(?:ation)?s?|(?:mini)?batch(?:es)?|updates?)"
# "loss at", "Training loss (for one batch) at"
_BETWEEN = r"\s+(?:\([a-z ]{1,40}\)\s+)?(?:after|at|for|in|on)\s+(?:the\s+)?"
# What a search for lines with numbers looks for besides "name: V"; a set engine can do it.
MARK = (
    rf"{_OF_LOSS}{_BETWEEN}(?:{_COUNTED}\s*[#:]?\s*\d|\d+\s+{_COUNTED}\s*[:=,])"
    r"|(?:\d|(?i:nan|inf)) (?i:(?:train(?:ing)?|avg|mean|val(?:idation)?) )?(?i:loss)[ \t]*(?:[,;|)\]]|$)"
    r'|"key": "\w*loss\w*", "value": [-+\dnNI]'
    r"|(?i:iteration|step|batch)(?: \d{1,12}(?:/\d{1,12})?)? took:? \d"
)
_AFTER_COUNT = re.compile(
    rf"(?P<name>(?:\b[A-Za-z]+ |\b(?:val|valid|train|eval|test)_)?{_OF_LOSS}){_BETWEEN}"
    rf"(?:(?P<counter>{_COUNTED})\s*[#:]?\s*(?P<count>\d[\d,]*)|(?P<first>\d[\d,]*)\s+(?P<unit>{_COUNTED}))"
    rf"(?:\s*(?:[:=,]|\b{COPULA}\b)\s*(?=[-+]?[\d.niNI])|\s+(?=[-+]?(?:\d*\.\d|(?i:nan|inf))))"
)
# "Train loss 100 0.634": the whole number counts.
_BEHIND_COUNT = re.compile(rf"\b({_OF_LOSS}) (\d{{1,12}}) (?=\d+\.\d+)")
# What may stand between a name and its number besides "name: V": marks around the name, a word in brackets, other signs, and what
# wraps the number: "**loss**: 2.5", "loss (avg): 2.5", "loss -> 2.5", "loss: np.float32(2.5)", "loss[2.5]". SPELLED is for a set
# engine, so what has more than one byte is no class of characters.
NAMED = r"(?i:loss|cost|nll|xent|cross[_ \-]?entropy|grad(?:ient)?s?[_ ./\-]?norm|gnorm)"
_CLOSED = r"[\])*`}|]{1,3}"
_QUALIFIED = r" ?[(\[{][A-Za-z _]{1,20}[)\]}]| (?:value|avg|mean)| (?:over|for|of|in) (?:the )?(?:epoch|batch)"
_SIGN = r"(?:->|=>|:=|::|:|=|~|→|↓|↑|≈|\.{2,}|-\s)"
_WRAPS = r"(?:(?:\w{1,12}\.)?(?:[Bb]?[Ff]loat\d{0,2}|[Aa]rray|[Tt]ensor|DeviceArray|[Ss]calar|device)\(\[?|[(\[{<*]{1,2})"
_NUMERIC = r"[-+]?(?:\d|\.\d|(?i:nan|inf))"
_DECIMAL = r"[-+]?(?:\d+\.\d*(?:[eE][-+]?\d+)?|(?i:nan|inf))"
SPELLED = (
    rf"{NAMED}[\w/.\-]{{0,24}}(?:{_CLOSED})?(?:{_QUALIFIED})?(?:\s*{_SIGN}\s*{_WRAPS}?{_NUMERIC}|[(\[ ][(\[]?{_DECIMAL}[)\]])"
    rf"|{NAMED}[\w/.\-]{{0,24}}(?:{_CLOSED}(?:{_QUALIFIED})?|{_QUALIFIED})\s+{_NUMERIC}"
    rf"|{NAMED}[\w/.\-]{{0,24}}\s*[:=]\s*(?:<tf\.Tensor: |Tensor\(shape=)"
)
_ANY_SPELLING = re.compile(
    rf"(?P<name>{NAMED}(?:[\w/\-]|\.(?!\.)){{0,24}})(?P<closed>{_CLOSED})?(?P<qualified>{_QUALIFIED})?"
    rf"(?:\s*(?P<sign>{_SIGN})\s*(?P<wrapped>{_WRAPS})?(?={_NUMERIC})|\s?(?P<bracket>[(\[])(?={_DECIMAL}[)\]])|\s+(?={_NUMERIC}))"
)
# TensorFlow and Paddle print a tensor with its properties before its value.
_TENSOR = re.compile(
    r"<tf\.Tensor: .{0,120}?numpy=|Tensor\(shape=.{0,160}?, ?\[{1,3}(?=[-+\dnNiI])"
)
# "2.345 loss, 0.5 acc"
_NUMBER_FIRST = re.compile(
    r"(?<![\w.=])(?<![A-Za-z]:)(?<![A-Za-z][:=] )(?<![A-Za-z] )([-+]?(?:\d+\.\d+(?:[eE][-+]?\d+)?|(?i:nan|inf))) "
    r"(?i:((?:(?:train(?:ing)?|avg|mean|val(?:idation)?) )?loss))(?=\s*(?:[,;|)\]]|$))"
)
# Of MLPerf: {"key": "train_loss", "value": 2.3, "metadata": {"step": 10}}
_KEY_AND_VALUE = re.compile(r'"key": ("\w+"), "value": ')
# As the C library of Windows writes numbers that are none, and as others do.
_NO_NUMBER = re.compile(r"1\.#(QNAN|SNAN|IND|INF)\d*|(?<=[Nn][Aa][Nn])\((?:ind|snan|0x[0-9a-f]+)\)")
_TYPOGRAPHIC = {
    **dict.fromkeys(map(ord, "‘’‚‛"), "'"),
    **dict.fromkeys(map(ord, "“”„"), '"'),
    # Of full width.
    ord("："): ": ",
    ord("，"): ", ",
    ord("＝"): "=",
    ord("（"): " (",
    ord("）"): ") ",
}
# "At iteration 100, the loss is 4.5", "After 100 steps: loss=4.5", "100 iterations: train loss 4.5", "Completed 20 / 500 steps (".
_AT_COUNT = re.compile(r"(?:^|(?<=[\]:\-] ))At (?=(?:iteration|step|epoch|update)\b)")
_COUNT_AHEAD = re.compile(
    r"(?:^|(?<=[\]:\-|] )|(?<=[A-Z] )|\b[Aa]fter |\bCompleted )(\d[\d,]{0,14})(?: ?/ ?\d[\d,]{0,14})? "
    r"(?:steps|iterations|iters|updates)(?=[:,]| \()"
)
# Names of ours in Chinese, Japanese and Korean text: "平均loss=4.5", "验证loss: 4.5", "loss为4.5".
_SCRIPT = "[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]"
_LETTERS_BESIDE = re.compile(rf"(?<=[A-Za-z])为(?=\s?\d)|(?<={_SCRIPT})(?=[A-Za-z])")
_HELD_OUT = re.compile(r"(?:验证|驗證|検証|검증)集?\s?(?=loss)")
# A loss whose comma is that of decimals: groups of thousands have three digits, and no zero ahead.
_DECIMAL_COMMA = re.compile(
    r"(?i)loss[\w/]{0,12}\s{0,3}[:=]?\s{0,3}[-+]?(?:\d{1,6},(?:\d{1,2}|\d{4,16})|0,\d{1,16})(?![\d.,]\d|\d)"
)
_COMMA = re.compile(r"(?<=\d),(?=\d)")
# "step[100] loss[4.5]"
_STEP_IN_BRACKETS = re.compile(r"\b([Ss]tep|[Ii]ter)\[(\d{1,12})\](?=[ :,])")
# "Train: loss=4.5 acc=0.5 | Val: loss=4.75 acc=0.4"
_PASS = re.compile(r"(?i)\b(train|val|valid|validation|eval|test|dev) ?: (?=loss ?[:= ])")
_BOTH_PASSES = re.compile(
    r"(?i)\btrain ?: loss ?[:= ].{1,200}\b(?:val|valid|validation|eval|test|dev) ?: loss ?[:= ]"
)
# Exponents of Fortran and Julia: "0.48D+01", "4.8f0".
_OTHER_EXPONENT = re.compile(
    r"(?<=[ =:])([-+]?\d{1,9}\.\d{1,17})(?:[dD]|f(?=-?\d{1,2}\b))([-+]?\d{1,3})(?!\w)"
)
# Updates, of Marian: "Ep. 1 : Up. 500 : Sen. 10,000 : Cost 8.50".
_UPDATES = re.compile(r"\bUp\. (?=\d)")
# Seconds of one step, behind its loss or named: "loss=0.4 (107.97s)", "(0.5 sec/step)".
_SECONDS = re.compile(
    r"(?<![\w.,:])(\d{1,9}(?:\.\d{1,9})?) ?(ms|s|sec|seconds)/(?:step|batch|iter(?:ation)?)(?!\w)"
)
# By a name that only counts with its unit: "dt: 412.00ms", "avg_batch_cost: 0.41200 s", "per-step time 0.4s".
_NAMED_SECONDS = re.compile(
    r"(?<![\w.\-])(?:iter_dt|dt|(?:avg_)?batch_cost|per-step time|time/batch)\s?[:=]?\s?(\d{1,9}(?:\.\d{1,9})?) ?(ms|s)(?!\w)"
)
# "52310 tok/s", "1,024.5 words/s", "52.3k tokens per second".
_TOKEN_RATE = re.compile(
    r"(?<![\w.,])(\d[\d,]{0,12}(?:\.\d{1,12})?) ?([kKM])? ?(?:tok|tokens?|words?)(?:/| per )s(?:ec(?:ond)?)?(?![\w/])"
)
# Of Keras: the seconds of a whole epoch, where its bar is not drawn or at its end: "- 1794s - loss: 5.2", "72s - loss: 2.6".
_EPOCH_SECONDS = re.compile(r"(?:^|- )(\d{1,7})s(?: -)?(?: \d{1,6}[mu]?s/\w{1,8})? - loss: ")
# Of a step, and of its wait for data: "Time 0.154 (8.010)  Data 0.001 (7.720)", "time: 2.89  data_time: 0.004".
_DATA_SECONDS = re.compile(
    r"(?<![A-Za-z_])[Dd]ata(?:[_ ][Tt]ime)?['\"]?(?:\s*[:=]\s*|\s+)(\d{1,6}\.\d{1,6})(?![\d.:])"
)
_TIME_SECONDS = re.compile(
    r"(?<![A-Za-z_])(?<![Dd]ata )(?:(?:[Bb]atch|[Ii]ter)[_ ])?[Tt]ime['\"]?(?:\s*[:=]\s*|\s+)(\d{1,6}\.\d{1,6})(?![\d.:])"
)
# "Iteration took 32.7 s", "step 12 took 350 ms".
_TOOK = re.compile(
    r"\b(?:[Ii]teration|[Ss]tep|[Bb]atch)(?: (\d{1,12})(?:/\d{1,12})?)? took:? (\d+(?:\.\d+)?) ?(ms|s|sec|secs|seconds)\b"
)
# "Speed: 356.23 samples/sec", "245.1 img/sec per GPU", "800 examples per second".
_SAMPLES = (
    r"(?:samples?|images?|imgs?|examples?|sequences?|seqs?|sentences?|utterances?|clips?|frames?)"
)
RATE = rf"\d[\d,]{{0,12}}(?:\.\d{{1,12}})? ?{_SAMPLES} ?(?:/|per) ?s(?:ec(?:ond)?)?\b"
_RATE = re.compile(rf"(?<![\w.,])(?={RATE})([\d,.]+)")
# A bar counts samples as it likes, of data sets and of evaluations, too.
_BAR_OF_SAMPLES = re.compile(r"\d\d:\d\d<|\[\d\d:\d\d|\d it\b|it/s")
_SECONDS_ALONE = re.compile(
    r"(?i:loss)[ :=]{1,3}[-+]?\d[\d.eE+\-]* \((\d+\.\d+) ?(s|sec|seconds)\)"
)
# A validation loss beside a training loss, without the word, and both with as many decimals: "loss 2.8520 | val 4.0697".
_LOSS_ALONE = re.compile(r"(?i)loss(?: train)?(?:\s*[:=]\s*|\s+)\d+\.(\d{3,16})(?![\d.])")
_VALIDATION_ALONE = re.compile(
    r"(?<![\w/.\-])[Vv]al(?:id(?:ation)?)?(?:\s*[:=]\s*|\s+)(\d{1,9}\.(\d{3,16}))(?![\w.]|\s?%)"
)
# How far the first one is from the training loss beside it, at most. Chosen: a model has not learned much by heart by then, and
# what is beyond 1 and so near is no accuracy, neither of 1 nor of 100.
NEAR_RATIO = 2.0


def as_pairs(text: str) -> str:
    """Spell a line so that each number stands behind its name."""
    if not text.isascii():
        text = _LETTERS_BESIDE.sub(" ", _HELD_OUT.sub("validation ", text.translate(_TYPOGRAPHIC)))
    if "," in text and _DECIMAL_COMMA.search(text):
        text = _COMMA.sub(".", text)
    if "1.#" in text or "(" in text:
        text = _NO_NUMBER.sub(_plain_word, text)
    if _AFTER_COUNT.search(text):
        text = _AFTER_COUNT.sub(_count_first, text)
    if "Up. " in text:
        text = _UPDATES.sub("update ", text)
    if "epoch:train:" in text:
        text = text.replace(" iter_time=", " data_time=").replace(" train_time=", " step_time=")
    if _OTHER_EXPONENT.search(text):
        text = _OTHER_EXPONENT.sub(r"\1e\2", text)
    if "[" in text:
        text = _STEP_IN_BRACKETS.sub(r"\1 \2 ", text)
    if _BOTH_PASSES.search(text):
        text = _PASS.sub(r"\1_", text)
    text = _COUNT_AHEAD.sub(r" step \1: ", _AT_COUNT.sub("", text))
    if '"key": ' in text:
        text = _KEY_AND_VALUE.sub(r"\1: ", text)
    if "ensor" in text:
        text = _TENSOR.sub("", text)
    text = _ANY_SPELLING.sub(_plainly, text)
    text = _NUMBER_FIRST.sub(r"\2: \1", text)
    return _BEHIND_COUNT.sub(r"step \2 \1: ", text)


def _plain_word(match: re.Match[str]) -> str:
    if match[1] is None:
        return ""
    return "inf" if match[1] == "INF" else "nan"


def _plainly(match: re.Match[str]) -> str:
    """Return "name: " for a spelling that is not plain; quotes around a name, and classes such as HuberLoss(1.0), stay."""
    if match["bracket"] and match.string[: match.start()][-1:].isalpha():
        return match[0]
    is_plain = match["sign"] in (None, ":", "=") and not (
        match["closed"] or match["qualified"] or match["wrapped"] or match["bracket"]
    )
    return match[0] if is_plain else f"{match['name']}: "


def _count_first(match: re.Match[str]) -> str:
    counter, count = match["counter"] or match["unit"], match["count"] or match["first"]
    singular = counter[:-2] if counter.endswith("ches") else counter.rstrip("s")
    return f"{singular} {count} {match['name'].strip()}: "


def step_seconds(text: str) -> float | None:
    """Return the seconds of a step, or of an epoch whose line is its step: with their unit, or beside those of a wait for data."""
    if (epoch := _EPOCH_SECONDS.search(text)) is not None:
        return float(epoch[1]) or None
    match = _SECONDS.search(text) if "/" in text else None
    match = match or _NAMED_SECONDS.search(text)
    if match is not None:
        return number(match[1], 1e-3 if match[2] == "ms" else 1.0)
    waiting = waiting_seconds(text)
    return None if waiting is None else waiting[0]


def sample_rate(text: str) -> float | None:
    """Return the samples per second that a line names behind their number; None: it names none, or is a bar."""
    match = _RATE.search(text)
    return None if match is None or _BAR_OF_SAMPLES.search(text) else number(match[1])


def token_rate(text: str) -> float | None:
    """Return the tokens per second that a line names behind their number; None: it names none."""
    match = _TOKEN_RATE.search(text) if "tok" in text or "word" in text else None
    if match is None or _BAR_OF_SAMPLES.search(text):
        return None
    return number(match[1] + (match[2] or ""))


def taken_seconds(text: str) -> tuple[int | None, float] | None:
    """Return the step, if it is named, and the seconds that a line says it took; None: it does not."""
    match = _TOOK.search(text) if " took" in text else None
    if match is None:
        return None
    seconds = number(match[2], 1e-3 if match[3] == "ms" else 1.0)
    return None if seconds is None else (int(match[1]) if match[1] else None, seconds)


def waiting_seconds(text: str) -> tuple[float, float] | None:
    """Return the seconds of a step, and how many of them it waited for data; None: the line does not have both."""
    if "ata" not in text or "ime" not in text:
        return None
    waited, taken = _DATA_SECONDS.search(text), _TIME_SECONDS.search(text)
    if waited is None or taken is None:
        return None
    seconds, waiting = float(taken[1]), float(waited[1])
    return (seconds, waiting) if waiting <= seconds else None


class LoneSeconds:
    """Reads seconds in brackets behind a loss, of one log: those of the step once they fell, else of the run so far."""

    def __init__(self) -> None:
        self._last = 0.0
        self._are_of_steps = False

    def added(self, reading: Reading, text: str) -> Reading:
        """Return the reading of a line with the seconds of its step, where they are known."""
        if ")" not in text:
            return reading
        match = _SECONDS_ALONE.search(text)
        seconds = None if match is None else number(match[1])
        if seconds is None or "step_seconds_max" in reading.numbers:
            return reading
        self._are_of_steps |= seconds < self._last
        self._last = seconds
        if not self._are_of_steps:
            return reading
        return replace(reading, numbers={**reading.numbers, "step_seconds_max": seconds})


class LoneValidation:
    """Reads a number that is only called "val", of one log: a validation loss, if the first one is near the training loss."""

    def __init__(self) -> None:
        self._is_loss: bool | None = None

    def added(self, reading: Reading, text: str) -> Reading:
        """Return the reading of a line with its validation loss, where it has one."""
        loss = reading.numbers.get("loss")
        if (
            self._is_loss is False
            or "al" not in text
            or loss is None
            or "validation_loss" in reading.numbers
        ):
            return reading
        match, beside = _VALIDATION_ALONE.search(text), _LOSS_ALONE.search(text)
        if match is None or beside is None or len(match[2]) != len(beside[1]):
            return reading
        validation = float(match[1])
        if self._is_loss is None and validation > 1:
            self._is_loss = loss / NEAR_RATIO <= validation <= loss * NEAR_RATIO
        if not self._is_loss:
            return reading
        return replace(reading, numbers={**reading.numbers, "validation_loss": validation})
