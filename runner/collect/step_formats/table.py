"""The known formats of metric lines: one row each, with a sample.

A mark begins where the numbers begin, so what precedes it (ranks, times, loggers) is never read.
Samples are made up; the shapes are those of the trainers named, as of 2025.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runner.collect.lines import plain
from runner.collect.step_formats.name_value_pairs import (
    Reading,
    columns,
    number,
    pairs,
    quoted,
    reading_of,
)
from runner.facts.messages.signals import StepRecord

Parse = Callable[[str], Reading | None]
# Spaces and ANSI colours: torchtitan colours its lines.
COLOURS = r"[\s\x1b\[\d;m]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of line.

    `mark` matches every line of it, and uses nothing that a set engine (hyperscan, re2) cannot do.
    `parse` reads a line whether or not it bears a step. `holds` is what `sample` says, by
    StepRecord's field names.
    """

    name: str
    mark: str
    parse: Parse
    sample: str
    holds: Mapping[str, float]
    # Fields that are printed per device, not for the gang.
    per_device: tuple[str, ...] = ()
    # The step is on a line of its own, before the numbers.
    block: bool = False
    # Without a step, the one of a progress bar on the same line counts.
    bar: bool = False

    def read(self, text: str) -> StepRecord | None:
        """Read a whole line; None: it holds no step of this format."""
        reading = self.parse(plain(text))
        return None if reading is None else reading.record()


def from_mark(
    mark: str,
    *,
    scan: Callable[[str], Iterator[tuple[str, str]]] = pairs,
    extra: Mapping[str, tuple[str, float]] | None = None,
    unless: str = "",
) -> Parse:
    """Read pairs from where the last `mark` begins, unless a certain word is in the line; None where there is no number."""
    pattern = re.compile(mark)

    def parse(text: str) -> Reading | None:
        start = _last(pattern, text)
        if start is None or (unless and unless in text):
            return None
        reading = reading_of(scan(text[start:]), extra)
        return reading if reading.numbers else None

    return parse


def _last(pattern: re.Pattern[str], text: str) -> int | None:
    start = None
    for match in pattern.finditer(text):
        start = match.start()
    return start


def pairs_format(
    *,
    mark: str,
    scan: Callable[[str], Iterator[tuple[str, str]]] = pairs,
    extra: Mapping[str, tuple[str, float]] | None = None,
    unless: str = "",
    **fields: Any,
) -> Format:
    """Make a format whose parser is `from_mark` of its own mark."""
    return Format(mark=mark, parse=from_mark(mark, scan=scan, extra=extra, unless=unless), **fields)


def validation(parse: Parse) -> Parse:
    """Read the loss of `parse` as the loss of a validation, with the step and nothing else."""

    def parse_validation(text: str) -> Reading | None:
        reading = parse(text)
        if reading is None:
            return None
        loss = reading.numbers.get("validation_loss", reading.numbers.get("loss"))
        return None if loss is None else replace(reading, numbers={"validation_loss": loss})

    return parse_validation


def megatron(text: str) -> Reading | None:
    """Read a line of Megatron. Without a loss, all steps since the line before were skipped."""
    reading = _megatron_pairs(text)
    if reading is None:
        return None
    skipped = _SKIPPED.search(text)
    if skipped is None or int(skipped[1]) == 0 or "loss" in reading.numbers:
        return reading
    return replace(reading, numbers={**reading.numbers, "skipped": 1.0})


MEGATRON = r"iteration\s+\d+\s*/\s*\d+\s*\|\s+(?:consumed|elapsed)"
_SKIPPED = re.compile(r"number of skipped iterations:\s*(\d+)")
_megatron_pairs = from_mark(MEGATRON, scan=columns)


def dictionary(text: str) -> Reading | None:
    """Read the dictionary that the Trainer of Hugging Face prints. Its last one is of the whole run: it is no step."""
    start = _last(_DICTIONARY, text)
    if start is None or "train_runtime" in text[start:]:
        return None
    reading = reading_of(quoted(text[start:]))
    return reading if reading.numbers else None


_LOSSES = "loss|train_loss|step_loss|lm_loss|eval_loss|valid_loss|val_loss"
DICTIONARY = rf"\{{(?:'[^{{}}]*, )?'(?:{_LOSSES})': "
_DICTIONARY = re.compile(DICTIONARY)


def llm_c(text: str) -> Reading | None:
    """Read a line of llm.c, in which three numbers stand before their names."""
    reading = _llm_c_pairs(text)
    if reading is None:
        return None
    numbers = dict(reading.numbers)
    for name, pattern, factor in _LLM_C_UNITS:
        match = pattern.search(text)
        value = number(match[1], factor) if match else None
        if value is not None and value >= 0:
            numbers[name] = value
    return replace(reading, numbers=numbers)


LLM_C = r"step\s+\d+/\d+ \| (?:train )?loss "
_llm_c_pairs = from_mark(LLM_C, extra={"norm": ("grad_norm", 1.0)})
_LLM_C_UNITS = (
    ("step_seconds_max", re.compile(r"\|\s*\(?([\d.]+) ms"), 1e-3),
    ("mfu_ratio", re.compile(r"\|\s*(-?[\d.]+)% bf16 MFU"), 0.01),
    ("tokens_per_second", re.compile(r"\|\s*([\d.]+) tok/s"), 1.0),
)


def torchtune(text: str) -> Reading | None:
    """Read the progress bar of torchtune, which begins with epoch, step and loss."""
    found = re.findall(TORCHTUNE, text)
    if not found:
        return None
    epoch, step, loss = found[-1]
    value = number(loss)
    numbers = {} if value is None else {"loss": value}
    return Reading(step=int(step), epoch=float(epoch), numbers=numbers) if numbers else None


TORCHTUNE = r"(\d+)\|(\d+)\|Loss: ([-+\w.]+)"


def mmengine(text: str) -> Reading | None:
    """Read a line of mmengine, whose step stands in brackets behind "Iter(train)"."""
    match = re.search(MMENGINE, text)
    if match is None:
        return None
    reading = reading_of(pairs(text[match.end() :]), {"time": ("step_seconds_max", 1.0)})
    return replace(reading, step=int(match[1])) if "loss" in reading.numbers else None


MMENGINE = r"Iter\(train\) \[\s*(\d+)/\d+\]"


def progress_bar(text: str) -> Reading | None:
    """Read a progress bar that counts steps."""
    reading = _bar_pairs(text)
    found = re.findall(r"\|\s*(\d+)/\d+ \[", text)
    return replace(reading, step=int(found[-1])) if reading and found else None


BAR = r"(?:Steps?|Iterations?):\s+\d+%\|[^\[]*\d+/\d+ \[[^\]]*[Ll]oss[\w/]*="
_bar_pairs = from_mark(BAR)


def neuron(text: str) -> Reading | None:
    """Read a line of the examples for AWS Trainium, with epoch and step in parentheses."""
    match = re.search(NEURON, text)
    if match is None:
        return None
    reading = reading_of(pairs(text[match.end(1) + 1 :]))
    return replace(reading, step=int(match[1])) if "loss" in reading.numbers else None


NEURON = r"LOG \w{3} [\w :]+ - \(\d+, (\d+)\) step_loss :"


def overflow(text: str) -> Reading | None:
    """Read DeepSpeed's line on a skipped step: it has the next loss scale, and no step."""
    match = re.search(OVERFLOW, text)
    if match is None:
        return None
    return Reading(numbers={"skipped": 1.0, "loss_scale": float(match[2] or match[1])})


OVERFLOW = (
    r"OVERFLOW! Rank \d+ Skipping step. Attempted loss scale: ([\d.]+)(?:, reducing to ([\d.]+))?"
)


def composer(text: str) -> Reading | None:
    """Read one line of Composer's block; the first holds the step."""
    header = re.search(r"\[batch=(\d+)/\d+\]", text)
    if header is not None:
        return Reading(step=int(header[1]))
    match = re.search(COMPOSER, text)
    reading = reading_of(pairs(text[match.start() + 5 :]), _COMPOSER) if match else Reading()
    return replace(reading, step=None) if reading.numbers else None


COMPOSER = (
    r"\[batch=\d+/\d+\]|Train (?:loss/train/total|lr-\w+/group0|throughput/\w+/?\w*|l2_norm/grad/global): "
    r"|Eval metrics/eval/LanguageCrossEntropy: "
)
_COMPOSER = {
    **{f"lr-{name}/group0": ("lr", 1.0) for name in ("decoupledadamw", "adamw", "adam")},
    **{f"lr-{name}/group0": ("lr", 1.0) for name in ("decoupledlionw", "lion", "sgd")},
    "l2_norm/grad/global": ("grad_norm", 1.0),
    "throughput/device/mfu": ("mfu_ratio", 1.0),
}


def olmo(text: str) -> Reading | None:
    """Read one line of OLMo's block; the first holds the step."""
    header = re.search(r"\[step=([\d,]+)(?:/[\d,]+)?[,\]]", text)
    if header is not None:
        return Reading(step=int(header[1].replace(",", "")))
    match = re.search(OLMO, text)
    if match is None:
        return None
    reading = reading_of(pairs(text[match.start() :].replace(" (group 0)", "")))
    return replace(reading, step=None) if reading.numbers else None


OLMO = (
    r"\[step=[\d,]+(?:/[\d,]+)?[,\]]|train/(?:CrossEntropyLoss|CE loss)="
    r"|optim/(?:total[ _]grad[ _]norm|LR \(group 0\)|learning_rate_group0)="
    r"|throughput/device/(?:tokens_per_second|TPS|MFU)="
)


def any_pairs(text: str) -> Reading | None:
    """Read a line of an unknown trainer: it names a step and a loss, and is of no known format."""
    if any(pattern.search(text) for pattern in _OTHERS):
        return None
    match = _PAIRS.search(text)
    if match is None:
        return None
    found = [(_step_name(key), value) for key, value in pairs(text)]
    reading = reading_of(iter(found))
    return reading if reading.step is not None and _has_loss(reading) else None


def _has_loss(reading: Reading) -> bool:
    return "loss" in reading.numbers or "validation_loss" in reading.numbers


def _step_name(key: str) -> str:
    """Remove a logger's words from the name of a step ("INFO step"); steps of something else keep their name."""
    words = key.lower().split()
    if words[-1] not in _STEPS or len(words) == 1 or any(word in _OTHER_STEPS for word in words):
        return key
    return words[-1]


_STEPS = ("step", "iter", "iteration", "global_step")
_OTHER_STEPS = (
    *("val", "valid", "validate", "validation", "eval", "evaluation", "test", "micro", "max"),
    *("total", "warmup", "per", "at", "from", "save", "checkpoint", "decay", "skip"),
    "accumulation",
)
_STEP_PAIR = (
    r"(?:step|Step|STEP|iter|Iter|iteration|Iteration|num_updates)s?(?:\s*[:=]\s*\[?\s*|\s+)\d"
)
_LOSS_PAIR = (
    r"(?:loss|Loss|LOSS)(?:\s*[:=]\s*|\s+)(?:tensor\(|\[)?[-+]?(?:\d|\.\d|[Nn]a[Nn]|NAN|[Ii]nf|INF)"
)
PAIRS = rf"{_STEP_PAIR}.*{_LOSS_PAIR}|{_LOSS_PAIR}.*{_STEP_PAIR}"
_PAIRS = re.compile(PAIRS)

_VALIDATION = r"valid(?:ation)? (?:loss|results) at iteration \d+"
_THROUGHPUT = r"global_step=\d+, RunningAvgSamplesPerSec="
_FAIRSEQ_VALID = r"valid on '\w+' subset \|"
_TITAN = rf"step:\s*\d+{COLOURS}loss:"
_BUILD = r"step\s+\d+ \| loss: .*\| dt: "
_MAXTEXT_VALIDATION = r"eval metrics after step: \d+, loss="
_TXL_VALIDATION = r"Eval\s+\d+ step\s+\d+ \| time:"
_LINGUA = r"step: \d+\s+acc: \d+\s+loss:"

KNOWN: tuple[Format, ...] = (
    Format(
        # Megatron-LM, Megatron-DeepSpeed, Megatron-Bridge, GPT-NeoX
        name="megatron",
        mark=MEGATRON,
        parse=megatron,
        sample=" [2025-01-02 03:04:05] iteration      120/    5000 | consumed samples:        30720 | "
        "elapsed time per iteration (ms): 1250.5 | throughput per GPU (TFLOP/s/GPU): 312.7 | "
        "learning rate: 1.200000E-04 | global batch size:   256 | lm loss: 4.512340E+00 | "
        "loss scale: 1.0 | grad norm: 0.873 | number of skipped iterations:   0 | "
        "number of nan iterations:   0 |",
        holds={
            "step": 120,
            "step_seconds_max": 1.2505,
            "model_tflops_per_second": 312.7,
            "lr": 1.2e-4,
            "loss": 4.51234,
            "loss_scale": 1.0,
            "grad_norm": 0.873,
        },
        per_device=("model_tflops_per_second", "tokens_per_second"),
    ),
    Format(
        name="megatron_validation",
        mark=_VALIDATION,
        parse=validation(
            from_mark(
                _VALIDATION,
                extra={
                    **{
                        f"{kind}_at_iteration": ("step", 1.0)
                        for kind in ("valid_loss", "validation_loss", "validation_results")
                    },
                    "lm_loss_value": ("validation_loss", 1.0),
                    "lm_loss_value:": ("validation_loss", 1.0),
                },
            )
        ),
        sample=" validation loss at iteration 400 | lm loss value: 3.210000E+00 | lm loss PPL: 2.477909E+01 | ",
        holds={"step": 400, "validation_loss": 3.21},
    ),
    pairs_format(
        name="nanotron",
        mark=r"iteration: [\d.]+[KM]? / [\d.]+[KM]? \|",
        sample="01/02/2025 03:04:05 [INFO|DP=0|PP=0|TP=0|node7]: iteration: 40 / 900 | consumed_tokens: 2.62M | "
        "elapsed_time_per_iteration_ms: 1.32K | tokens_per_sec: 49.6K | tokens_per_sec_per_gpu: 6.2K | "
        "global_batch_size: 32 | lm_loss: 6.71 | lr: 0.00012 | model_tflops_per_gpu: 41.5 | "
        "hardware_tflops_per_gpu: 47.1 | grad_norm: 1.9",
        holds={
            "step": 40,
            "step_seconds_max": 1.32,
            "tokens_per_second": 49600.0,
            "loss": 6.71,
            "lr": 1.2e-4,
            "model_tflops_per_second": 41.5,
            "grad_norm": 1.9,
        },
        per_device=("model_tflops_per_second",),
    ),
    pairs_format(
        name="deepspeed",
        mark=r"step=\d+, skipped=\d+, lr=\[",
        sample="[2025-01-02 03:04:05,678] [INFO] [logging.py:128:log_dist] [Rank 0] step=70, skipped=3, "
        "lr=[2.5e-05, 2.5e-05], mom=[(0.9, 0.95), (0.9, 0.95)]",
        holds={"step": 70, "lr": 2.5e-5},
    ),
    pairs_format(
        name="deepspeed_pipeline",
        mark=r"steps: \d+ loss: .*iter time \(s\): ",
        sample="steps: 60 loss: 5.4321 iter time (s): 2.250 samples/sec: 28.444",
        holds={"step": 60, "loss": 5.4321, "step_seconds_max": 2.25},
    ),
    Format(
        name="deepspeed_overflow",
        mark=r"OVERFLOW! Rank \d+ Skipping step\. Attempted loss scale: [\d.]+",
        parse=overflow,
        sample="[2025-01-02 03:04:05,678] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 "
        "Skipping step. Attempted loss scale: 4096, reducing to 2048",
        holds={"skipped": 1.0, "loss_scale": 2048.0},
    ),
    Format(
        name="huggingface",
        mark=DICTIONARY,
        parse=dictionary,
        sample=" 12%|█▏        | 30/250 [01:00<07:20,  2.00s/it]{'loss': 2.345, 'grad_norm': '1.25', "
        "'learning_rate': 4.4e-05, 'epoch': 0.36}",
        holds={"step": 30, "loss": 2.345, "grad_norm": 1.25, "lr": 4.4e-5},
        bar=True,
    ),
    pairs_format(
        # metaseq, fairseq, LLaMA-Factory, and others that print JSON
        name="json",
        mark=rf'\{{(?:"[^{{}}]*,\s?)?"(?:{_LOSSES})"\s?:',
        scan=quoted,
        sample='2025-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "update": 0.04, "loss": "8.125", "ppl": "279.2", '
        '"wps": "52000", "ups": "0.4", "num_updates": "250", "lr": "7.5e-05", "gnorm": "1.5", "loss_scale": "16"}',
        holds={
            "step": 250,
            "loss": 8.125,
            "tokens_per_second": 52000.0,
            "lr": 7.5e-5,
            "grad_norm": 1.5,
            "loss_scale": 16.0,
        },
    ),
    pairs_format(
        name="fairseq",
        mark=r"(?:loss[= ]|\| loss ).*num_updates[= ]\d+",
        unless="valid on ",
        sample="2025-01-02 03:04:05 | INFO | train_inner | epoch 002:    120 / 3100 loss=7.25, nll_loss=6.5, ppl=90.5, "
        "wps=31000, ups=1.9, wpb=16384, bsz=64, num_updates=3220, lr=0.0004, gnorm=0.75, train_wall=60, wall=1700",
        holds={
            "step": 3220,
            "loss": 7.25,
            "tokens_per_second": 31000.0,
            "lr": 4e-4,
            "grad_norm": 0.75,
        },
    ),
    Format(
        name="fairseq_validation",
        mark=_FAIRSEQ_VALID,
        parse=validation(from_mark(_FAIRSEQ_VALID)),
        sample="2025-01-02 03:04:05 | INFO | valid | epoch 002 | valid on 'valid' subset | loss 6.875 | nll_loss 6.1 | "
        "ppl 68.6 | wps 90000 | num_updates 6200 | best_loss 6.875",
        holds={"step": 6200, "validation_loss": 6.875},
    ),
    pairs_format(
        name="lightning",
        mark=r"Epoch\s+\d+:\s[^\[]*\d+/\d+ \[[^\]]*[Ll]oss[\w/]*=",
        sample="Epoch 1:  40%|████      | 80/200 [00:40<01:00,  2.00it/s, loss=3.75, v_num=4, lr=0.0002, global_step=280.0]",
        holds={"step": 280, "loss": 3.75, "lr": 2e-4},
    ),
    Format(
        # diffusers, accelerate: a bar that counts steps
        name="progress_bar",
        mark=BAR,
        parse=progress_bar,
        sample="Steps:  15%|█▌        | 300/2000 [03:20<18:53,  1.50it/s, lr=1e-05, step_loss=0.125]",
        holds={"step": 300, "lr": 1e-5, "loss": 0.125},
    ),
    Format(
        name="neuron",
        mark=NEURON,
        parse=neuron,
        sample="LOG Thu Jan  2 03:04:05 2025 - (0, 17) step_loss : 8.2500 learning_rate : 3.40e-06 throughput : 6250.50 "
        "grad-norm : 1.75",
        holds={"step": 17, "loss": 8.25, "lr": 3.4e-6, "grad_norm": 1.75},
    ),
    pairs_format(
        name="nemo",
        mark=r"Training epoch \d+, iteration \d+/\d+ \|",
        sample="Training epoch 0, iteration 24/499 | lr: 3.6e-06 | global_batch_size: 64 | global_step: 24 | "
        "reduced_train_loss: 9.875 | train_step_timing in s: 1.75 | consumed_samples: 1600",
        holds={"step": 24, "lr": 3.6e-6, "loss": 9.875, "step_seconds_max": 1.75},
    ),
    pairs_format(
        name="torchtitan",
        mark=_TITAN,
        unless="validate",
        sample="[rank0]:[titan] 2025-01-02 03:04:05,678 - root - INFO - \x1b[31mstep: 40  \x1b[32mloss:  6.5432  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.2500  \x1b[38;2;54;234;195mmemory: 40.12GiB(50.62%)  "
        "\x1b[34mtps: 5,120  \x1b[36mtflops: 300.25  \x1b[35mmfu: 30.25%\x1b[39m",
        holds={
            "step": 40,
            "loss": 6.5432,
            "grad_norm": 1.25,
            "tokens_per_second": 5120.0,
            "model_tflops_per_second": 300.25,
            "mfu_ratio": 0.3025,
        },
        per_device=("tokens_per_second", "model_tflops_per_second"),
    ),
    Format(
        name="torchtitan_validation",
        mark=rf"validate {COLOURS}step:\s*\d+{COLOURS}loss:",
        parse=validation(from_mark(_TITAN)),
        sample="[titan] 2025-01-02 03:04:05,678 - root - INFO - validate step: 100  loss:  5.5000  memory: 20.10GiB(25.12%)  "
        "tps: 20,480",
        holds={"step": 100, "validation_loss": 5.5},
    ),
    Format(
        name="lingua",
        mark=_LINGUA,
        parse=from_mark(
            _LINGUA, extra={"grad": ("grad_norm", 1.0), "iter": ("step_seconds_max", 1.0)}
        ),
        sample="0: INFO    25-01-02 03:04:05.678901 - 0:01:40 - step: 200  acc: 0  loss:  5.125  grad: 7.50e-01  "
        "flops: 3.10e+14  wps: 4.10e+04  iter:  0.375  data:   0.01  lr: 3.00e-04  mem: 55%  pow: 450 W",
        holds={
            "step": 200,
            "loss": 5.125,
            "grad_norm": 0.75,
            "tokens_per_second": 41000.0,
            "step_seconds_max": 0.375,
            "lr": 3e-4,
        },
        per_device=("tokens_per_second",),
    ),
    pairs_format(
        name="nanogpt",
        mark=r"iter \d+: loss ",
        extra={"time": ("step_seconds_max", 1.0)},
        sample="iter 170: loss 4.1250, time 320.50ms, mfu 28.50%",
        holds={"step": 170, "loss": 4.125, "step_seconds_max": 0.3205, "mfu_ratio": 0.285},
    ),
    pairs_format(
        name="nanogpt_validation",
        mark=r"step \d+: train loss \S+, val loss ",
        sample="step 250: train loss 3.6250, val loss 3.7500",
        holds={"step": 250, "loss": 3.625, "validation_loss": 3.75},
    ),
    Format(
        name="build_nanogpt",
        mark=_BUILD,
        parse=from_mark(
            _BUILD, extra={"norm": ("grad_norm", 1.0), "dt": ("step_seconds_max", 1e-3)}
        ),
        sample="step    90 | loss: 5.875000 | lr 7.5000e-05 | norm: 0.6250 | dt: 345.50ms | tok/sec: 1517000.25",
        holds={
            "step": 90,
            "loss": 5.875,
            "lr": 7.5e-5,
            "grad_norm": 0.625,
            "step_seconds_max": 0.3455,
            "tokens_per_second": 1517000.25,
        },
    ),
    pairs_format(
        # modded-nanogpt
        name="speedrun",
        mark=r"step:\d+/\d+ (?:train|val)_loss:",
        sample="step:375/4000 val_loss:4.1250 train_time:52000ms step_avg:138.70ms",
        holds={"step": 375, "validation_loss": 4.125},
    ),
    Format(
        name="llm.c",
        mark=LLM_C,
        parse=llm_c,
        sample="step   33/18000 | loss 7.125000 (+nanz)| norm 2.2500 (-0.35z)| lr 2.83e-05 | 1875.50 ms | 48.5% bf16 MFU | "
        "279000 tok/s",
        holds={
            "step": 33,
            "loss": 7.125,
            "grad_norm": 2.25,
            "lr": 2.83e-5,
            "mfu_ratio": 0.485,
            "step_seconds_max": 1.8755,
            "tokens_per_second": 279000.0,
        },
    ),
    pairs_format(
        name="llm.c_cpu",
        mark=r"step \d+: train loss \S+ \(took ",
        extra={"took": ("step_seconds_max", 1e-3)},
        sample="step 7: train loss 4.125000 (took 1325.500000 ms)",
        holds={"step": 7, "loss": 4.125, "step_seconds_max": 1.3255},
    ),
    Format(
        # llm-foundry
        name="composer",
        mark=COMPOSER,
        parse=composer,
        sample="\t Train loss/train/total: 8.1250",
        holds={"loss": 8.125},
        per_device=("tokens_per_second",),
        block=True,
    ),
    Format(
        # OLMo and OLMo-core
        name="olmo",
        mark=OLMO,
        parse=olmo,
        sample="    train/CrossEntropyLoss=9.125",
        holds={"loss": 9.125},
        per_device=("tokens_per_second",),
        block=True,
    ),
    pairs_format(
        name="maxtext",
        mark=r"completed step: \d+, seconds: ",
        extra={"seconds": ("step_seconds_max", 1.0)},
        sample="completed step: 14, seconds: 3.250, TFLOP/s/device: 205.500, Tokens/s/device: 12600.125, "
        "total_weights: 65536, loss: 8.250",
        holds={
            "step": 14,
            "step_seconds_max": 3.25,
            "model_tflops_per_second": 205.5,
            "tokens_per_second": 12600.125,
            "loss": 8.25,
        },
        per_device=("tokens_per_second", "model_tflops_per_second"),
    ),
    Format(
        name="maxtext_validation",
        mark=_MAXTEXT_VALIDATION,
        parse=validation(
            from_mark(_MAXTEXT_VALIDATION, extra={"eval_metrics_after_step": ("step", 1.0)})
        ),
        sample="eval metrics after step: 99, loss=7.125, total_weights=65536.0",
        holds={"step": 99, "validation_loss": 7.125},
    ),
    pairs_format(
        name="transformer_xl",
        mark=r"epoch\s+\d+ step\s+\d+ \| batches\s+\d+ / \d+ \|",
        sample="| epoch   2 step     4000 | batches     90 / 1950 | lr 8.500e-04 | ms/batch 210.5 | tok/s  240000 | "
        "loss  4.25 | ppl     70.11",
        holds={
            "step": 4000,
            "lr": 8.5e-4,
            "step_seconds_max": 0.2105,
            "loss": 4.25,
            "tokens_per_second": 240000.0,
        },
    ),
    Format(
        name="transformer_xl_validation",
        mark=_TXL_VALIDATION,
        parse=validation(from_mark(_TXL_VALIDATION)),
        sample="| Eval   3 step     6000 | time:  95.10s | valid loss  3.75 | valid ppl    42.521",
        holds={"step": 6000, "validation_loss": 3.75},
    ),
    pairs_format(
        name="litgpt",
        mark=r"iter \d+ step \d+ ?[|:] loss",
        sample="Epoch 1 | iter 48 step 12 | loss train: 2.625, val: n/a | iter time: 410.50 ms (step)",
        holds={"step": 12, "loss": 2.625, "step_seconds_max": 0.4105},
    ),
    Format(
        name="torchtune",
        mark=r"\d+\|\d+\|Loss: ",
        parse=torchtune,
        sample="1|36|Loss: 1.8125:   5%|▌         | 36/720 [00:50<15:40,  1.37s/it]",
        holds={"step": 36, "loss": 1.8125},
    ),
    Format(
        name="mmengine",
        mark=r"Iter\(train\) \[\s*\d+/\d+\]",
        parse=mmengine,
        sample="01/02 03:04:05 - mmengine - INFO - Iter(train) [ 110/8000]  lr: 1.9000e-05  eta: 4:10:00  time: 1.8750  "
        "data_time: 0.0110  memory: 15010  grad_norm: 0.5000  loss: 1.1250",
        holds={
            "step": 110,
            "lr": 1.9e-5,
            "step_seconds_max": 1.875,
            "grad_norm": 0.5,
            "loss": 1.125,
        },
    ),
    pairs_format(
        name="dllogger",
        mark=r"Training Epoch: \d+ Training Iteration: \d+ ",
        sample="DLL 2025-01-02 03:04:05.678901 - Training Epoch: 0 Training Iteration: 64  average_loss : 9.5  "
        "step_loss : 9.25  learning_rate : 0.0003",
        holds={"step": 64, "loss": 9.25, "lr": 3e-4},
    ),
)
_OTHERS = tuple(re.compile(known.mark) for known in KNOWN)

FORMATS: tuple[Format, ...] = (
    *KNOWN,
    Format(
        name="pairs",
        mark=PAIRS,
        parse=any_pairs,
        sample="2025-01-02 03:04:05,678 INFO train.py:88 - tflops=150.25,step=45,loss=8.375,tgs (tokens/gpu/second)=4100.5,"
        "lr=2.5e-06,loss_scale=65536.0,grad_norm={'0_default': 1.75},micro_num=4",
        holds={
            "step": 45,
            "loss": 8.375,
            "model_tflops_per_second": 150.25,
            "lr": 2.5e-6,
            "tokens_per_second": 4100.5,
            "loss_scale": 65536.0,
            "grad_norm": 1.75,
        },
    ),
)
