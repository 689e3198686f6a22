"""Numbers printed to one stream get their step from the progress bar on the other, as transformers' Trainer writes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.step_formats.progress_bars import WAIT_SECONDS
from runner.collect.tails.follower import Follower
from runner.facts.messages.log_search import FollowRequest
from runner.facts.messages.signals import StepRecord

# What Trainer of transformers 5.23 wrote to standard output and error, with tqdm 4.70, on one CPU.
PRINTED = """\
{'loss': '4.139', 'grad_norm': '1.083', 'learning_rate': '0.0009833', 'epoch': '0.008'}
{'loss': '4.085', 'grad_norm': '1.069', 'learning_rate': '0.00095', 'epoch': '0.016'}
{'loss': '4.026', 'grad_norm': '1.151', 'learning_rate': '0.0009167', 'epoch': '0.024'}
"""
DRAWN = (
    "\r  0%|          | 0/60 [00:00<?, ?it/s]"
    "\r  3%|▎         | 2/60 [00:00<00:03, 15.63it/s]\r                                              \r\r"
    "  3%|▎         | 2/60 [00:00<00:03, 15.63it/s]\r                                              \r\r"
    "  7%|▋         | 4/60 [00:00<00:03, 15.63it/s]\r  8%|▊         | 5/60 [00:00<00:02, 21.45it/s]"
    "\r                                              \r\r 10%|█         | 6/60 [00:00<00:02, 21.45it/s]"
)
SHARDS = (
    "\rWriting model shards:   0%|          | 0/1 [00:00<?, ?it/s]\x1b[A"
    "\rWriting model shards: 100%|██████████| 1/1 [00:00<00:00, 1371.58it/s]\n"
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """Return the engine with all formats."""
    return engine_for()


class Rank:
    """The two streams of one rank, and what a follower reads of them."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.out, self.err = folder / "rank0.out", folder / "rank0.err"
        files = {str(self.out): 0, str(self.err): 0}
        self.follower = Follower(FollowRequest(gang="1.1.0", files=files), engine)
        self.now = 0.0

    def prints(self, step: int) -> None:
        """Print numbers that name their own step, so that a test can compare."""
        line = (
            f"{{'loss': '{step}', 'grad_norm': '1.5', 'learning_rate': '0.001', 'epoch': '0.1'}}\n"
        )
        with self.out.open("a") as stream:
            stream.write(line)

    def draws(self, step: int) -> None:
        """Clear the bar, and draw it again, as after a printed line."""
        with self.err.open("a") as stream:
            stream.write(f"\r{' ' * 46}\r\r 10%|█         | {step}/600 [00:00<00:02, 21.45it/s]")

    def advances(self, step: int) -> None:
        """Draw the bar of a later step over the one before."""
        with self.err.open("a") as stream:
            stream.write(f"\r 10%|█         | {step}/600 [00:00<00:02, 21.45it/s]")

    def read(self, seconds: float = 0.1) -> list[StepRecord]:
        """Poll after a while; return the steps."""
        self.now += seconds
        return [record for report in self.follower.poll(self.now) for record in report.records]


@pytest.fixture
def rank(tmp_path: Path, engine: Engine) -> Iterator[Rank]:
    """Give a rank that has written nothing yet."""
    rank = Rank(tmp_path, engine)
    yield rank
    rank.follower.close()


def test_what_trainer_prints_has_step_loss_norm_and_learning_rate(rank: Rank) -> None:
    """Three lines of a real run, and its bar: steps 2, 4 and 6, though the bar also showed 0 and 5."""
    rank.out.write_text(PRINTED)
    rank.err.write_text(SHARDS + DRAWN + SHARDS)
    read = [(r.step, r.loss, r.grad_norm, r.lr) for r in rank.read()]
    assert read == [
        (2, 4.139, 1.083, 0.0009833),
        (4, 4.085, 1.069, 0.00095),
        (6, 4.026, 1.151, 0.0009167),
    ]


def test_each_line_has_the_step_of_its_own_bar_whenever_the_two_are_read(rank: Rank) -> None:
    """A line waits for a bar that is drawn after the poll; bars that move on in between number nothing."""
    for step in range(10, 60, 10):
        rank.prints(step)
        assert rank.read() == []
        rank.draws(step)
        rank.advances(step + 1)
        assert [(r.step, r.loss) for r in rank.read()] == [(step, step)]
    for step in (60, 70, 80):
        rank.prints(step)
        rank.draws(step)
    assert [(r.step, r.loss) for r in rank.read()] == [(60, 60), (70, 70), (80, 80)]


def test_other_lines_that_are_written_through_the_bar_shift_no_step(rank: Rank) -> None:
    """Their bars number nothing, before the metric lines as between them."""
    with rank.out.open("a") as stream:
        stream.write("Warning: a line of another kind\n")
    rank.draws(3)
    rank.prints(10)
    rank.draws(10)
    assert [r.step for r in rank.read()] == [10]
    rank.draws(15)
    rank.draws(16)
    rank.read()
    for step in (20, 30):
        rank.prints(step)
        rank.draws(step)
        assert [(r.step, r.loss) for r in rank.read()] == [(step, step)]


def test_numbers_without_any_bar_are_no_steps(rank: Rank) -> None:
    """They are dropped after a second, and the next line with a bar is read as usual."""
    rank.prints(10)
    assert rank.read() == []
    assert rank.read(WAIT_SECONDS) == []
    rank.prints(20)
    rank.draws(20)
    assert [(r.step, r.loss) for r in rank.read()] == [(20, 20)]


def test_a_stream_of_bars_that_was_cut_back_numbers_what_comes_after(rank: Rank) -> None:
    """Stoker cuts the output of ranks back; a bar half-written is not read."""
    for step in (10, 20):
        rank.prints(step)
        rank.draws(step)
    assert [r.step for r in rank.read()] == [10, 20]
    rank.err.write_text("")
    rank.prints(30)
    rank.draws(30)
    with rank.err.open("a") as stream:
        stream.write(f"\r{' ' * 46}\r\r 10%|█         | 4")
    assert [(r.step, r.loss) for r in rank.read()] == [(30, 30)]
