"""Drills: an operator orders a real fault over the channel (docs/contract.md), and the rank that it names fails.

`raise` and `die` strike at a point of a step or save. The others (`runner/facts/drills.py`) happen in `trainer.faults.injection`.
Faults of files are made here: a damaged checkpoint, a full disk, and the list of poisoned data positions, which lies beside
the checkpoints for later attempts of the run. No rank reports or logs a drill: a diagnosis rests on its effects.
"""

import os
import resource
import signal
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from runner.facts.drills import DRILL_KINDS, RANK_DRILLS, DrillOptions, problem_of
from trainer.config.settings import Settings
from trainer.faults.injection_plan import ALL_RANKS, Fault
from trainer.faults.left_behind import (
    BALLAST,
    MAX_BALLAST_BYTES,
    fill,
    flip_byte,
    poisoned_positions,
    write_positions,
)
from trainer.parallel.layout import coords_of
from trainer.parallel.parameters import kind_of

FAULTS = ("raise", "die")
POINTS = ("step", "before_shards", "between_shards", "before_seal", "after_seal")
# Under a quota a rank's own output files may still grow by this much. Chosen, not measured.
QUOTA_BYTES = 64 * 1024
# Poisoned positions begin so many steps later, since ranks may receive a request in different steps. Chosen, not measured.
LEAD_STEPS = 5
MAX_RANK = 1 << 24
# The highest bit of the mantissa: a wrong number, but one that is finite.
_MANTISSA_BITS = {"fp32": 22, "bf16": 6, "fp16": 9}


class DrillFailure(RuntimeError):
    """Raised by the rank that a drill names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """An order to fail. `rank` -1: all of them. `first`: step, or data position, 0 for the next; `seed`: of what is drawn."""

    fault: str
    rank: int
    point: str = "step"
    first: int = 0
    steps: int = 1
    strength: float = 1.0
    damage: str = ""
    seed: int = 0


def read_drill(request: Mapping[str, Any]) -> Drill:
    """Read a request of the channel; raises KeyError, TypeError or ValueError if it cannot be."""
    fault, rank = request["fault"], int(request["rank"])
    if fault in FAULTS:
        if request["point"] not in POINTS or not 0 <= rank < MAX_RANK:
            raise ValueError(f"point {request['point']!r}, rank {rank}")
        return Drill(fault=fault, rank=rank, point=request["point"])
    if fault not in RANK_DRILLS:
        raise ValueError(f"fault {fault!r}; known: {', '.join((*FAULTS, *RANK_DRILLS))}")
    kind = DRILL_KINDS[fault]
    options = DrillOptions(
        rank=None if rank == ALL_RANKS else rank,
        step=request.get("first"),
        steps=request.get("steps"),
        strength=request.get("strength"),
        damage=request.get("damage", ""),
    )
    problem = problem_of(fault, options, world_size=MAX_RANK)
    if problem:
        raise ValueError(problem)
    return Drill(
        fault=fault,
        rank=rank,
        first=options.step or 0,
        steps=options.steps or int(kind.steps.default if kind.steps else 1),
        strength=options.strength or (kind.strength.default if kind.strength else 1.0),
        damage=options.damage,
        seed=zlib.crc32(str(request["id"]).encode()),
    )


class Drills:
    """The drills ordered of this rank."""

    def __init__(self, rank: int, settings: Settings, *, root: Path | None) -> None:
        """`root`: the folder of checkpoints."""
        self._rank = rank
        self._settings = settings
        self._root = root
        self._armed: Drill | None = None
        self._spoils: int | None = None

    def begin(self, drill: Drill, step: int, *, position: int) -> list[Fault]:
        """Begin with a drill that all ranks agreed on after `step`; return the faults that are to be made in steps.

        `position`: the data position that the next step reads.
        """
        self._armed = drill if drill.fault in FAULTS and drill.rank == self._rank else self._armed
        self.at("step")
        if drill.fault == "bad-data":
            return self._poison(drill, drill.first or position + LEAD_STEPS)
        if drill.fault == "corrupt-checkpoint":
            self._corrupt(drill)
        elif drill.fault == "disk-full" and drill.rank == self._rank:
            self._fill_disk()
        return faults_of(drill, step, dtype=self._settings.precision.dtype)

    def at(self, point: str, *, when: Callable[[], None] | None = None) -> None:
        """Fail here if the armed drill names this point. `when` is called first, to wait for the right moment."""
        drill = self._armed
        if drill is None or drill.point != point:
            return
        if when is not None:
            when()
        if drill.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        self._armed = None
        raise DrillFailure(f"drill: rank {self._rank} fails at {point} as ordered")

    # ---- checkpoints ----------------------------------------------------------------------------

    def _corrupt(self, drill: Drill) -> None:
        """Flip a byte of this rank's newest sealed shard, or put a NaN into the next one. Replicas write the same: each has one."""
        layout = self._settings.layout
        mine, theirs = (coords_of(rank, layout) for rank in (self._rank, drill.rank))
        if (mine.pipeline, mine.tensor) != (theirs.pipeline, theirs.tensor):
            return
        if drill.damage == "nan":
            self._spoils = drill.seed
        elif self._rank == drill.rank and self._root is not None:
            flip_byte(self._root, self._rank)

    def spoil(self, name: str, values: torch.Tensor) -> None:
        """Put a NaN into a parameter's master weights, which are about to be saved, if that was ordered.

        Into a matrix of a block, for every token passes through those.
        """
        is_matrix = name.startswith("blocks.") and kind_of(name).decays
        if self._spoils is not None and is_matrix:
            values.view(-1)[self._spoils % values.numel()] = torch.nan
            self._spoils = None

    # ---- disk -------------------------------------------------------------------------------------

    def _fill_disk(self) -> None:
        """Leave no room for the next checkpoint: on the disk if it is small, else by a limit on files of this process."""
        assert self._root is not None, "no folder for checkpoints"
        disk = os.statvfs(self._root)
        if disk.f_bavail * disk.f_frsize <= MAX_BALLAST_BYTES:
            fill(self._root / BALLAST)
            return
        written = max(os.fstat(descriptor).st_size for descriptor in (1, 2))
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (written + QUOTA_BYTES, most))

    # ---- data -------------------------------------------------------------------------------------

    def _poison(self, drill: Drill, first: int) -> list[Fault]:
        """Poison positions from now on: in this attempt, and by a file beside the checkpoints in later ones."""
        fault = Fault(kind="poison", first=first, last=first + drill.steps - 1, seed=drill.seed)
        if self._rank == 0 and self._root is not None:
            write_positions(self._root, [*poisoned_positions(self._root), fault])
        return [fault]


def faults_of(drill: Drill, step: int, *, dtype: str) -> list[Fault]:
    """Return a drill as faults of steps, from the step after `step` or later; empty for one that is no fault of steps."""
    first = max(drill.first, step + 1)
    when: dict[str, Any] = {"rank": drill.rank, "first": first, "last": first + drill.steps - 1}
    drawn = {**when, "seed": drill.seed}
    match drill.fault:
        case "loss-spike":
            return [Fault(kind="perturb", factor=drill.strength, **drawn)]
        case "nan":
            return [Fault(kind="nan", **drawn)]
        case "grad-drift":
            return [Fault(kind="grow", factor=drill.strength, **when)]
        case "loss-scale":
            return [Fault(kind="overflow", **drawn)]
        case "slow-rank":
            return [Fault(kind="slow", factor=drill.strength, **when)]
        case "sdc":
            return [Fault(kind="flip", site="weight", bit=_MANTISSA_BITS[dtype], **drawn)]
        case "hang":
            return [Fault(kind="absent", **when)]
    return []
