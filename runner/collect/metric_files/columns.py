"""Columns of metric files: the meanings of their names, and step records of their rows."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from runner.collect.step_formats.name_value_pairs import MEANINGS, NAMES, normal
from runner.facts.messages.signals import StepRecord

# Its logarithm is a loss.
PERPLEXITY = "perplexity"
SKIPPED = "skipped"
# It goes into `Sample.extra`.
ACTIVATION_NORM = "activation_norm"
# Names beyond those of metric lines, of exports and dashboards. In lower case, "_" for spaces.
MORE_NAMES: Mapping[str, str] = {
    "step": "_step trainer/global_step train/global_step update updates n_iter",
    "loss": "train/lm_loss train/loss_step lm-loss-training/lm_loss training/loss",
    "validation_loss": "validation/lm_loss eval/lm_loss val/loss_epoch test_loss",
    "grad_norm": (
        "train/gnorm train/grad_norm_step total_grad_norm train/global_grad_norm grad_norm_total "
        "grads/total_norm grad-norm/grad-norm l2_norm/grad/global"
    ),
    "lr": "lr-adamw train/learning_rate_step learning-rate/learning-rate scheduler/lr",
    "loss_scale": "train/loss_scale scale grad_scale loss-scale/loss-scale scaler",
    "tokens_per_second": "train/tokens_per_second train/tokens_per_sec throughput/tokens",
    "step_seconds_max": "step_seconds seconds_per_step train/step_time step_time_seconds",
    PERPLEXITY: "ppl perplexity train_ppl train/ppl train/perplexity",
    SKIPPED: (
        "skipped is_skipped skipped_iterations number_of_skipped_iterations overflow train/skipped"
    ),
    ACTIVATION_NORM: (
        "activation_norm actv_norm activation_norms train/activation_norm "
        "final_layer_activation_norm activation_norm_mean"
    ),
}
# Name -> its field, its factor, and its rank among the names of that field: the lowest counts.
_MEANINGS: dict[str, tuple[str, float, int]] = {
    name: (field_name, 1.0, 1000 + place)
    for field_name, names in MORE_NAMES.items()
    for place, name in enumerate(names.split())
}
_MEANINGS |= MEANINGS
_MEANINGS |= {name: (name, 1.0, 0) for name in NAMES}
EMPTY = ("", "-", "none", "null", "n/a", "na")
RECORD_FIELDS = tuple(name for name in NAMES if name != "step")


class Sample(NamedTuple):
    """A record, its place in the file, and metrics without a field in the record."""

    record: StepRecord
    where: str
    extra: Mapping[str, float]


@dataclass(slots=True)
class FileWarnings:
    """Defects of a file: each kind once, with its first place and its number."""

    _kinds: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, kind: str, where: str = "") -> None:
        """Count one more of a kind."""
        first, count = self._kinds.get(kind, (where, 0))
        self._kinds[kind] = (first, count + 1)

    def sentences(self) -> list[str]:
        """Return a sentence for each kind."""
        return [kind + _places(first, count) for kind, (first, count) in self._kinds.items()]


def _places(first: str, count: int) -> str:
    if count > 1:
        return f" ({count} times, first in {first})"
    return f" ({first})" if first else ""


def meaning(name: str) -> tuple[str, float, int] | None:
    """Return the field of a column, the factor of its unit and its rank among names; None: it has no meaning here.

    Exports of dashboards put the run's name before, and add smallest and largest values, which are left out.
    """
    plain = normal(name.strip("\"' ").rpartition(" - ")[2]).removesuffix("_smoothed")
    return _MEANINGS.get(plain)


class Columns:
    """Makes records of rows. The first column that fills a field is used for all rows."""

    def __init__(self, warnings: FileWarnings) -> None:
        self.warnings = warnings
        # Field -> the column in use.
        self.names: dict[str, str] = {}
        self._factors: dict[str, float] = {}
        # Column -> field; None: unused.
        self._fields: dict[str, str | None] = {}
        self._ranks: dict[str, int] = {}
        self._num_rows = 0
        self._is_numbering = False

    @property
    def all_names(self) -> Iterable[str]:
        """All columns so far, those without a meaning, too."""
        return self._fields

    def add_names(self, names: Iterable[str], where: str) -> None:
        """Assign columns to fields: the best known name of each field counts, also over an earlier column."""
        for name in names:
            if name in self._fields:
                continue
            self._fields[name] = None
            known = meaning(name)
            if known is None:
                continue
            field_name, factor, rank = known
            if field_name in self.names:
                kind = f"several columns mean {field_name}: {self.names[field_name]!r} and {name!r}; the better known one counts"
                self.warnings.add(kind, where)
                if rank >= self._ranks[field_name]:
                    continue
                self._fields[self.names[field_name]] = None
            self._fields[name] = field_name
            self.names[field_name], self._factors[field_name] = name, factor
            self._ranks[field_name] = rank

    def sample(self, row: Mapping[str, Any], where: str) -> Sample | None:
        """Read one row; None: it has no known metric."""
        self.add_names(row, where)
        values: dict[str, float] = {}
        for name, cell in row.items():
            field_name = self._fields.get(name)
            if field_name is None:
                continue
            value = self._number(cell, name, where)
            if value is not None:
                values[field_name] = value * self._factors[field_name]
        if PERPLEXITY in values and "loss" not in values and values[PERPLEXITY] > 0:
            values["loss"] = math.log(values[PERPLEXITY])
        if not any(name in values for name in (*RECORD_FIELDS, SKIPPED, ACTIVATION_NORM)):
            return None
        step = self._step(values, where)
        if step is None:
            return None
        skipped = values.get(SKIPPED, 0.0) > 0
        extra = {ACTIVATION_NORM: values[ACTIVATION_NORM]} if ACTIVATION_NORM in values else {}
        fields: dict[str, Any] = {name: values[name] for name in RECORD_FIELDS if name in values}
        return Sample(StepRecord(step=step, skipped=skipped, **fields), where, extra)

    def _step(self, values: Mapping[str, float], where: str) -> int | None:
        self._num_rows += 1
        if self._is_numbering:
            return self._num_rows
        if "step" not in self.names:
            self._is_numbering = True
            self.warnings.add("no column holds the step: samples are numbered from 1", where)
            return self._num_rows
        step = values.get("step", math.nan)
        if math.isfinite(step):
            return int(step)
        self.warnings.add(f"a row without a number in {self.names['step']!r} is left out", where)
        return None

    def _number(self, cell: Any, name: str, where: str) -> float | None:
        if isinstance(cell, int | float):
            return float(cell) if abs(cell) < 1e308 or isinstance(cell, float) else math.inf
        text = str(cell).strip().strip("\"'").lower()
        if text in EMPTY:
            return None
        if text in {"true", "false"}:
            return float(text == "true")
        try:
            return float(text.replace(",", "") if "," in text else text)
        except ValueError:
            self.warnings.add(f"column {name!r} holds what is no number, left out", where)
            return None
