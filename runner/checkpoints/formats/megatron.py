"""Megatron-LM: folders `iter_<7 digits>`; `latest_checkpointed_iteration.txt` names the newest (training/checkpointing.py).

Of the format `torch` each rank of the model has a folder `mp_rank_<tensor>[_<pipeline>][_<expert>]`; how many there are is in the
arguments that each file holds. Of the format `torch_dist` it is torch.distributed.checkpoint with `common.pt` and `metadata.json`.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from runner.checkpoints.formats.adapter import (
    Adapter,
    check_forms,
    check_regular,
    number_of,
    require,
)
from runner.checkpoints.formats.saves import Incomplete, Save
from runner.checkpoints.formats.states import count_of, fields_of, state_of
from runner.checkpoints.formats.torch_distributed import check_shards, has_shards

TRACKER = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"iter_\d{7,}", re.ASCII)
_RANK = re.compile(r"(mp_rank_\d{2,}(?:_\d{3,})*)/model_optim_rng\.pt", re.ASCII)
_OPTIMIZER = "distrib_optim.pt"


class Megatron(Adapter):
    """Folders `iter_N` of both formats."""

    name = "megatron"
    title = "Megatron-LM"
    keeps_name = True

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry is named `iter_N`."""
        return files is not None and _NAME.fullmatch(name) is not None

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is that of the name."""
        check_regular(save)
        step = number_of(save.path.name)
        if has_shards(save.names) or "metadata.json" in save.names or "common.pt" in save.names:
            require(save, "common.pt", "metadata.json")
            check_shards(save, reads_all=reads_all)
            return step
        check_forms(save, reads_all=reads_all)
        _check_ranks(save, step)
        return step

    def marker(self, save: Save, step: int) -> Mapping[str, bytes]:
        """Return the tracker, which names this iteration."""
        return {TRACKER: str(step).encode()}

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the folder that has the tracker, and the iteration."""
        return ("--load", str(folder), "--ckpt-step", str(step))


def _check_ranks(save: Save, step: int) -> None:
    """Raise Incomplete unless each rank of the model has its files, and the first says that it is of this step."""
    found = sorted(match[1] for name in save.names if (match := _RANK.fullmatch(name)))
    if not found:
        raise Incomplete("mp_rank_00/model_optim_rng.pt is missing")
    first = f"{found[0]}/model_optim_rng.pt"
    state = state_of(save.path / first)
    arguments = fields_of(state.get("args"))
    if not arguments:
        raise Incomplete(f"{first}: its arguments cannot be read")
    if count_of(state, "iteration", step) != step:
        raise Incomplete(f"{first} is of iteration {state['iteration']}")
    folders = _due(arguments)
    require(save, *(f"{folder}/model_optim_rng.pt" for folder in folders))
    has_some = any(name.endswith(f"/{_OPTIMIZER}") for name in save.names)
    is_distributed = arguments.get("use_distributed_optimizer") is True
    if has_some or (is_distributed and arguments.get("no_save_optim") is not True):
        require(save, *(f"{folder}/{_OPTIMIZER}" for folder in folders))


def _due(arguments: dict[str, Any]) -> list[str]:
    """Return the names of the folders of ranks, as `get_checkpoint_name` makes them."""
    tensor = count_of(arguments, "tensor_model_parallel_size")
    pipeline = count_of(arguments, "pipeline_model_parallel_size")
    experts = count_of(arguments, "expert_model_parallel_size")
    names = []
    for rank in range(max(1, tensor)):
        for stage in range(max(1, pipeline)):
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pipeline > 1 else "")
            parts = [f"_{expert:03d}" for expert in range(experts)] if experts > 1 else [""]
            names += [name + part for part in parts]
    return names
