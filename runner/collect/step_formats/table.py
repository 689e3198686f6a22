"""The known formats of metric lines: one row each, with a sample.

A mark begins where the numbers begin, so what precedes it (ranks, times, loggers) is never read.
Samples are made up; the shapes are those of the trainers named, as of 2025.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

from runner.collect.step_formats import any_numbers, loss_scalers, trainer_parsers
from runner.collect.step_formats.any_numbers import read_any
from runner.collect.step_formats.epoch_steps import Place, place_in
from runner.collect.step_formats.name_value_pairs import (
    Reading,
    columns,
    number,
    pairs,
    quoted,
    reading_of,
    whole,
)

# Spaces and ANSI colours: torchtitan colours its lines.
COLOURS = r"[\s\x1b\[\d;m]*"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of line: name-value pairs, read by `scan` from where the last match of `mark` begins.

    `mark` matches every line of it, and uses nothing that a set engine (hyperscan, re2) cannot do.
    If it has a group, that is the step, and the pairs begin there. `holds` is what `sample` says,
    by StepRecord's field names. `extra`: further names -> (field, factor). A line with the text
    `unless` is of another kind. `amend` corrects what the pairs of a line say; `parser` reads a
    whole line, instead of all that.

    `per_device`: fields that are printed per device, not for the gang. `block`: the step is on a
    line of its own, before the numbers. `bar`: without a step, the one of a progress bar on the
    same line counts. `places`: lines may count the steps of one epoch.
    """

    name: str
    mark: str
    sample: str
    holds: Mapping[str, float]
    _: KW_ONLY
    scan: Callable[[str], Iterator[tuple[str, str]]] = pairs
    extra: Mapping[str, tuple[str, float]] | None = None
    unless: str = ""
    amend: Callable[[Reading, str], Reading] | None = None
    parser: Callable[[str], Reading | None] | None = None
    per_device: tuple[str, ...] = ()
    block: bool = False
    bar: bool = False
    places: bool = False
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile(self.mark))

    def parse(self, text: str) -> Reading | None:
        """Read a line that `mark` matches, whether or not it bears a step; None: it holds no number."""
        if self.parser is not None:
            return self.parser(text)
        matches = list(self.pattern.finditer(text))
        if not matches or (self.unless and self.unless in text):
            return None
        match = matches[-1]
        digits = match[1] if self.pattern.groups else None
        step = whole(float(digits.replace(",", ""))) if digits else None
        if digits and self.block:
            place = place_in(text) if self.places else None
            is_in_epoch = place is not None and place.epoch is not None
            return Reading(place=place) if is_in_epoch else Reading(step=step)
        reading = reading_of(self.scan(text[match.start(1 if digits else 0) :]), self.extra)
        if digits or self.block:
            reading = replace(reading, step=step)
        if self.amend is not None:
            reading = self.amend(reading, text)
        return reading if reading.numbers else None


def _only_validation_loss(reading: Reading, _text: str) -> Reading:
    loss = reading.numbers.get("validation_loss", reading.numbers.get("loss"))
    return replace(reading, numbers={} if loss is None else {"validation_loss": loss})


def _with_step_before(reading: Reading, text: str) -> Reading:
    """Take the step that a program prints before the dictionary of its trainer: "Step: 3 {'loss': 2.25}"."""
    found = _STEP_BEFORE.search(text)
    return replace(reading, step=int(found[1])) if found is not None else reading


def _with_step_around(reading: Reading, text: str) -> Reading:
    """Take the step before an object of JSON, or of the object around it; else the epoch, if it is a whole one."""
    if _HELD_OUT_SPLIT.search(text):
        reading = _only_validation_loss(reading, text)
    if reading.step is not None:
        return reading
    found = _STEP_BEFORE.search(text) or _STEP_IN_JSON.search(text)
    if found is not None:
        return replace(reading, step=int(found[1]))
    epoch = whole(reading.epoch)
    return reading if epoch is None else replace(reading, place=Place(epoch=epoch))


def _without_loss(reading: Reading, text: str) -> Reading:
    """Without a loss, Megatron skipped all steps since the line before, or their mean was NaN, which it does not print."""
    numbers = reading.numbers
    if not numbers or "loss" in numbers:
        return reading
    is_skipped = _SKIPPED.search(text) is not None
    if _NAN_LOSS.search(text) or (not is_skipped and math.isnan(numbers.get("grad_norm", 0.0))):
        # A skipped step with a NaN loss is no overflow: its forward pass was wrong.
        return replace(reading, numbers={**numbers, "loss": math.nan})
    return replace(reading, numbers={**numbers, "skipped": 1.0}) if is_skipped else reading


def _place_of_bar(reading: Reading, text: str) -> Reading:
    """Lightning's bar counts the steps of one epoch."""
    return reading if reading.step is not None else replace(reading, place=place_in(text))


def _numbers_before_names(reading: Reading, text: str) -> Reading:
    numbers = dict(reading.numbers)
    for name, pattern, factor in _LLM_C_UNITS:
        match = pattern.search(text)
        value = number(match[1], factor) if match else None
        if value is not None:
            numbers[name] = value
    return replace(reading, numbers=numbers)


_STEP_BEFORE = re.compile(r"(?i)\bstep\s{0,3}[:=]?\s{0,12}(\d{1,12})\s{0,4}[:,|\-]?\s{0,4}\{")
_HELD_OUT_SPLIT = re.compile(
    r'"(?:split|phase|mode|stage|set|subset|prefix)"\s?:\s?"(?:val|valid|validation|eval|evaluation|test|dev)\w{0,12}"'
)
_STEP_IN_JSON = re.compile(
    r'"(?:global_?|train_?)?(?i:steps?|iter|iteration|num_updates)"\s?:\s?"?(\d{1,12})"?\s{0,2}[,}]'
)
_SKIPPED = re.compile(r"number of skipped iterations:\s*0*[1-9]")
_NAN_LOSS = re.compile(r"number of nan iterations:\s*0*[1-9]")
_LLM_C_UNITS = (
    ("step_seconds_max", re.compile(r"\|\s*\(?([\d.]+) ms"), 1e-3),
    ("mfu_ratio", re.compile(r"\|\s*([\d.]+)% bf16 MFU"), 0.01),
    ("tokens_per_second", re.compile(r"\|\s*([\d.]+) tok/s"), 1.0),
)


def _read_darknet(text: str) -> Reading | None:
    match = _DARKNET_VALUES.search(text)
    if match is None:
        return None
    values = {name: number(value) for name, value in match.groupdict().items()}
    numbers = {name: value for name, value in values.items() if value is not None}
    return Reading(step=whole(numbers.pop("step", None)), numbers=numbers)


def _read_kaldi(text: str) -> Reading | None:
    """Kaldi maximises its objective; the step is the last of the minibatches."""
    match = _KALDI_VALUES.search(text)
    objective = None if match is None else number(match[2])
    if match is None or objective is None:
        return None
    return Reading(step=int(match[1]), numbers={"loss": -objective})


def _read_boosting(text: str) -> Reading | None:
    """A round of XGBoost: the first data set is the one of the training, another one is held out."""
    match = _BOOSTING_ROUND.search(text)
    found = _BOOSTING_VALUE.findall(text, 0 if match is None else match.end(1))
    values = [number(value) for _, value in found]
    if match is None or not values or values[0] is None:
        return None
    numbers = {"loss": values[0]}
    if len(values) > 1 and values[1] is not None:
        numbers["validation_loss"] = values[1]
    return Reading(step=int(match[1]), numbers=numbers)


_ERRORS = r"(?:rmsle|rmse|mae|mape|m?logloss|m?error)"
_BOOSTING = rf"\[\d{{1,9}}\]\s+(?:train|validation_0)\w{{0,20}}-{_ERRORS}:-?[\dni]"
_BOOSTING_ROUND = re.compile(_BOOSTING.replace(r"\d{1,9}", r"(\d{1,9})"))
_BOOSTING_VALUE = re.compile(rf"([\w\-]{{1,60}})-{_ERRORS}:(\S{{1,40}})")
_ANY = r"-?(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf)"
_DARKNET = rf"\d{{1,12}}: {_ANY}, {_ANY} avg(?: loss)?, [\d.]+ rate, "
_DARKNET_VALUES = re.compile(
    rf"(?P<step>\d{{1,12}}): (?P<loss>{_ANY}), {_ANY} avg(?: loss)?, (?P<lr>[\d.]+) rate, "
    r"(?P<step_seconds_max>[\d.]+) seconds"
)
_KALDI = rf"objective function for '[^'\n]{{1,40}}' for minibatches \d+-\d+ is {_ANY} "
_KALDI_VALUES = re.compile(rf"for minibatches \d{{1,9}}-(\d{{1,9}}) is ({_ANY}) ")


def _pairs_in_block(text: str) -> Iterator[tuple[str, str]]:
    return pairs(_NO_NAME.sub("", text))


_NO_NAME = re.compile(r"^(?:Train|Eval) | \(group 0\)")


def any_pairs(text: str) -> Reading | None:
    """Read a line of an unknown trainer: it names a loss or the like, and is of no known format."""
    is_known = any(
        known.pattern.search(text)
        and not (known.name == "loss_scaler" and known.parse(text) is None)
        for known in KNOWN
    )
    return None if is_known else read_any(text)


_LOSSES = "loss|train_loss|step_loss|lm_loss|eval_loss|valid_loss|val_loss"
_COMPOSER_LR = ("decoupledadamw", "adamw", "adam", "decoupledlionw", "lion", "sgd")
_COMPOSER = {f"lr-{name}/group0": ("lr", 1.0) for name in _COMPOSER_LR}
_COMPOSER["l2_norm/grad/global"] = ("grad_norm", 1.0)
_COMPOSER["throughput/device/mfu"] = ("mfu_ratio", 1.0)

# fmt: off
KNOWN: tuple[Format, ...] = (
    # Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge, GPT-NeoX
    Format("megatron", r"iteration\s+\d+\s*/\s*\d+\s*\|\s+(?:consumed|elapsed)",
        " [2025-01-02 03:04:05] iteration      120/    5000 | consumed samples:        30720 | "
        "elapsed time per iteration (ms): 1250.5 | throughput per GPU (TFLOP/s/GPU): 312.7 | "
        "learning rate: 1.200000E-04 | global batch size:   256 | lm loss: 4.512340E+00 | "
        "loss scale: 1.0 | grad norm: 0.873 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |",
        {"step": 120, "step_seconds_max": 1.2505, "model_tflops_per_second": 312.7, "lr": 1.2e-4,
         "loss": 4.51234, "loss_scale": 1.0, "grad_norm": 0.873},
        scan=columns, amend=_without_loss,
        per_device=("model_tflops_per_second", "tokens_per_second")),
    Format("megatron_validation", r"valid(?:ation)? (?:loss|results) at iteration (\d+)",
        " validation loss at iteration 400 | lm loss value: 3.210000E+00 | lm loss PPL: 2.477909E+01 | ",
        {"step": 400, "validation_loss": 3.21},
        extra=dict.fromkeys(("lm_loss_value", "lm_loss_value:"), ("validation_loss", 1.0)),
        amend=_only_validation_loss),
    Format("nanotron", r"iteration: [\d.]+[KM]? / [\d.]+[KM]? \|",
        "01/02/2025 03:04:05 [INFO|DP=0|PP=0|TP=0|node7]: iteration: 40 / 900 | consumed_tokens: 2.62M | "
        "elapsed_time_per_iteration_ms: 1.32K | tokens_per_sec: 49.6K | tokens_per_sec_per_gpu: 6.2K | "
        "global_batch_size: 32 | lm_loss: 6.71 | lr: 0.00012 | model_tflops_per_gpu: 41.5 | "
        "hardware_tflops_per_gpu: 47.1 | grad_norm: 1.9",
        {"step": 40, "step_seconds_max": 1.32, "tokens_per_second": 49600.0, "loss": 6.71,
         "lr": 1.2e-4, "model_tflops_per_second": 41.5, "grad_norm": 1.9},
        per_device=("model_tflops_per_second",)),
    Format("deepspeed", r"step=\d+, skipped=\d+, lr=\[",
        "[2025-01-02 03:04:05,678] [INFO] [logging.py:128:log_dist] [Rank 0] step=70, skipped=3, "
        "lr=[2.5e-05, 2.5e-05], mom=[(0.9, 0.95), (0.9, 0.95)]",
        {"step": 70, "lr": 2.5e-5}),
    Format("deepspeed_pipeline", r"steps: \d+ loss: .*iter time \(s\): ",
        "steps: 60 loss: 5.4321 iter time (s): 2.250 samples/sec: 28.444",
        {"step": 60, "loss": 5.4321, "step_seconds_max": 2.25, "samples_per_second": 28.444}),
    Format("loss_scaler", loss_scalers.MARK,
        "[2025-01-02 03:04:05,678] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 "
        "Skipping step. Attempted loss scale: 4096, reducing to 2048",
        {"skipped": 1.0, "loss_scale": 2048.0}, parser=loss_scalers.read_scaler),
    Format("huggingface", rf"\{{(?:'[^{{}}]*, )?'(?:{_LOSSES})': ",
        " 12%|█▏        | 30/250 [01:00<07:20,  2.00s/it]{'loss': 2.345, 'grad_norm': '1.25', "
        "'learning_rate': 4.4e-05, 'epoch': 0.36}",
        {"step": 30, "loss": 2.345, "grad_norm": 1.25, "lr": 4.4e-5},
        scan=quoted, unless="train_runtime", bar=True, amend=_with_step_before),
    # metaseq, fairseq, LLaMA-Factory, and others that print JSON
    Format("json", rf'\{{(?:"[^{{}}]*,\s?)?"(?:{_LOSSES})"\s?:',
        '2025-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "update": 0.04, "loss": "8.125", "ppl": "279.2", '
        '"wps": "52000", "ups": "0.4", "num_updates": "250", "lr": "7.5e-05", "gnorm": "1.5", "loss_scale": "16"}',
        {"step": 250, "loss": 8.125, "tokens_per_second": 52000.0, "lr": 7.5e-5, "grad_norm": 1.5,
         "loss_scale": 16.0}, scan=quoted, extra={"test_loss": ("validation_loss", 1.0)},
        amend=_with_step_around, places=True),
    Format("fairseq", r"(?:loss[= ]|\| loss ).*num_updates[= ]\d+",
        "2025-01-02 03:04:05 | INFO | train_inner | epoch 002:    120 / 3100 loss=7.25, nll_loss=6.5, ppl=90.5, "
        "wps=31000, ups=1.9, wpb=16384, bsz=64, num_updates=3220, lr=0.0004, gnorm=0.75, train_wall=60, wall=1700",
        {"step": 3220, "loss": 7.25, "tokens_per_second": 31000.0, "lr": 4e-4, "grad_norm": 0.75},
        unless="valid on "),
    Format("fairseq_validation", r"valid on '\w+' subset \|",
        "2025-01-02 03:04:05 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 6.875 | nll_loss 6.1 | "
        "ppl 68.6 | wps 90000 | num_updates 6200 | best_loss 6.875",
        {"step": 6200, "validation_loss": 6.875}, amend=_only_validation_loss),
    # Until its first whole epoch a run that resumed within one draws "Training: | 41/? [...".
    Format("lightning",
        r"(?:Epoch\s+\d+:\s[^\[]*\d+/\d+|Training:\s[^\[]*\d+/\?) \[[^\]]*[Ll]oss[\w/]*=",
        "Epoch 1:  40%|████      | 80/200 [00:40<01:00,  2.00it/s, loss=3.75, v_num=4, lr=0.0002, global_step=280.0]",
        {"step": 280, "loss": 3.75, "lr": 2e-4}, amend=_place_of_bar, places=True),
    # diffusers, accelerate: a bar that counts steps
    Format("progress_bar",
        r"(?:Steps?|Iterations?):\s+\d+%\|[^\[]*\|\s*(\d+)/\d+ \[[^\]]*[Ll]oss[\w/]*=",
        "Steps:  15%|█▌        | 300/2000 [03:20<18:53,  1.50it/s, lr=1e-05, step_loss=0.125]",
        {"step": 300, "lr": 1e-5, "loss": 0.125}),
    Format("neuron", r"LOG \w{3} [\w :]+ - \(\d+, (\d+)\) step_loss :",
        "LOG Thu Jan  2 03:04:05 2025 - (0, 17) step_loss : 8.2500 learning_rate : 3.40e-06 throughput : 6250.50 "
        "grad-norm : 1.75",
        {"step": 17, "loss": 8.25, "lr": 3.4e-6, "grad_norm": 1.75}),
    Format("nemo", r"Training epoch \d+, iteration \d+/\d+ \|",
        "Training epoch 0, iteration 24/499 | lr: 3.6e-06 | global_batch_size: 64 | global_step: 24 | "
        "reduced_train_loss: 9.875 | train_step_timing in s: 1.75 | consumed_samples: 1600",
        {"step": 24, "lr": 3.6e-6, "loss": 9.875, "step_seconds_max": 1.75}),
    Format("torchtitan", rf"step:\s*\d+{COLOURS}loss:",
        "[rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - \x1b[31mstep: 40  \x1b[32mloss:  6.5432  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.2500  \x1b[38;2;54;234;195mmemory: 40.12GiB(50.62%)  "
        "\x1b[34mtps: 5,120  \x1b[36mtflops: 300.25  \x1b[35mmfu: 30.25%\x1b[39m",
        {"step": 40, "loss": 6.5432, "grad_norm": 1.25, "tokens_per_second": 5120.0,
         "model_tflops_per_second": 300.25, "mfu_ratio": 0.3025},
        unless="validate", per_device=("tokens_per_second", "model_tflops_per_second")),
    Format("torchtitan_validation", rf"validate {COLOURS}step:\s*(\d+){COLOURS}loss:",
        "[titan] 2025-01-02 03:04:05,678 - root - INFO - validate step: 100  loss:  5.5000  memory: 20.10GiB(25.12%)  "
        "tps: 20,480",
        {"step": 100, "validation_loss": 5.5}, amend=_only_validation_loss),
    Format("lingua", r"step: \d+\s+acc: \d+\s+loss:",
        "0: INFO    25-01-02 03:04:05.678901 - 0:01:40 - step: 200  acc: 0  loss:  5.125  grad: 7.50e-01  "
        "flops: 3.10e+14  wps: 4.10e+04  iter:  0.375  data:   0.01  lr: 3.00e-04  mem: 55%  pow: 450 W",
        {"step": 200, "loss": 5.125, "grad_norm": 0.75, "tokens_per_second": 41000.0,
         "step_seconds_max": 0.375, "lr": 3e-4},
        extra={"grad": ("grad_norm", 1.0), "iter": ("step_seconds_max", 1.0)},
        per_device=("tokens_per_second",)),
    Format("nanogpt", r"iter \d+: loss ",
        "iter 170: loss 4.1250, time 320.50ms, mfu 28.50%",
        {"step": 170, "loss": 4.125, "step_seconds_max": 0.3205, "mfu_ratio": 0.285},
        extra={"time": ("step_seconds_max", 1.0)}),
    Format("nanogpt_validation", r"step \d+: train loss \S+, val loss ",
        "step 250: train loss 3.6250, val loss 3.7500",
        {"step": 250, "loss": 3.625, "validation_loss": 3.75}),
    Format("build_nanogpt", r"step\s+\d+ \| loss: .*\| dt: ",
        "step    90 | loss: 5.875000 | lr 7.5000e-05 | norm: 0.6250 | dt: 345.50ms | tok/sec: 1517000.25",
        {"step": 90, "loss": 5.875, "lr": 7.5e-5, "grad_norm": 0.625, "step_seconds_max": 0.3455,
         "tokens_per_second": 1517000.25},
        extra={"norm": ("grad_norm", 1.0), "dt": ("step_seconds_max", 1e-3)}),
    # modded-nanogpt
    Format("speedrun", r"step:\d+/\d+ (?:train|val)_loss:",
        "step:375/4000 val_loss:4.1250 train_time:52000ms step_avg:138.70ms",
        {"step": 375, "validation_loss": 4.125}),
    Format("llm.c", r"step\s+\d+/\d+ \| (?:train )?loss ",
        "step   33/18000 | loss 7.125000 (+nanz)| norm 2.2500 (-0.35z)| lr 2.83e-05 | 1875.50 ms | 48.5% bf16 MFU | "
        "279000 tok/s",
        {"step": 33, "loss": 7.125, "grad_norm": 2.25, "lr": 2.83e-5, "mfu_ratio": 0.485,
         "step_seconds_max": 1.8755, "tokens_per_second": 279000.0},
        extra={"norm": ("grad_norm", 1.0)}, amend=_numbers_before_names),
    Format("llm.c_cpu", r"step \d+: train loss \S+ \(took ",
        "step 7: train loss 4.125000 (took 1325.500000 ms)",
        {"step": 7, "loss": 4.125, "step_seconds_max": 1.3255},
        extra={"took": ("step_seconds_max", 1e-3)}),
    # llm-foundry
    Format("composer", r"\[batch=(\d+)/\d+\]|Eval metrics/eval/LanguageCrossEntropy: "
        r"|Train (?:loss/train/total|lr-\w+/group0|throughput/\w+/?\w*|l2_norm/grad/global): ",
        "\t Train loss/train/total: 8.1250",
        {"loss": 8.125},
        scan=_pairs_in_block, extra=_COMPOSER, per_device=("tokens_per_second",), block=True,
        places=True),
    # OLMo and OLMo-core
    Format("olmo", r"\[step=([\d,]+)(?:/[\d,]+)?[,\]]|train/(?:CrossEntropyLoss|CE loss)="
        r"|optim/(?:total[ _]grad[ _]norm|LR \(group 0\)|learning_rate_group0)="
        r"|throughput/device/(?:tokens_per_second|TPS|MFU)=",
        "    train/CrossEntropyLoss=9.125",
        {"loss": 9.125}, scan=_pairs_in_block, per_device=("tokens_per_second",), block=True),
    Format("maxtext", r"completed step: \d+, seconds: ",
        "completed step: 14, seconds: 3.250, TFLOP/s/device: 205.500, Tokens/s/device: 12600.125, "
        "total_weights: 65536, loss: 8.250",
        {"step": 14, "step_seconds_max": 3.25, "model_tflops_per_second": 205.5,
         "tokens_per_second": 12600.125, "loss": 8.25},
        extra={"seconds": ("step_seconds_max", 1.0)},
        per_device=("tokens_per_second", "model_tflops_per_second")),
    Format("maxtext_validation", r"eval metrics after step: (\d+), loss=",
        "eval metrics after step: 99, loss=7.125, total_weights=65536.0",
        {"step": 99, "validation_loss": 7.125}, amend=_only_validation_loss),
    Format("transformer_xl", r"epoch\s+\d+ step\s+\d+ \| batches\s+\d+ / \d+ \|",
        "| epoch   2 step     4000 | batches     90 / 1950 | lr 8.500e-04 | ms/batch 210.5 | tok/s  240000 | "
        "loss  4.25 | ppl     70.11",
        {"step": 4000, "lr": 8.5e-4, "step_seconds_max": 0.2105, "loss": 4.25,
         "tokens_per_second": 240000.0}),
    Format("transformer_xl_validation", r"Eval\s+\d+ step\s+\d+ \| time:",
        "| Eval   3 step     6000 | time:  95.10s | valid loss  3.75 | valid ppl    42.521",
        {"step": 6000, "validation_loss": 3.75}, amend=_only_validation_loss),
    Format("litgpt", r"iter \d+ step \d+ ?[|:] loss",
        "Epoch 1 | iter 48 step 12 | loss train: 2.625, val: n/a | iter time: 410.50 ms (step)",
        {"step": 12, "loss": 2.625, "step_seconds_max": 0.4105}),
    Format("torchtune", r"\d+\|(\d+)\|Loss: ",
        "1|36|Loss: 1.8125:   5%|▌         | 36/720 [00:50<15:40,  1.37s/it]",
        {"step": 36, "loss": 1.8125}),
    Format("mmengine", r"Iter\(train\) \[\s*(\d+)/\d+\].* loss: ",
        "01/02 03:04:05 - mmengine - INFO - Iter(train) [ 110/8000]  lr: 1.9000e-05  eta: 4:10:00  time: 1.8750  "
        "data_time: 0.0110  memory: 15010  grad_norm: 0.5000  loss: 1.1250",
        {"step": 110, "lr": 1.9e-5, "step_seconds_max": 1.875, "grad_norm": 0.5, "loss": 1.125},
        extra={"time": ("step_seconds_max", 1.0)}),
    Format("darknet", _DARKNET,
        "1200: 2.125000, 2.250000 avg loss, 0.001000 rate, 3.500000 seconds, 76800 images, 11.2 hours left",
        {"step": 1200, "loss": 2.125, "lr": 1e-3, "step_seconds_max": 3.5}, parser=_read_darknet),
    Format("kaldi", _KALDI,
        "LOG (nnet3-train[5.5]:PrintStatsForThisPhase():nnet-training.cc:290) Average objective function for 'output' for "
        "minibatches 100-199 is -1.25 over 12800 frames.",
        {"step": 199, "loss": 1.25}, parser=_read_kaldi),
    Format("xgboost", _BOOSTING,
        "[12]\ttrain-rmse:0.50000\teval-rmse:0.62500",
        {"step": 12, "loss": 0.5, "validation_loss": 0.625}, parser=_read_boosting),
    Format("espnet_results", trainer_parsers.ESPNET_RESULTS,
        "[node1] 2025-01-02 03:04:05,678 (trainer:338) INFO: 3epoch results: [train] iter_time=0.125, loss_ctc=80.5, "
        "loss=62.5, grad_norm=4.5, train_time=0.5, [valid] loss_ctc=70.5, acc=0.5, loss=60.25, time=1 minute",
        {"validation_loss": 60.25}, parser=trainer_parsers.read_espnet_results),
    Format("deepspeed_timer", r"global_step=\d+, RunningAvgSamplesPerSec=",
        "[2025-01-02 03:04:05,678] [INFO] [timer.py:260:stop] epoch=0/micro_step=160/global_step=20, "
        "RunningAvgSamplesPerSec=25.5, CurrSamplesPerSec=24.25, MemAllocated=4.5GB, MaxMemAllocated=9.5GB",
        {"step": 20, "samples_per_second": 25.5},
        extra={"runningavgsamplespersec": ("samples_per_second", 1.0)}),
    Format("catboost", trainer_parsers.CATBOOST,
        "20:\tlearn: 0.5000000\ttest: 0.6250000\tbest: 0.6250000 (20)\ttotal: 1.25s\tremaining: 5.5s",
        {"step": 20, "loss": 0.5, "validation_loss": 0.625}, parser=trainer_parsers.read_catboost),
    Format("lightgbm", trainer_parsers.LIGHTGBM,
        "[20]\ttraining's l2: 0.5\ttraining's auc: 0.75\tvalid_1's l2: 0.625\tvalid_1's auc: 0.7",
        {"step": 20, "loss": 0.5, "validation_loss": 0.625}, parser=trainer_parsers.read_lightgbm),
    Format("trax", trainer_parsers.TRAX,
        "Step    200: train WeightedCategoryCrossEntropyLoss |  4.50000000",
        {"step": 200, "loss": 4.5}, parser=trainer_parsers.read_trax),
    Format("deeplearning4j", trainer_parsers.DL4J,
        "03:04:05.678 [main] INFO  o.d.o.l.ScoreIterationListener - Score at iteration 20 is 2.25",
        {"step": 20, "loss": 2.25}, parser=trainer_parsers.read_dl4j),
    Format("basicsr", trainer_parsers.BASICSR,
        "2025-01-02 03:04:05,678 INFO: [exp..][epoch:  0, iter:   2,000, lr:(2.000e-04,)] [eta: 1 day, 1:02:03, "
        "time (data): 0.250 (0.004)] l_pix: 2.5000e-02",
        {"step": 2000, "loss": 0.025, "lr": 2e-4, "step_seconds_max": 0.25},
        parser=trainer_parsers.read_basicsr),
    Format("matlab", trainer_parsers.MATLAB,
        "|       2 |         400 |       00:01:40 |       75.00% |       70.50% |       0.6250 |       0.7500 |          0.0100 |",
        {"step": 400, "loss": 0.625, "validation_loss": 0.75, "lr": 0.01},
        parser=trainer_parsers.read_matlab),
    Format("dllogger", r"Training Epoch: \d+ Training Iteration: \d+ ",
        "DLL 2025-01-02 03:04:05.678901 - Training Epoch: 0 Training Iteration: 64  average_loss : 9.5  "
        "step_loss : 9.25  learning_rate : 0.0003",
        {"step": 64, "loss": 9.25, "lr": 3e-4}),
)
FORMATS: tuple[Format, ...] = (
    *KNOWN,
    Format("pairs", any_numbers.MARK,
        "2025-01-02 03:04:05,678 INFO train.py:88 - tflops=150.25,step=45,loss=8.375,tgs (tokens/gpu/second)=4100.5,"
        "lr=2.5e-06,loss_scale=65536.0,grad_norm={'0_default': 1.75},micro_num=4",
        {"step": 45, "loss": 8.375, "model_tflops_per_second": 150.25, "lr": 2.5e-6,
         "tokens_per_second": 4100.5, "loss_scale": 65536.0, "grad_norm": 1.75},
        parser=any_pairs, bar=True, places=True),
)
# fmt: on
