"""Forms of metric lines of many trainers are read without configuration: step, loss and NaN."""

import math
from pathlib import Path

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import Scan, engine_for
from runner.collect.step_formats.line_order import LineOrder
from runner.facts.messages.signals import StepRecord
from tests.collect.trainers.forms import FORMS, At, losses

RECORDED = Path(__file__).parent / "recorded"


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return the engine with all formats."""
    return engine_for()


def records_of(log: bytes, engine: Engine, piece: int) -> list[StepRecord]:
    """Read a log in pieces; lines without a step are numbered in order."""
    scan, order, found = Scan("log", engine=engine), LineOrder(), []
    pieces = [log[at : at + piece] for at in range(0, len(log), piece)]
    for line in [one for part in pieces for one in scan.feed(part)] + list(scan.finish()):
        if line.record is not None:
            order.add_record(line.record)
            found.append(line.record)
        if line.unnumbered is not None:
            found += [record for _, record in order.records(line.unnumbered, line.line)]
    return found


@pytest.mark.parametrize("piece", [1 << 20, 700])
@pytest.mark.parametrize("name", FORMS)
def test_forms_of_trainers_are_read(name: str, piece: int, engine: Engine) -> None:
    """Each healthy sample and each NaN has its step and its loss, whole or in pieces."""
    render, step_of = FORMS[name]
    samples = [At(n, loss) for n, loss in enumerate(losses())]
    log = "".join(map(render, samples)).encode()
    read = records_of(log, engine, piece)
    with_loss = [record for record in read if record.loss is not None]
    assert [record.step for record in with_loss] == [step_of(at) for at in samples]
    expected = [at.loss for at in samples]
    assert [record.loss for record in with_loss] == pytest.approx(expected, rel=1e-2, nan_ok=True)
    assert [math.isnan(record.loss or 0.0) for record in with_loss] == list(
        map(math.isnan, expected)
    )


@pytest.mark.parametrize("name", FORMS)
def test_the_nan_is_an_incident_and_the_healthy_part_is_none(name: str, engine: Engine) -> None:
    """A diagnosis of the whole log finds the NaN at its first step; one of the healthy lines finds nothing."""
    render, _ = FORMS[name]
    samples = [At(n, loss) for n, loss in enumerate(losses())]
    for some, faults in ((samples, ["nan_loss"]), (samples[:40], [])):
        diagnosis = Diagnosis(engine=engine)
        log = diagnosis.log("rank0.log")
        log.feed("".join(map(render, some)).encode())
        log.finish()
        assert [verdict.cause.fault for verdict in diagnosis.verdicts()] == faults
    onset = [match.named["onset_step"] for match in log.matches if match.signature == "metrics"]
    assert onset == []


@pytest.mark.parametrize("name", ["torchtitan-0.3.0", "megatron_bridge-0.3.1"])
def test_what_the_packages_own_formatters_printed_is_read(name: str, engine: Engine) -> None:
    """Step and loss of each recorded line; the NaN, which Megatron does not print, is found."""
    log = (RECORDED / f"{name}.log").read_bytes()
    samples = [At(n, loss) for n, loss in enumerate(losses())]
    read = [one for one in records_of(log, engine, 1 << 20) if one.validation_loss is None]
    assert [record.step for record in read] == [at.step for at in samples]
    assert [record.loss for record in read] == pytest.approx(losses(), rel=1e-3, nan_ok=True)
    diagnosis = Diagnosis(engine=engine)
    diagnosis.log("rank0.log").feed(log)
    assert [verdict.cause.fault for verdict in diagnosis.verdicts()] == ["nan_loss"]


@pytest.mark.costly
def test_trainer_of_transformers_prints_what_is_read(engine: Engine) -> None:
    """The callback of the installed package writes a dictionary with quoted numbers and no step; the order numbers them."""
    callbacks = pytest.importorskip("transformers.trainer_callback")

    class Bar:
        def write(self, text: str) -> None:
            written.append(text + "\n")

    written: list[str] = []
    callback = callbacks.ProgressCallback()
    callback.training_bar = Bar()
    state = callbacks.TrainerState(is_world_process_zero=True)
    for n, loss in enumerate(losses()):
        logs = {"loss": loss, "grad_norm": 1.5, "learning_rate": 1e-4, "epoch": n / 20}
        callback.on_log(None, state, None, logs=logs)
    read = records_of("".join(written).encode(), engine, 1 << 20)
    assert [record.step for record in read] == list(range(1, 60))
    assert [record.loss for record in read] == pytest.approx(losses(), rel=1e-3, nan_ok=True)


@pytest.mark.parametrize(
    ("line", "scale"),
    [
        (
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
            32768.0,
        ),
        (
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing "
            "hysteresis to 1",
            65536.0,
        ),
        (
            "[deepspeed] fp16 dynamic loss scale overflow! Skipping step. Attempted loss scale: 64.0, reducing to 32.0",
            32.0,
        ),
        (
            "[Rank 0] Overflow detected. Skipping step. Attempted loss scale: 65536, reducing to 32768.0",
            32768.0,
        ),
        (
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 16384.0",
            16384.0,
        ),
        (
            "INFO | fairseq.trainer | NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0",
            64.0,
        ),
        (
            "INFO | fairseq.trainer | NOTE: overflow detected, setting loss scale to: 16384.0",
            16384.0,
        ),
        ("OVERFLOW! Skipping step. Attempted loss scale: 4294967296", 4294967296.0),
        (
            "[deepspeed] OVERFLOW! Skipping step. Gradients are non-finite, weights were not updated.",
            None,
        ),
        ("Found overflow. Skip step", None),
        ("optimizer not run, scale_before: 65536.0, scale_after: 32768.0", 32768.0),
        ("Found inf or nan, current scale is: 64.0, decrease to: 64.0*0.5", 32.0),
        ("WARNING train.py:99 -- Warning: skip parameter update at step 7.", None),
    ],
)
def test_sentences_of_loss_scalers_are_skipped_steps(
    line: str, scale: float | None, engine: Engine
) -> None:
    """A sentence has the step of the line before, was skipped, and has the next loss scale where it names one."""
    read = records_of(f"step: 7 loss: 2.5\n{line}\n".encode(), engine, 1 << 20)
    assert read[1:] == [StepRecord(step=7, skipped=True, loss_scale=scale)]


def test_a_loss_scale_that_collapses_in_sentences_alone_is_found(engine: Engine) -> None:
    """Thirty-odd halvings one after the other are an incident; the search at the start of a run is none."""
    form = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"
    for num, faults in ((16, []), (60, ["loss_scale_floor"])):
        diagnosis = Diagnosis(engine=engine)
        log = diagnosis.log("log")
        scales = [2.0 ** (32 - n) for n in range(num)]
        log.feed("".join(form.format(scale, max(1.0, scale / 2)) for scale in scales).encode())
        assert [one.cause.fault for one in diagnosis.verdicts()][:1] == faults


DEEPSPEED = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {}, reducing to {}\n"
FAIRSEQ = "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: {1}\n"
APEX = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to {1}\n"
HUGGING_FACE = "{{'loss': 2.05, 'learning_rate': 1.9e-05, 'epoch': 0.28}}\n"


@pytest.mark.parametrize(
    ("form", "before", "highest", "num", "fault"),
    [
        (DEEPSPEED, "", 64, 5, "skipped_steps"),
        (DEEPSPEED + HUGGING_FACE, "", 64, 5, "skipped_steps"),
        (APEX, "", 65536, 12, "skipped_steps"),
        (DEEPSPEED + HUGGING_FACE, "", 65536, 13, "skipped_steps"),
        (FAIRSEQ, "step: 9000 loss: 2.1 loss_scale: 0.5\n", 0.5, 8, "loss_scale_floor"),
        (DEEPSPEED, "", 64, 4, ""),
        (DEEPSPEED + HUGGING_FACE, "", 65536, 11, ""),
        (APEX, "", 65536, 11, ""),
        (DEEPSPEED, "", 2**32, 17, ""),
        (FAIRSEQ, "", 128, 8, ""),
        (FAIRSEQ, "step: 9000 loss: 2.1 loss_scale: 0.5\n", 0.5, 4, ""),
    ],
)
def test_a_series_of_skipped_steps_is_found_in_a_short_log(
    form: str, before: str, highest: float, num: int, fault: str, engine: Engine
) -> None:
    """It is one without the scaler's last word; of a trainer that prints the losses of such steps, too. A search is none."""
    scales = [highest / 2**n for n in range(num)]
    diagnosis = Diagnosis(engine=engine)
    log = diagnosis.log("log")
    log.feed((before + "".join(form.format(scale, scale / 2) for scale in scales)).encode())
    log.finish()
    assert [one.cause.fault for one in diagnosis.verdicts()][:1] == [fault][: bool(fault)]


@pytest.mark.parametrize(
    "form",
    [
        "\x1b[1mstep {n} loss {loss}\x1b[0m\n",
        "\x1b[1mstep\x1b[0m \x1b[32m{n}\x1b[0m \x1b[1mloss\x1b[0m \x1b[31;1m{loss}\x1b[0m\n",
        "\x1b[1;36mstep\x1b[0m=\x1b[1;35m{n}\x1b[0m \x1b[1;36mloss\x1b[0m=\x1b[1;35m{loss}\x1b[0m\n",
        "\x1b[38;5;208mstep:\x1b[0m \x1b[38;2;255;0;0m{n}\x1b[0m, \x1b[38;5;82mloss:\x1b[39m {loss}\n",
        "\x1b]0;training\x07step {n} loss {loss}\n",
        *("\x1b[2K\rstep {n} loss {loss}", "\rstep {n} loss {loss}"),
        *("Schritt {n}: loss {loss}\n", "第{n}步 loss: {loss}\n", "Étape {n} | loss={loss}\n"),
        *("step {n:,} loss {loss}\n", "step {n:_} loss {loss}\n"),
    ],
)
def test_bold_colours_bars_and_other_words_around_the_numbers_change_nothing(
    form: str, engine: Engine
) -> None:
    """As rich, termcolor and redrawn lines have them; a step that only another language names is counted by the order."""
    first = 998 if "step" in form else 1
    due = [(step, 3 - step / 1000) for step in range(first, first + 5)]
    log = "".join(form.format(n=step, loss=loss) for step, loss in due)
    read = records_of(log.encode(), engine, 1 << 20)
    assert [(record.step, record.loss) for record in read] == due


@pytest.mark.parametrize(
    "form",
    [
        *(
            "Schritt {n}: Verlust {loss}\n",
            "Étape {n} | perte : {loss}\n",
            "Paso {n}: pérdida {loss}\n",
        ),
        *("步数: {n}, 损失: {loss}\n", "ステップ {n} 損失 {loss}\n", "Шаг {n}: потери {loss}\n"),
    ],
)
def test_of_lines_in_another_language_nothing_is_believed(form: str, engine: Engine) -> None:
    """No step and no loss; a pattern of the run's own reads them."""
    log = "".join(form.format(n=n, loss=3 - n / 10) for n in range(1, 6)).encode()
    assert records_of(log, engine, 1 << 20) == []


@pytest.mark.parametrize(
    "line",
    [
        *(
            "step 1000000000000000000 loss 2.5",
            "step: 1e18, loss: 2.5",
            "{'loss': 2.0, 'epoch': 0.3}",
        ),
        *("step -5 loss 2.5", "step 2.5 loss 2.5", "step nan loss 2.5"),
    ],
)
def test_a_number_that_cannot_be_a_step_is_none(line: str, engine: Engine) -> None:
    """Such a line has no step, whatever else it has."""
    (found,) = Scan("log", engine=engine).feed(f"{line}\n".encode())
    assert found.record is None


def test_lines_about_a_loss_that_report_none_are_not_read(engine: Engine) -> None:
    """Settings, sentences about the best loss, and validations are no samples."""
    text = (
        "[GPU0] Epoch 3 | Batchsize: 32 | Steps: 32\nBest loss 2.5 at epoch 3\nloss_weight: 0.5\n"
        "initial_loss_scale: 65536\nLoading checkpoint with loss 2.0\nloss = 0.0\n"
        "Test: [ 10/196]\tTime  0.1 ( 0.2)\tLoss 6.9e+00 (7.0e+00)\tAcc@1   0.00 (  0.1)\n"
    )
    assert [r for r in records_of(text.encode(), engine, 1 << 20) if r.loss is not None] == []


def test_the_bar_of_lightning_after_a_resume_and_in_a_short_last_epoch(engine: Engine) -> None:
    """Resumed within its epoch it has no total; the last epoch's is what the goal of the run leaves of it."""
    # As lightning 2.6.6 drew them with max_steps=120: epochs of 100 batches.
    resumed = (
        "\rTraining: |          | 0/? [00:00<?, ?it/s]"
        "\rTraining: |          | 41/? [00:00<00:00, 506.43it/s]"
        "\rTraining: |          | 41/? [00:00<00:00, 504.05it/s, train_loss=4.630]"
        "\rTraining: |          | 42/? [00:00<00:00, 367.06it/s, train_loss=10.30]"
        "\rEpoch 0:  99%|█████████▉| 99/100 [00:02<00:00, 30.27it/s, train_loss=8.490]"
        "\rEpoch 0: 100%|██████████| 100/100 [00:02<00:00, 30.27it/s, train_loss=7.490]"
        "\rEpoch 1:   5%|▌         | 1/20 [00:00<00:00, 30.27it/s, train_loss=2.330]"
        "\rEpoch 1: 100%|██████████| 20/20 [00:00<00:00, 24.35it/s, train_loss=nan.0]\n"
    )
    found = records_of(resumed.encode(), engine, 100)
    assert [record.step for record in found] == [41, 42, 99, 100, 101, 120]
    assert [record.loss for record in found[:-1]] == [4.63, 10.3, 8.49, 7.49, 2.33]
    assert math.isnan(found[-1].loss or 0.0)
