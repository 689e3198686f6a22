"""The callback for Lightning's Trainer: one rank of a small model, and the agent's end of its channel."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from stoker.run import Run
from tests.stoker.agent import Agent

torch: Any = pytest.importorskip("torch")
pytest.importorskip("lightning")
pytestmark = pytest.mark.trainer

from lightning.pytorch import Callback as LightningCallback  # noqa: E402
from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.plugins.io import AsyncCheckpointIO  # noqa: E402

from stoker.integrations.lightning import NAME, Callback  # noqa: E402
from stoker.integrations.optimizer_remedies import gradient_norm  # noqa: E402
from stoker.integrations.requirements import EXIT_BAD_SETTINGS  # noqa: E402


class Model(LightningModule):
    """A line through points."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any) -> Any:
        """Return the loss of a batch."""
        return ((self.layer(batch).squeeze(-1) - batch.sum(-1)) ** 2).mean()

    def validation_step(self, batch: Any) -> None:
        """Log the held-out loss."""
        self.log("val_loss", self.training_step(batch))

    def configure_optimizers(self) -> Any:
        """Return an optimizer whose rate falls in line."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 12)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class AtStep(LightningCallback):
    """Does something after a step, before the callback under test sees it."""

    def __init__(self, step: int, action: Any) -> None:
        self._step, self._action = step, action

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Act after the step."""
        if trainer.global_step == self._step:
            self._action(module)


def fit(
    tmp_path: Path,
    *callbacks: LightningCallback,
    ckpt_path: str | None = None,
    module: LightningModule | None = None,
    **settings: Any,
) -> Trainer:
    """Train 12 steps on CPU; an epoch has 10."""
    points = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))
    train, held_out = (
        torch.utils.data.DataLoader(data, batch_size=4) for data in (points, points[:4])
    )
    saves = ModelCheckpoint(dirpath=tmp_path / "out", every_n_train_steps=5, save_top_k=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = Trainer(
            **{
                "max_steps": 12,
                "accelerator": "cpu",
                "devices": 1,
                "logger": False,
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "callbacks": [*callbacks, saves],
                **settings,
            }
        )
        trainer.fit(module or Model(), train, held_out, ckpt_path=ckpt_path)
    return trainer


class Clipped(Model):
    """Notes the norm of the gradients that the optimizer steps with."""

    def __init__(self) -> None:
        super().__init__()
        self.norms: list[float] = []

    def on_before_zero_grad(self, optimizer: Any) -> None:
        """Note it before it is gone."""
        self.norms.append(gradient_norm(optimizer))


class ClipsItself(Model):
    """Clips at a norm of its own."""

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clip."""
        self.clip_gradients(optimizer, gradient_clip_val=2.0, gradient_clip_algorithm="norm")


def test_remedies_of_clip_and_betas_take_effect_and_are_read_back(
    supervised: tuple[Run, Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer clips at the ordered norm; a module that clips by itself is left alone, and the callback does not claim it."""
    _, agent = supervised
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"clip": 1e-3, "betas": [0.8, 0.9]}))
    module = Clipped()
    fit(tmp_path, Callback(), module=module, max_steps=3)
    # Gradients are emptied before the second step and the third.
    assert [norm for norm in module.norms if norm] == pytest.approx([1e-3] * 2, rel=1e-2)
    reports = agent.reports()
    (read,) = [report["values"] for report in reports if report["kind"] == "settings"]
    assert (read["clip"], read["betas"]) == (1e-3, [0.8, 0.9])
    assert "clip" in [report["remedies"] for report in reports if report["kind"] == "hello"][-1]


def test_a_module_that_clips_by_itself_is_left_alone(
    supervised: tuple[Run, Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer would refuse two norms; the remedy is not claimed, and not read back."""
    _, agent = supervised
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"clip": 1e-3}))
    fit(tmp_path, Callback(), module=ClipsItself(), max_steps=3)
    reports = agent.reports()
    (read,) = [report["values"] for report in reports if report["kind"] == "settings"]
    assert "clip" not in read
    assert "clip" not in [report["remedies"] for report in reports if report["kind"] == "hello"][-1]


def test_steps_numbers_phases_and_seals_are_reported(
    supervised: tuple[Run, Agent], tmp_path: Path
) -> None:
    """Each step with loss, norm and rate; what ModelCheckpoint saves is sealed, though it keeps one file alone."""
    run, agent = supervised
    fit(tmp_path, Callback())
    reports = agent.reports()
    steps = [report for report in reports if report["kind"] == "step"]
    assert [report["step"] for report in steps] == list(range(1, 13))
    assert all(report["loss"] > 0 and report["grad_norm"] > 0 for report in steps)
    assert [report["lr"] for report in steps] == pytest.approx(
        [0.1 * (1 - n / 12) for n in range(12)]
    )
    assert [report["step"] for report in reports if report["kind"] == "validation"] == [10]
    phases = [report["phase"] for report in reports if report["kind"] == "phase"]
    assert {"evaluate", "checkpoint"} <= set(phases)
    assert phases[-1] == "step"
    assert [report["step"] for report in reports if report["kind"] == "checkpoint"] == [5, 10]
    for step in (5, 10):
        folder = run.checkpoint_folder(step)
        assert list(checkpoints.verify(folder).files) == [NAME]
        assert torch.load(folder / NAME, weights_only=False)["global_step"] == step
    (kept,) = (tmp_path / "out").iterdir()
    assert kept.samefile(run.checkpoint_folder(10) / NAME)


def test_a_request_to_stop_ends_the_training_with_a_checkpoint_and_the_next_goes_on(
    supervised: tuple[Run, Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number of steps Trainer is to make at least; the next attempt takes the lower rate."""
    run, agent = supervised
    stop = AtStep(7, lambda _: agent.request(id="a1", request="stop", checkpoint=True))
    fit(tmp_path, stop, Callback(), min_steps=12)
    assert run.should_stop
    stopped = run.checkpoint_folder(7)
    assert checkpoints.verify(stopped).step == 7
    assert [report["step"] for report in agent.reports() if report["kind"] == "step"][-1] == 7
    monkeypatch.setenv("STOKER_RESUME", str(stopped))
    monkeypatch.setenv("STOKER_ATTEMPT", "1.1.1")
    monkeypatch.setenv("STOKER_REMEDIES", json.dumps({"lr_factor": 0.5}))
    again = Run(run._channel, fallback=tmp_path)
    monkeypatch.setattr("stoker.run._attached", again)
    callback = Callback()
    fit(tmp_path, callback, ckpt_path=callback.ckpt_path)
    reports = agent.reports()
    steps = [report for report in reports if report["kind"] == "step"]
    assert [report["step"] for report in steps] == list(range(8, 13))
    assert steps[0]["lr"] == pytest.approx(0.05 * (1 - 7 / 12))
    (read,) = (report for report in reports if report["kind"] == "settings")
    assert (read["step"], read["values"]["lr_factor"]) == (7, pytest.approx(0.5))
    assert checkpoints.verify(stopped).step == 7


def test_batches_of_one_step_are_one_report(supervised: tuple[Run, Agent], tmp_path: Path) -> None:
    """Its loss is the mean of theirs."""
    _, agent = supervised
    fit(tmp_path, Callback(), accumulate_grad_batches=2, max_steps=4, limit_val_batches=0)
    steps = [report for report in agent.reports() if report["kind"] == "step"]
    points = torch.randn(40, 2, generator=torch.Generator().manual_seed(1))[:8]
    assert [report["step"] for report in steps] == [1, 2, 3, 4]
    assert steps[0]["loss"] == pytest.approx(Model().training_step(points).item(), rel=1e-5)


def test_a_nan_is_reported_at_its_step(supervised: tuple[Run, Agent], tmp_path: Path) -> None:
    """Both in the loss and in the gradient's norm."""
    _, agent = supervised
    fit(
        tmp_path, AtStep(5, lambda module: module.layer.weight.data.fill_(float("nan"))), Callback()
    )
    steps = {one["step"]: one for one in agent.reports() if one["kind"] == "step"}
    assert (steps[6]["loss"], steps[6]["grad_norm"]) == ("NaN", "NaN")
    assert "NaN" not in (steps[5]["loss"], steps[5]["grad_norm"])


def test_saves_that_are_not_whole_when_they_return_are_refused(
    supervised: tuple[Run, Agent], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A seal would be of half a file."""
    with pytest.raises(SystemExit) as ended:
        fit(tmp_path, Callback(), plugins=[AsyncCheckpointIO()])
    assert ended.value.code == EXIT_BAD_SETTINGS
    assert "AsyncCheckpointIO goes on before a checkpoint is whole" in capfd.readouterr().err


def test_without_stoker_nothing_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint but ModelCheckpoint's own, and no hook on the optimizer."""
    for name in list(os.environ):
        if name.startswith("STOKER_"):
            monkeypatch.delenv(name)
    monkeypatch.setattr("stoker.run._attached", None)
    monkeypatch.chdir(tmp_path)
    callback = Callback()
    assert callback.ckpt_path is None
    trainer = fit(tmp_path, callback)
    assert trainer.global_step == 12
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not trainer.optimizers[0]._optimizer_step_pre_hooks
