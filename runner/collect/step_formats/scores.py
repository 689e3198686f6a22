"""Scores beside losses: accuracies, areas under the curve, shares of groups with equal rewards (0 to 1), and perplexities.

Lines name them ("accuracy: 0.52 - val_auc: 0.5003", "train acc 50.2%", "'frac_reward_zero_std': 1.0"), and columns of tables do.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from runner.collect.step_formats.name_value_pairs import MAX_NAMES, normal

_KINDS = {"acc": "accuracy", "accuracy": "accuracy", "auc": "auc", "auroc": "auc"}
_HELD_OUT = ("val", "valid", "validation", "eval", "evaluation", "test", "dev")
# Words of a name that change nothing of what the score is; with others it is another one: "best_val_acc", "top_5_accuracy".
_PLAIN = (
    *("train", "training", "trn", "avg", "average", "mean", "epoch", "score"),
    *("binary", "categorical", "sparse", "roc"),
)
_WORDS = re.compile(r"[a-z]+|\d+")
# A name of up to three words: of "best val acc" the last ones alone would be another score.
_IN_TEXT = re.compile(
    r"(?i)(?<![\w/.@\-])(?P<name>(?:[a-z]{1,20} ){0,2}[\w/.\-]{0,40}?(?:acc(?:uracy)?|auc|auroc))['\"]?\s{0,4}[:=]\s{0,4}"
    r"(?P<value>\d{1,3}(?:\.\d{1,20})?(?:e-\d{1,3})?)(?P<percent>\s?%)?(?![\w.])"
)

# An accuracy of any name: "MLM_acc: 0.000", "'accuracy': 0.52", "acc=0.1", "Train Acc: 50.2%".
_ACCURACY = re.compile(
    r"(?i)(?<![a-z])acc(?:uracy)?(?![a-z])[\w@]{0,16}['\"]?\s{0,4}[:=]\s{0,4}(?:([01]\.\d{1,20})(?![\d%])|(\d{1,3}(?:\.\d{1,16})?)\s?%)"
)
# Of the groups of completions of a step, the share in which all got the same reward.
_EQUAL_REWARDS = re.compile(
    r"(?i)\bfrac_reward_zero_std['\"]?\s{0,4}[:=]\s{0,4}(\d(?:\.\d{1,16})?)(?![\d.])"
)
# Of the training: "ppl 50880577.49", "'perplexity': 1.2e8".
_PERPLEXITY = re.compile(
    r"(?i)(?<![\w./@\-])(?<!valid )(?<!val )(?<!eval )(?:pplx?|perplexity)['\"]?\s{0,4}[:=]?\s{0,4}"
    r"(\d{1,60}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?)(?![\w.])"
)


@lru_cache(MAX_NAMES)
def score_of(name: str) -> str | None:
    """Return which score a name means: accuracy, auc, validation_accuracy or validation_auc; None: none of these."""
    words = _WORDS.findall(normal(name))
    kinds = [_KINDS[word] for word in words if word in _KINDS]
    others = [word for word in words if word not in _KINDS and word not in _PLAIN]
    is_held_out = bool(others) and others[0] in _HELD_OUT
    if len(kinds) != 1 or len(others) > is_held_out:
        return None
    return f"validation_{kinds[0]}" if is_held_out else kinds[0]


def scores_of(named: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Return the scores among named values; of two of a kind the first. Percentages become shares."""
    found: dict[str, float] = {}
    for name, value in named:
        score = score_of(name)
        if score is not None and 0 <= value <= 100:
            found.setdefault(score, value if value <= 1 else value / 100)
    return found


def scores_in(text: str) -> Mapping[str, float]:
    """Return the scores that a line names."""
    found = scores_of(
        (match["name"], float(match["value"]) / (100 if match["percent"] else 1))
        for match in _IN_TEXT.finditer(text)
    )
    for name, pattern in (("equal_rewards", _EQUAL_REWARDS), ("perplexity", _PERPLEXITY)):
        if (match := pattern.search(text)) is not None:
            found = {**found, name: float(match[1])}
    return found


def accuracies_in(text: str) -> Sequence[float]:
    """Return the accuracies of a line, whatever else their names say, in their order."""
    found = _ACCURACY.findall(text)
    return [float(ratio) if ratio else float(percents) / 100 for ratio, percents in found]


def accuracies_of(scores: Mapping[str, float]) -> Sequence[float]:
    """Return the accuracies among scores, that of the training first."""
    return [scores[name] for name in ("accuracy", "validation_accuracy") if name in scores]
