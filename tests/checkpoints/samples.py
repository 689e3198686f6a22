"""Checkpoints for tests, sealed, with files of given sizes."""

import hashlib
import random
from collections.abc import Mapping
from pathlib import Path

from runner import checkpoints
from runner.checkpoints import Manifest
from runner.facts.ids import AttemptId

ATTEMPT = AttemptId(run=3, configuration=1, restart=0)


def sealed_checkpoint(
    root: Path, sizes: Mapping[str, int | bytes], *, step: int = 5
) -> tuple[Path, str]:
    """Write and seal a checkpoint of files with these sizes in bytes, or with this content.

    Returns its folder and the sha256 of its manifest's bytes.
    """
    folder = checkpoints.checkpoint_folder(root, ATTEMPT, step)
    values = random.Random(step)
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(values.randbytes(size) if isinstance(size, int) else size)
    manifest = Manifest(
        run="tiny",
        attempt=ATTEMPT,
        generation=0,
        step=step,
        files={name: checkpoints.flush_and_hash(folder / name) for name in sizes},
    )
    path = checkpoints.seal(folder, manifest, generation=0)
    return folder, hashlib.sha256(path.read_bytes()).hexdigest()
