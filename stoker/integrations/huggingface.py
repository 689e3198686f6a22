"""Stoker for transformers' Trainer: a callback, and the checkpoint to resume from.

callback = Callback()
trainer = Trainer(..., callbacks=[callback])
trainer.train(resume_from_checkpoint=callback.resume_from_checkpoint)
"""

import contextlib
import importlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import stoker
from stoker.integrations.optimizer_remedies import Clipping, OptimizerRemedies
from stoker.integrations.requirements import check_gang, check_hooks

try:
    import transformers.trainer  # noqa: F401 - a warm process that preloads this module then has it
    from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState
    from transformers.training_args import TrainingArguments
except ImportError as error:
    raise ImportError(
        f"stoker.integrations.huggingface needs transformers and accelerate: {error}"
    ) from error

_HOOKS = (
    "on_train_begin",
    "on_step_end",
    "on_log",
    "on_prediction_step",
    "on_evaluate",
    "on_epoch_end",
    "on_save",
)
check_hooks(TrainerCallback, _HOOKS, library="transformers", least="4.46")

# Trainer imports DeepSpeed, where it is installed, whenever it wraps a model: half of a restart, if a warm process has not done it.
# One that cannot be imported fails there, as without Stoker.
with contextlib.suppress(Exception):
    importlib.import_module("deepspeed")

_PREFIX = "checkpoint-"


class Callback(TrainerCallback):
    """Reports steps, stops and saves on request, seals each `checkpoint-N` that Trainer writes, and applies remedies.

    Trainer's folder and its pruning stay as they are: sealed folders hold hard links to its files where the file system can.
    Without Stoker it does nothing.
    """

    def __init__(self) -> None:
        self.run = stoker.attach()
        self._remedies: OptimizerRemedies | None = None
        self._reported_step = 0
        self._sealed_step = 0
        self._is_evaluating = False

    @property
    def resume_from_checkpoint(self) -> str | None:
        """The folder for `Trainer.train`: the verified checkpoint that Stoker chose; None: begin at the first step."""
        folder = self.run.resume_folder if self.run.is_supervised else None
        return None if folder is None else str(folder)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Check that all ranks train together, and apply remedies to the optimizer, which has loaded its checkpoint."""
        if not self.run.is_supervised:
            return
        check_gang(
            args.world_size,
            library="Trainer",
            way_out="start the script by {python} in run.yaml's command, which sets torchrun's variables, and by no other launcher",
        )
        self._reported_step = state.global_step
        self._remedies = OptimizerRemedies(
            self.run, [kwargs["optimizer"]], done=state.global_step, clipping=_clipping(args)
        )
        if args.save_only_model and state.is_world_process_zero:
            _warn("save_only_model leaves out the optimizer, so no checkpoint is sealed")
        if _is_local_leader():
            _unshare(Path(str(args.output_dir)), after=state.global_step)

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Report the step; one that is about to be logged is reported with its numbers."""
        if self.run.is_supervised and not control.should_log:
            self._report(state, control)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Report the numbers of a step that Trainer logs, and log the rate that is in effect."""
        if not self.run.is_supervised or logs is None or "loss" not in logs:
            return
        if self._remedies is not None and self._remedies.in_effect is not None:
            logs["learning_rate"] = self._remedies.in_effect
        self._report(state, control, loss=logs["loss"], grad_norm=logs.get("grad_norm"))

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Report once that an evaluation goes on: it is no hang of a step."""
        if self.run.is_supervised and not self._is_evaluating:
            self._is_evaluating = True
            self.run.phase("evaluate")

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Report the held-out loss."""
        if not self.run.is_supervised:
            return
        self._is_evaluating = False
        self.run.phase("checkpoint" if control.should_save else "step")
        loss = (metrics or {}).get("eval_loss")
        if loss is not None:
            self.run.validation(state.global_step, loss)

    def on_epoch_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Leave out a second save of the same step, which would overwrite files that are sealed."""
        if self.run.is_supervised and state.global_step == self._sealed_step:
            control.should_save = False

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **_: Any,
    ) -> None:
        """Seal what Trainer has saved, once all ranks have written their part."""
        step = state.global_step
        is_resumable = not args.save_only_model and not state.is_hyper_param_search
        if not self.run.is_supervised or not is_resumable or step == self._sealed_step:
            return
        with self.run.checkpoint(step, all_ranks=True) as folder:
            if _is_local_leader():
                self.run.add_to_checkpoint(Path(str(args.output_dir), f"{_PREFIX}{step}"), folder)
        self._sealed_step = step

    def _report(
        self, state: TrainerState, control: TrainerControl, **numbers: float | None
    ) -> None:
        rate = None if self._remedies is None else self._remedies.in_effect
        self.run.step(state.global_step, lr=rate, **numbers)
        if self.run.should_stop:
            control.should_training_stop = True
        if self.run.should_checkpoint and state.global_step != self._sealed_step:
            control.should_save = True
        if control.should_save:
            self.run.phase("checkpoint")


def _clipping(args: TrainingArguments) -> Clipping | None:
    """Return Trainer's own setting, which it reads at each step; DeepSpeed's engine has read its own already."""
    if args.deepspeed or os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        return None

    def write(norm: float) -> None:
        args.max_grad_norm = norm

    return Clipping(read=lambda: args.max_grad_norm, write=write)


def _is_local_leader() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _unshare(output: Path, *, after: int) -> None:
    """Give the checkpoints after a step files of their own: Trainer overwrites these in place, and sealed ones may share them."""
    for folder in output.glob(f"{_PREFIX}*"):
        number = folder.name.removeprefix(_PREFIX)
        if not number.isdecimal() or int(number) <= after:
            continue
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_nlink > 1:
                own = path.with_name(f".{path.name}.{os.getpid()}")
                shutil.copy2(path, own)
                own.replace(path)


def _warn(text: str) -> None:
    print(f"stoker: {text}", file=sys.stderr, flush=True)  # noqa: T201 - the script's own output
