"""`python -m tools.catalogues.wordings`: make the table of the wordings model of all catalogues, and print how it generalises.

Its rows at level error that have a class are written as their emitter writes lines; the classes are learned from their words.
What is printed is measured with one emitter left out at a time, so that none of its strings is known.
"""

import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import msgspec

from runner.facts.faults import fault_kind
from runner.rootcause.wordings import Wordings, judge_line, words_of
from tools.catalogues.rows import FOLDER

TABLE = FOLDER.parent / "wordings.json"
# Rows of an emitter and class count for the less, the more there are: their number to minus this; by emitters left out.
BALANCE = 0.75
# Of naive Bayes, in rows that are so weighted; by emitters left out.
SMOOTHING = 0.3
# Power of the priors of classes. Most rows refuse settings, for libraries check little else; runs die of all classes.
PRIOR = 0.2
# Words that less than so many rows and emitters have name the emitter, not the fault; and of the rest the most telling; chosen.
LEAST_ROWS, LEAST_EMITTERS, MAX_WORDS = 3, 2, 6000
# Rows below which the share of an emitter means nothing; chosen.
LEAST_MEASURED = 10
# Steps of the calibration; chosen.
CALIBRATION_STEPS = 20

_EXCEPTION = re.compile(r"\.pyx? (\w+)$")
_BRACES = re.compile(r"\{\{|\}\}|\{[^{}]*\}")
_PRINTF = re.compile(r"%(?:%|[-+#0-9.*]*(?:hh|h|ll|l|z|j|t)?[diouxXeEfFgGcsp](?:[A-Z]\w?)?)")
# What a field is replaced by: a number, which is no word and parts those beside it.
_GAP = " 7 "


@dataclass(frozen=True, slots=True)
class Example:
    """A line of an emitter, and its fault."""

    emitter: str
    text: str
    fault: str

    @property
    def action(self) -> str:
        """The class of action that answers its fault."""
        return fault_kind(self.fault).action


def read_examples(paths: Iterable[Path]) -> list[Example]:
    """Return the classed error rows of catalogues as lines."""
    return [example for path in paths for example in _of_file(path)]


def _of_file(path: Path) -> Iterator[Example]:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = json.loads(lines[0])
    for row in map(json.loads, lines[1:]):
        if row["level"] == "error" and row["fault"]:
            yield Example(header["emitter"], line_of(header, row), row["fault"])


def line_of(header: Mapping[str, object], row: Mapping[str, object]) -> str:
    """Return a row as a line: with the exception's name, NCCL's place in its source, or the word that its emitter requires."""
    at, text = str(row["at"]), str(row["format"])
    style = row.get("style", header["style"])
    if style == "braces":
        text = _BRACES.sub(lambda one: one[0][0] if one[0] in ("{{", "}}") else _GAP, text)
    elif style == "printf":
        text = _PRINTF.sub(lambda one: "%" if one[0] == "%%" else _GAP, text)
    if exception := _EXCEPTION.search(at):
        return f"{exception[1]}: {text}"
    if header["emitter"] in ("NCCL", "RCCL") and "." in at:
        return f"n1:7:7 [0] {at.removeprefix('src/')}:7 NCCL WARN {text}"
    if header["emitter"] == "Slurm":
        return f"srun: error: {text}"
    requires = row.get("requires") or header.get("requires") or ()
    words = [str(word) for word in requires] if isinstance(requires, list | tuple) else []
    is_there = any(word.lower() in text.lower() for word in words)
    return text if is_there or not words else f"{words[0]}: {text}"


# Sums of weights by fault, and those of each word.
_Sums = dict[str, float]
_Weights = dict[str, _Sums]


@dataclass(slots=True)
class Learner:
    """The weights of words by emitter and fault: the table of all, or of all but one, follows from them."""

    examples: Sequence[Example]
    faults: tuple[str, ...] = ()
    by_emitter: dict[str, _Weights] = field(default_factory=dict)
    totals: dict[str, _Sums] = field(default_factory=dict)
    num_rows: Counter[str] = field(default_factory=Counter)
    num_emitters: Counter[str] = field(default_factory=Counter)
    words: _Weights = field(default_factory=dict)
    # Of all emitters, computed once: minus how much a word's faults differ from those of all rows, and the word.
    ranked: list[tuple[float, str]] = field(default_factory=list)
    entries: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.faults = tuple(sorted({one.fault for one in self.examples}))
        sizes = Counter((one.emitter, one.fault) for one in self.examples)
        by_emitter: dict[str, _Weights] = defaultdict(lambda: defaultdict(_zeros))
        totals: _Weights = defaultdict(_zeros)
        words: _Weights = defaultdict(_zeros)
        for one in self.examples:
            weight = sizes[one.emitter, one.fault] ** -BALANCE
            totals[one.emitter][one.fault] += weight
            for word in words_of(one.text):
                by_emitter[one.emitter][word][one.fault] += weight
                words[word][one.fault] += weight
                self.num_rows[word] += 1
        for weights in by_emitter.values():
            self.num_emitters.update(weights.keys())
        self.by_emitter, self.totals, self.words = dict(by_emitter), dict(totals), dict(words)

    def table(self, without: str = "") -> Wordings:
        """Return the model of all emitters but one."""
        by_fault = _sum(sums for emitter, sums in self.totals.items() if emitter != without)
        kept = self._chosen(without, by_fault)
        total, sums = sum(by_fault.values()), _sum(kept.values())
        size = SMOOTHING * len(kept)
        priors = (math.log((by_fault.get(one, 0) + 1) / (total + 1)) for one in self.faults)
        unseen = (math.log(SMOOTHING / (sums.get(one, 0) + size)) for one in self.faults)
        held = self.by_emitter.get(without, {})
        return Wordings(
            classes=self.faults,
            prior=tuple(round(PRIOR * one, 3) for one in priors),
            unseen=tuple(round(one, 3) for one in unseen),
            words={
                word: self._entry(kept[word]) if word in held else self._entry_of_all(word)
                for word in sorted(kept)
            },
        )

    def _chosen(self, without: str, by_fault: _Sums) -> _Weights:
        """Return the weights of the words whose faults differ most from those of all rows, without those of one emitter."""
        held = self.by_emitter.get(without, {})
        if not self.ranked:
            self.ranked = self._ranking()
        found = [one for one in self.ranked[: MAX_WORDS + len(held)] if one[1] not in held]
        found += [
            (-_divergence(_less(self.words[word], held[word]), by_fault), word)
            for word in held
            if self._is_common(word, fewer_emitters=1)
        ]
        chosen = [word for _, word in sorted(found)[:MAX_WORDS]]
        return {
            word: _less(self.words[word], held[word]) if word in held else self.words[word]
            for word in chosen
        }

    def _ranking(self) -> list[tuple[float, str]]:
        of_all = _sum(self.totals.values())
        common = (word for word in self.words if self._is_common(word))
        return sorted((-_divergence(self.words[word], of_all), word) for word in common)

    def _is_common(self, word: str, *, fewer_emitters: int = 0) -> bool:
        num_emitters = self.num_emitters[word] - fewer_emitters
        return num_emitters >= LEAST_EMITTERS and self.num_rows[word] >= LEAST_ROWS

    def _entry_of_all(self, word: str) -> tuple[int, ...]:
        if word not in self.entries:
            self.entries[word] = self._entry(self.words[word])
        return self.entries[word]

    def _entry(self, weights: Mapping[str, float]) -> tuple[int, ...]:
        points = [
            (number, round(100 * math.log1p(weights[fault] / SMOOTHING)))
            for number, fault in enumerate(self.faults)
            if fault in weights
        ]
        return tuple(value for pair in points if pair[1] > 0 for value in pair)


def _zeros() -> _Sums:
    return defaultdict(float)


def _sum(parts: Iterable[_Sums]) -> _Sums:
    total = _zeros()
    for part in parts:
        for fault, weight in part.items():
            total[fault] += weight
    return total


def _less(weights: _Sums, held: _Sums) -> _Sums:
    """Return weights without those that one emitter added; what is left of rounding is none."""
    left = ((fault, weight - held.get(fault, 0.0)) for fault, weight in weights.items())
    return {fault: weight for fault, weight in left if weight > 1e-9}


def _divergence(weights: _Sums, by_fault: _Sums) -> float:
    """Return how far the faults of a word are from those of all rows, by the word's weight."""
    whole, total = sum(weights.values()), sum(by_fault.values())
    return sum(
        one * math.log(one / whole * total / by_fault[fault])
        for fault, one in weights.items()
        if by_fault.get(fault, 0) > 0
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the lines of one emitter were judged by what is known of the others; shares between 0 and 1."""

    emitter: str
    num: int
    right_action: float
    right_fault: float
    nothing: int
    # Of a rule that always names the commonest action.
    commonest: float
    # Action -> share of its lines that are right.
    by_action: Mapping[str, float]
    # Confidence and whether the action was right, of each line.
    confidences: Sequence[tuple[float, bool]]


def left_out(
    learner: Learner, emitters: Iterable[str] = (), most: int | None = None
) -> Iterator[Outcome]:
    """Yield how each emitter is judged that is left out: all of them, or some; `most` lines of each, spread over all."""
    of_emitter: dict[str, list[Example]] = defaultdict(list)
    for one in learner.examples:
        of_emitter[one.emitter].append(one)
    for emitter in sorted(emitters or of_emitter):
        if len(of_emitter[emitter]) >= LEAST_MEASURED:
            found = of_emitter[emitter]
            step = 1 if most is None else -(-len(found) // most)
            yield outcome(emitter, found[::step], learner.table(emitter))


def outcome(name: str, examples: Sequence[Example], wordings: Wordings) -> Outcome:
    """Return how lines are judged."""
    verdicts = [judge_line(one.text, wordings) for one in examples]
    judged = [(one, verdict) for one, verdict in zip(examples, verdicts, strict=True) if verdict]
    right = [fault_kind(verdict.fault).action == one.action for one, verdict in judged]
    by_action: dict[str, list[bool]] = defaultdict(list)
    for (one, _), is_right in zip(judged, right, strict=True):
        by_action[one.action].append(is_right)
    num = len(examples)
    return Outcome(
        emitter=name,
        num=num,
        right_action=sum(right) / num,
        right_fault=sum(verdict.fault == one.fault for one, verdict in judged) / num,
        nothing=num - len(judged),
        commonest=sum(one.action == "stop" for one in examples) / num,
        by_action={action: mean(shares) for action, shares in sorted(by_action.items())},
        confidences=[
            (verdict.confidence, is_right)
            for (_, verdict), is_right in zip(judged, right, strict=True)
        ],
    )


def calibration(learner: Learner) -> tuple[tuple[float, float], ...]:
    """Return steps (probability of an action, share that is right) of the model where emitters are left out; never falling."""
    found: list[tuple[float, bool]] = []
    emitters = {one.emitter for one in learner.examples}
    for emitter in sorted(emitters):
        table = learner.table(emitter)
        own = [one for one in learner.examples if one.emitter == emitter]
        # Each emitter counts as much, so that the largest does not decide.
        for one in own[:: max(1, len(own) // 60)]:
            by_action = _zeros()
            for fault, share in table.probabilities(one.text).items():
                by_action[fault_kind(fault).action] += share
            action, probability = max(by_action.items(), key=lambda item: item[1])
            found.append((probability, action == one.action))
    found.sort()
    size = -(-len(found) // CALIBRATION_STEPS)
    steps = [found[at : at + size] for at in range(0, len(found), size)]
    shares = _rising([mean(right for _, right in step) for step in steps])
    return tuple(
        (round(step[0][0], 3), round(share, 3)) for step, share in zip(steps, shares, strict=True)
    )


def _rising(values: Sequence[float]) -> list[float]:
    """Return values of equal weight as near as possible that never fall."""
    pools: list[list[float]] = []
    for value in values:
        pools.append([value])
        while len(pools) > 1 and mean(pools[-2]) > mean(pools[-1]):
            last = pools.pop()
            pools[-1] += last
    return [mean(pool) for pool in pools for _ in pool]


def report(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the measures of emitters that were left out, as lines."""
    for one in sorted(outcomes, key=lambda one: one.right_action):
        yield (
            f"{one.emitter}: {one.num} lines, action {one.right_action:.2f}, "
            f"fault {one.right_fault:.2f}, nothing {one.nothing}"
        )
    yield (
        f"{len(outcomes)} emitters, each left out: right action {share_right(outcomes):.3f}, "
        f"right fault {mean(one.right_fault for one in outcomes):.3f}, "
        f"nothing {sum(one.nothing for one in outcomes)}; "
        f"always the commonest action {mean(one.commonest for one in outcomes):.3f}"
    )
    for action in sorted({action for one in outcomes for action in one.by_action}):
        shares = [one.by_action[action] for one in outcomes if action in one.by_action]
        yield f"{action}: {mean(shares):.2f} of its lines are right, in {len(shares)} emitters"
    for least, most in ((0.0, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        found = [
            right
            for one in outcomes
            for confidence, right in one.confidences
            if least <= confidence < most
        ]
        if found:
            yield f"confidence {least} to {most}: {mean(found):.2f} of {len(found)} lines right"


def share_right(outcomes: Sequence[Outcome]) -> float:
    """Return the share of lines with the right class of action, each emitter counting as much."""
    return mean(one.right_action for one in outcomes)


def main() -> int:
    """Write the table and print its measures."""
    learner = Learner(read_examples(sorted(FOLDER.glob("*.jsonl"))))
    table = msgspec.structs.replace(learner.table(), calibration=calibration(learner))
    TABLE.write_bytes(msgspec.json.encode(table) + b"\n")
    for line in report(list(left_out(learner))):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
