"""Name-value pairs of a metric line, and the meanings of the names that trainers use.

Numbers are as printed, in the units of StepRecord. Steps are not renumbered: a trainer that counts
from 0 has a step 0. Some trainers print tokens and FLOPs per device, which the line does not state:
`Format.per_device` does.
"""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from runner.collect.step_formats.epoch_steps import MAX_STEP, Place
from runner.facts.messages.signals import StepRecord

_NUMBER = (
    r"[-+]?(?:\d{1,3}(?:(?:,\d{3})+|(?:_\d{3})+)(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
    # Lightning fills numbers up with zeros: "nan.0".
    r"|[-+]?(?:[Nn]a[Nn]|NAN|[Ii]nf(?:inity)?|INF)(?:\.0*)?"
)
_UNIT = r"%|(?:TFLOPS|TFLOP/s|[KkMBGT])\b|\s?(?:ms|us|sec|s)\b"
NUMBER = re.compile(rf"\s*(?P<number>{_NUMBER})(?P<unit>{_UNIT})?")
# Some trainers wrap a number in a list, a dictionary or a tensor.
_WRAPPED = r"(?:\[\s*|(?:tf\.)?[Tt]ensor\(\[?|\{'\w+':\s*)?"
# "key: 1", "key=1" and "key 1", the key of up to seven words.
_WORD = r"[A-Za-z(][\w./()\-]*"
PAIR = re.compile(
    rf"(?<![\w./])(?P<key>[A-Za-z][\w./()\-]*(?:[ ]{_WORD}){{0,6}}?)(?:\s*[:=]\s*|\s+){_WRAPPED}"
    # A full stop may follow, of the sentence.
    rf"(?P<value>(?:{_NUMBER})(?:{_UNIT})?)(?!\w|\.\w)"
)
QUOTED = re.compile(
    r"""['"](?P<key>[^'"{}]{1,80})['"]\s*:\s*(?:tensor\(|\[)?['"]?(?P<value>[^'",{}\[\]]{1,40})"""
)
SCALES = {"%": 0.01, "K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
SCALES |= {"ms": 1e-3, "us": 1e-6}


# Field -> its names in lower case, with "_" for spaces, and their units where they differ; of several
# in a line the first counts. Losses of a part (nll, moe, mtp, load balancing) are left out.
NAMES: Mapping[str, str] = {
    "step": """global_step global_steps global_step/max_steps global_iter num_updates
        train_num_updates valid_num_updates current_steps completed_step training_step
        training_steps train_step step_i step steps training_iteration iteration iter""",
    "loss": """loss lm_loss train/loss train_loss loss/train/total train/ce_loss
        train/crossentropyloss training_loss reduced_train_loss loss_train loss/train
        train/loss_step train_loss_step loss_step train/total_loss total_loss step_loss
        avg_loss average_loss""",
    "validation_loss": """validation_loss val_loss valid_loss eval_loss lm_loss_value
        validation/loss val/loss valid/loss eval/loss val_loss_epoch
        metrics/eval/languagecrossentropy""",
    "grad_norm": """grad_norm gnorm train_gnorm train/grad_norm global_grad_norm gradient_norm
        grad-norm gradnorm optim/total_grad_norm global_norm""",
    "lr": """lr learning_rate train_lr train/lr train/learning_rate optim/lr
        optim/learning_rate_group0 current_lr l.r.""",
    "loss_scale": "loss_scale train_loss_scale loss-scale train/loss_scale grad_scale train/grad_scale amp_scale",
    "tokens_per_second": """tokens_per_second tokens_per_sec tokens/s tokens/sec tok/s tok/sec
        throughput/tokens_per_sec wps train_wps tps tokens/s/device
        tokens_per_second_per_gpu tokens_per_sec_per_gpu tgs tokens_per_gpu_per_second_(tgs)
        tgs_(tokens/gpu/second) throughput/device/tokens_per_second throughput/device/tps""",
    "samples_per_second": """samples_per_second samples_per_sec samples/sec samples/s samples/second
        images_per_second images_per_sec images/sec images/s imgs/sec imgs/s img/sec img/s
        examples_per_second examples_per_sec examples/sec examples/s sequences/sec sequences/s
        seqs/sec seqs/s throughput_(samples/sec) throughput_(samples/s) throughput_(imgs/s)
        interval_samples_per_second""",
    "model_tflops_per_second": """model_tflops_per_gpu tflops tflops_per_gpu tflop/s/device
        throughput_per_gpu_(tflop/s/gpu) approx_flops_per_gpu tflops/gpu""",
    "mfu_ratio": "mfu mfu_(%):% mfu(%):% throughput/device/mfu:%",
    "step_seconds_max": """elapsed_time_per_iteration_(ms):ms elapsed_time_per_iteration_(s)
        elapsed_time_per_iteration_ms:ms time_per_iteration_ms:ms iteration_time_(ms):ms
        iter_time_(s) iter_time_(ms):ms train_step_timing_in_s ms/batch:ms iter_time step_time
        sec/step s/step step_time_(s) step_time_s iteration_time step_time_ms:ms
        step_time_(ms):ms per_step_time:ms""",
}
# Name -> its field, the factor to its unit, and its place among the names of that field.
MEANINGS: Mapping[str, tuple[str, float, int]] = {
    name: (field_name, SCALES.get(unit, 1.0), place)
    for field_name, names in NAMES.items()
    for place, (name, _, unit) in enumerate(word.partition(":") for word in names.split())
}
# Of metrics, whose normal spelling is cached; chosen.
MAX_NAMES = 4096
EPOCHS = ("epoch", "train_epoch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The values of one line: `numbers` by StepRecord's field names. `step` is None where the line has none.

    `place`: where in its epoch the line is, if that is all it says of its step.
    """

    step: int | None = None
    epoch: float | None = None
    place: Place | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    # Of a line of no known format: how its loss is called, without digits, and the place of that among the names of losses.
    loss_name: str = field(default="", compare=False)
    loss_place: int = field(default=0, compare=False)

    def record(self) -> StepRecord | None:
        """Return the step record; None without a step."""
        if self.step is None:
            return None
        numbers = {name: value for name, value in self.numbers.items() if name != "skipped"}
        return StepRecord(step=self.step, skipped=bool(self.numbers.get("skipped")), **numbers)  # type: ignore[arg-type]


def number(text: str, factor: float = 1.0) -> float | None:
    """Parse a number: 1.23E+00, nan, Infinity, 1,234, 1_234, 2.5K, 12 %. A written unit outranks `factor`; None: no number."""
    if "_" not in text:
        # The most frequent case by far: a number alone.
        with contextlib.suppress(ValueError):
            return float(text) * factor
    match = NUMBER.match(text)
    if match is None:
        return None
    unit = (match["unit"] or "").strip()
    digits = match["number"].replace(",", "").replace("_", "")
    if digits[-1] in ".0" and digits.lstrip("+-")[:1] in "nNiI":
        digits = digits.partition(".")[0]
    if unit in ("s", "sec"):
        return float(digits)
    if unit in ("ms", "us", "%"):
        factor = 1.0
    return float(digits) * factor * SCALES.get(unit, 1.0)


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Find "key: 1", "key=1" and "key 1"."""
    return ((match["key"], match["value"]) for match in PAIR.finditer(text))


def columns(text: str) -> Iterator[tuple[str, str]]:
    """Find "key: 1" between bars, after a first column of any kind: several times faster than `pairs`."""
    first, _, rest = text.partition("|")
    yield from pairs(first)
    for column in rest.split("|"):
        key, colon, value = column.partition(":")
        if colon:
            yield key.strip(), value.strip()


def quoted(text: str) -> Iterator[tuple[str, str]]:
    """Find the entries of a Python dictionary or a JSON object, nested ones too."""
    return ((match["key"], match["value"]) for match in QUOTED.finditer(text))


@lru_cache(MAX_NAMES)
def normal(key: str) -> str:
    """Spell a name as NAMES does."""
    return "_".join(key.lower().split())


def reading_of(
    found: Iterator[tuple[str, str]], extra: Mapping[str, tuple[str, float]] | None = None
) -> Reading:
    """Make a reading of pairs. `extra`: further names of this format -> (field, factor), which outrank NAMES."""
    best: dict[str, tuple[int, float]] = {}
    epoch = None
    for key, value in found:
        name = normal(key)
        meaning = (*extra[name], -1) if extra and name in extra else MEANINGS.get(name)
        if meaning is None:
            epoch = number(value) if name in EPOCHS else epoch
            continue
        field_name, factor, place = meaning
        read = number(value, factor)
        before = best.get(field_name, (len(MEANINGS), 0.0))
        if read is not None and (place < before[0] or is_measured_beside(name, before[1])):
            best[field_name] = (place, read)
    numbers = {name: read for name, (_, read) in best.items()}
    step = numbers.pop("step", None)
    if numbers.get("mfu_ratio", 0.0) < 0.0:
        # -100 % means unknown.
        del numbers["mfu_ratio"]
    return Reading(step=whole(step), epoch=epoch, numbers=numbers)


def is_measured_beside(name: str, value: float) -> bool:
    """Whether a name is that of NeMo's loss, beside which its bar shows the NaN of a mean that is not there yet."""
    return name == "reduced_train_loss" and math.isnan(value)


def whole(step: float | None) -> int | None:
    """Return a step as an integer; None: it is no whole number, or more than a run can have."""
    if step is None or not 0 <= step <= MAX_STEP or step != int(step):
        return None
    return int(step)
