"""Faults on purpose: a plan for tests, or a drill, says which rank breaks at which step, and how. Without either, no hook is set.

The plan is a JSON file that an environment variable of the trainer's own names. No report, output,
manifest or setting mentions it, so a diagnosis can only rest on the fault's effects. For the same reason a rank that
sleeps, spins, waits or hoards memory does so inside a call of the interpreter, without a Stoker frame on the stack, and a data
loader that fails is a real one. A drill (`trainer.faults.drills`) makes the same faults, at an operator's request over the channel.
"""

import gzip
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from operator import mul
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from trainer.data.batches import Batch, Corpus, Ranges, data_step
from trainer.faults.injection_plan import ALL_RANKS, Fault
from trainer.integrity.digests import bits
from trainer.parallel.engine import Engine
from trainer.parallel.parameters import Sharding, kind_of

# Memory is hoarded in chunks of this size. Chosen, not measured.
CHUNK_BYTES = 16 * 1024**2
# From the start of a loader's worker to its death: by then the step waits for it. Chosen, not measured.
LOADER_WORKER_SECONDS = 1.0
SHARD_BYTES = 1 << 16
_MOMENTS = {"master": None, "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


class Injection:
    """Makes the faults of one rank happen, those of a plan and those that are added later."""

    def __init__(self, faults: Sequence[Fault], engine: Engine, data: Corpus) -> None:
        self._engine = engine
        self._data = data
        self._rank = engine.world.coords.rank
        self._faults: list[Fault] = []
        self._step = 0
        self._step_began = 0.0
        self._begun: set[Fault] = set()
        # Faults that have changed a gradient of this pass.
        self._touched: set[Fault] = set()
        self._memory: list[bytes] = []
        self._kinds: dict[str, Callable[[Fault], None]] = {
            "flip": self._flip,
            "sleep": self._sleep,
            "spin": lambda _: self._inside(partial(deque, repeat(None), 0)),
            "absent": lambda _: self._inside(partial(os.read, os.pipe()[0], 1)),
            "hoard": self._hoard,
            "slow": self._slow,
            "perturb": lambda fault: self._inside(partial(self._perturb, fault)),
            "loader": lambda _: self._read_by(DataLoader(_Exiting(), num_workers=1)),
            "shard": lambda _: self._read_by(_cut_off()),
            "stop": lambda _: os.kill(os.getpid(), signal.SIGSTOP),
            "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
        }
        self.add(faults)

    def add(self, faults: Sequence[Fault]) -> None:
        """Let these happen too, as far as they are this rank's."""
        new = [fault for fault in faults if fault.rank in (self._rank, ALL_RANKS)]
        reader: Any = self._data
        if any(fault.kind == "poison" for fault in new) and not self._has("poison"):
            # Poisoned data belongs to positions, not to steps: a run that skips these avoids it.
            reader.batch = partial(self._batch, reader.batch)
        if any(fault.changes_gradient for fault in new) and not any(
            fault.changes_gradient for fault in self._faults
        ):
            self._engine.watch.on_gradient.append(self._change_gradient)
        self._faults += new

    def _has(self, kind: str) -> bool:
        return any(fault.kind == kind for fault in self._faults)

    def before(self, step: int) -> None:
        """Apply what is planned for this step. Called before the step and before replicas are compared."""
        self._step = step
        self._touched.clear()
        for fault in self._faults:
            if fault.kind in self._kinds and self._fires(fault):
                self._kinds[fault.kind](fault)

    def before_training(self) -> None:
        """Apply gradient faults to the step's own gradients too, after a comparison of replicas had its own."""
        self._touched.clear()
        self._step_began = time.perf_counter()

    def _fires(self, fault: Fault) -> bool:
        """Whether a fault happens in this step. One that happens once leaves a marker file for later starts."""
        if not fault.first <= self._step <= fault.last:
            return False
        if fault.once and fault not in self._begun:
            try:
                os.close(os.open(fault.once, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                return False
        self._begun.add(fault)
        return True

    # ---- inside a step ------------------------------------------------------------------------

    def _inside(self, call: Callable[[], object]) -> None:
        """Call something in the step, after backward and before gradients are reduced: it counts as computing."""
        self._engine.watch.before_reduction.append(call)

    def _sleep(self, fault: Fault) -> None:
        self._inside(partial(time.sleep, fault.seconds))

    def _hoard(self, fault: Fault) -> None:
        chunks = repeat(CHUNK_BYTES, fault.most_bytes // CHUNK_BYTES)
        # The product of a byte and a number writes every page.
        self._inside(partial(self._memory.extend, map(partial(mul, b"\x01"), chunks)))

    def _slow(self, fault: Fault) -> None:
        """Take so many times as long as this step's computing took; what a stage waits for another counts as computing here."""
        self._inside(lambda: time.sleep((fault.factor - 1) * self._computed_seconds()))

    def _computed_seconds(self) -> float:
        elapsed = time.perf_counter() - self._step_began
        return max(0.0, elapsed - self._engine.world.meter.seconds)

    # ---- numbers ------------------------------------------------------------------------------

    def _flip(self, fault: Fault) -> None:
        if fault.site == "gradient":
            return
        parts = [p.data.view(-1) for p in self._engine.parameters.values()]
        if fault.site != "weight":
            parts = []
            for parameter in self._engine.parameters.values():
                fragment = self._engine.fragment(parameter, _MOMENTS[fault.site])
                parts += [] if fragment is None else [fragment[1]]
        index = _draw(fault, sum(part.numel() for part in parts))
        for part in parts:
            if index < part.numel():
                flip_bit(part, index, fault.bit)
                return
            index -= part.numel()

    def _perturb(self, fault: Fault) -> None:
        """Add noise to the matrices' fp32 masters that this rank owns: the step gathers them, the same on all replicas."""
        coords = self._engine.world.coords
        for index, (name, parameter) in enumerate(self._engine.parameters.items()):
            kind = kind_of(name)
            fragment = self._engine.fragment(parameter, None)
            # Copies that tensor ranks hold whole must stay the same.
            if fragment is None or not kind.decays or kind.sharding is Sharding.REPLICATED:
                continue
            values = fragment[1]
            random = np.random.default_rng((fault.seed, self._step, coords.rank, index))
            noise = torch.from_numpy(random.standard_normal(values.numel(), dtype=np.float32))
            values.add_(noise.to(values.device), alpha=fault.factor * float(values.std()))

    def _change_gradient(self, flat: torch.Tensor) -> None:
        for fault in self._faults:
            if not fault.changes_gradient or not self._fires(fault):
                continue
            if fault.kind == "scale":
                flat.mul_(fault.factor)
            elif fault.kind == "grow":
                flat.mul_(fault.factor ** (self._step - fault.first + 1))
            elif fault not in self._touched:
                # One element in all, not one of each bucket.
                self._touched.add(fault)
                index = _draw(fault, flat.numel())
                if fault.kind in ("nan", "overflow"):
                    flat[index] = torch.nan if fault.kind == "nan" else torch.inf
                else:
                    flip_bit(flat, index, fault.bit)

    # ---- data ---------------------------------------------------------------------------------

    def _batch(
        self,
        read: Callable[..., Batch],
        step: int,
        skipped: Ranges = (),
        *,
        rows: slice = slice(None),
    ) -> Batch:
        tokens, targets = read(step, skipped, rows=rows)
        position = data_step(step, skipped)
        for fault in self._faults:
            if fault.kind == "poison" and fault.first <= position <= fault.last:
                model, batch = self._engine.settings.model, self._engine.settings.batch
                noise = np.random.default_rng((fault.seed, position)).integers(
                    model.vocabulary, size=(batch.global_batch, model.sequence + 1)
                )[rows]
                tokens, targets = noise[:, :-1].copy(), noise[:, 1:].copy()
        return tokens, targets

    def _read_by(self, loader: DataLoader[Any]) -> None:
        """Make the next read wait for a worker process of this loader."""
        reader: Any = self._data
        # The default of `next` is for a loader that has come to its end, which this one does not.
        reader._read = partial(next, iter(loader))


def _cut_off() -> DataLoader[Any]:
    """Return a loader of a compressed file of which the end is missing, as after a copy that was interrupted."""
    file = gzip.compress(bytes(SHARD_BYTES))
    shards: Any = [file[: len(file) // 2]]
    read: Any = gzip.decompress
    return DataLoader(shards, batch_size=None, num_workers=1, collate_fn=read)


class _Exiting(Dataset[int]):
    """Data whose worker exits when it is asked for the first item."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> int:
        time.sleep(LOADER_WORKER_SECONDS)
        os._exit(1)


def flip_bit(flat: torch.Tensor, index: int, bit: int) -> None:
    """Flip one bit of one element of a flat tensor of floats, in place; bit 0 is the lowest of the mantissa."""
    view = bits(flat)
    width = 8 * flat.element_size()
    mask = 1 << bit if bit < width - 1 else -(1 << bit)
    view[index] ^= mask


def _draw(fault: Fault, number: int) -> int:
    """Draw an index below `number` by the fault's seed; the same in every process."""
    return int(np.random.default_rng(fault.seed).integers(number))
