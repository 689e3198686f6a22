"""torchtitan: folders `step-N` of torch.distributed.checkpoint, in `<job.dump_folder>/<checkpoint.folder>`.

It takes the newest that has a `.metadata` (torchtitan/components/checkpoint.py, `_find_load_step`), or the step of
`--checkpoint.load_step`, and only from that folder. Some releases fail when they clean up a folder with other entries in it, so
Stoker's copies lie elsewhere.
"""

import re
from collections.abc import Collection
from pathlib import Path

from runner.checkpoints.finite.distributed_names import METADATA
from runner.checkpoints.formats.adapter import Adapter, number_of
from runner.checkpoints.formats.saves import Save
from runner.checkpoints.formats.torch_distributed import check_shards

_NAME = re.compile(r"step-\d+", re.ASCII)


class Torchtitan(Adapter):
    """Folders `step-N`."""

    name = "torchtitan"
    title = "torchtitan"
    last_file = METADATA
    loads_original = True

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether an entry is named `step-N`."""
        return files is not None and _NAME.fullmatch(name) is not None

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is that of the name."""
        check_shards(save, reads_all=reads_all)
        return number_of(save.path.name)

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the step, since it loads from its own folder alone."""
        return ("--checkpoint.load_step", str(step))
