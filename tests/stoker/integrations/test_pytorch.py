"""Plain torch: a training that goes on from its checkpoint makes the steps that it would have made."""

import itertools
import random
from typing import Any

import pytest

import stoker
from runner import checkpoints
from stoker.run import Run
from tests.stoker.agent import Agent

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.trainer

from stoker.integrations.pytorch import StepSampler, TrainingState, gradient_norm  # noqa: E402


class Training:
    """A model with dropout, an optimizer with momentum and a schedule, on samples in shuffled batches."""

    def __init__(self, run: Run) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
        self.samples = torch.randn(50, 4, generator=torch.Generator().manual_seed(2))
        self.sampler = StepSampler(50, batch_size=4, seed=3)
        self.optimizer, self.scheduler = optimizer, scheduler
        self.state = TrainingState(
            run, model=self.model, optimizer=optimizer, scheduler=scheduler, sampler=self.sampler
        )

    def losses(self, num_steps: int) -> list[float]:
        """Load, and train."""
        self.state.load()
        losses = []
        for indices in itertools.islice(self.sampler, num_steps):
            loss = (self.model(self.samples[indices]) ** 2).mean() * (1 + random.random())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item())
        return losses


def test_a_resumed_training_makes_the_same_steps(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last digit: weights, moments, schedule, order of data over an epoch's end, and three generators of random numbers."""
    run, _ = supervised
    random.seed(7)
    torch.manual_seed(1)
    whole = Training(run).losses(20)
    random.seed(7)
    first = Training(run)
    assert first.losses(9) == whole[:9]
    first.state.save(9)
    folder = run.checkpoint_folder(9)
    assert sorted(checkpoints.verify(folder).files) == ["generators-00000.pt", "state.pt"]
    monkeypatch.setenv("STOKER_RESUME", str(folder))
    resumed = stoker.Run(run._channel, fallback=folder)
    assert Training(resumed).losses(11) == whole[9:]


def test_another_order_of_data_or_a_part_that_is_missing_is_refused(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint does not say where another order has come to."""
    run, _ = supervised
    TrainingState(run, sampler=StepSampler(50, batch_size=4)).save(3)
    monkeypatch.setenv("STOKER_RESUME", str(run.checkpoint_folder(3)))
    resumed = stoker.Run(run._channel, fallback=run.checkpoint_folder(3))
    with pytest.raises(ValueError, match=r"order of data is .*'batch': 4"):
        TrainingState(resumed, sampler=StepSampler(50, batch_size=5)).load()
    model = torch.nn.Linear(1, 1)
    with pytest.raises(KeyError, match="has no model; it has sampler"):
        TrainingState(resumed, sampler=StepSampler(50, batch_size=4), model=model).load()
    with pytest.raises(TypeError, match="data: no state_dict"):
        TrainingState(run, data=[1, 2])


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_an_epoch_has_each_sample_once_on_one_rank(
    num_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rank begins with; and the next epoch has another order."""
    monkeypatch.setenv("WORLD_SIZE", str(num_ranks))
    epochs: list[list[int]] = []
    for begin in (0, 4):
        epoch: list[int] = []
        for rank in range(num_ranks):
            monkeypatch.setenv("RANK", str(rank))
            sampler = StepSampler(12 * num_ranks, batch_size=3)
            sampler.start_at(begin)
            epoch += itertools.chain(*itertools.islice(sampler, 4))
        epochs.append(epoch)
    assert [sorted(epoch) for epoch in epochs] == [list(range(12 * num_ranks))] * 2
    assert epochs[0] != epochs[1]


def test_samples_that_make_no_step_are_refused() -> None:
    """An endless loop without a batch would be a hang."""
    with pytest.raises(ValueError, match="3 samples make no step of 1 ranks with 4 each"):
        StepSampler(3, batch_size=4)


def test_the_norm_of_gradients_is_that_of_torch() -> None:
    """Parameters without a gradient do not count."""
    layers: list[Any] = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]
    optimizer = torch.optim.SGD([{"params": layer.parameters()} for layer in layers], lr=0.1)
    assert gradient_norm(optimizer) == 0.0
    layers[0](torch.ones(2, 3)).sum().backward()
    expected = torch.nn.utils.clip_grad_norm_(layers[0].parameters(), float("inf"))
    assert gradient_norm(optimizer) == pytest.approx(float(expected))
