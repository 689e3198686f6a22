"""Lightning: `epoch=E-step=S.ckpt` and `last.ckpt`, files of `torch.save`, or folders of strategies that shard.

A file holds `global_step` and the release that wrote it. A folder is one of torch.distributed.checkpoint with `meta.pt` (FSDP,
ModelParallel), or has DeepSpeed's below `checkpoint/` (lightning/fabric and lightning/pytorch strategies).
"""

from collections.abc import Collection
from pathlib import Path

from runner.checkpoints.finite.distributed_names import METADATA
from runner.checkpoints.formats import deepspeed
from runner.checkpoints.formats.adapter import Adapter, check_forms, check_regular, require
from runner.checkpoints.formats.saves import Incomplete, Save
from runner.checkpoints.formats.states import state_of
from runner.checkpoints.formats.torch_distributed import check_shards

_SUFFIX = ".ckpt"
_RELEASE, _STEP = "pytorch-lightning_version", "global_step"
_META, _ENGINE = "meta.pt", "checkpoint"


class Lightning(Adapter):
    """Files and folders `*.ckpt`."""

    name = "lightning"
    title = "Lightning"
    last_file = _META
    keeps_name = True

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry is named `*.ckpt`."""
        return name.endswith(_SUFFIX) and not name.startswith(".")

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is `global_step` of the file."""
        check_regular(save)
        if not save.is_folder:
            check_forms(save, reads_all=reads_all)
            return _step_in(save.path)
        if any(name.startswith(f"{_ENGINE}/") for name in save.names):
            step = deepspeed.check_tag(save.below(_ENGINE), reads_all=reads_all)
            if step is None:
                raise Incomplete(f"{_ENGINE}/ does not say its step")
            return step
        require(save, METADATA, _META)
        check_shards(save, reads_all=reads_all)
        return _step_in(save.path / _META)

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the file or folder as LightningCLI takes it."""
        return ("--ckpt_path", str(folder / name))


def _step_in(path: Path) -> int:
    state = state_of(path)
    step = state.get(_STEP)
    if _RELEASE not in state or type(step) is not int or step < 0:
        raise Incomplete(
            f"{path.name} is not one that Lightning wrote: it has no {_RELEASE} or {_STEP}"
        )
    return step
