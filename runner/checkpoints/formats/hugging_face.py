"""Hugging Face Trainer: folders `checkpoint-N` (transformers/trainer.py, `_save_checkpoint`).

Rank 0 writes `trainer_state.json` last, other ranks their `rng_state_<rank>.pth` at about the same time. How many ranks there were,
and whether optimizer and scheduler belong to it, is in `training_args.bin`.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from runner.checkpoints.finite.distributed_names import METADATA
from runner.checkpoints.formats import deepspeed
from runner.checkpoints.formats.adapter import Adapter, check_forms, check_regular, require
from runner.checkpoints.formats.file_forms import MALFORMED, MAX_JSON_BYTES
from runner.checkpoints.formats.saves import Incomplete, Save
from runner.checkpoints.formats.states import count_of, values_named
from runner.checkpoints.formats.torch_distributed import check_shards, has_shards

_NAME = re.compile(r"checkpoint-(\d+)", re.ASCII)
_TAG = re.compile(r"(global_step\d+)/", re.ASCII)
_SHARD = re.compile(r".+-\d{5}-of-\d{5}\.(safetensors|bin)", re.ASCII)
STATE, ARGUMENTS = "trainer_state.json", "training_args.bin"
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_WEIGHTS = (
    *("model.safetensors", "pytorch_model.bin", "pytorch_model_fsdp.bin"),
    *("adapter_model.safetensors", "adapter_model.bin"),
)
# Of FSDP, sharded: one folder of torch.distributed.checkpoint each.
_FSDP_MODEL, _FSDP_OPTIMIZER = "pytorch_model_fsdp_0", "optimizer_0"


class HuggingFace(Adapter):
    """Folders `checkpoint-N`, also with FSDP or DeepSpeed inside."""

    name = "hugging_face"
    title = "Hugging Face Trainer"
    last_file = STATE

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry is named `checkpoint-N` and is none of torch.distributed.checkpoint."""
        is_named = _NAME.fullmatch(name) is not None
        return is_named and files is not None and not has_shards(files)

    def is_evident(self, save: Save) -> bool:
        """Whether a folder has the two files that only Trainer writes."""
        return {STATE, ARGUMENTS} <= save.names.keys()

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is that of `trainer_state.json`."""
        check_regular(save)
        require(save, STATE, ARGUMENTS)
        step = _step_of(save)
        check_forms(save, reads_all=reads_all)
        tags = sorted({match[1] for name in save.names if (match := _TAG.match(name))})
        for tag in tags:
            deepspeed.check_tag(save.below(tag), reads_all=reads_all)
        for folder in (_FSDP_MODEL, _FSDP_OPTIMIZER):
            if any(name.startswith(f"{folder}/") for name in save.names):
                check_shards(save.below(folder), reads_all=reads_all)
        _check_weights(save, has_engine=bool(tags))
        arguments = values_named(save.path / ARGUMENTS, "save_only_model", "num_processes")
        if arguments.get("save_only_model") is not True:
            _check_rest(save, has_engine=bool(tags), num_ranks=count_of(arguments, "num_processes"))
        return step

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the folder as Trainer's examples take it."""
        return ("--resume_from_checkpoint", str(folder))


def _step_of(save: Save) -> int:
    plain = _read_json(save, STATE)
    step = plain.get("global_step")
    named = _NAME.fullmatch(save.path.name)
    if type(step) is not int or step < 0:
        raise Incomplete(f"{STATE} has no global_step")
    if named is not None and int(named[1]) != step:
        raise Incomplete(f"{STATE} is of step {step}")
    return step


def _read_json(save: Save, name: str) -> dict[str, Any]:
    if save.names[name] > MAX_JSON_BYTES:
        raise Incomplete(f"{name}: {save.names[name]} bytes; at most {MAX_JSON_BYTES} are read")
    try:
        plain = json.loads((save.path / name).read_bytes())
    except MALFORMED as error:
        raise Incomplete(f"{name}: cut off, or malformed: {error!s:.80}") from error
    if not isinstance(plain, dict):
        raise Incomplete(f"{name}: no object")
    return plain


def _check_weights(save: Save, *, has_engine: bool) -> None:
    names = save.names
    indexes = [index for index in _INDEXES if index in names]
    for index in indexes:
        shards = _read_json(save, index).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise Incomplete(f"{index} lists no file")
        require(save, *sorted({str(name) for name in shards.values()}))
    lone = sorted(name for name in names if _SHARD.fullmatch(name))
    if lone and not indexes:
        raise Incomplete(f"the index of {lone[0]} is missing")
    is_sharded = f"{_FSDP_MODEL}/{METADATA}" in names
    if not (indexes or is_sharded or has_engine or any(name in names for name in _WEIGHTS)):
        raise Incomplete(f"{_WEIGHTS[0]} is missing")
    if indexes or "generation_config.json" in names:
        # Written by `save_pretrained`, together.
        require(save, "config.json")


def _check_rest(save: Save, *, has_engine: bool, num_ranks: int) -> None:
    """Optimizer, scheduler and the states of random generators. A DeepSpeed engine has the first two inside."""
    names = save.names
    if not has_engine:
        if not {"optimizer.bin", f"{_FSDP_OPTIMIZER}/{METADATA}"} & set(names):
            require(save, "optimizer.pt")
        require(save, "scheduler.pt")
    if num_ranks <= 1:
        require(save, "rng_state.pth")
    else:
        require(save, *(f"rng_state_{rank}.pth" for rank in range(num_ranks)))
