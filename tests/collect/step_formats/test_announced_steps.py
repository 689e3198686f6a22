"""Steps that lines of their own announce, and losses of parts on lines of their own."""

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.facts.messages.signals import StepRecord
from tests.collect.diagnosed_logs import engine_of_all, verdicts_of

LOSSES = (4.5, 3.5, 3.0, 2.75)


def records_of(text: str) -> list[StepRecord]:
    """Read a whole log, and return the records whose numbers the judges see."""
    log = Diagnosis(engine=engine_of_all()).log("log")
    found: list[StepRecord] = []
    add = log._add_step

    def note(record: StepRecord, line: int, text: bytes) -> None:
        found.append(record)
        add(record, line, text)

    log._add_step = note  # type: ignore[method-assign]
    log.feed(text.encode())
    log.finish()
    return found


def losses_of(text: str) -> list[tuple[int, float]]:
    """Return the steps and losses of a log."""
    return [(one.step, one.loss) for one in records_of(text) if one.loss is not None]


@pytest.mark.parametrize(
    "block",
    [
        "   --> STEP: 7/1512 -- GLOBAL_STEP: {step}\n     | > loss: {loss}  (5.12)\n     | > grad_norm: 1.5  (1.2)\n",
        "I0315 08:00:00.1 140 summary.py:350] Metrics values at step {step}:\nI0315 08:00:00.1 140 summary.py:355]   loss={loss}\n",
        "┌ Info: training\n│   step = {step}\n└   loss = {loss}\n",
        "=== Step {step} ===\nloss {loss}\ngrad norm 1.5\n",
        "global_step: {step}\nloss: {loss}\n",
        "Learning iteration {step}/3000\n   Mean reconstruction time: 0.5s\n   Training loss: {loss}\n",
        "step {step}\n  loss/total: {loss}\n  loss/cls: 0.25\n",
    ],
)
def test_numbers_below_an_announced_step_have_it(block: str) -> None:
    """Trainers whose lines hold one number each."""
    text = "".join(block.format(step=100 * n, loss=one) for n, one in enumerate(LOSSES, 1))
    assert losses_of(text) == [(100 * n, one) for n, one in enumerate(LOSSES, 1)]


def test_announced_steps_of_an_epoch_go_on_in_the_next() -> None:
    """A step that goes back without an epoch between is that of a run that resumed."""
    block = "Iteration {0}/20\nloss: {1}\n"
    text = "".join(
        f"Epoch {num}/2\n" + block.format(10, 5.5 - num) + block.format(20, 5.0 - num)
        for num in (1, 2)
    )
    assert losses_of(text) == [(10, 4.5), (20, 4.0), (30, 3.5), (40, 3.0)]
    resumed = block.format(10, 4.5) + block.format(20, 4.0) + block.format(10, 4.5)
    assert [step for step, _ in losses_of(resumed)] == [10, 20, 10]


def test_the_total_of_parts_counts_wherever_it_is() -> None:
    """Losses of parts are left out below the first step, since their total may follow."""
    block = "step {0}\n  loss/cls: 0.25\n  loss/box: 0.5\n  loss/total: {1}\n"
    text = "".join(block.format(n, one) for n, one in enumerate(LOSSES))
    assert losses_of(text) == list(enumerate(LOSSES))


@pytest.mark.parametrize(
    "block",
    [
        "cls_loss: 0.25\nbox_loss: 0.5\ntotal_loss: {0}\n---\n",
        "total_loss: {0}\ncls_loss: 0.25\nbox_loss: 9.5\n---\n",
        "{{'Loss/cls_loss': 0.25,\n 'Loss/box_loss': 9.5,\n 'Loss/total_loss': {0},\n 'learning_rate': 0.1}}\n",
    ],
)
def test_parts_on_lines_of_their_own_are_no_curve_together(block: str) -> None:
    """Without a step, the order of the lines gives one to the total alone."""
    text = "".join(block.format(one) for one in LOSSES)
    assert [loss for _, loss in losses_of(text)] == list(LOSSES)


@pytest.mark.parametrize(
    "line",
    [
        "Saving checkpoint at step 1000",
        "Failed at step 1000",
        "RuntimeError: no data for step 1000",
        "[INFO] resumed from step 1000",
    ],
)
def test_sentences_about_a_step_announce_none(line: str) -> None:
    """Losses below them keep the steps of their order."""
    text = f"{line}\n" + "".join(f"loss: {one}\n" for one in LOSSES)
    assert [loss for _, loss in losses_of(text)] == list(LOSSES)
    assert 1000 not in [step for step, _ in losses_of(text)]


def test_a_step_of_its_own_ends_what_was_announced() -> None:
    """Lines behind it are read by themselves."""
    text = "step 100\nloss: 4.5\nstep 200 loss: 3.5\n"
    assert losses_of(text) == [(100, 4.5), (200, 3.5)]


def test_a_row_with_the_same_step_is_of_another_run() -> None:
    """A table of trials has what each lost after as many steps."""
    rows = "| {name} | TERMINATED | {loss} | 10 |\n"
    head = "| Trial name | status | loss | iter |\n|---|---|---|---|\n"
    trials = (("t1", "0.4"), ("t2", "91.2"), ("t3", "nan"))
    assert verdicts_of(head + "".join(rows.format(name=n, loss=v) for n, v in trials)) == []


def test_layers_and_trials_are_no_steps() -> None:
    """What is quantized layer after layer has a loss of its own in each."""
    losses = (12.3, 121.3, 812.3, 9812.3, 99812.3)
    layers = "INFO - Quantizing mlp.down_proj in layer {}/32... loss: {} time: 1.2s\n"
    assert verdicts_of("".join(layers.format(n, v) for n, v in enumerate(losses, 1))) == []
    trials = "trial {}: lr=0.1 final loss {}\n"
    assert verdicts_of("".join(trials.format(n, v) for n, v in enumerate((*losses, "nan")))) == []


def test_objects_with_a_loss_each_are_no_curve() -> None:
    """What was evaluated one by one has neither a step nor a learning rate."""
    row = '{{"id": {}, "loss": {}}}\n'
    losses = (2.5, 25.0, 250.0, 2500.0, 25000.0)
    assert verdicts_of("".join(row.format(n, one) for n, one in enumerate(losses))) == []
    logged = '{{"loss": {}, "learning_rate": 0.1, "epoch": 0.5}}\n'
    text = "".join(logged.format(one) for one in LOSSES)
    assert [loss for _, loss in losses_of(text)] == list(LOSSES)


def test_bars_that_go_back_by_backspaces_are_bars() -> None:
    """As Keras 1 drew them."""
    states = "".join(
        f"{n}/4 [==>.] - ETA: 0s - loss: {one}" + "\b" * 30 for n, one in enumerate(LOSSES, 1)
    )
    assert [loss for _, loss in losses_of(f"Epoch 1/1\n{states}\n")] == list(LOSSES)
