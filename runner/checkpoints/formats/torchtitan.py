"""torchtitan: folders `step-N` of torch.distributed.checkpoint, in `<job.dump_folder>/<checkpoint.folder>`.

It takes the newest that has a `.metadata` or is an export (torchtitan/components/checkpointer/dcp.py, `_find_load_step`), or the
step of `--checkpoint.load_step`, and only from that folder. Some releases fail when they clean up a folder with other entries in
it, so Stoker's copies lie elsewhere. What it saves at the last step is by default the model alone, and it cannot resume from that.
"""

import re
from collections.abc import Collection
from pathlib import Path

from runner.checkpoints.finite.distributed_names import METADATA
from runner.checkpoints.formats.adapter import Adapter, number_of
from runner.checkpoints.formats.saves import Incomplete, Save
from runner.checkpoints.formats.torch_distributed import check_shards

_NAME = re.compile(r"step-\d+", re.ASCII)
_OPTIMIZER = "optimizer"
_EXPORT = "model.safetensors.index.json"


class Torchtitan(Adapter):
    """Folders `step-N`."""

    name = "torchtitan"
    title = "torchtitan"
    last_file = METADATA
    loads_original = True
    prunes_lowest_steps = True

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry is named `step-N`."""
        return files is not None and _NAME.fullmatch(name) is not None

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is that of the name."""
        if _EXPORT in save.names and METADATA not in save.names:
            raise Incomplete(
                "an export of the model for Hugging Face (checkpoint.last_save_in_hf): torchtitan cannot resume from it"
            )
        names = check_shards(save, reads_all=reads_all)
        step = number_of(save.path.name)
        # Of step 0, a seed checkpoint, it loads the model alone.
        if step > 0 and not any(name.startswith(_OPTIMIZER) for name in names):
            raise Incomplete(
                "it has no state of an optimizer: of the model alone (checkpoint.last_save_model_only) torchtitan cannot resume"
            )
        return step

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the step, since it loads from its own folder alone."""
        return ("--checkpoint.load_step", str(step))
