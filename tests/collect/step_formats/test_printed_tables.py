"""Tables in a log: rows are read by the names in the first line, whatever separates the columns, and prose is no table."""

import time

import pytest

from runner.collect.engines import ReEngine
from runner.collect.scan import Scan
from runner.collect.step_formats.printed_tables import HEADER, MAX_GAP
from runner.facts.messages.signals import StepRecord
from tests.collect.diagnosed_logs import engine_of_all, verdicts_of

Numbers = list[tuple[int, float | None, float | None]]


def records_of(text: str, *, size: int | None = None) -> list[StepRecord]:
    """Read one log, in blocks of `size` bytes."""
    scan, data = Scan("log", engine=engine_of_all()), text.encode()
    size = size or len(data)
    found = [line for at in range(0, len(data), size) for line in scan.feed(data[at : at + size])]
    return [line.record for line in [*found, *scan.finish()] if line.record is not None]


def numbers_of(records: list[StepRecord]) -> Numbers:
    """Return step, loss and validation loss of each record."""
    return [(record.step, record.loss, record.validation_loss) for record in records]


FASTAI = "epoch     train_loss  valid_loss  accuracy  time    \n"
FASTAI += "0         2.5         2.25        0.42      00:12\n1         1.5         1.25        0.52      00:12\n"
TABLES: dict[str, tuple[str, Numbers]] = {
    "wide": (FASTAI, [(0, 2.5, 2.25), (1, 1.5, 1.25)]),
    "tabs": (
        "epoch\ttrain_loss\tvalid_loss\taccuracy\n1\t2.5\t2.25\t0.4\n2\t1.5\t1.25\t0.5\n",
        [(1, 2.5, 2.25), (2, 1.5, 1.25)],
    ),
    "rows of LaTeX": (
        "Epoch & Train loss & Val loss & Acc \\\\\n\\hline\n1 & 2.5 & 2.25 & 34.1 \\\\\n2 & 1.5 & 1.25 & 40.2 \\\\\n",
        [(1, 2.5, 2.25), (2, 1.5, 1.25)],
    ),
    "an index of pandas": (
        "   epoch  train_loss  val_loss\n0      1         2.5      2.25\n1      2         1.5      1.25\n",
        [(1, 2.5, 2.25), (2, 1.5, 1.25)],
    ),
    "iterations of Chainer, which go on": (
        "epoch       iteration   main/loss   validation/main/loss  elapsed_time\n"
        "1           100         2.5         2.25                  12.31\n"
        "2           200         1.5         1.25                  24.62\n",
        [(100, 2.5, 2.25), (200, 1.5, 1.25)],
    ),
    "one blank": (
        "Step Training Loss Validation Loss\n500 2.5 2.25\n1000 1.5 1.25\n",
        [(500, 2.5, 2.25), (1000, 1.5, 1.25)],
    ),
    "an empty cell": (
        "Step\tTraining Loss\tValidation Loss\n500\tNo log\t2.25\n1000\t1.5\t1.25\n",
        [(500, None, 2.25), (1000, 1.5, 1.25)],
    ),
    "Markdown": (
        "| Training Loss | Epoch | Step | Validation Loss |\n|:---:|:---:|:---:|:---:|\n"
        "| 2.5 | 1.0 | 1,000 | 2.25 |\n| 1.5 | 2.0 | 2,000 | 1.25 |\n",
        [(1000, 2.5, 2.25), (2000, 1.5, 1.25)],
    ),
    "CSV": (
        "epoch,step,train_loss,val_loss\n0,49,2.5,\n0,99,,2.25\n",
        [(49, 2.5, None), (99, None, 2.25)],
    ),
    "CSV without a step": (
        "accuracy,loss,val_accuracy,val_loss\n0.4,2.5,0.5,2.25\n0.5,1.5,0.5,1.25\n",
        [(0, 2.5, 2.25), (1, 1.5, 1.25)],
    ),
    "two names alone": (
        "train_loss, val_loss\n2.5, 2.25\n1.5, 1.25\n",
        [(0, 2.5, 2.25), (1, 1.5, 1.25)],
    ),
    "the index of pandas": (
        ",loss,val_loss\n0,2.5,2.25\n1,1.5,1.25\n",
        [(0, 2.5, 2.25), (1, 1.5, 1.25)],
    ),
    "YOLOv5": (
        "     Epoch   gpu_mem       box       obj       cls    labels  img_size\n"
        "     0/299     3.71G   0.5   0.25   0.125        21       640: 100%|████| 16/16 [00:05<00:00]\n",
        [(0, 0.875, None)],
    ),
    "YOLOv8": (
        "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
        "\r      1/100      3.2G      3.0      2.5      1.5         22        640:  12%|█ | 1/8 [00:04<00:00]"
        "\r      1/100      3.2G      1.0      2.5      1.5         22        640: 100%|██| 8/8 [00:04<00:00]\n"
        "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95)\n"
        "                   all        128        929      0.642      0.535      0.605      0.447\n\n",
        [(1, 5.0, None)],
    ),
    "Chainer": (
        "epoch       main/loss   validation/main/loss  elapsed_time\n1           2.5    2.25                4.53\n",
        [(1, 2.5, 2.25)],
    ),
    "a box": (
        "┃ Epoch ┃ Train Loss ┃ Val Loss ┃\n┡━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━┩\n│ 1     │ 2.5        │ 2.25     │\n",
        [(1, 2.5, 2.25)],
    ),
    "a box of signs": (
        "+-------+------------+\n| Epoch | Train Loss |\n+-------+------------+\n|   1   |    2.5     |\n",
        [(1, 2.5, None)],
    ),
    "behind a time": (
        "2026-01-02 03:04:05,678 INFO epoch train_loss val_loss\n2026-01-02 03:04:06,678 INFO 1 2.5 2.25\n",
        [(1, 2.5, 2.25)],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_rows_are_read_by_the_names_of_their_columns(name: str) -> None:
    """The step is that of the column of steps, else the epoch; of several parts of a loss, the sum counts."""
    text, wanted = TABLES[name]
    assert numbers_of(records_of(text)) == wanted
    if "\r" not in text:
        assert numbers_of(records_of(text.replace("\n", "\r\n"))) == wanted


@pytest.mark.parametrize("size", [1, 7, 64])
def test_a_table_may_be_cut_anywhere(size: int) -> None:
    """A log that is read while it grows gives the same rows."""
    for text, wanted in TABLES.values():
        assert numbers_of(records_of(text, size=size)) == wanted


def test_a_row_is_read_when_its_line_is_whole() -> None:
    """Of an unfinished line the last number may be cut."""
    scan = Scan("log", engine=engine_of_all())
    head, row = FASTAI.splitlines(keepends=True)[:2]
    assert [*scan.feed(head.encode()), *scan.feed(row[:12].encode()), *scan.flush()] == []
    records = [line.record for line in scan.feed(row[12:].encode())]
    assert numbers_of([record for record in records if record]) == [(0, 2.5, 2.25)]


@pytest.mark.parametrize(
    "text",
    [
        # Prose, and code.
        "In each epoch the training loss falls\n1 2 3 4 5 6\n",
        "we log the loss,  step and rank\n1, 2, 3\n",
        "for epoch, loss in history:\n1, 2.5\n",
        # Other columns, other rows.
        "epoch  accuracy  time\n1  0.5  00:12\n",
        "epoch  train_loss  time\nrank  0.5  00:12\n1  0.5\n1  lost  00:12\n",
        # Names without a step, of code, of two words, or without a loss; and rows that are not all numbers.
        "loss, accuracy = evaluate(model)\n0.5, 0.9\n",
        "return loss, accuracy\n0.5, 0.9\n",
        "loss\n0.5\n",
        "the loss, the accuracy\n0.5, 0.9\n",
        "accuracy, time\n0.5, 0.9\n",
        "loss, val_loss\n0.5, good\n0.5\n0.5, 0.9, 0.1\nlost, 0.9\n",
        "loss\taccuracy\n0.5\t0.9\n",
        # Rows of a search for a learning rate or for settings, and of losses alone: nothing shows that they follow each other.
        "lr,loss\n1e-5,2.5\n1e-4,1.5\n1e-3,9.5\n",
        "hidden,lr,loss,val_loss\n64,0.1,2.5,2.25\n128,0.1,1.5,1.25\n",
        "fold,loss,val_loss\n1,2.5,2.25\n2,1.5,1.25\n",
        "loss,accuracy\n2.5,0.25\n1.5,0.5\n",
        # Too far away.
        "epoch  train_loss\n" + "loading a shard of the data\n" * (MAX_GAP + 1) + "1  0.5\n",
    ],
)
def test_prose_and_other_rows_are_no_table(text: str) -> None:
    """A first line needs names of a step and of a loss, and a row a number for each."""
    assert records_of(text) == []


def test_a_table_that_repeats_what_lines_have_shown_is_left_out() -> None:
    """Trainers print a summary of epochs below the lines of the steps: its steps are others."""
    lines = "".join(f"step {n} loss {3 - n / 100}\n" for n in range(1, 100))
    assert {record.step for record in records_of(lines + FASTAI)} == set(range(1, 100))


def test_sums_over_an_unknown_number_of_steps_are_no_loss_unless_they_are_not_finite() -> None:
    """A row of spaCy adds up the losses since the row before; the first spans one step, and batches grow."""
    head = "E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE \n---  ------  ------------  --------  ------  ------\n"
    row = "  0  {:6d}          {}     {}   40.00    0.40\n"
    well = (
        head
        + row.format(0, 0.5, 45.1)
        + row.format(200, 12.0, 745.1)
        + row.format(400, 20.0, 5745.1)
    )
    assert numbers_of(records_of(well)) == [(0, None, None), (200, None, None), (400, None, None)]
    assert verdicts_of(well) == []
    sick = well + row.format(600, "nan", "nan") + row.format(800, "nan", "nan")
    assert [one.cause.fault for one in verdicts_of(sick)] == ["nan_loss"]


def test_a_run_in_a_table_is_judged() -> None:
    """A loss that rose and stayed is found, one that falls is none."""
    head, row = "epoch\ttrain_loss\tvalid_loss\taccuracy\n", "{}\t{}\t{}\t0.44\n"
    sick = head + row.format(1, 2.760716, 2.756633) + row.format(2, 6.228361, 6.220452)
    assert [one.cause.fault for one in verdicts_of(sick)] == ["divergence"]
    well = head + "".join(row.format(n, 3 / (n + 1), 3.1 / (n + 1)) for n in range(30))
    assert verdicts_of(well) == []


def test_the_header_is_found_by_every_engine() -> None:
    """Python's `re` and a set engine agree on first lines."""
    re2 = pytest.importorskip("re2", reason="google-re2 is not installed")
    for text, _ in TABLES.values():
        head = text.encode()
        ends: dict[int, int] = {}
        ReEngine([HEADER]).search(head, ends.__setitem__)
        assert ends
        assert re2.search(HEADER, text)


@pytest.mark.costly
@pytest.mark.parametrize(
    "text",
    [
        "epoch  train_loss\n" * 20_000,
        "epoch  train_loss\n" + "1  nan  \n" * 50_000,
        "epoch " * 50_000 + "loss\n",
        "epoch  " + "|" * 300_000 + "loss\n" + "1  2\n" * 20,
        "a," * 150_000 + "\n",
        "loss" * 75_000 + ",",
        "a_loss," * 40_000 + "!\n",
    ],
)
def test_hostile_tables_cost_little(text: str) -> None:
    """Hundreds of kilobytes made of first lines and rows are read in bounded time."""
    started = time.process_time()
    records_of(text)
    # 1 s measured for the worst; the rest is for slow machines.
    assert time.process_time() - started < 10.0


def test_batches_that_begin_again_with_each_epoch_are_no_steps() -> None:
    """Such rows have numbers, and no step of their own."""
    text = "# Epoch batch         loss       loss_f\n      1     1        2.5        0.5\n"
    scan = Scan("log", engine=engine_of_all())
    (line,) = scan.feed(text.encode())
    assert line.unnumbered is not None
    assert line.unnumbered.numbers == {"loss": 2.5}
