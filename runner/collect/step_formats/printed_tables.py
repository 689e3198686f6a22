"""Tables in a log: a first line with the names of columns, and rows of values below it.

fastai, Keras callbacks and notebooks of Transformers print them, YOLO, spaCy, Chainer, scikit-learn, loggers that write CSV, and
model cards in Markdown. Columns are separated by bars, commas, tabs or blanks. A row has as many cells as the first line has names,
and numbers in the cells that count; where a table counts epochs only, these are its steps. Values separated by commas may have
no step at all: the row is the step of a history, which has the losses of training and validation, and nothing but results.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from runner.collect.lines import Bare, unwrapped
from runner.collect.step_formats.any_numbers import MAX_EXACT, meaning_of
from runner.collect.step_formats.name_value_pairs import Reading, normal, number, whole
from runner.collect.step_formats.scores import scores_of

# All chosen: bytes of a line, columns, words of a name, and lines without a row after which a table has ended.
MAX_LINE, MAX_COLUMNS, MAX_WORDS, MAX_GAP = 2000, 40, 4, 20
# Names without a value, a step before or behind a loss; for a set engine. `_table_of` tells them from prose.
_STEP = r"(?:epochs?|ep|(?:global[ _])?steps?|iter(?:ation)?s?)"
_NAMES = r"[^\n\d:={}.!?;]"
# For names without a step, one word each; a set engine, and one that goes back, need its bound.
_ONE_WORD, _LOSS_WORD = r"[a-z_][\w/.\-]{0,40}", r"(?:[a-z_][\w/.\-]{0,40})?loss[\w/.\-]{0,20}"
_COMMA = r"[ \t]*,[ \t]*"
HEADER = (
    rf"(?i:(?:^|[\s|,'\"`])(?:{_STEP}|e[ \t]+#)['\"`]?(?:[ \t|,]|┃|│|║)+{_NAMES}*loss"
    rf"|loss{_NAMES}*(?:\||,|\t|  |┃ |│ |║ )[ \t'\"`]*{_STEP}['\"`]?[ \t]*(?:[|,\t\r\n]|  |$)"
    r"|epoch +gpu_mem +box"
    # Names alone, without a step: "accuracy,loss,val_accuracy,val_loss".
    rf"|^[ \t]*,?(?:{_ONE_WORD}{_COMMA})*"
    rf"(?:{_LOSS_WORD}{_COMMA}{_ONE_WORD}(?:{_COMMA}{_ONE_WORD})*|{_ONE_WORD}{_COMMA}{_LOSS_WORD})"
    r"[ \t]*(?:[\r\n]|$))"
)
_NAME = re.compile(r"[A-Za-z#_][^:={}!?;]{0,60}")
_WIDE = re.compile(r"\s{2,}|\t")
# Of two words, where one blank separates columns.
_TWO_WORDS = re.compile(
    r"(?i)\b(training|train|validation|valid|val|eval|test|global|remaining) (loss|accuracy|step|time)\b"
)
# Words of prose, which are no names where one blank separates columns.
_PROSE = (
    *("a", "an", "and", "at", "by", "each", "every", "for", "from", "if", "in", "is", "of", "on"),
    *("or", "our", "than", "that", "the", "this", "to", "was", "we", "with"),
)
_RULE = re.compile(r"[\s|:+=\-┏┳┓┡╇┩━├┼┤└┴┘─┌┬┐╞╪╡═╔╦╗╠╬╣╚╩╝]*")
# Of boxes, as `|`.
_BOXES = str.maketrans("┃│║", "|||")
# "640: 100%|████| 16/16" behind the last cell.
_BAR = re.compile(r":?\s+\d+%.*")
_VALUE = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|(?i:nan|inf(?:inity)?))%?")
_COUNT = re.compile(r"(\d{1,12})\s*/\s*\d{1,12}")
_EMPTY = ("", "-", "--", "none", "null", "n/a", "na", "no log", "tbd")
_RESTARTING = ("batch", "iter", "iteration", "it")
# Words of names in a history without a step. Others may be settings, which differ from row to row.
_RESULTS = (
    *("index", "train", "training", "trn", "val", "valid", "validation", "test", "dev", "eval"),
    *("loss", "losses", "total", "avg", "average", "mean", "acc", "accuracy", "auc", "auroc"),
    *("roc", "precision", "recall", "f", "f1", "score", "mse", "mae", "rmse", "mape", "msle"),
    *("binary", "categorical", "sparse", "cross", "entropy", "crossentropy", "iou", "dice"),
    *("lr", "learning", "rate", "time", "seconds", "duration", "top", "k", "r", "map", "ppl"),
)
_WORDS = re.compile(r"[a-z]+")
_EPOCHS = ("epoch", "epochs", "ep", "e")


@dataclass(frozen=True, slots=True)
class _Columns:
    """Which cells hold what. `losses`: those whose sum is the loss.

    `is_sum`: each adds up the losses of any number of steps, so its value counts only if it is not finite. `restarts`: the step
    counts within an epoch, so a row has none.
    """

    num: int
    step: int | None
    losses: tuple[int, ...]
    others: tuple[tuple[int, str, float], ...]
    is_sum: bool
    restarts: bool
    names: Sequence[str]

    def reading(self, cells: Sequence[str], num_rows: int) -> Reading | None:
        """Read a row, of so many before it; None: it is none."""
        used = (*self.losses, *(at for at, _, _ in self.others))
        if self.step is None:
            used = tuple(range(self.num))
        step = float(num_rows) if self.step is None else _step(cells[self.step])
        if step is None or not all(_may_be_value(cells[at]) for at in used):
            return None
        losses = [number(cells[at]) for at in self.losses]
        others = {name: number(cells[at], factor) for at, name, factor in self.others}
        numbers = {name: value for name, value in others.items() if value is not None}
        if losses and all(value is not None for value in losses):
            loss = sum(value for value in losses if value is not None)
            if not self.is_sum or not math.isfinite(loss):
                numbers["loss"] = loss
        own_step = None if self.restarts else whole(step)
        return Reading(step=own_step, numbers=numbers) if numbers or self.is_sum else None

    def scores(self, cells: Sequence[str]) -> Mapping[str, float]:
        """Return the scores of a row."""
        named = zip(self.names, map(number, cells), strict=True)
        return scores_of((name, value) for name, value in named if value is not None)


class TableRow(NamedTuple):
    """A row that was read, with the first line of its table, and the scores beside its losses."""

    reading: Reading
    header: bytes
    scores: Mapping[str, float]


class PrintedTables:
    """Reads the tables of one log."""

    def __init__(self) -> None:
        self._header = b""
        self._kinds: tuple[_Columns, ...] = ()
        self._separator, self._has_index = "", False
        # Rows so far, and lines since the last one.
        self._num_rows = self._num_others = 0
        self._last_step: int | None = None

    def rows(self, block: bytes, headers: Sequence[int], bare: Bare | None) -> dict[int, TableRow]:
        """Return the rows in a block of whole lines, by the offset of their line.

        `headers`: offsets of the lines in which HEADER was found, in order. `bare`: what a bare number before each line is.
        """
        found: dict[int, TableRow] = {}
        at, known = 0, frozenset(headers)
        while at < len(block):
            if not self._kinds:
                place = bisect_left(headers, at)
                if place == len(headers):
                    break
                at = headers[place]
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            # Of a bar that draws itself again, as it is at last.
            line = block[at:end].rstrip(b"\r ").rpartition(b"\r")[2]
            if at in known:
                self._open(line, bare)
            elif (row := self._read(line, bare)) is not None:
                found[at] = row
                self._num_rows += 1
            at = end + 1
        return found

    def _open(self, line: bytes, bare: Bare | None) -> None:
        self._num_others = 0
        if line == self._header and self._kinds:
            return
        self._header, self._kinds, self._num_rows, self._last_step = line, (), 0, None
        text = _text(line, bare)
        if text is not None:
            self._separator = _separator(text)
            # pandas prints an index without a name.
            self._has_index = self._separator == " " and text.startswith("  ")
            splits = _splits(_TWO_WORDS.sub(r"\1_\2", text), self._separator)
            kinds = (_columns(names, may_lack_step=self._separator == ",") for names in splits)
            self._kinds = tuple(kind for kind in kinds if kind is not None)

    def _read(self, line: bytes, bare: Bare | None) -> TableRow | None:
        text = _text(line, bare)
        if text is not None:
            if _RULE.fullmatch(text):
                return None
            for cells in _splits(text, self._separator):
                for columns in self._kinds:
                    is_longer = len(cells) == columns.num + 1
                    if self._has_index and is_longer and cells[0].isdigit():
                        cells = cells[1:]
                    if len(cells) == columns.num:
                        reading = columns.reading(cells, self._num_rows)
                        if reading is not None:
                            self._num_others = 0
                            if reading.step is not None and reading.step == self._last_step:
                                # Of several runs, each with what it has after as many steps.
                                return None
                            self._last_step = reading.step
                            return TableRow(reading, self._header, columns.scores(cells))
        self._num_others += 1
        if self._num_others > MAX_GAP:
            self._kinds = ()
        return None


def _text(line: bytes, bare: Bare | None) -> str | None:
    """Return the text of a line; None: it is too long for a row."""
    if len(line) > MAX_LINE:
        return None
    text = _BAR.sub("", unwrapped(line.decode(errors="replace"), bare).text)
    # The mark of a comment before the names, as NumPy writes it.
    return (text if text.isascii() else text.translate(_BOXES)).removeprefix("# ")


def _separator(header: str) -> str:
    return next((one for one in "|&,\t" if one in header.strip()), " ")


def _splits(text: str, separator: str) -> list[list[str]]:
    """Return the cells of a line, in the ways in which it may be split."""
    if separator in "|&":
        return [[cell.strip() for cell in text.strip().strip("|\\").split(separator)]]
    if separator == ",":
        return [[cell.strip(" \"'`") for cell in text.split(",")]]
    by_blanks = text.split()
    wide = [cell.strip() for cell in _WIDE.split(text.strip())]
    return [wide, by_blanks] if wide != by_blanks else [wide]


def _columns(names: Sequence[str], *, may_lack_step: bool) -> _Columns | None:
    """Bind columns to what their names mean; None: these are no names of columns with steps and losses."""
    if not 2 <= len(names) <= MAX_COLUMNS:
        return None
    if may_lack_step and not names[0]:
        # As pandas writes it.
        names = ["index", *names[1:]]
    if any(_NAME.fullmatch(name) is None or len(name.split()) > MAX_WORDS for name in names):
        return None
    known = [normal(name.strip("'\"`*_ ")) for name in names]
    if any(name in _PROSE for name in known):
        return None
    if "gpu_mem" in known:
        # YOLOv5 leaves out what they are.
        known = [f"{name}_loss" if name in ("box", "obj", "cls") else name for name in known]
    best: dict[str, tuple[int, int, float]] = {}
    parts = []
    for at, name in enumerate(known):
        meaning = ("step", 1.0, 0) if name == "#" else meaning_of(name)
        if meaning is None:
            continue
        field_name, factor, place = meaning
        if field_name == "loss" and place > MAX_EXACT and "loss" in name:
            parts.append(at)
        elif (place, at) < best.get(field_name, (1 << 30, 0, 0.0))[:2]:
            best[field_name] = (place, at, factor)
    epoch = next((at for at, name in enumerate(known) if name in _EPOCHS), None)
    # Batches of an epoch begin again with each.
    counter = best.pop("step")[1] if "step" in best else None
    restarts = counter is not None and epoch is not None and known[counter] in _RESTARTING
    # Chainer's do not.
    restarts = restarts and not any(name.startswith("main/") for name in known)
    step = epoch if counter is None else counter
    losses = (best.pop("loss")[1],) if "loss" in best else tuple(parts)
    if not (losses or "validation_loss" in best or "grad_norm" in best):
        return None
    if step is None:
        has_both = bool(losses) and "validation_loss" in best
        are_results = all(word in _RESULTS for name in known for word in _WORDS.findall(name))
        if not (may_lack_step and has_both and are_results):
            return None
    others = tuple((at, name, factor) for name, (_, at, factor) in best.items())
    # spaCy adds up the losses of all steps since the row before.
    is_sum = "#" in known
    return _Columns(len(names), step, losses, others, is_sum, restarts, known)


def _step(cell: str) -> float | None:
    """Return the step of a row: "12", "12/100", "1.0"; None: the cell has none."""
    counted = _COUNT.fullmatch(cell)
    if counted is not None:
        return float(counted[1])
    return number(cell) if _VALUE.fullmatch(cell) else None


def _may_be_value(cell: str) -> bool:
    return _VALUE.fullmatch(cell) is not None or cell.lower() in _EMPTY
