"""Steps of counters that restart with every epoch: where a line is within its epoch, and the global step of that.

Trainers print "[i/N]", "Epoch: [2][ 10/5005]", a bar, or "Epoch 3/10" alone. With the epoch and the steps of one epoch, a counter
that restarts is a global step. Epochs count from 0 in some trainers and from 1 in others; see `Place.base`.
"""

import re
from dataclasses import dataclass, replace

# Chosen: no run has more steps, samples included.
MAX_STEP = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a line is: step `index` of `total` in `epoch` of `num_epochs`. None: the line does not say.

    `base`: the number of the first epoch, where the form of the line tells.
    """

    index: int | None = None
    total: int | None = None
    epoch: int | None = None
    num_epochs: int | None = None
    base: int | None = None


_INT = r"\s*(\d{1,12})"
# "Epoch: [0][ 10/5005]", "Epoch(train) [1][10/391]", "[0/5][50/1583]", "Epoch: [0]  [  10/5004]".
_TWO_BRACKETS = re.compile(rf"\[{_INT}(?:\s*/{_INT})?\s*\]\s*\[{_INT}\s*/{_INT}\b")
# "[1,  2000] loss: 2.2"
_COMMA = re.compile(rf"\[{_INT},{_INT}\]\s+(?=\w* ?[Ll]oss)")
# "TRAIN Batch 0/100 loss 4.5" of WeNet: the epoch, and the batch within it.
_WENET = re.compile(rf"\bTRAIN (?:\|[^|]{{0,40}}\| ?)?Batch{_INT}/{_INT} loss\b")
# "3epoch:train:101-200batch:" of ESPnet: the first and the last batch.
_ESPNET = re.compile(r"\b(\d{1,6})epoch:train:\d{1,12}-(\d{1,12})batch:")
# "Epoch[ 1 of 10]-Minibatch[ 101- 200, 2.1%]" and "Minibatch[ 101- 200]" of CNTK: the first and the last batch.
_MINIBATCHES = re.compile(
    rf"(?:\bEpoch\[{_INT}(?: of{_INT})?\]-)?\bMinibatch\[{_INT}\s?-{_INT}[\],]"
)
# "Train: 0 [ 100/1251 (  8%)]", of timm.
_TIMM = re.compile(rf"\bTrain:{_INT} \[{_INT}/{_INT}\b")
_EPOCH = re.compile(
    rf"(?<![A-Za-z])(?:[Ee]poch|EPOCH|[Ee]p)(?:\([a-z]+\)|s)?['\"]?\s*[:#=]?\s*[\[(]?{_INT}(?!\.?\d|,\d|\s*%)"
    rf"(?:\s*(?:/|of){_INT})?\s*[\])]?(\s*:[^|]{{0,8}}\d+%\|)?"
)
_BAR = re.compile(rf"\|{_INT}/(?:{_INT}|\?) \[\d")
_BRACKET = re.compile(rf"(\w*)[ :]*[\[(]{_INT}\s*/{_INT}\b(?![./\-:])")
_KEYED = re.compile(
    rf"(?<![A-Za-z])(?:[Ss]teps?|[Ii]ter(?:ation)?|[Bb]atch(?:es)?|[Uu]pdate)\s*[:#=]?\s*[\[(]?{_INT}\s*(?:/|of){_INT}"
)
# "120/1875 ━━━", "120/1875 [====>...]", "1875/1875 - 4s".
_LEADING = re.compile(rf"(?:^|[\]|]){_INT}/{_INT}\s+(?=[\x1b━╸\[]|- )")
# "Epoch 0/4 ━━━━━━ 12/100 0:00:01", of Rich.
_AFTER_BAR = re.compile(rf"━\S*{_INT}/{_INT} ")
# Beside an epoch, without a name or behind one of the training's: "ep 2: 52/60 loss", "train: 52/60 [ep 2]", "| 52/60 |"; behind
# another name it may count anything, and with a percentage behind it what was right.
_COUNT = rf"{_INT}\s*/{_INT}(?![\w./:%\-])(?!\s*\(\s*\d)"
_LONE = re.compile(rf"(?:^|[|\],;]|(?<![A-Za-z])[Tt]rain(?:ing)?)\s*:?{_COUNT}")
_BEHIND_EPOCH = re.compile(rf"\s*[:|,\-]?{_COUNT}")
# At the start of a message: "100/21150 (epoch 0.5), train_loss = 4.5", "100/15000 batch done in 0.1s", "20/500, train_loss: 2.5".
_AHEAD = re.compile(rf"(?:^|\] |(?<=[A-Z])[: ] ?|- ){_INT}/{_INT}(?=, \w*loss| \(epoch \d| batch)")
# A rank of the run in the prefix of a line, of icefall: "(0/8) Epoch 1, batch 50, loss[".
_RANK = re.compile(r"\(\d{1,6}/\d{1,6}\) (?=Epoch \d)")
# A line of its own, below which lines count the steps of that epoch: "Epoch 1/5" of Keras.
_ANNOUNCED_EPOCH = (
    r"\b(?:[Ee]poch|EPOCH)[ :#]{0,3}\[?\d{1,9}(?: ?(?:/|of) ?\d{1,9})?\]?[:.]?[ \t\r]*$"
)
# So is a step: "Learning iteration 20/1500", "Metrics values at step 100:", "--> STEP: 7/90 -- GLOBAL_STEP: 97".
_STEP_NAME = r"(?:[Ss]tep|STEP|[Ii]ter(?:ation)?|ITERATION)"
_ANNOUNCED_STEP = (
    rf"{_STEP_NAME}[ :=#]{{1,4}}\d{{1,12}}(?: ?/ ?\d{{1,12}})?[ :=*\-]{{0,60}}[ \t\r]*$"
)
ANNOUNCED = f"{_ANNOUNCED_EPOCH}|{_ANNOUNCED_STEP}"
_LONE_STEP = re.compile(
    r"(?:^|[\]│┌>*=#|\-]|\w:)\s*(?:(?:Learning|Training|Train|Metrics values at) )?(?:[Gg]lobal[ _]|GLOBAL_)?"
    rf"{_STEP_NAME}[ :=#]{{1,4}}(\d{{1,12}})(?: ?/ ?\d{{1,12}})?[ :=*\-]{{0,60}}[ \t\r]*$"
)
_TOTAL = re.compile(rf"\bSteps: {_INT}\b")
_NOT_STEPS = ("fold", "node", "gpu", "rank", "worker", "shard", "run", "trial", "seed", "epoch")
# Lines of these passes do not count steps of the training.
_VALIDATION = re.compile(
    r"(?:^|[\s\]|])(?:[Tt]est(?:ing)?|[Vv]al(?:id(?:at(?:ion|ing))?)?|[Ee]val(?:uat(?:ion|ing))?)\b(?! ?[Ll]oss)"
    r"[ \w]{0,12}(?:[:\[|]|\(\d)|\((?:val|test|eval)\)|(?:^|[\s\]|])(?:Validating|Evaluating|Testing),? "
    # WeNet's and flair's.
    r"|\bCV (?:\|[^|]{0,40}\| ?)?Batch \d|(?:^|\s)DEV ?: loss\b"
)

# The loss has a name of its own: the other words belong to another number, "Validation Loss: 1.38, Validation Accuracy: 48 %".
_NAMED_LOSS = re.compile(
    r"(?i)(?<![a-z])(?:val(?:id(?:ation)?)?|eval(?:uation)?|test|train(?:ing)?)[ _]loss ?[:=]"
)


def is_validation_pass(text: str) -> bool:
    """Whether a line says that it is of a validation. One that names its validation loss needs no such word."""
    return _VALIDATION.search(text) is not None and _NAMED_LOSS.search(text) is None


# What names the pass that a line is of, if no number belongs to it: "Epoch 13 Validation - Loss: 2.5", "[val] epoch 3 loss 2.5".
# Not "test": runs and loggers have that name.
_PASS = re.compile(r"(?i)(?<![\w/.\-])(?:validation|valid|val|eval(?:uation|uating)?)(?![\w/])")
_TRAINING = re.compile(r"(?i)(?<![a-z])train(?:ing)?(?![a-z])")
# Behind it, the rest of the name of a metric and its number, or a counter.
_METRIC = re.compile(r"(?P<words>(?: +[A-Za-z]\w*){0,2}) *[:=]? *[-+]?(?:[\d.]|(?i:nan|inf))")
_COUNTERS = ("epoch", "step", "iter", "iteration", "batch", "ep")


def is_of_validation(text: str) -> bool:
    """Whether a line with a plain loss is of a validation: it says so, and of no training."""
    if _TRAINING.search(text):
        return False
    for match in _PASS.finditer(text):
        metric = _METRIC.match(text, match.end())
        if metric is None or metric["words"].strip().lower() in _COUNTERS:
            return True
    return False


def announced_step(text: str) -> int | None:
    """Return the step that a line names, if it says nothing else; None: it does not."""
    match = _LONE_STEP.search(text)
    return None if match is None else int(match[1])


def place_in(text: str, *, is_training: bool = False) -> Place | None:
    """Find where a line is in its epoch; None: it does not say, or is of a validation.

    `is_training`: the line has a training loss, whatever else it has.
    """
    if not is_training and is_validation_pass(text):
        return None
    if match := _TWO_BRACKETS.search(text):
        epoch, epochs, index, total = map(_whole, match.groups())
        base = 1 if "(train)" in text else 0 if epochs is None and "poch: [" in text else None
        return _checked(Place(index=index, total=total, epoch=epoch, num_epochs=epochs, base=base))
    if match := _TIMM.search(text):
        epoch, index, total = map(_whole, match.groups())
        return _checked(Place(index=index, total=total, epoch=epoch, base=0))
    if match := _WENET.search(text):
        return Place(epoch=int(match[1]), index=int(match[2]), base=0)
    if match := _ESPNET.search(text):
        return Place(epoch=int(match[1]), index=int(match[2]), base=1)
    if match := _MINIBATCHES.search(text):
        return Place(epoch=_whole(match[1]), num_epochs=_whole(match[2]), index=int(match[4]))
    if match := _COMMA.search(text):
        return _checked(Place(epoch=int(match[1]), index=int(match[2])))
    return _checked(_in_words(text))


def _in_words(text: str) -> Place:
    place, behind = Place(), None
    if match := _AHEAD.search(text):
        return replace(place, index=int(match[1]), total=_whole(match[2]))
    text = _RANK.sub("", text) if "poch" in text else text
    if match := _EPOCH.search(text):
        # Lightning's bar counts epochs from 0; one that is named "Epoch 1/10" from 1.
        is_bar = match[3] is not None and match[2] is None
        place = Place(epoch=int(match[1]), num_epochs=_whole(match[2]), base=0 if is_bar else None)
        behind = _BEHIND_EPOCH.match(text, match.end())
        text = f"{text[: match.start()]} {match[3] or ''} {text[match.end() :]}"
    if place.epoch is not None and "atchsize" in text and (match := _TOTAL.search(text)):
        return replace(place, total=int(match[1]), base=0)
    for pattern in (_BAR, _AFTER_BAR, _LEADING, _KEYED):
        if match := pattern.search(text):
            return replace(place, index=int(match[1]), total=_whole(match[2]))
    for match in _BRACKET.finditer(text):
        if match[1].lower() not in _NOT_STEPS:
            return replace(place, index=int(match[2]), total=int(match[3]))
    if place.epoch is not None and (match := behind or _LONE.search(text)):
        return replace(place, index=int(match[1]), total=_whole(match[2]))
    return place


def _whole(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _checked(place: Place) -> Place | None:
    """Return a place that can be one: an index within its total."""
    if place.index is not None and place.total is not None and place.index > place.total:
        place = replace(place, index=None, total=None)
    return place if (place.index, place.epoch) != (None, None) else None


class EpochSteps:
    """Makes global steps of the places in one log."""

    def __init__(self) -> None:
        # The epoch that a line of its own announced, and whether its validation is over.
        self._announced: Place | None = None
        self._is_validated = False
        self._base: int | None = None
        self._epoch: int | None = None
        self._index = -1
        # Steps of the epochs before, where no line says how many an epoch has.
        self._offset = 0
        # Of an epoch: the last one may be cut short by the goal of the run.
        self._total = 0
        self._has_index = False
        # The newest global step.
        self._step: int | None = None
        # The counter goes on from one epoch to the next.
        self._is_global = False

    def announce(self, place: Place) -> None:
        """Note an epoch that began, for the lines below that do not name theirs."""
        if place.epoch is not None:
            self._announced = place
            self._is_validated = False

    def step(self, place: Place, *, is_validated: bool = False) -> int | None:
        """Return the global step; None: the line has none. `is_validated`: the line has both losses."""
        if place.epoch is None and self._announced is not None:
            known = self._announced
            if self._is_other_pass(place, known):
                return None
            place = replace(place, epoch=known.epoch, num_epochs=known.num_epochs, base=known.base)
            self._is_validated |= is_validated and place.index == place.total
        if place.index is None:
            step = self._of_epoch(place)
        elif place.epoch is None:
            step = self._by_restarts(place.index, place.total)
        else:
            step = self._in_epoch(place, place.epoch, place.index)
        if step is None or not 0 <= step <= MAX_STEP:
            return None
        self._step = step
        return step

    def end_of(self, place: Place) -> int | None:
        """Return the last step of the epoch that a line names without a step, if the log has shown it just before."""
        is_last = place.index is None and place.epoch is not None and place.epoch == self._epoch
        return self._step if is_last and self._has_index else None

    def _is_other_pass(self, place: Place, announced: Place) -> bool:
        """Whether a counter below an epoch that has come to its end is that of an evaluation.

        It has another total, or the epoch's validation was before it: one that goes on in the next epoch has that announced.
        """
        is_over = 0 < self._total <= self._index and self._epoch == announced.epoch
        is_other = self._is_validated or place.total != self._total
        return is_over and place.total is not None and is_other

    def _of_epoch(self, place: Place) -> int | None:
        """Count epochs, where the log has no other counter."""
        if place.epoch is None or self._has_index:
            return None
        if place.total is not None:
            return (place.epoch - self._base_of(place, place.epoch)) * place.total
        return place.epoch

    def _in_epoch(self, place: Place, epoch: int, index: int) -> int:
        base = self._base_of(place, epoch)
        is_new = self._epoch is not None and epoch != self._epoch
        if is_new and epoch == (self._epoch or 0) + 1:
            if index > self._index and self._has_index:
                self._is_global = True
            elif place.total is None:
                self._offset += self._index
        elif is_new:
            self._offset = 0
        self._epoch, self._index, self._has_index = epoch, index, True
        if self._is_global:
            return index
        if place.total is None:
            return self._offset + index
        self._total = max(self._total, place.total)
        return (epoch - base) * self._total + index

    def _by_restarts(self, index: int, total: int | None) -> int:
        """Count a restart of the counter as an epoch if it had come near its end."""
        stride = max(1, index)
        if total is not None and self._has_index and index < self._index:
            if self._index + stride >= total:
                self._offset += total
            else:
                self._offset = 0
        self._index, self._has_index = index, True
        return self._offset + index

    def _base_of(self, place: Place, epoch: int) -> int:
        if place.base is not None:
            self._base = place.base
        elif self._base is None or epoch < self._base:
            self._base = min(epoch, 1)
        return self._base
