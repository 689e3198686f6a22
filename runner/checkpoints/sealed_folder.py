"""Seal, list and remove the folders of checkpoints."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from runner.checkpoints.files import check_equal, refuse_on_error, sync_file, sync_folder
from runner.checkpoints.generation_file import locked
from runner.checkpoints.manifest import MANIFEST, FileSeal, Manifest, encode, read_folder_name
from runner.errors import CheckpointRefused, Fenced

_TEMPORARY = ".manifest.json.part"

Boundary = Callable[[str], None]


def seal(
    folder: str | Path,
    manifest: Manifest,
    *,
    generation: int,
    boundary: Boundary = lambda _name: None,
) -> Path:
    """Make a written checkpoint count, durably; return the manifest's path.

    Flushes all listed files once more. Raises Fenced when `generation` is older than the folder's, CheckpointRefused when a file
    is missing or of another size or the folder is sealed already, TemporaryError when the lock cannot be had, PermanentError
    for a manifest over its limit, OSError when the disk is full or broken. `boundary` is called with a name before and after
    each change of the file system, for tests that kill the process there.
    """
    folder = Path(folder)
    if (
        manifest.generation != generation
        or folder.name != f"{manifest.attempt}-{manifest.step:08d}"
    ):
        raise ValueError(
            f"{folder.name} of generation {generation} does not match its manifest: {manifest}"
        )
    payload = encode(manifest)
    _flush_tree(folder, manifest.files, boundary)
    with locked(folder.parent) as (_, current):
        boundary("locked")
        if generation < current:
            raise Fenced(
                f"{folder} was written in generation {generation}, but generation {current} has begun: "
                "a newer attempt has taken over, this one must end"
            )
        if (folder / MANIFEST).exists():
            raise CheckpointRefused(
                f"{folder} is sealed already; a checkpoint is never overwritten"
            )
        _put_in_place(folder, payload, boundary)
    boundary("unlocked")
    return folder / MANIFEST


def list_sealed(root: str | Path) -> list[Path]:
    """List the folders that have a manifest, newest first: by step, then by attempt, both as numbers."""
    folders = []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                parsed = read_folder_name(entry.name)
                if parsed and entry.is_dir(follow_symlinks=False):
                    folders.append((parsed[1], parsed[0], Path(entry.path)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for _, _, path in sorted(folders, reverse=True) if (path / MANIFEST).is_file()]


def list_unsealed(root: Path) -> list[Path]:
    """List the folders that will never get a manifest.

    An attempt that sealed began after all older ones had ended: an unsealed folder of an older attempt was cut short.
    """
    sealed = [read_folder_name(path.name) for path in list_sealed(root)]
    newest = max((parsed[0] for parsed in sealed if parsed is not None), default=None)
    if newest is None:
        return []
    unsealed = []
    for path in sorted(root.iterdir()):
        parsed = read_folder_name(path.name)
        if parsed is not None and parsed[0] < newest and not (path / MANIFEST).exists():
            unsealed.append(path)
    return unsealed


def remove(folder: str | Path) -> None:
    """Delete a checkpoint, its manifest first and durably; a missing folder is no error.

    Only the supervisor calls it. Raises ValueError for a folder that is not named like a checkpoint.
    """
    folder = Path(folder)
    if read_folder_name(folder.name) is None or folder.is_symlink():
        raise ValueError(f"{folder} is not a checkpoint folder; those are named <attempt>-<step>")
    if not folder.is_dir():
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    sync_folder(folder)
    shutil.rmtree(folder)
    sync_folder(folder.parent)


def _flush_tree(folder: Path, files: Mapping[str, FileSeal], boundary: Boundary) -> None:
    """Flush all files and every folder on the way to them."""
    folders = {folder}
    for name, expected in files.items():
        with refuse_on_error(folder, name):
            size_bytes = sync_file(folder / name)
        check_equal(folder, name, "bytes", actual=size_bytes, expected=expected.size_bytes)
        folders.update(folder / parent for parent in PurePosixPath(name).parents)
    boundary("files flushed")
    for path in sorted(folders, reverse=True):
        sync_folder(path)
    sync_folder(folder.parent)
    boundary("folders flushed")


def _put_in_place(folder: Path, payload: bytes, boundary: Boundary) -> None:
    """Write the manifest under another name, then rename it, each durably."""
    part = folder / _TEMPORARY
    with part.open("wb", buffering=0) as file:
        boundary("manifest opened")
        half = len(payload) // 2
        for piece in (payload[:half], payload[half:]):
            if file.write(piece) != len(piece):
                raise OSError(errno.ENOSPC, "manifest written in part", str(part))
            boundary("manifest written on")
        os.fsync(file.fileno())
    boundary("manifest flushed")
    part.rename(folder / MANIFEST)
    boundary("manifest renamed")
    sync_folder(folder)
    boundary("rename flushed")
