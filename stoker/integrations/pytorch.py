"""Stoker for loops in plain torch: the state of a training in one checkpoint, an order of data, and remedies of the rate.

run = stoker.attach()
sampler = StepSampler(len(dataset), batch_size=8)
state = TrainingState(run, model=model, optimizer=optimizer, scheduler=scheduler, sampler=sampler)
done = state.load()
for step, batch in enumerate(DataLoader(dataset, batch_sampler=sampler), done + 1):
loss = train_step(batch)
run.step(step, loss=loss.item(), lr=state.lr)
if run.should_checkpoint or step % 500 == 0:
state.save(step)
if run.should_stop or step == total:
break
"""

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from stoker.agreement import world_size
from stoker.integrations.learning_rate import LearningRate
from stoker.run import Run

_STATE = "state.pt"


class TrainingState:
    """All that a resumed training needs, saved and loaded as one checkpoint: parts, and the generators of random numbers.

    `parts`: names and what has `state_dict` and `load_state_dict`; a model inside DistributedDataParallel is saved without it. A
    `StepSampler` among them begins where the checkpoint was made. Remedies of the learning rate apply to the optimizers among them.
    The parts must be the same on every rank: rank 0 writes them. Sharded models need a saver of their own within `run.checkpoint`.
    """

    def __init__(self, run: Run, **parts: Any) -> None:
        unknown = [name for name, part in parts.items() if not _is_part(part)]
        if unknown:
            raise TypeError(f"stoker: {', '.join(unknown)}: no state_dict and load_state_dict")
        self._run = run
        self._parts = {
            name: getattr(part, "module", part) if _is_wrapped(part) else part
            for name, part in parts.items()
        }
        self._learning_rate: LearningRate | None = None

    @property
    def lr(self) -> float | None:
        """The rate of the first optimizer in its last step, remedies included; None before it, and without Stoker."""
        return None if self._learning_rate is None else self._learning_rate.in_effect

    def load(self) -> int:
        """Load the checkpoint to resume from, if there is one, and apply remedies; return the steps done. To be called once.

        Raises KeyError for a part that the checkpoint lacks, and what torch and the parts raise for other data.
        """
        folder, done = self._run.resume_folder, self._run.resume_step
        if folder is not None:
            saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
            missing = [name for name in self._parts if name not in saved]
            if missing:
                raise KeyError(
                    f"stoker: {folder} has no {', '.join(missing)}; it has {', '.join(saved)}"
                )
            for name, part in self._parts.items():
                part.load_state_dict(saved[name])
            own = folder / _generators(self._run.rank)
            # Another number of ranks has others.
            if own.exists():
                _set_generators(torch.load(own, map_location="cpu", weights_only=True))
        for part in self._parts.values():
            if isinstance(part, StepSampler):
                part.start_at(done)
        optimizers = [part for part in self._parts.values() if hasattr(part, "param_groups")]
        self._learning_rate = LearningRate(self._run, optimizers, done=done)
        return done

    def save(self, step: int) -> None:
        """Write and seal the checkpoint of a step. Every rank calls it, after the same step."""
        with self._run.checkpoint(step, all_ranks=True) as folder:
            if self._run.rank == 0:
                saved = {name: part.state_dict() for name, part in self._parts.items()}
                torch.save(saved, folder / _STATE)
            torch.save(_get_generators(), folder / _generators(self._run.rank))


class StepSampler:
    """Batches of indices, shuffled in each epoch, for `DataLoader(batch_sampler=...)`: endless, and a pure function of the step.

    `size`: samples of the data set; `batch_size`: of each rank; a step reads one batch on each rank, no sample twice in an epoch.
    Samples at an epoch's end that make no whole step are left out. How far workers have read ahead plays no role.
    """

    def __init__(self, size: int, *, batch_size: int, seed: int = 0) -> None:
        self._num_ranks, self._rank = world_size(), int(os.environ.get("RANK", "0"))
        self._batch_size, self._seed, self._size = batch_size, seed, size
        self._steps_per_epoch = size // (batch_size * self._num_ranks)
        if self._steps_per_epoch == 0:
            raise ValueError(
                f"stoker: {size} samples make no step of {self._num_ranks} ranks with {batch_size} each"
            )
        self._done = 0

    def start_at(self, done: int) -> None:
        """Begin after so many steps; `TrainingState.load` calls it."""
        self._done = done

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of this rank, from the first step not done."""
        step = self._done
        while True:
            epoch, first = divmod(step, self._steps_per_epoch)
            generator = torch.Generator().manual_seed(self._seed + epoch)
            order = torch.randperm(self._size, generator=generator).tolist()
            for number in range(first, self._steps_per_epoch):
                begin = (number * self._num_ranks + self._rank) * self._batch_size
                yield order[begin : begin + self._batch_size]
            step = (epoch + 1) * self._steps_per_epoch

    def state_dict(self) -> dict[str, Any]:
        """Return what makes the order; where it has come to follows from the step."""
        return {"seed": self._seed, "size": self._size, "batch": self._batch_size * self._num_ranks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Refuse another order: steps would read other samples than before."""
        if state != self.state_dict():
            raise ValueError(
                f"stoker: the checkpoint's order of data is {state}, this one is {self.state_dict()}"
            )


def gradient_norm(optimizer: Any) -> float:
    """Return the norm of all gradients of an optimizer, which must be whole on this rank."""
    gradients = [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]
    norms = torch._foreach_norm(gradients) if gradients else [torch.zeros(())]
    return float(
        torch.linalg.vector_norm(torch.stack([norm.to(norms[0].device) for norm in norms]))
    )


def _is_part(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _is_wrapped(part: Any) -> bool:
    return isinstance(part, torch.nn.parallel.DistributedDataParallel)


def _generators(rank: int) -> str:
    return f"generators-{rank:05d}.pt"


def _get_generators() -> dict[str, Any]:
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        name, keys, *others = numpy.random.get_state()
        states["numpy"] = [name, keys.tolist(), *others]
    cuda: Any = torch.cuda
    if cuda.is_available() and cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_generators(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    if "numpy" in states:
        import numpy

        name, keys, *others = states["numpy"]
        numpy.random.set_state((name, keys, *others))
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
