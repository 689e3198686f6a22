"""Whose folder it is: only what lies in a run's own folder, and is that run's by its manifest, is hashed, trusted or deleted."""

import os
from pathlib import Path

from runner.checkpoints.manifest import read_folder_name
from runner.errors import CheckpointRefused

_MOUNTS = Path("/proc/self/mountinfo")


def check_place(folder: str | Path, root: str | Path) -> Path:
    """Return the path of a checkpoint with all links resolved; it need not exist.

    Raises CheckpointRefused unless it is named like a checkpoint and lies directly in `root`, the run's folder for checkpoints
    ("" for a run that has none), as a folder of its own: no link, no mount point, on the device of `root`, with nothing
    mounted inside.
    """
    folder = Path(folder)
    if not str(root):
        raise CheckpointRefused(
            f"{folder} is not touched: its run has no folder for checkpoints; name one as `checkpoints` in run.yaml"
        )
    own = Path(os.path.realpath(root))
    place = Path(os.path.realpath(folder.parent), folder.name)
    if place.parent != own or read_folder_name(folder.name) is None:
        raise CheckpointRefused(
            f"{folder} is no checkpoint in {root}, the folder of its run; write it there, as {root}/<attempt>-<step>"
        )
    try:
        found = place.lstat()
    except FileNotFoundError:
        return place
    if place.is_symlink():
        raise CheckpointRefused(
            f"{folder} is a link to {place.readlink()}; move the checkpoint itself into {root}"
        )
    mounted = [path for path in _mount_points() if path == place or place in path.parents]
    if mounted or found.st_dev != own.stat().st_dev:
        raise CheckpointRefused(
            f"{folder} is on another device than {root}, or has one mounted at {mounted[0] if mounted else place}; unmount it, "
            f"and move the checkpoint into {root}"
        )
    return place


def _mount_points() -> list[Path]:
    """List where file systems are mounted; none where /proc does not tell."""
    try:
        lines = _MOUNTS.read_bytes().splitlines()
    except OSError:
        return []
    names = (line.split()[4].decode("unicode_escape").encode("latin-1") for line in lines)
    return [Path(os.fsdecode(name)) for name in names]
