"""Plain torch: a training that goes on from its checkpoint makes the steps that it would have made."""

import itertools
import json
import random
from typing import Any

import pytest

import stoker
from runner import checkpoints
from runner.facts.remedies.skipped_steps import data_step
from stoker.run import Run
from tests.stoker.agent import Agent

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.trainer

from stoker.integrations.optimizer_remedies import gradient_norm  # noqa: E402
from stoker.integrations.pytorch import StepSampler, TrainingState  # noqa: E402


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
            run,
            clip_norm=1.0,
            model=self.model,
            optimizer=optimizer,
            scheduler=scheduler,
            sampler=self.sampler,
        )

    def losses(self, num_steps: int) -> list[float]:
        """Load, and train."""
        self.state.load()
        losses = []
        for indices in itertools.islice(self.sampler, num_steps):
            loss = (self.model(self.samples[indices]) ** 2).mean() * (1 + random.random())
            self.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.state.clip_norm)
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item())
        return losses

    def num_optimizer_steps(self) -> int:
        """Return how many steps are in the moments of the optimizer."""
        return max((int(each["step"]) for each in self.optimizer.state.values()), default=0)


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


def test_data_steps_are_left_out_as_the_supervisor_counts_them(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step reads the batch that `facts` says it does; what was read before a checkpoint stays read."""
    run, agent = supervised
    plain = batches(StepSampler(48, batch_size=4), 40)
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"skip_steps": [[3, 4], [9, 9]]}))
    first = StepSampler(48, batch_size=4)
    state = TrainingState(run, sampler=first)
    assert state.load() == 0
    assert batches(first, 5) == [plain[n - 1] for n in (1, 2, 5, 6, 7)]
    state.save(5)
    monkeypatch.setenv("STOKER_RESUME", str(run.checkpoint_folder(5)))
    # The order that came later names data that was read as well.
    skipped = [[2, 4], [8, 9], [13, 14]]
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"skip_steps": skipped}))
    resumed = StepSampler(48, batch_size=4)
    again = stoker.Run(run._channel, fallback=run.checkpoint_folder(5))
    TrainingState(again, sampler=resumed).load()
    due = [data_step(step, skipped, after=(5, 7)) for step in range(6, 21)]
    assert due[:4] == [10, 11, 12, 15]
    assert batches(resumed, 15) == [plain[n - 1] for n in due]
    values = [each["values"] for each in agent.reports() if each["kind"] == "settings"]
    assert [(each["skip_steps"], each["data_position"]) for each in values] == [
        ([[3, 4], [9, 9]], 0),
        (skipped, 7),
    ]


def batches(sampler: StepSampler, num_steps: int) -> list[list[int]]:
    """Return the indices of the next steps."""
    return list(itertools.islice(sampler, num_steps))


def test_an_optimizer_is_reset_once_in_the_history_of_its_weights(
    supervised: tuple[Run, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart from before repeats it, one from after does not; the loop clips where the remedy says so."""
    run, agent = supervised
    first = Training(run)
    first.losses(3)
    first.state.save(3)
    monkeypatch.setenv("STOKER_RESUME", str(run.checkpoint_folder(3)))
    ordered = {"optimizer_reset": ["1.r1"], "clip": 0.25}
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps(ordered))
    for _ in range(2):
        resumed = Training(stoker.Run(run._channel, fallback=run.checkpoint_folder(3)))
        resumed.losses(2)
        assert resumed.num_optimizer_steps() == 2
        assert resumed.state.clip_norm == 0.25
    resumed.state.save(5)
    monkeypatch.setenv("STOKER_RESUME", str(run.checkpoint_folder(5)))
    after = Training(stoker.Run(run._channel, fallback=run.checkpoint_folder(5)))
    after.losses(1)
    assert after.num_optimizer_steps() == 3
    values = [each["values"] for each in agent.reports() if each["kind"] == "settings"]
    assert [(each["optimizer_reset"], each["clip"]) for each in values] == [
        ([], 1.0),
        *[(["1.r1"], 0.25)] * 3,
    ]


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
