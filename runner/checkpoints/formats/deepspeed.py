"""DeepSpeed: a folder for each tag, often `global_step<N>`, and `latest`, which names the newest (deepspeed/runtime/engine.py).

How many files there must be follows from what the first file of model states says of its ranks. `latest` is never followed: it may
name a tag that was cut short.
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

LATEST = "latest"
_NAME = re.compile(r"global_step\d+", re.ASCII)
_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt", re.ASCII)
_OPTIMIZER = re.compile(r"(bf16_)?(?:zero_pp_rank|expp_rank)_\d+_mp_rank_\d+_optim_states\.pt")


class DeepSpeed(Adapter):
    """Folders of one tag each."""

    name = "deepspeed"
    title = "DeepSpeed"
    keeps_name = True

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry is a tag by its name, or has files of one."""
        if files is None:
            return False
        is_named = _NAME.fullmatch(name) is not None
        return is_named or any(
            _MODEL.fullmatch(each) or _OPTIMIZER.fullmatch(each) for each in files
        )

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is `global_steps` of the files, else the tag's."""
        step = check_tag(save, reads_all=reads_all)
        return number_of(save.path.name) if step is None else step

    def marker(self, save: Save, step: int) -> Mapping[str, bytes]:
        """Return `latest`, which names this tag."""
        return {LATEST: save.path.name.encode()}

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the folder that has `latest`, as DeepSpeed's examples take it."""
        return ("--load_dir", str(folder))


def check_tag(save: Save, *, reads_all: bool) -> int | None:
    """Return the step that the files of a tag say, None if they say none. Raises Incomplete, OSError."""
    check_regular(save)
    check_forms(save, reads_all=reads_all)
    models = sorted(name for name in save.names if _MODEL.fullmatch(name))
    if not models:
        raise Incomplete("mp_rank_00_model_states.pt is missing")
    state = state_of(save.path / models[0])
    if not state:
        raise Incomplete(f"{models[0]} cannot be read")
    require(save, *_due(save, state, is_partitioned=models[0].startswith("zero")))
    step = state.get("global_steps")
    return step if type(step) is int and step >= 0 else None


def _due(save: Save, state: dict[str, Any], *, is_partitioned: bool) -> list[str]:
    """Return the names of the files that belong to a tag, from what one of them says."""
    num_data = count_of(state, "dp_world_size")
    model_ranks = range(max(1, count_of(state, "mp_world_size")))
    pairs = [(rank, model) for model in model_ranks for rank in range(num_data)]
    if is_partitioned:
        names = [
            f"zero_pp_rank_{rank}_mp_rank_{model:02d}_model_states.pt" for rank, model in pairs
        ]
    else:
        names = [f"mp_rank_{model:02d}_model_states.pt" for model in model_ranks]
    if state.get("optimizer") is None and _has_optimizer_files(save, state):
        settings = fields_of(state.get("ds_config"))
        is_bf16 = any(_is_on(settings.get(key)) for key in ("bf16", "bfloat16"))
        prefix = "bf16_" if is_bf16 else ""
        names += [
            f"{prefix}zero_pp_rank_{rank}_mp_rank_{model:02d}_optim_states.pt"
            for rank, model in pairs
        ]
    return names


def _has_optimizer_files(save: Save, state: dict[str, Any]) -> bool:
    """Whether the optimizer's state is in files of its own: it is partitioned, or some of them are there."""
    settings = fields_of(state.get("ds_config"))
    stage = fields_of(settings.get("zero_optimization")).get("stage")
    has_some = any("zero_pp_rank" in name and "optim_states" in name for name in save.names)
    return has_some or (type(stage) is int and stage > 0)


def _is_on(section: Any) -> bool:
    return fields_of(section).get("enabled") is True
