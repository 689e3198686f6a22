"""Wordings: what an error line of no list most likely means, by its words and by its family.

The model is naive Bayes over words and pairs of words of all catalogues (`tools/catalogues/wordings.py` makes it), so it knows how
programs word each fault, whatever emitter they are. Where a family (`families/`) shows the emitter or the event, the family
decides, unless words contradict it strongly. Pure: the table is handed in (`runner/collect/wordings.py` reads it).
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from runner.facts.faults import ActionClass, fault_kind
from runner.facts.matches import MAX_TEXT, Layer, Scope
from runner.rootcause.families import Family, family_of

# Words and pairs of a line that count; chosen.
MAX_WORDS = 120
# Probability of an action from which words name a fault, and from which they overrule a family; chosen on catalogues left out.
LEAST_PROBABILITY, OVERRULING = 0.2, 0.97
# The same, where the family only knows how a process ended.
EXPLAINING = 0.8
# Confidence in a line at error level of which nothing else is known.
UNKNOWN_CONFIDENCE = 0.3

_TOKEN = re.compile(r"0[xX][0-9a-fA-F]+|[A-Za-z_][A-Za-z_0-9']*|\d+|[.:;,()\[\]]")
_JOINT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ENDINGS = ("ing", "ed", "es", "s")
_LAYERS: Mapping[str, Layer] = {
    "filesystem": "machine",
    "host_oom": "machine",
    "host_hardware": "machine",
    "device_vanished": "machine",
    "node_failure": "machine",
    "gpu_ecc": "device",
    "gpu_lost": "device",
    "gpu_xid_other": "device",
    "thermal_power": "device",
    "nvlink_error": "link",
    "nccl_network": "network",
    "rendezvous": "network",
    "nccl_timeout": "collective",
    "preemption": "scheduler",
}


class LineVerdict(msgspec.Struct, frozen=True):
    """What a line most likely means. `fault` "unknown": it is an error, and no more is known. `why`: the words that decided.

    `num_known`: single words of it that the model knows, where words decided; 0: the family did.
    """

    fault: str
    layer: Layer
    scope: Scope
    confidence: float
    why: str
    num_known: int = 0


class Wordings(msgspec.Struct, frozen=True):
    """The table of the model.

    `words`: word or pair -> class, then what the word adds to its score in hundredths, alternating. `unseen`: of each class the
    score of a word that it lacks. `calibration`: from this probability of an action on, this share was right, emitters left out.
    """

    classes: tuple[str, ...]
    prior: tuple[float, ...]
    unseen: tuple[float, ...]
    words: Mapping[str, tuple[int, ...]]
    calibration: tuple[tuple[float, float], ...] = ()

    def probabilities(self, text: str) -> dict[str, float]:
        """Return the probability of each class; that of words that depend on each other counts as the root of their number."""
        known = [word for word in words_of(text) if word in self.words]
        scores = [
            prior + len(known) * unseen
            for prior, unseen in zip(self.prior, self.unseen, strict=True)
        ]
        for word in known:
            entry = self.words[word]
            for number, points in zip(entry[::2], entry[1::2], strict=True):
                scores[number] += points / 100
        scale, most = math.sqrt(max(1, len(known))), max(scores)
        shares = [math.exp((score - most) / scale) for score in scores]
        total = sum(shares)
        return {name: share / total for name, share in zip(self.classes, shares, strict=True)}

    def calibrated(self, probability: float) -> float:
        """Return the share of verdicts of this probability that are right."""
        found = probability
        for limit, share in self.calibration:
            if probability < limit:
                break
            found = share
        return found


@dataclass(frozen=True, slots=True)
class _Guess:
    """What words say: the likeliest action, its calibrated probability, and the likeliest fault that it answers."""

    fault: str
    action: ActionClass
    probability: float


_NO_GUESS = _Guess("unknown", "restart", 0.0)


def judge_line(text: str, wordings: Wordings) -> LineVerdict | None:
    """Return what a line at error level means that no signature and no catalogue knows; None for a line without words.

    The caller has found that the emitter calls it an error. `confidence` is that the class of action is right.
    """
    text = text[:MAX_TEXT]
    words = words_of(text)
    if not words:
        return None
    known = [word for word in words if word in wordings.words]
    family = family_of(text)
    guess = _guess(text, wordings) if known else _NO_GUESS
    if family is not None and not _is_overruled(family, guess):
        return _of_family(family, guess)
    if guess.probability < LEAST_PROBABILITY:
        return _verdict(
            "unknown", "other", UNKNOWN_CONFIDENCE, "an error whose words decide nothing"
        )
    layer = _LAYERS.get(guess.fault, "program")
    why = "its words: " + _shown(known)
    single = [word for word in known if " " not in word and not word.startswith("=")]
    return _verdict(guess.fault, layer, guess.probability, why, num_known=len(single))


def _guess(text: str, wordings: Wordings) -> _Guess:
    probabilities = wordings.probabilities(text)
    by_action: dict[ActionClass, float] = {}
    for fault, probability in probabilities.items():
        action = fault_kind(fault).action
        by_action[action] = by_action.get(action, 0.0) + probability
    action = max(by_action, key=lambda one: by_action[one])
    fault = max(
        (one for one in probabilities if fault_kind(one).action == action),
        key=lambda one: probabilities[one],
    )
    return _Guess(fault, action, wordings.calibrated(by_action[action]))


def _is_overruled(family: Family, guess: _Guess) -> bool:
    """Whether words say more than a family that only knows how a process ended, or contradict one strongly."""
    if family.fault == "unknown":
        return guess.probability >= EXPLAINING
    differs = guess.action != fault_kind(family.fault).action
    return differs and guess.probability >= OVERRULING


def _of_family(family: Family, guess: _Guess) -> LineVerdict:
    agrees = guess.action == fault_kind(family.fault).action
    confidence = max(family.confidence, guess.probability) if agrees else family.confidence
    return LineVerdict(
        fault=family.fault,
        layer=family.layer,
        scope=family.scope,
        confidence=round(confidence, 2),
        why=f"the family {family.name}",
    )


def _verdict(
    fault: str, layer: Layer, confidence: float, why: str, *, num_known: int = 0
) -> LineVerdict:
    return LineVerdict(
        fault=fault,
        layer=layer,
        scope=fault_kind(fault).scope,
        confidence=round(confidence, 2),
        why=why,
        num_known=num_known,
    )


def _shown(words: Iterable[str]) -> str:
    return ", ".join(list(words)[:6])


def words_of(text: str) -> list[str]:
    """Return the words of a line, each once: in small letters, without endings; pairs of neighbours; whole names with `=`."""
    found: dict[str, None] = {}
    before = ""
    for token in _TOKEN.findall(text):
        parts = [] if token[0].isdigit() else [part.lower() for part in _JOINT.findall(token)]
        if not parts:
            before = ""
            continue
        if len(parts) > 1:
            found["=" + token.lower().strip("_")] = None
        for part in parts:
            if len(part) < 2:
                continue
            word = _stem(part)
            found[word] = None
            if before:
                found[f"{before} {word}"] = None
            before = word
        if len(found) >= MAX_WORDS:
            break
    return list(found)


def _stem(word: str) -> str:
    """Return a word without its ending, where at least four letters are left."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word.removesuffix(ending)
    return word
