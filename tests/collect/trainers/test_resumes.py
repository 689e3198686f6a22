"""Logs of runs that were resumed: whether they go on as they were, by steps made again and by the first new one."""

import random

import pytest

from tests.collect.diagnosed_logs import verdicts_of

SENTENCES = (
    "Resuming training from checkpoint runs/step_30",
    "[INFO|trainer.py:1773]   Continuing training from global step 30",
    "=> loaded checkpoint 'runs/30.pt' (epoch 2)",
    "2026-01-02 03:04:05 | INFO | fairseq.trainer | Loaded checkpoint runs/30.pt (epoch 2 @ 30 updates)",
    "successfully loaded checkpoint from runs at iteration 30",
    "Restored all states from the checkpoint at runs/30.ckpt",
)


def steps(first: int, last: int, level: float, seed: int) -> str:
    """Write steps whose loss falls slowly through noise."""
    dice = random.Random(seed)
    losses = ((n, level * 0.999**n + dice.uniform(-0.03, 0.03)) for n in range(first, last))
    return "".join(f"step {n}: loss {loss:.4f} lr 1e-4\n" for n, loss in losses)


def faults(text: str) -> list[str]:
    """Return the faults of a log."""
    return [verdict.cause.fault for verdict in verdicts_of(text)]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_run_that_goes_on_at_another_loss_was_not_resumed(sentence: str) -> None:
    """Whether it makes steps again or goes on behind its last one; one that goes on as it was is healthy."""
    for seed in range(10):
        before = f"{steps(1, 41, 2.5, seed)}{sentence}\n"
        assert faults(before + steps(31, 60, 2.5, seed + 50)) == []
        assert faults(before + steps(41, 60, 2.5, seed + 50)) == []
        assert faults(before + steps(31, 60, 3.1, seed + 50)) == ["resume_mismatch"]
        assert faults(before + steps(41, 60, 5.5, seed + 50)) == ["resume_mismatch"]


def test_without_a_sentence_about_a_resume_a_jump_is_a_jump() -> None:
    """Steps that begin again may be those of another run in the same file."""
    assert "resume_mismatch" not in faults(steps(1, 41, 2.5, 1) + steps(31, 60, 3.1, 2))
    assert "resume_mismatch" not in faults(steps(1, 41, 2.5, 1) + steps(1, 60, 3.1, 2))


def test_a_jump_long_after_a_resume_is_a_jump() -> None:
    """Only the first step after it is of the resume."""
    text = f"{steps(1, 41, 2.5, 1)}{SENTENCES[0]}\n{steps(41, 80, 2.5, 2)}{steps(80, 100, 5.5, 3)}"
    (fault,) = faults(text)
    assert fault in ("loss_spike", "divergence")


def test_weights_that_are_loaded_before_the_first_step_are_no_resume() -> None:
    """What came before them is not in the log."""
    assert faults(f"{SENTENCES[2]}\n{steps(1, 60, 5.5, 1)}") == []


@pytest.mark.parametrize(
    "line",
    [
        "saved; the run can be resumed from out/ckpt_40.pt",
        "Saved. To resume training, pass --resume out/ckpt_40.pt",
        "Loading checkpoint shards: 100%|##########| 2/2 [00:01<00:00]",
        "Stage 2: loading checkpoint out/stage1.pt",
    ],
)
def test_a_line_that_only_mentions_a_checkpoint_is_no_resume(line: str) -> None:
    """A jump behind it is a jump, and steps that begin again are those of another run."""
    before = steps(1, 41, 2.5, 1)
    assert "resume_mismatch" not in faults(f"{before}{line}\n{steps(41, 60, 5.5, 2)}")
    assert "resume_mismatch" not in faults(f"{before}{line}\n{steps(31, 60, 3.1, 2)}")


def test_another_stage_and_other_ranks_are_no_steps_made_again() -> None:
    """A counter that begins again at its start, and the lines of several ranks for each new step."""
    resumed = f"{steps(1, 41, 2.5, 1)}{SENTENCES[0]}\n"
    assert "resume_mismatch" not in faults(resumed + steps(1, 60, 5.0, 2))
    ranks = "".join(
        f"[rank{rank}] step {n} loss {2.4 + 0.3 * rank:.2f}\n"
        for n in range(41, 60)
        for rank in (0, 1)
    )
    assert "resume_mismatch" not in faults(resumed + ranks)


def excerpt(first: int, every: int, losses: list[float]) -> str:
    """Write a few steps, as an excerpt of a log has them."""
    return "".join(
        f"step {first + every * n}: loss {loss:.4f} lr 1e-4\n" for n, loss in enumerate(losses)
    )


@pytest.mark.parametrize(
    "sentence",
    [
        "=> loaded checkpoint 'ckpt/last.pth' (epoch 42)",
        "Loading the checkpoint from outputs/checkpoint/step-20500.",
        "Loaded model and optimizer state from /ckpt/20500.pt",
        "Resumed from checkpoint at step 20500 (best val loss 1.712)",
    ],
)
def test_a_few_steps_on_both_sides_of_a_resume(sentence: str) -> None:
    """A jump to a level above all before, which later steps do not leave."""
    before = excerpt(20_450, 10, [2.21, 2.20, 2.22, 2.21, 2.20])
    high = excerpt(20_500, 10, [2.71, 2.62, 2.55, 2.51, 2.47])
    assert faults(f"{before}{sentence}\n{high}") == ["resume_mismatch"]
    for after in ([2.21, 2.19, 2.22, 2.20], [2.31, 2.27, 2.24, 2.23], [2.71, 2.21, 2.22, 2.20]):
        assert faults(f"{before}{sentence}\n{excerpt(20_500, 10, after)}") == []
    # Two steps before show little of the noise, so more of a jump is needed.
    few = excerpt(20_480, 10, [2.21, 2.20])
    assert faults(f"{few}{sentence}\n{high}") == []
    assert faults(f"{few}{sentence}\n{excerpt(20_500, 10, [4.71, 4.02])}") == ["resume_mismatch"]


def test_a_loss_that_falls_as_at_the_start() -> None:
    """New weights learn fast; those of an old run do not."""
    sentence = "Resumed from checkpoint at step 30000\n"
    new = [10.8123, 10.4410, 10.0192, 9.6204, 9.25]
    assert faults(sentence + excerpt(30_010, 10, new)) == ["resume_mismatch"]
    assert faults(sentence + excerpt(10, 10, new)) == []
    for losses in (
        [2.1123, 2.1410, 2.1192, 2.1204],
        [1.31, 1.27, 1.19, 1.18],
        [2.2, 2.1, 2.3, 1.9],
    ):
        assert faults(sentence + excerpt(30_010, 10, losses)) == []
