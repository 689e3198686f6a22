"""What drills leave in a run's folder of checkpoints: poisoned data positions, a disk that is full, a shard with a flipped byte.

Later attempts meet all three without being told: the first lies there as a file, as bad records lie in real data.
"""

import errno
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from runner import checkpoints
from trainer.faults.injection_plan import Fault

POISONED = ".poisoned_positions.json"
BALLAST = ".drill_ballast"
# A disk with more room than this is not filled: the rank gets a quota instead. Chosen, not measured.
MAX_BALLAST_BYTES = 1024**3
# The file that fills a disk is removed by the first start after this time, as a person would clean up. Chosen, not measured.
FULL_SECONDS = 20.0


def write_positions(root: Path, faults: Sequence[Fault]) -> None:
    """Write the list of poisoned positions: the old list or the new, whenever this process dies."""
    plain = [[fault.first, fault.last, fault.seed] for fault in faults]
    scratch = root / f"{POISONED}.part"
    scratch.write_text(json.dumps(plain))
    scratch.replace(root / POISONED)


def poisoned_positions(root: Path | None) -> list[Fault]:
    """Return what drills of earlier attempts poisoned; empty without a list that can be read."""
    try:
        plain = json.loads((root / POISONED).read_text()) if root is not None else []
        return [
            Fault(kind="poison", first=int(first), last=int(last), seed=int(seed))
            for first, last, seed in plain
        ]
    except (OSError, ValueError, TypeError):
        return []


def free_disk(root: Path) -> None:
    """Remove what fills the disk since a while."""
    ballast = root / BALLAST
    try:
        if time.time() - ballast.stat().st_mtime > FULL_SECONDS:
            ballast.unlink()
    except OSError:
        pass


def fill(path: Path) -> None:
    """Write until the disk is full."""
    size_bytes = MAX_BALLAST_BYTES
    with path.open("wb", buffering=0) as file:
        while size_bytes >= 1:
            try:
                end = file.seek(0, os.SEEK_END)
                os.posix_fallocate(file.fileno(), end, size_bytes)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                size_bytes //= 2


def flip_byte(root: Path, rank: int) -> None:
    """Flip a byte in the middle of a rank's newest sealed shard; without any there is nothing to damage."""
    for folder in checkpoints.list_sealed(root)[:1]:
        for shard in sorted(folder.glob(f"__{rank}_*.distcp"))[:1]:
            with shard.open("r+b") as file:
                file.seek(shard.stat().st_size // 2)
                byte = file.read(1)[0]
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte ^ 0x10]))
