"""Checkpoints that any layout can read: torch.distributed.checkpoint over DTensors of the tensor axis.

Keys are global layer names; values are the fp32 master weights and AdamW's two moments, which
ZeRO-1 shards over the replicas and which are gathered here. A folder counts once rank 0 has sealed it
(`runner.checkpoints`), after every rank has written and hashed its shard and reported the hash.
All collectives here run on the CPU, in a group apart from training.
"""

import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.futures import Future

from runner import checkpoints
from runner.errors import (
    CheckpointRefused,
    CheckpointUnreadable,
    Fenced,
    PermanentError,
    StokerError,
)
from runner.facts.ids import AttemptId
from trainer.checkpoint_metadata import METADATA, read_state
from trainer.faults.drills import Drills
from trainer.parallel.engine import Engine
from trainer.parallel.parameters import kind_of
from trainer.parallel.world import World

# Here each rank loads by itself on purpose, which the warning is about.
warnings.filterwarnings("ignore", message="torch.distributed is disabled", category=UserWarning)

# The fp32 master weight, and the moments as AdamW names them.
PARTS: tuple[str | None, ...] = (None, "exp_avg", "exp_avg_sq")
# Parameters are gathered in buffers of about this many elements (256 MiB), chosen, not measured.
GATHER_ELEMENTS = 64 * 1024 * 1024
# A drill waits this long for another rank's shard before it fails without one.
SHARD_WAIT_SECONDS = 10.0
SCALER_FIELDS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run and attempt that a checkpoint comes from, as its manifest states it."""

    run: str
    attempt: AttemptId
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a manifest states beside its files: the data's fingerprint and position, recent steps, settings."""

    data: Mapping[str, Any]
    metrics: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]


class Checkpoints:
    """Writes and reads the checkpoints of one run, on all ranks together."""

    def __init__(
        self, engine: Engine, world: World, *, root: Path | None, origin: Origin, drills: Drills
    ) -> None:
        self._engine = engine
        self._world = world
        self._root = root
        self._origin = origin
        self._drills = drills
        group = world.tensor_axis.group
        self._mesh = (
            None
            if group is None
            else DeviceMesh.from_group(group, "cpu", mesh_dim_names=("tensor",))
        )

    def save(self, step: int, evidence: Evidence) -> Path | None:
        """Write and seal the state after `step`; returns the folder, None if it was sealed before.

        Raises Fenced on every rank when a newer generation has begun; the folder then stays without a
        manifest and counts for nothing.
        """
        assert self._root is not None, "no folder for checkpoints: the loop must not ask for one"
        folder = checkpoints.checkpoint_folder(self._root, self._origin.attempt, step)
        if (folder / checkpoints.MANIFEST).exists():
            return None
        self._drills.at("before_shards")
        if self._world.coords.rank == 0 and folder.exists():
            # Shards of this same attempt, which were never sealed.
            shutil.rmtree(folder)
        # No rank may create the folder before: rank 0 would remove it as unsealed.
        dist.barrier(group=self._world.side_group)
        save(
            self._state(step),
            storage_writer=_Writer(folder, self._world.coords.rank, self._drills),
            process_group=self._world.side_group,
        )
        files = self._flush_and_gather_seals(folder)
        self._drills.at("before_seal")
        self._seal(folder, step, files=files, evidence=evidence)
        self._drills.at("after_seal")
        return folder

    def load(self, folder: Path) -> int:
        """Put a checkpoint of any layout into the engine; returns the steps already done.

        Raises CheckpointRefused on every rank when one of them read what is not as the manifest says, or holds more than tensors
        in the files of the manifest. The engine is as before then.
        """
        state = self._empty_state()
        refusal = None
        try:
            read_state(folder, checkpoints.read_manifest(folder).files, state)
        except CheckpointRefused as error:
            refusal = error
        self._refuse_together(refusal)
        with torch.no_grad():
            for name, parameter in self._engine.parameters.items():
                for part in PARTS:
                    local = _local(state[_key(part, name)])
                    self._engine.set_fragment(parameter, part, local)
                    if part is None:
                        parameter.copy_(local)
        counters = state["counters"].tolist()
        for adam in self._engine.adam_states:
            adam["step"].fill_(counters[1])
        scaler = self._engine.loss_scaler
        if scaler is not None and counters[2] > 0:
            scaler.cur_scale = counters[2]
            for field, value in zip(SCALER_FIELDS[1:], counters[3:], strict=True):
                setattr(scaler, field, int(value))
        return int(counters[0])

    def _refuse_together(self, refusal: CheckpointRefused | None) -> None:
        """Raise CheckpointRefused on every rank if one of them was refused: none may train without the others."""
        group, rank = self._world.side_group, self._world.coords.rank
        refused_rank = torch.tensor(-1 if refusal is None else rank)
        dist.all_reduce(refused_rank, op=dist.ReduceOp.MAX, group=group)
        source = int(refused_rank)
        if source < 0:
            return
        outcome = [(isinstance(refusal, CheckpointUnreadable), str(refusal))]
        dist.broadcast_object_list(outcome, src=source, group=group)
        is_unreadable, text = outcome[0]
        text = text if source == rank else f"{text} (rank {source} read it)"
        raise (CheckpointUnreadable if is_unreadable else CheckpointRefused)(text) from refusal

    # ---- state --------------------------------------------------------------------------------

    def _state(self, step: int) -> dict[str, Any]:
        """Return everything a resume needs. Every value is on the CPU, and on this rank in full."""
        adam_steps = float(self._engine.adam_states[0]["step"])
        scaler = self._engine.loss_scaler
        scaling = (
            [0.0] * 4 if scaler is None else [float(getattr(scaler, f)) for f in SCALER_FIELDS]
        )
        state: dict[str, Any] = {
            "counters": torch.tensor([float(step), adam_steps, *scaling], dtype=torch.float64)
        }
        for names in self._buckets():
            for name, part, local in self._gather_from_replicas(names):
                if part is None:
                    self._drills.spoil(name, local)
                state[_key(part, name)] = self._placed(name, local)
        return state

    def _empty_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "counters": torch.zeros(2 + len(SCALER_FIELDS), dtype=torch.float64)
        }
        for name, parameter in self._engine.parameters.items():
            for part in PARTS:
                local = torch.empty(parameter.shape, dtype=torch.float32)
                state[_key(part, name)] = self._placed(name, local)
        return state

    def _placed(self, name: str, local: torch.Tensor) -> torch.Tensor:
        """Wrap a tensor with its placement in the whole parameter; with one tensor rank it is the whole."""
        if self._mesh is None:
            return local
        dim = kind_of(name).sharding.dim
        placement: Placement = Replicate() if dim is None else Shard(dim)
        return DTensor.from_local(local, self._mesh, [placement], run_check=False)

    def _buckets(self) -> Iterator[list[str]]:
        """Yield names in groups whose three parts need about one buffer."""
        names: list[str] = []
        elements = 0
        for name, parameter in self._engine.parameters.items():
            if names and elements + 3 * parameter.numel() > GATHER_ELEMENTS:
                yield names
                names, elements = [], 0
            names.append(name)
            elements += 3 * parameter.numel()
        yield names

    def _gather_from_replicas(
        self, names: list[str]
    ) -> Iterator[tuple[str, str | None, torch.Tensor]]:
        """Gather parameters from the replicas: each copies in its own fragment, and a sum over zeros completes them."""
        parameters = [self._engine.parameters[name] for name in names]
        total = sum(parameter.numel() for parameter in parameters)
        buffer = torch.zeros(len(PARTS) * total, dtype=torch.float32, device=self._world.device)
        places: list[tuple[str, str | None, slice, torch.Size]] = []
        end = 0
        for part in PARTS:
            for name, parameter in zip(names, parameters, strict=True):
                start, end = end, end + parameter.numel()
                places.append((name, part, slice(start, end), parameter.shape))
                fragment = self._engine.fragment(parameter, part)
                if fragment is not None:
                    offset, values = fragment
                    first = start + offset
                    buffer[first : first + values.numel()] = values
        self._engine.sum_over_replicas(buffer)
        whole = buffer.cpu()
        for name, part, place, shape in places:
            # A copy: with a view, the file would hold the whole buffer once per tensor.
            yield name, part, whole[place].view(shape).clone()

    # ---- sealing ------------------------------------------------------------------------------

    def _flush_and_gather_seals(self, folder: Path) -> dict[str, checkpoints.FileSeal]:
        """Make this rank's shards durable; returns the seals of all files on rank 0, else nothing."""
        rank, world_size = self._world.coords.rank, self._world.layout.world_size
        mine = {
            path.name: checkpoints.flush_and_hash(path)
            for path in folder.glob(f"__{rank}_*.distcp")
        }
        everyone: list[Any] | None = [None] * world_size if rank == 0 else None
        dist.gather_object(mine, everyone, dst=0, group=self._world.side_group)
        if everyone is None:
            return {}
        files = {name: entry for seals in everyone for name, entry in seals.items()}
        return {**files, METADATA: checkpoints.flush_and_hash(folder / METADATA)}

    def _seal(
        self,
        folder: Path,
        step: int,
        *,
        files: Mapping[str, checkpoints.FileSeal],
        evidence: Evidence,
    ) -> None:
        """Seal on rank 0 and broadcast the outcome; raises the same error on all ranks."""
        error: StokerError | OSError | None = None
        if self._world.coords.rank == 0:
            origin = self._origin
            manifest = checkpoints.Manifest(
                run=origin.run,
                attempt=origin.attempt,
                generation=origin.generation,
                step=step,
                files=files,
                data=evidence.data,
                metrics=evidence.metrics,
                settings=evidence.settings,
            )
            try:
                checkpoints.seal(folder, manifest, generation=origin.generation)
            except (StokerError, OSError) as caught:
                error = caught
        outcome = [(isinstance(error, Fenced), str(error)) if error else None]
        dist.broadcast_object_list(outcome, src=0, group=self._world.side_group)
        if outcome[0] is not None:
            fenced, text = outcome[0]
            # Not as CheckpointRefused, which says something of what is resumed from.
            reason = Fenced(text) if fenced else PermanentError(f"rank 0 could not seal: {text}")
            raise reason from error


class _Writer(FileSystemWriter):
    """The usual writer, with a point for a drill between the shards."""

    def __init__(self, folder: Path, rank: int, drills: Drills) -> None:
        # `_flush_and_gather_seals` flushes.
        super().__init__(folder, sync_files=False)
        self._folder = folder
        self._own = f"__{rank}_"
        self._drills = drills

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's shard."""
        self._drills.at("between_shards", when=self._wait_for_another)
        return super().write_data(plan, planner)

    def _wait_for_another(self) -> None:
        deadline = time.monotonic() + SHARD_WAIT_SECONDS
        while time.monotonic() < deadline:
            shards = self._folder.glob("__*.distcp")
            if any(not path.name.startswith(self._own) for path in shards):
                return
            time.sleep(0.005)


def _key(part: str | None, name: str) -> str:
    return f"{part or 'master'}/{name}"


def _local(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value
