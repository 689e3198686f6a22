"""Stoker for loops in plain torch: the state of a training in one checkpoint, an order of data, and remedies.

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

import itertools
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from stoker.agreement import world_size
from stoker.integrations.optimizer_remedies import Clipping, OptimizerRemedies
from stoker.run import Run

_STATE = "state.pt"
# In it, beside the parts: names of the resets that have happened in the history of the weights.
_RESETS = "stoker.resets"
_POSITION = "position"


class TrainingState:
    """All that a resumed training needs, saved and loaded as one checkpoint: parts, and the generators of random numbers.

    `parts`: names and what has `state_dict` and `load_state_dict`; a model inside DistributedDataParallel is saved without it. A
    `StepSampler` among them begins where the checkpoint was made, and leaves out the data that is ordered to be skipped. Other
    remedies apply to the optimizers among them. `clip_norm`: the norm at which the loop clips gradients, by `state.clip_norm`,
    which a remedy may change; None: it does not clip. The parts must be the same on every rank: rank 0 writes them. Sharded models
    need a saver of their own within `run.checkpoint`.
    """

    def __init__(self, run: Run, *, clip_norm: float | None = None, **parts: Any) -> None:
        unknown = [name for name, part in parts.items() if not _is_part(part)]
        if unknown:
            raise TypeError(f"stoker: {', '.join(unknown)}: no state_dict and load_state_dict")
        self._run = run
        self._parts = {
            name: getattr(part, "module", part) if _is_wrapped(part) else part
            for name, part in parts.items()
        }
        self.clip_norm = clip_norm
        self._resets: list[str] = []
        self._remedies: OptimizerRemedies | None = None

    @property
    def lr(self) -> float | None:
        """The rate of the first optimizer in its last step, remedies included; None before it, and without Stoker."""
        return None if self._remedies is None else self._remedies.in_effect

    def load(self) -> int:
        """Load the checkpoint to resume from, if there is one, and apply remedies; return the steps done. To be called once.

        Raises KeyError for a part that the checkpoint lacks, and what torch and the parts raise for other data.
        """
        folder, done = self._run.resume_folder, self._run.resume_step
        if folder is not None:
            saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
            missing = [name for name in self._parts if name not in saved]
            if missing:
                known = ", ".join(name for name in saved if name != _RESETS)
                raise KeyError(f"stoker: {folder} has no {', '.join(missing)}; it has {known}")
            for name, part in self._parts.items():
                part.load_state_dict(saved[name])
            self._resets = list(saved.get(_RESETS, []))
            own = folder / _generators(self._run.rank)
            # Another number of ranks has others.
            if own.exists():
                _set_generators(torch.load(own, map_location="cpu", weights_only=True))
        self._apply(done)
        return done

    def _apply(self, done: int) -> None:
        """Apply the remedies, and have what is in effect reported: with the first step, where there is an optimizer."""
        read: dict[str, Any] = {}
        samplers = [part for part in self._parts.values() if isinstance(part, StepSampler)]
        for sampler in samplers:
            sampler.start_at(done, skipped=self._run.remedies("skip_steps").get("skip_steps", ()))
            read |= {"skip_steps": sampler.skipped, "data_position": sampler.data_step(done)}
        optimizers = [part for part in self._parts.values() if hasattr(part, "param_groups")]
        if optimizers:
            self._reset(optimizers)
            read["optimizer_reset"] = self._resets
        clipping = Clipping(read=lambda: self.clip_norm, write=self._set_clip_norm)
        self._remedies = OptimizerRemedies(
            self._run,
            optimizers,
            done=done,
            clipping=clipping if self.clip_norm is not None else None,
            read=read,
        )
        if not optimizers and read:
            self._run.read_back(done, **read)

    def _reset(self, optimizers: list[Any]) -> None:
        """Empty the state of optimizers, once for each reset that the checkpoint does not name."""
        ordered = self._run.remedies("optimizer_reset").get("optimizer_reset", [])
        missing = [name for name in ordered if name not in self._resets]
        if missing:
            for optimizer in optimizers:
                optimizer.state.clear()
        self._resets += missing

    def _set_clip_norm(self, norm: float) -> None:
        self.clip_norm = norm

    def save(self, step: int) -> None:
        """Write and seal the checkpoint of a step. Every rank calls it, after the same step."""
        with self._run.checkpoint(step, all_ranks=True) as folder:
            if self._run.rank == 0:
                saved = {name: _state_of(part, step) for name, part in self._parts.items()}
                torch.save({**saved, _RESETS: self._resets}, folder / _STATE)
            torch.save(_get_generators(), folder / _generators(self._run.rank))


class StepSampler:
    """Batches of indices, shuffled in each epoch, for `DataLoader(batch_sampler=...)`: endless, and a pure function of the step.

    `size`: samples of the data set; `batch_size`: of each rank; a step reads one batch on each rank, no sample twice in an epoch.
    Samples at an epoch's end that make no whole step are left out. How far workers have read ahead plays no role. A *data step* is
    the batch that a step reads which follows from its number alone; `skipped`: ranges of those that are left out, in order.
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
        # The data step that the last one of the steps done had read, where a checkpoint says so.
        self._read: int | None = None
        self.skipped: list[list[int]] = []

    def start_at(self, done: int, *, skipped: Iterable[Sequence[int]] = ()) -> None:
        """Begin after so many steps, and leave data steps out from there on; `TrainingState.load` calls it.

        `skipped`: ranges `[first, last]` of data steps, from 1, in order and without overlaps.
        """
        self._done = done
        self.skipped = [[first, last] for first, last in skipped]

    def data_step(self, step: int) -> int:
        """Return the data step that a step reads, or has read if it is the last of those done; both from 1."""
        read = self._done if self._read is None else self._read
        position = read + step - self._done
        for first, last in self.skipped:
            # What is read already is not left out any more.
            first = max(first, read + 1)
            if first > position:
                break
            position += max(0, last - first + 1)
        return position

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of this rank, from the first step not done."""
        drawn, order = -1, list[int]()
        for step in itertools.count(self._done + 1):
            epoch, number = divmod(self.data_step(step) - 1, self._steps_per_epoch)
            if epoch != drawn:
                generator = torch.Generator().manual_seed(self._seed + epoch)
                drawn, order = epoch, torch.randperm(self._size, generator=generator).tolist()
            begin = (number * self._num_ranks + self._rank) * self._batch_size
            yield order[begin : begin + self._batch_size]

    def state_dict(self) -> dict[str, Any]:
        """Return what makes the order; where it has come to follows from the step, and from what was left out before."""
        return {"seed": self._seed, "size": self._size, "batch": self._batch_size * self._num_ranks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over how far the data was read. Refuse another order: steps would read other samples than before."""
        # Without one, of an earlier release: nothing was left out.
        state = dict(state)
        self._read = state.pop(_POSITION, None)
        if state != self.state_dict():
            raise ValueError(
                f"stoker: the checkpoint's order of data is {state}, this one is {self.state_dict()}"
            )


def _state_of(part: Any, step: int) -> Any:
    """Return the state of a part after a step."""
    state = part.state_dict()
    return {**state, _POSITION: part.data_step(step)} if isinstance(part, StepSampler) else state


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
