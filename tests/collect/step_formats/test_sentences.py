"""Numbers that do not stand behind their names as "name: V": sentences, counts in between, numbers before names, brackets."""

import math

import pytest

from runner.collect.scan import Scan
from runner.collect.step_formats.formats import MetricLines
from runner.facts.messages.signals import StepRecord
from tests.collect.diagnosed_logs import engine_of_all, verdicts_of


def records_of(*lines: str) -> list[StepRecord]:
    """Read the lines of one log."""
    metrics = MetricLines()
    return [record for line in lines if (record := metrics.read(line)) is not None]


def test_the_arguments_of_a_program_are_no_step() -> None:
    """As argparse prints them."""
    arguments = "Namespace(loss_margin=1.0, epochs=12, lr=20, max_grad_norm=0.25)"
    assert [one.step for one in records_of(arguments, "step 7 loss 1.25")] == [7]


@pytest.mark.parametrize(
    ("line", "step", "loss"),
    [
        ("step #7, avg. train loss: 1.25", 7, 1.25),
        ("[Iteration 7] Throughput is 408.4 records/second. Loss is 1.25.", 7, 1.25),
        ("step 7: loss was 1.25", 7, 1.25),
        ("Iteration 7, total loss of 1.25", 7, 1.25),
        ("Loss after epoch 7: 1.25", 7, 1.25),
        ("Minibatch loss at step 7: 1.25", 7, 1.25),
        ("train loss after 7 iterations: 1.25", 7, 1.25),
        ("Loss for iteration #7 is 1.25", 7, 1.25),
        ("Train loss 7 1.25 Grad Norm 0.5 1.2s/it", 7, 1.25),
        (
            "[2022-01-01] Ep. 1 : Up. 7 : Sen. 10,000 : Cost 1.25 * 100,000 @ 1,000 after 500,000",
            7,
            1.25,
        ),
        ("Epoch[0] Batch [7]\tSpeed: 100.20 samples/sec\tcross-entropy=1.25", 7, 1.25),
        ("Training loss (for one batch) at step 7: 1.2500", 7, 1.25),
        ("Epoch 7: 1.25 loss, 0.5 acc", 7, 1.25),
        ("Epoch 7 Loss tf.Tensor(1.25, shape=(), dtype=float32)", 7, 1.25),
        ("epoch：7，loss：1.25，acc：0.5", 7, 1.25),
        ("[7]\ttraining's binary_logloss: 1.25\tvalid_1's binary_logloss: 1.5", 7, 1.25),
        ('{"key": "train_loss", "value": 1.25, "metadata": {"step": 7}}', 7, 1.25),
        ("{“step”: 7, “loss”: 1.25}", 7, 1.25),
        ("Steps : 7, Gen Loss Total : 1.25, Mel-Spec. Error : 2.0, s/b : 0.4", 7, 1.25),
        ("step_7:\tloss_1.25", 7, 1.25),
        ("At iteration 7, the loss is 1.25.", 7, 1.25),
        ("After 7 steps: loss=1.25", 7, 1.25),
        ("INFO 7 iterations: train loss 1.25, 12 GB", 7, 1.25),
        ("Completed 7 / 5000 steps (loss 1.25)", 7, 1.25),
        ("Finished epoch 7 in 12.3s. Mean loss over epoch: 1.25", 7, 1.25),
        ("[upd 7] loss 1.25 lr 1.0e-04 gnorm 0.5", 7, 1.25),
        ("minibatch 7: loss 1.25", 7, 1.25),
        ("I 2024-01-01T10:00:00 [trainer] step[7] loss[1.25]", 7, 1.25),
        ("[训练] step=7 平均loss=1.25 耗时=12.3s", 7, 1.25),
        ("当前step为7，loss为1.25", 7, 1.25),
        ("step 7 loss 1,25 lr 0,5", 7, 1.25),
        ("Iter:   7 TrainLoss:1.25 BestLoss:0.5", 7, 1.25),
        (" STEP         7  LOSS   0.125D+01", 7, 1.25),
        ("[ Info: epoch = 7, train_loss = 1.25f0", 7, 1.25),
        ("[7/500] loss ↓ 1.25", 7, 1.25),
        ("Epoch 7: MSE=1.25", 7, 1.25),
        ("step 7 | L_total 1.25 | L_rec 7.5 | L_kl 0.5", 7, 1.25),
        ('Step 7: {"loss": 1.25, "lr": 0.5}', 7, 1.25),
        ('{"iteration": 7, "metrics": {"loss": 1.25, "learning_rate": 0.5}}', 7, 1.25),
        ('{"train_lr": 0.5, "train_loss": 1.25, "test_loss": 1.5, "epoch": 7}', 7, 1.25),
        ("INFO: 1epoch:train:1-7batch: iter_time=0.002, loss=1.25, optim0_lr0=0.5", 7, 1.25),
        ("DEBUG TRAIN | steps/sec 2.1| Batch 0/7 loss 1.25 loss_att 60.1 lr 0.5", 7, 1.25),
        (
            "(3/8) Epoch 1, batch 7, loss[loss=1.25, over 7211.00 frames.], tot_loss[loss=4.5]",
            7,
            1.25,
        ),
        (
            "Epoch[ 1 of 10]-Minibatch[   1-   7, 2.11%]: CrossEntropyWithSoftmax = 1.25 * 3200",
            7,
            1.25,
        ),
        ("7/21150 (epoch 0.024), train_loss = 1.25, grad/param norm = 5.1e-03", 7, 1.25),
    ],
)
def test_a_sentence_about_a_loss_is_read(line: str, step: int, loss: float) -> None:
    """The number is that of the loss, and neither that of the step nor the one behind a full stop."""
    (record,) = records_of(line)
    assert (record.step, record.loss) == (step, loss)


@pytest.mark.parametrize(
    "spelling",
    [
        *(
            "loss -> 1.25",
            "loss => 1.25",
            "loss → 1.25",
            "loss ~ 1.25",
            "loss := 1.25",
            "loss - 1.25",
        ),
        *("[loss] 1.25", "(loss) 1.25", "**loss**: 1.25", "`loss`: 1.25", "|loss|=1.25"),
        *(
            "mean(loss): 1.25",
            "loss (avg): 1.25",
            "loss[avg]: 1.25",
            "loss value: 1.25",
            "losses: 1.25",
        ),
        *("loss (1.25)", "loss[1.25]", "loss: (1.25)", "loss: *1.25*", "loss....1.25"),
        *("loss: np.float32(1.25)", "loss: array([1.25])", "loss: Array(1.25, dtype=float32)"),
        "loss: <tf.Tensor: shape=(), dtype=float32, numpy=1.25>",
        "loss: Tensor(shape=[1], dtype=float32, place=Place(gpu:0), stop_gradient=False, [1.25])",
    ],
)
def test_a_name_and_its_number_may_be_parted_by_other_signs(spelling: str) -> None:
    """Marks around the name, a word in brackets, other signs, and types around the number."""
    assert [(one.step, one.loss) for one in records_of(f"step 7 {spelling}")] == [(7, 1.25)]
    scan = Scan("log", engine=engine_of_all())
    assert [line.record for line in scan.feed(f"step 7 {spelling}\n".encode())] != []


@pytest.mark.parametrize(
    "line",
    [
        "if loss>100.0 and step 7:",
        "step 7: assert loss == 0.5",
        "step 7 loss: HuberLoss(1.0)",
        "step 7 | loss | 1.25 |",
        "step 7 loss (2 parts)",
    ],
)
def test_code_and_settings_are_no_losses(line: str) -> None:
    """A comparison, a class with its argument, and a count give no number."""
    assert [record.loss for record in records_of(line)] == []


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *((word, math.nan) for word in ("nan", "-nan", "NaN.", "nan(ind)", "-nan(ind)", "1.#QNAN")),
        *((word, math.inf) for word in ("inf", "+inf", "Infinity", "Infinity.", "1.#INF00")),
        *((word, -math.inf) for word in ("-inf", "-Infinity", "-1.#INF")),
        *((word, math.nan) for word in ("-1.#IND", "1.#SNAN", "nan(0x8000000000000)")),
    ],
)
@pytest.mark.parametrize("form", ["step 7 loss: {} lr: 0.5", "[Iteration 7] Loss is {}"])
def test_words_for_what_is_no_number(form: str, word: str, value: float) -> None:
    """As C, Java, Python and Windows spell NaN and infinity, with a full stop or without."""
    (record,) = records_of(form.format(word))
    assert record.step == 7
    assert record.loss == pytest.approx(value, nan_ok=True)


def test_a_loss_in_each_epoch_after_as_many_steps() -> None:
    """MindSpore names the step of the epoch, which is the same in each of its lines."""
    lines = [f"epoch: {num} step: 1875, loss is 0.{9 - num}" for num in (1, 2, 3)]
    assert [record.step for record in records_of(*lines)] == [1875, 3750, 5625]


def test_typographic_quotes_are_quotes() -> None:
    """Pasted dictionaries have them."""
    line = "{‘loss’: 1.453, ‘grad_norm’: 2.5, ‘learning_rate’: 4.5e-05, ‘step’: 7}"
    assert records_of(line) == [StepRecord(step=7, loss=1.453, grad_norm=2.5, lr=4.5e-5)]


def test_seconds_in_brackets_are_those_of_the_step_once_they_fell() -> None:
    """A time that only grows may be that of the whole run; one with its unit is certain."""
    line = "Training iter {}, loss=0.5 ({}s)"
    varying = records_of(*(line.format(n, t) for n, t in ((1, 3.5), (2, 9.5), (3, 3.25), (4, 8.0))))
    assert [record.step_seconds_max for record in varying] == [None, None, 3.25, 8.0]
    growing = records_of(*(line.format(n, 3.5 * n) for n in range(1, 9)))
    assert {record.step_seconds_max for record in growing} == {None}
    (named,) = records_of("global step 10: loss = 2.5 (0.5 sec/step)")
    assert named.step_seconds_max == 0.5
    (since_last,) = records_of("INFO:tensorflow:loss = 2.5, step = 100 (20.5 sec)")
    assert since_last.step_seconds_max is None


@pytest.mark.parametrize(
    "line",
    [
        "python train.py --loss 1.0 --lr 3e-4 --steps 1000 --grad_norm 1.0",
        "query done cost=12.1 step=15s",
        "frame 12 psnr 31.5 mse 45.2",
        "layer 3 mse 0.5",
        "horizon step 3 rmse=8.1",
        "Step 4 MSE: 6.4",
        "[INFO] iteration 7: total cost 9912.1 USD",
        "step 2 cost: $120.10",
        "-> Nested loop inner join  (cost=12.1 rows=100) (step 3 of 4)",
        "usage: train [--loss 1.0] [--steps 10]",
        "step 7 psnr 31.5 mse 45.2",
        "step 7 grad mse ratio 0.5",
    ],
)
def test_options_units_and_errors_of_other_things_are_no_losses(line: str) -> None:
    """A mean error counts beside a step or an epoch only, and not where pictures are compared."""
    assert [record.loss for record in records_of(line) if record.loss is not None] == []


@pytest.mark.parametrize("word", ["overflow: False", "overflow cond: False", "overflow=0"])
def test_a_metric_line_without_an_overflow_is_no_skipped_step(word: str) -> None:
    """MindSpore names the condition in each of its lines."""
    (record,) = records_of(f"epoch:[1/2], step:[7/250], loss: 1.25, {word}, loss_scale: 65536.0")
    assert (record.loss, record.loss_scale, record.skipped) == (1.25, 65536.0, False)


@pytest.mark.parametrize(
    ("line", "seconds", "tokens"),
    [
        ("step 7 | dt: 500.00ms | loss: 1.25 | 2,048.5 tok/s", 0.5, 2048.5),
        ("step 7, loss: 1.25, avg_batch_cost: 0.5 s, reader_cost: 0.1 s", 0.5, None),
        ("Step 7 per-step time 0.5s loss=1.25", 0.5, None),
        ("step 7 loss 1.25 52.5k tokens/s dt 3.5", None, 52_500.0),
        (
            "Ep. 1 : Up. 7 : Sen. 25 : Cost 1.25 : Time 24.12s : 8192.5 words/s : L.r. 0.5",
            None,
            8192.5,
        ),
    ],
)
def test_times_and_tokens_with_their_units_are_read(
    line: str, seconds: float | None, tokens: float | None
) -> None:
    """Names that mean something else without a unit count with it only."""
    (record,) = records_of(line)
    assert (record.loss, record.step_seconds_max, record.tokens_per_second) == (
        1.25,
        seconds,
        tokens,
    )


def test_a_validation_loss_in_another_script_is_one() -> None:
    """The word before it says so."""
    (record,) = records_of("epoch 7 训练loss: 1.25 验证loss: 1.5")
    assert (record.loss, record.validation_loss) == (1.25, 1.5)


@pytest.mark.parametrize(
    ("text", "loss"), [("1,234", 1234.0), ("0,234", 0.234), ("2,5", 2.5), ("2,50000", 2.5)]
)
def test_a_comma_of_decimals_is_told_from_one_of_thousands(text: str, loss: float) -> None:
    """Groups have three digits, and no zero ahead."""
    assert [record.loss for record in records_of(f"step 7 loss {text}")] == [loss]


@pytest.mark.parametrize(
    ("lines", "loss"),
    [
        (["* Epoch 7 | Train: loss=1.25 acc=0.3 | Val: loss=1.5 acc=0.2"], 1.25),
        (
            [
                '{"split": "train", "step": 7, "loss": 1.25}',
                '{"split": "valid", "step": 7, "loss": 1.5}',
            ],
            1.25,
        ),
        (["val_loss at step 7 is 1.5"], None),
    ],
)
def test_a_loss_is_that_of_the_pass_that_is_named(lines: list[str], loss: float | None) -> None:
    """Before the name of the loss, or as a field of its own."""
    found = records_of(*lines)
    assert {record.step for record in found} == {7}
    assert [one.loss for one in found if one.loss is not None] == ([] if loss is None else [loss])
    assert [one.validation_loss for one in found if one.validation_loss is not None] == [1.5]


def test_a_sentence_without_a_value_gives_no_step() -> None:
    """A number that counts something else is no loss."""
    for line in (
        "loss at step 100",
        "step 7 acc: 0.5 loss, and more",
        "epoch 7 | lr 0.5 loss",
        "the loss for 3 batches was not logged",
        "cost of 12 instances",
        "Early stopping: loss is not improving for 5 epochs",
    ):
        assert records_of(line) == [], line


def test_nan_from_the_first_epoch_on_is_found_beside_a_validation_that_is_nan() -> None:
    """Keras prints both at the end of an epoch; a NaN beside a finite one may mean that it was not measured."""
    bar = "998/998 [==============================] - 16s 13ms/step - loss: {} - accuracy: 0.9 - val_loss: {}\n"
    sick = "".join(f"Epoch {n}/5\n\n{bar.format('nan', 'nan')}\n" for n in range(1, 4))
    assert [verdict.cause.fault for verdict in verdicts_of(sick)] == ["nan_loss"]
    well = "".join(f"Epoch {n}/5\n\n{bar.format('nan', 0.5)}\n" for n in range(1, 3))
    assert verdicts_of(well) == []
    # Other numbers of the validation on the same line do not make it one of the validation alone.
    line = (
        "Epoch: 0/2, train loss: {0}, train accuracy: 0.1, valid loss: {0}, valid accuracy: 0.1\n"
    )
    assert [one.cause.fault for one in verdicts_of(line.format("nan"))] == ["nan_loss"]
    assert verdicts_of(line.format(2.3)) == []


def test_a_line_whose_running_average_is_nan_is_enough() -> None:
    """Darknet prints the loss and its average before their names."""
    line = "50200: {}, {} avg, 0.000010 rate, 0.434793 seconds, 50200 images\n"
    assert [one.cause.fault for one in verdicts_of(line.format("-nan", "nan"))] == ["nan_loss"]
    assert verdicts_of(line.format("1.25", "1.5")) == []


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("Epoch: [0][16/5005]  Time 0.25 (11.0)  Data 0.125 (10.7)  Loss 6.9 (6.9)", 0.25),
        ("Iter(train) [ 510/2046]  lr: 1.7e-04  time: 0.25  data_time: 0.125  loss: 0.69", 0.25),
        ("step 7 loss: 0.69 batch_time=0.25 data_time=0.125", 0.25),
        ("Iteration 7 took 250 ms", 0.25),
        ("step 7/100 took 0.25 s", 0.25),
        # A time of day, a time since the start, and a wait that is longer than what it is a part of.
        ("step 7 loss: 0.69 time: 12:30:00 data_time: 0.125", None),
        ("step 7 loss: 0.69 time: 0.25", None),
        ("step 7 loss: 0.69 time: 0.25 data_time: 0.5", None),
    ],
)
def test_the_time_of_a_step_is_read_beside_its_wait_for_data(
    line: str, seconds: float | None
) -> None:
    """A time alone may be that of the run so far."""
    (record,) = records_of(line)
    assert record.step_seconds_max == seconds


def test_a_log_of_step_times_alone_is_judged() -> None:
    """It has no loss, and no step."""
    lines = [f"05:54:18,834: Iteration took {s} s.\n" for s in (32.7, 32.4, 32.8, 31.7, 30.5)]
    slow = [f"06:01:33,997: Iteration took {s} s.\n" for s in (108.5, 102.4, 101.5, 102.7, 105.7)]
    assert [one.cause.fault for one in verdicts_of("".join(lines + slow))] == ["throughput_drop"]
    assert verdicts_of("".join(lines + lines)) == []


def test_steps_that_wait_for_data_are_found() -> None:
    """As ImageNet's example prints them."""
    line = "Epoch: [0][{}/5005]\tTime {} (2.6)\tData {} (2.3)\tLoss {} (6.3)\n"
    times = (
        (1.6, 1.3),
        (0.24, 0.001),
        (2.7, 2.4),
        (1.1, 0.85),
        (0.22, 0.001),
        (2.1, 1.9),
        (2, 1.8),
    )
    sick = "".join(
        line.format(n, f"{taken:.3f}", f"{waited:.3f}", 5.6)
        for n, (taken, waited) in enumerate(times)
    )
    assert [one.cause.fault for one in verdicts_of(sick)] == ["throughput_drop"]
    well = "".join(line.format(n, "0.240", "0.001", 5.6) for n in range(7))
    assert verdicts_of(well) == []


def test_a_loss_that_is_no_number_outranks_the_spike_before_it() -> None:
    """Most spikes heal; this one did not."""
    losses = ("101.3", "135.1", "106.8", "94.1", "141.4", "64922832.0", "199.7", "nan", "nan")
    text = "".join(f"Steps : {5 * n}, Gen Loss Total : {one}\n" for n, one in enumerate(losses))
    assert verdicts_of(text)[0].cause.fault == "nan_loss"


def test_the_end_of_an_epoch_has_the_step_of_its_last_bar() -> None:
    """Its validation loss counts; its training loss is a mean, beside those of steps."""
    bar = "epoch [{0}]: 100%|█████| 38/38 [02:09<00:00,  3.40s/it, loss={1}]"
    end = "epoch {0} - loss: {1} acc: 0.95 val_loss: {2} val_acc: 0.76"
    lines = [
        bar.format(13, 6.76),
        end.format(13, 7.5, 9.0),
        bar.format(14, 6.2),
        end.format(14, 7.1, 9.8),
    ]
    found = [(one.loss, one.validation_loss) for one in records_of(*lines)]
    assert found == [(6.76, None), (None, 9.0), (6.2, None), (None, 9.8)]
    steps = [one.step for one in records_of(*lines)]
    assert steps[0] == steps[1] < steps[2] == steps[3]


def test_the_bar_of_an_evaluation_below_an_epoch_is_no_step() -> None:
    """Keras prints the one of `evaluate` like that of an epoch; its total differs."""
    text = "Epoch 10/100\n1500/1500 [=====] - 7s 5ms/step - loss: 2.3028 - acc: 0.1 - val_loss: 2.3027 - val_acc: 0.1\n"
    text += (
        "Epoch 00010: early stopping\n313/313 [=====] - 1s 3ms/step - loss: 2.3026 - acc: 0.1000\n"
    )
    assert [one.cause.fault for one in verdicts_of(text)] == ["plateau"]


def test_a_loss_that_is_not_measured_before_some_step_is_no_nan() -> None:
    """A replay memory is filled first; after a NaN of weights there is no finite loss."""
    nan = "".join(f"episode={n} step={450 + 10 * n} reward=198.0 loss=nan\n" for n in range(6))
    well = "".join(f"episode={n} step={450 + 10 * n} reward=198.0 loss=0.7\n" for n in range(6, 12))
    assert verdicts_of(nan + well) == []
    assert [one.cause.fault for one in verdicts_of(nan)] == ["nan_loss"]


@pytest.mark.parametrize(
    ("line", "is_validation"),
    [
        ("12:57:29,820 - __main__ - INFO - Epoch 3 Validation - Loss: 1.25, Acc: 0.5", True),
        ("[Validation] Epoch 3 Loss 1.25", True),
        ("Epoch 3 eval - loss: 1.25 acc 0.4", True),
        ("Validation Epoch 3 - loss: 1.25", True),
        ("Epoch 3/5, phase: val, Loss: 1.25", True),
        # Other numbers of a validation, a setting, and both passes on one line.
        ("Epoch 3 loss: 1.25 | test 0.7", False),
        # The name of a run or of a logger.
        ("[test] epoch 3 loss 1.25", False),
        ("Epoch 3 loss: 1.25 (eval every 100 steps)", False),
        ("step 3 loss 1.25 eval_steps: 100", False),
        ("Epoch 3 training, validation follows - loss: 1.25", False),
    ],
)
def test_a_line_that_names_its_pass_has_the_loss_of_that_pass(
    line: str, *, is_validation: bool
) -> None:
    """A validation loss that is read as one of the training is a spike, and one more with each epoch."""
    (record,) = records_of(line)
    assert (record.loss, record.validation_loss) == (
        (None, 1.25) if is_validation else (1.25, None)
    )


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (
            ["loss 2.8520 | val 4.0697 | 2.2s", "loss 0.2244 | val 0.9771", "loss 0.1479"],
            [4.0697, 0.9771, None],
        ),
        # Accuracies, of 1 and of 100; other decimals; percentages; a part of a name; and a metric with a name of its own.
        (["loss 0.9520 | val 0.8697", "loss 0.5244 | val 0.9100"], [None, None]),
        (["loss 0.9520 | val 57.2500", "loss 0.0500 | val 0.0600"], [None, None]),
        (["loss 2.8520 | val 4.07"], [None]),
        (["loss 2.8520 | val 4.0697%"], [None]),
        (["loss 2.8520 | best-val 4.0697"], [None]),
        (["loss 2.8520 | val bleu 4.0697"], [None]),
    ],
)
def test_a_validation_loss_may_lack_the_word(lines: list[str], wanted: list[float | None]) -> None:
    """The first one shows what it is: near the training loss, and with as many decimals."""
    text = "".join(f"step {n}/300 | {line}\n" for n, line in enumerate(lines, 1)).encode()
    found = Scan("log", engine=engine_of_all()).feed(text)
    assert [one.record.validation_loss for one in found if one.record is not None] == wanted
