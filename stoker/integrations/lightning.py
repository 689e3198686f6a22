"""Stoker for Lightning's Trainer: a callback, and the checkpoint to resume from.

callback = Callback()
trainer = Trainer(..., callbacks=[callback])
trainer.fit(model, ckpt_path=callback.ckpt_path)
"""

import os
import sys
from pathlib import Path
from typing import Any

import stoker
from stoker.integrations.optimizer_remedies import Clipping, OptimizerRemedies, gradient_norm
from stoker.integrations.requirements import check_gang, check_hooks, refuse

try:
    from lightning.pytorch import Callback as LightningCallback
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.plugins.io import AsyncCheckpointIO
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
except ImportError as error:
    raise ImportError(f"stoker.integrations.lightning needs lightning: {error}") from error

_HOOKS = (
    "on_train_start",
    "on_before_optimizer_step",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_validation_start",
    "on_validation_end",
    "on_save_checkpoint",
    "on_fit_end",
)
check_hooks(LightningCallback, _HOOKS, library="lightning", least="2.0")

# In a sealed folder: the file, or with a sharded strategy the folder, that Lightning wrote.
NAME = "lightning.ckpt"
# Where gradients are whole on each rank. Others are subclasses.
_WHOLE_GRADIENTS = (SingleDeviceStrategy, DDPStrategy)


class Callback(LightningCallback):
    """Reports steps, stops and saves on request, seals each checkpoint of a ModelCheckpoint, and applies remedies.

    A step is one of `trainer.global_step`. Where the loss is on an accelerator, loss and gradient norm are reported at
    `log_every_n_steps`, so that no other step waits for the device. Without Stoker it does nothing.
    """

    def __init__(self) -> None:
        self.run = stoker.attach()
        self._remedies: OptimizerRemedies | None = None
        self._step = 0
        self._sealed_step = 0
        # Of the batches of the step that is being made.
        self._loss: Any = None
        self._gradient_norm: float | None = None
        self._is_saving = False

    @property
    def ckpt_path(self) -> str | None:
        """The checkpoint for `Trainer.fit`: the verified one that Stoker chose; None: begin at the first step."""
        folder = self.run.resume_folder if self.run.is_supervised else None
        return None if folder is None else str(folder / NAME)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check that all ranks train together, and apply remedies to the optimizers, which have loaded their checkpoint."""
        if not self.run.is_supervised:
            return
        check_gang(
            trainer.world_size,
            library="Lightning's Trainer",
            way_out="give Trainer the gang's nodes as num_nodes, the ranks of a node as devices, and a strategy such as 'ddp'",
        )
        if isinstance(trainer.strategy.checkpoint_io, AsyncCheckpointIO):
            refuse(
                "AsyncCheckpointIO goes on before a checkpoint is whole, so none can be sealed; leave it out of Trainer's plugins"
            )
        self._step = trainer.global_step
        self._remedies = OptimizerRemedies(
            self.run,
            trainer.optimizers,
            done=self._step,
            clipping=_clipping(trainer, pl_module),
        )
        if not trainer.checkpoint_callbacks and trainer.is_global_zero:
            _warn(
                "no ModelCheckpoint in Trainer's callbacks: checkpoints are saved on request only"
            )

    def on_before_optimizer_step(
        self, trainer: Trainer, pl_module: LightningModule, optimizer: Any
    ) -> None:
        """Measure the gradients before they are clipped."""
        if self.run.is_supervised and type(trainer.strategy) in _WHOLE_GRADIENTS:
            device = pl_module.device.type
            if device == "cpu" or _logs(trainer, trainer.global_step + 1):
                self._gradient_norm = gradient_norm(optimizer)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Seal what Lightning has saved since the last batch."""
        if self._is_saving:
            self._seal_saved(trainer)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Report the step that the batch completed, save if asked to, and stop if asked to."""
        if not self.run.is_supervised:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            # Lightning has divided it by the number of batches per step.
            self._loss = loss if self._loss is None else self._loss + loss
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        assert self._remedies is not None
        rate = self._remedies.in_effect
        self.run.step(
            self._step, lr=rate, grad_norm=self._gradient_norm, loss=self._step_loss(trainer)
        )
        self._loss = self._gradient_norm = None
        if self.run.should_checkpoint:
            with self.run.checkpoint(self._step, all_ranks=True) as folder:
                trainer.save_checkpoint(folder / NAME)
            self._sealed_step, self._is_saving = self._step, False
        if self.run.should_stop:
            trainer.should_stop = True
            # Otherwise Trainer goes on until it has made as many.
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report that an evaluation goes on: it is no hang of a step."""
        self.run.phase("evaluate")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the held-out loss, where the module logs it as `val_loss`."""
        self.run.phase("step")
        loss = trainer.callback_metrics.get("val_loss")
        if loss is not None and not trainer.sanity_checking:
            self.run.validation(trainer.global_step, float(loss))

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Report that Lightning saves: it is no hang of a step."""
        if self.run.is_supervised and not self._is_saving:
            self._is_saving = True
            self.run.phase("checkpoint")

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seal what Lightning has saved at the end."""
        if self._is_saving:
            self._seal_saved(trainer)

    def _step_loss(self, trainer: Trainer) -> float | None:
        """Return the loss to report: rank 0's, and of other ranks what is not finite, which rank 0 may not see."""
        loss = self._loss
        if loss is None or (loss.device.type != "cpu" and not _logs(trainer, self._step)):
            return None
        value = float(loss)
        return value if trainer.is_global_zero or value - value != 0 else None

    def _seal_saved(self, trainer: Trainer) -> None:
        self._is_saving = False
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and not callback.save_weights_only:
                self._seal(Path(callback._last_checkpoint_saved), callback._last_global_step_saved)
        self.run.phase("step")

    def _seal(self, source: Path, step: int) -> None:
        if step <= self._sealed_step:
            return
        with self.run.checkpoint(step, all_ranks=True) as folder:
            if os.environ.get("LOCAL_RANK", "0") == "0" and source.exists():
                self.run.add_to_checkpoint(source, folder, name=NAME)
        self._sealed_step = step


def _clipping(trainer: Trainer, module: LightningModule) -> Clipping | None:
    """Return Trainer's own setting, which it reads at each step; None where the module or the strategy clips otherwise."""
    clips_itself = (
        type(module).configure_gradient_clipping is not LightningModule.configure_gradient_clipping
    )
    is_by_value = trainer.gradient_clip_algorithm not in (None, "norm")
    is_whole = type(trainer.strategy) in _WHOLE_GRADIENTS
    if clips_itself or is_by_value or not is_whole or not module.automatic_optimization:
        return None

    def write(norm: float) -> None:
        trainer.gradient_clip_val = norm

    return Clipping(read=lambda: trainer.gradient_clip_val, write=write)


def _logs(trainer: Trainer, step: int) -> bool:
    """Whether Trainer logs at a step."""
    every: int = getattr(trainer, "log_every_n_steps", 0)
    return every > 0 and step % every == 0


def _warn(text: str) -> None:
    print(f"stoker: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the script's own output
