"""Metric lines of foreign trainers are read as they are printed, each by one format, and nothing else is."""

import json
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.collect.lines import plain
from runner.collect.scan import Scan
from runner.collect.step_formats.formats import FORMATS, Format, MetricLines, Reading
from runner.errors import UserError
from runner.facts.messages.signals import StepRecord

REAL = Path(__file__).parents[2] / "../shared/data/logs"
FIELDS = {"tokens_per_s": "tokens_per_second", "tflops": "model_tflops_per_second"}


def values_of(reading: Reading | None) -> dict[str, float]:
    """Return all numbers of a reading, the step too."""
    assert reading is not None
    step = {} if reading.step is None else {"step": float(reading.step)}
    return {**step, **reading.numbers}


def look(line: str) -> dict[str, float]:
    """Read one line afresh."""
    return values_of(MetricLines().parse(line))


def read_all(lines: list[str]) -> list[StepRecord]:
    """Read the lines of one log."""
    metrics = MetricLines()
    return [record for line in lines if (record := metrics.read(line)) is not None]


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_a_sample_gives_the_values_it_holds(known: Format) -> None:
    """Every format's sample is read whole, by that format, and its mark matches it."""
    metrics = MetricLines()
    assert values_of(metrics.parse(known.sample)) == pytest.approx(dict(known.holds), rel=1e-9)
    assert metrics.name == known.name
    assert re.search(known.mark, known.sample)
    reading = known.parse(plain(known.sample))
    record = None if reading is None else reading.record()
    is_in_bar = known.bar and not known.places
    assert (record.step if record else None) == (None if is_in_bar else known.holds.get("step"))
    assert set(known.per_device) <= set(StepRecord.__struct_fields__)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_a_sample_is_silent_in_all_other_formats(known: Format) -> None:
    """No line is read by two formats, so that the order in which they are tried does not matter."""
    others = [other.name for other in FORMATS if other is not known and other.parse(known.sample)]
    assert others == []


def test_names_of_formats_are_distinct() -> None:
    """Every format has a name of its own."""
    names = [known.name for known in FORMATS]
    assert len(dict.fromkeys(names)) == len(names)


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
def test_a_mark_runs_in_a_set_engine(known: Format) -> None:
    """Marks use nothing that re2 and hyperscan cannot do."""
    re2 = pytest.importorskip("re2", reason="google-re2 is not installed")
    hyperscan = pytest.importorskip("hyperscan", reason="hyperscan is not installed")
    assert re2.search(known.mark, known.sample)
    hyperscan.Database().compile(expressions=[known.mark.encode()], flags=[0])


@pytest.mark.parametrize("known", FORMATS, ids=lambda known: known.name)
@pytest.mark.parametrize(
    "prefix",
    [
        *("[default3]:", "[rank0]:", "0:", "12: ", "node7: ", "(RayTrainWorker pid=12) ", "| "),
        *(
            "2025-01-02 03:04:05,678 - trainer - INFO - ",
            "\x1b[32m[INFO]\x1b[0m ",
            "[1,3]<stdout>:",
        ),
        "2025-01-02T03:04:05.678901234Z stdout F ",
    ],
)
def test_what_precedes_a_line_changes_nothing(known: Format, prefix: str) -> None:
    """Ranks, times, names of nodes and loggers, and colours before a line do not touch its numbers."""
    assert look(prefix + known.sample) == pytest.approx(dict(known.holds), rel=1e-9)


def test_real_lines_give_the_values_that_people_read_in_them() -> None:
    """Every number that was written down for real lines of public logs is read from them."""
    path = REAL / "formats.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is not there: it belongs to the reviewers, not to the project")
    for row in map(json.loads, path.read_text().splitlines()):
        metrics = MetricLines()
        readings = [found for line in row["lines"] if (found := metrics.parse(line))]
        assert len(readings) == len(row["expected"]), row["id"]
        for reading, expected in zip(readings, row["expected"], strict=True):
            wanted = {FIELDS.get(name, name): value for name, value in expected.items()}
            numbers = {name: value for name, value in values_of(reading).items() if name in wanted}
            assert numbers == pytest.approx(wanted, rel=1e-9), row["id"]


def test_lines_of_errors_hold_no_step() -> None:
    """Tracebacks, kernel lines and progress without a loss are no metric lines."""
    for line in (
        "  loss = model(batch)  # step 3",
        "Traceback (most recent call last):",
        '  File "train.py", line 12, in step',
        "[  512.250000] EXT4-fs error (device sda1): ext4_lookup:1707: inode #12",
        "Loaded checkpoint at step 100 with loss 2.5",
        "max steps: 1000, loss: mse",
        "{'train_runtime': 12.5, 'train_steps_per_second': 8.0, 'train_loss': 1.5, 'epoch': 3.0}",
        "Map: 100%|██████████| 5000/5000 [00:01<00:00, 4800.10 examples/s]",
        "saving checkpoint at iteration    1000 to /data/checkpoints",
        "",
    ):
        assert MetricLines().parse(line) is None, line


def test_names_and_spellings_that_are_seen_in_the_field() -> None:
    """Lines of trainers without a row of their own are read by the names in them."""
    samples: dict[str, dict[str, Any]] = {
        "step:30, loss:2.5": {"step": 30, "loss": 2.5},
        "Epoch: 0, Step: 40, Rank: 0, loss = 2.25": {"step": 40, "loss": 2.25},
        "global step 50, epoch: 0, batch: 49, loss: 3.125000, speed: 2.50 step/s": {
            "step": 50,
            "loss": 3.125,
        },
        "iteration: 3 | loss: 9.125 | iteration time (ms): 1250.5": {
            "step": 3,
            "loss": 9.125,
            "step_seconds_max": 1.2505,
        },
        "I0102 03:04:05.678 1 writer.py:48] [70] global_step=70, grad_norm=0.25, loss=0.125": {
            "step": 70,
            "grad_norm": 0.25,
            "loss": 0.125,
        },
        "INFO - { Epoch:[  1/  2], step:[   15/ 2500], loss: 10.5, per_step_time: 5000ms, "
        "lr: 1e-06, loss_scale: 1.0, global_norm: [3.25]}": {
            "step": 15,
            "loss": 10.5,
            "step_seconds_max": 5.0,
            "lr": 1e-6,
            "loss_scale": 1.0,
            "grad_norm": 3.25,
        },
        "step:8 - train/loss:1.5 - train/grad_norm:0.5 - train/lr:1e-05": {
            "step": 8,
            "loss": 1.5,
            "grad_norm": 0.5,
            "lr": 1e-5,
        },
        "tflops=150.5 step=19 loss=0.25 tgs (tokens/gpu/second)=3300.5 tgs/tgs_all=2900.25 lr=1e-05 "
        "loss_scale=65536.0 grad_norm={'0_default': 0.5, '1_fp32': 0.0} micro_num=4": {
            "step": 19,
            "loss": 0.25,
            "model_tflops_per_second": 150.5,
            "tokens_per_second": 3300.5,
            "lr": 1e-5,
            "loss_scale": 65536.0,
            "grad_norm": 0.5,
        },
        "INFO:tensorflow:global step 10: loss = 0.375 (0.900 sec/step)": {
            "step": 10,
            "loss": 0.375,
            "step_seconds_max": 0.9,
        },
        "  step   40/2000  loss 2.5000  lr 1.00e-04  |grad| 0.750  (3.1 steps/s)": {
            "step": 40,
            "loss": 2.5,
            "lr": 1e-4,
        },
        " iteration        3/      90 | lm loss: 1.250000E+00 |": {"step": 3, "loss": 1.25},
        "step: 70  loss:  6.1250  memory: 20.50GiB(25.90%)  wps: 3,250  mfu: 20.50%": {
            "step": 70,
            "loss": 6.125,
            "tokens_per_second": 3250.0,
            "mfu_ratio": 0.205,
        },
        "{'training_steps': 100, 'average_loss': 8.125, 'step_loss': 8.0, 'learning_rate': 0.001}": {
            "step": 100,
            "loss": 8.0,
            "lr": 0.001,
        },
        '{"current_steps": 20, "total_steps": 300, "loss": 1.75, "lr": 5e-05, "epoch": 0.2}': {
            "step": 20,
            "loss": 1.75,
            "lr": 5e-5,
        },
        '2025-01-02 03:04:05 | INFO | valid | {"epoch": 1, "valid_loss": "7.5", '
        '"valid_num_updates": "400"}': {"step": 400, "validation_loss": 7.5},
        "iter 1000, loss 2.25, lr 1e-4": {"step": 1000, "loss": 2.25, "lr": 1e-4},
        "Epoch 2:  10%|█         | 86/860 [00:05<00:48, 16.00it/s, v_num=1, train_loss_step=1.5]": {
            "step": 1806,
            "loss": 1.5,
        },
        "Epoch 0: :   1%|          | 10/1000 [00:20<33:00, v_num=ab, reduced_train_loss=9.5, "
        "global_step=9.000, train_step_timing in s=2.25]": {
            "step": 9,
            "loss": 9.5,
            "step_seconds_max": 2.25,
        },
        "iter 300 step 75: loss 8.5, iter time: 512.50ms remaining time: 1.00 minutes": {
            "step": 75,
            "loss": 8.5,
            "step_seconds_max": 0.5125,
        },
        "Step 12 | loss:1.25 lr:2e-05 tokens_per_second_per_gpu:1200 grad_norm:tensor(0.75)": {
            "step": 12,
            "loss": 1.25,
            "lr": 2e-5,
            "tokens_per_second": 1200.0,
            "grad_norm": 0.75,
        },
    }
    for line, wanted in samples.items():
        assert look(line) == pytest.approx(wanted, rel=1e-9), line


def test_megatron_and_its_descendants() -> None:
    """What GPT-NeoX, Megatron-DeepSpeed and Megatron-Bridge print differs in names, units and order."""
    neox = (
        " samples/sec: 20.500 | iteration      110/  320000 | elapsed time per iteration (ms): 12500.0 | "
        "learning rate: 3.000E-06 | approx flops per GPU: 61.5TFLOPS | lm_loss: 7.125000E+00 | "
        "loss scale: 4096.0 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )
    assert look(neox) == pytest.approx(
        {
            "step": 110,
            "step_seconds_max": 12.5,
            "lr": 3e-6,
            "loss": 7.125,
            "model_tflops_per_second": 61.5,
            "loss_scale": 4096.0,
        }
    )
    deepspeed = (
        "[default0]: iteration      7/   100 | consumed samples:  14 | consumed tokens:  28672 | "
        "elapsed time per iteration (s): 2.50 | learning rate: 1.000E-05 | lm loss: 9.5E+00 | "
        "load_balancing_loss: 1.5E+00 | mtp_1 loss: 8.0E+00 | samples per second: 0.8 | "
        "tokens per gpu per second (tgs): 1,638.4 | TFLOPs: 33.25 |"
    )
    assert look(deepspeed) == pytest.approx(
        {
            "step": 7,
            "step_seconds_max": 2.5,
            "lr": 1e-5,
            "loss": 9.5,
            "tokens_per_second": 1638.4,
            "samples_per_second": 0.8,
            "model_tflops_per_second": 33.25,
        }
    )


def test_a_step_without_a_loss_was_skipped() -> None:
    """Megatron leaves the loss out when all steps since the line before were skipped; some skipped do not count."""
    line = (
        " iteration        3/     900 | consumed samples:  96 | elapsed time per iteration (ms): 500.0 | "
        "learning rate: 0.000E+00 | {loss}loss scale: 1073741824.0 | number of skipped iterations:   1 |"
    )
    (skipped, kept) = read_all(
        [line.format(loss=""), line.format(loss="lm loss: 9.0E+00 | ").replace("  3/", "  4/")]
    )
    assert (skipped.skipped, skipped.loss, skipped.loss_scale) == (True, None, 2.0**30)
    assert (kept.skipped, kept.loss) == (False, 9.0)


def test_a_line_of_megatron_without_a_loss_whose_steps_were_made_had_a_nan_loss() -> None:
    """It prints no mean that is NaN: the norm of the gradients, or its count of such steps, shows it. An overflow is none."""
    line = (
        " iteration        3/     900 | consumed samples:  96 | elapsed time per iteration (ms): 500.0 | "
        "learning rate: 1.000E-05 | grad norm: {norm} | number of skipped iterations:   {skipped} | "
        "number of nan iterations:   {nan} |"
    )

    def loss(norm: str, skipped: int, nan: int) -> float | None:
        (record,) = read_all([line.format(norm=norm, skipped=skipped, nan=nan)])
        return record.loss

    assert math.isnan(loss("nan", 0, 0) or 0.0)
    assert math.isnan(loss("nan", 1, 1) or 0.0)
    assert loss("inf", 1, 0) is None
    assert loss("0.8", 0, 0) is None


def test_colours_between_a_name_and_its_number_are_no_part_of_it() -> None:
    """Loggers paint names and numbers each in their own colour."""
    painted = "\x1b[36mstep\x1b[0m 12 \x1b[1mloss\x1b[0m: \x1b[32m2.5\x1b[0m grad_norm \x1b[32m0.75\x1b[0m\n"
    scan = Scan("log")
    records = [found.record for found in [*scan.feed(painted.encode()), *scan.finish()]]
    assert [(one.step, one.loss, one.grad_norm) for one in records if one] == [(12, 2.5, 0.75)]


def test_numbers_as_trainers_print_them() -> None:
    """Exponents, grouped thousands, shortened ones, nan and infinity in all their spellings are numbers."""
    for text, value in (
        *(("1.25E+00", 1.25), ("1,234", 1234.0), ("2.5K", 2500.0), (".5", 0.5), ("12", 12.0)),
        *(("-0.5", -0.5), ("inf", math.inf), ("Infinity", math.inf), ("-inf", -math.inf)),
        *(("nan", math.nan), ("NaN", math.nan)),
    ):
        assert look(f"step: 5 loss: {text} lr: 1e-3")["loss"] == pytest.approx(value, nan_ok=True)
    for text, value in (
        ("1.25e-05", 1.25e-5),
        ("nan", math.nan),
        ("'2.5'", 2.5),
        ("Infinity", math.inf),
    ):
        assert look(f"{{'loss': {text}, 'step': 5}}")["loss"] == pytest.approx(value, nan_ok=True)


def test_a_number_may_be_joined_to_its_name() -> None:
    """With an underscore, as its last part; a number that counts losses is part of the name."""
    for text, value in (
        ("epoch 1 step 10 loss_-4.06 acc 0.4", -4.06),
        ("[14] train loss_nan val_nan", math.nan),
        ("step 10 loss_2.5e-1", 0.25),
        ("step 10 loss_1: 2.5", 2.5),
    ):
        reading = MetricLines().parse(text)
        assert reading is not None, text
        assert reading.numbers["loss"] == pytest.approx(value, nan_ok=True), text
    assert MetricLines().parse("step 10 loss_7") is None


def test_a_loss_scale_may_be_a_power_of_two() -> None:
    """As improved-diffusion and its descendants print it."""
    reading = MetricLines().parse("Found NaN, decreased lg_loss_scale to -3.0")
    assert reading == Reading(numbers={"skipped": 1.0, "loss_scale": 0.125})


def test_a_line_without_a_step_makes_no_record() -> None:
    """Its metrics are read, its step is not made up, and it is counted."""
    metrics = MetricLines()
    line = "{'loss': 1.5, 'learning_rate': 2e-05, 'epoch': 0.25}"
    reading = metrics.parse(line)
    assert reading == Reading(epoch=0.25, numbers={"loss": 1.5, "lr": 2e-5})
    assert metrics.read(line) is None
    assert metrics.num_unnumbered == 1


def test_a_line_of_examples_nanogpt_has_its_learning_rate() -> None:
    """As the script prints it; the line of an evaluation has two losses and no rate."""
    line = "iter 40: loss 2.8713, time 34.21ms, lr 9.9320e-04"
    due = {"step": 40, "loss": 2.8713, "step_seconds_max": 0.03421, "lr": 9.932e-4}
    assert look(line) == pytest.approx(due)
    line = "step 50: train loss 2.7061, val loss 2.7446"
    assert look(line) == {"step": 50, "loss": 2.7061, "validation_loss": 2.7446}


def test_the_last_redraw_of_a_progress_bar_counts() -> None:
    """Carriage returns separate pictures; a dictionary takes the step of the bar before it, a validation does not."""
    bar = "Epoch 0:  {p}%|▎ | {n}/91 [00:05<07:00, 4.50s/it, loss={loss}, global_step={n}.0]"
    line = "\r".join((bar.format(p=1, n=1, loss=7.5), bar.format(p=2, n=2, loss=7.25), ""))
    assert look(line) == {"step": 2, "loss": 7.25}
    bar = "  4%|▍         | 4/100 [00:02<00:48,  2.00it/s]"
    assert look(f"{bar}\r      \r{{'loss': 1.5, 'epoch': 0.04}}") == {"step": 4, "loss": 1.5}
    assert look(f"{bar}\r{{'eval_loss': 1.25, 'epoch': 1.0}}") == {"validation_loss": 1.25}


def test_blocks_have_their_step_on_the_first_line() -> None:
    """OLMo and Composer print one metric per line; each one is reported together with those before it."""
    olmo = [
        "[2025-01-02 03:04:05] INFO     [olmo.train:816, rank=0] [step=1,200/739328,epoch=0]",
        "    train/CrossEntropyLoss=4.125",
        "    train/Perplexity=61.87",
        "    optim/total_grad_norm=0.5",
        "    throughput/device/tokens_per_second=10,250",
    ]
    assert read_all(olmo)[-1] == StepRecord(
        step=1200, loss=4.125, grad_norm=0.5, tokens_per_second=10250.0
    )
    core = [
        "INFO [step=30/100,epoch=1,eta=2m]",
        "    optim/LR (group 0)=0.0004",
        "    train/CE loss=5.5",
    ]
    assert read_all(core)[-1] == StepRecord(step=30, loss=5.5, lr=4e-4)
    composer = [
        "[batch=6/500]:",
        "\t Train time/batch: 5",
        "\t Train loss/train/total: 2.5",
        "\t Train metrics/train/LanguageCrossEntropy: 2.375",
        "\t Train lr-DecoupledAdamW/group0: 0.0001",
        "[batch=7/500]:",
    ]
    records = read_all(composer)
    assert records[-2:] == [StepRecord(step=6, loss=2.5, lr=1e-4), StepRecord(step=7)]


def test_a_pattern_of_ones_own() -> None:
    """Named groups are read by their names; then no other format is tried."""
    metrics = MetricLines(r"it (?P<step>\d+) ce (?P<loss>\S+) t (?P<step_seconds>\S+)")
    record = metrics.read("node3 it 40 ce 2.5 t 250ms")
    assert record == StepRecord(step=40, loss=2.5, step_seconds_max=0.25)
    assert metrics.name == "own"
    assert metrics.read("step:30, loss:2.5") is None


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"it (?P<step>\d+", "no regular expression"),
        (r"it (?P<step>\d+) (?P<los>\S+)", "'los'"),
        (r"loss (?P<loss>\S+)", "no group 'step'"),
        (r"(?P<step>\d*)", "every line"),
    ],
)
def test_a_wrong_pattern_is_refused(pattern: str, words: str) -> None:
    """The message names the pattern, what is wrong with it, and what is known."""
    with pytest.raises(UserError, match=re.escape(pattern)) as error:
        MetricLines(pattern)
    assert words in str(error.value)


@given(st.text(max_size=400))
def test_any_text_is_survived(text: str) -> None:
    """Hostile text never raises, and a record that comes of it has a step that is a count."""
    record = MetricLines().read(text)
    assert record is None or record.step >= 0


@pytest.mark.parametrize(
    "line",
    [
        "step 1 " * 60_000,
        "Epoch 1: 1/1 [" * 30_000,
        "steps: 1 loss: \r" * 20_000,
        ("steps: 1 loss: " * 600 + "\r") * 60,
        "loss 1 num" * 40_000,
    ],
)
def test_a_hostile_line_costs_little(line: str) -> None:
    """A line of hundreds of kilobytes made to keep patterns busy is given up in bounded time."""
    started = time.process_time()
    MetricLines().read(line)
    assert (
        time.process_time() - started < 2.0
        # 0.1 s measured for the worst; the rest is for slow machines
    )
