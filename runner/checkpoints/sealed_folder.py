"""Seal, list, survey and remove the folders of checkpoints."""

import errno
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from runner.atomic_files import sync_folder
from runner.checkpoints.generation_file import locked
from runner.checkpoints.inspection import Inspection
from runner.checkpoints.manifest import MANIFEST, FileSeal, Manifest, encode, read_folder_name
from runner.checkpoints.verification import check_equal, rank_keys, refuse_on_error, sync_file
from runner.errors import CheckpointForeign, CheckpointRefused, Fenced
from runner.facts.ids import AttemptId

_TEMPORARY = ".manifest.json.part"
_REMOVED = ".removed-"

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
    each change of the file system, for tests that kill the process there. The manifest gets a code if the rank has a key.
    """
    folder = Path(folder)
    if (
        manifest.generation != generation
        or folder.name != f"{manifest.attempt}-{manifest.step:08d}"
    ):
        raise ValueError(
            f"{folder.name} of generation {generation} does not match its manifest: {manifest}"
        )
    payload = encode(manifest, *rank_keys()[:1])
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
    return [path for _, _, path in _newest_first(root) if (path / MANIFEST).is_file()]


def list_unsealed(root: Path) -> list[Path]:
    """List the folders that will never get a manifest.

    An attempt that sealed began after all older ones had ended: an unsealed folder of an older attempt was cut short.
    """
    folders = [
        (attempt, path, (path / MANIFEST).exists()) for _, attempt, path in _newest_first(root)
    ]
    newest = max((attempt for attempt, _, is_sealed in folders if is_sealed), default=None)
    if newest is None:
        return []
    return sorted(
        path for attempt, path, is_sealed in folders if attempt < newest and not is_sealed
    )


def seal_again(folder: Path, manifest: Manifest, key: bytes) -> None:
    """Replace the manifest of a checkpoint that was verified by one with a code. Raises OSError."""
    # Through the open folder: one who may write beside it could put a link in its place meanwhile.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        payload = encode(manifest, key)
        _put_in_place(Path(f"/proc/self/fd/{descriptor}"), payload, lambda _name: None)
    finally:
        os.close(descriptor)


def survey(
    folder: Path,
    look: Callable[[Path], Inspection],
    *,
    skip: Sequence[str],
    verified: Mapping[str, str],
    newest_first: bool,
    is_set_aside: Callable[[int, AttemptId], bool] = lambda _step, _attempt: False,
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return a checkpoint that `look` does not refuse, or None, and those refused on the way with their reason.

    The newest of those that were `verified` (the stamps of their inspections, by the names of their folders) and have not changed
    since; where there is none, or with `newest_first`, the newest of all. What is in `skip`, or `is_set_aside` by its step and
    attempt, is none of them. No file but a manifest is read.
    Raises CheckpointForeign when all are refused, one for its code: starting from nothing beside it might waste it.
    """
    refused, foreign = [], list[CheckpointForeign]()
    newest: dict[str, Any] | None = None
    for step, attempt, path in _newest_first(folder):
        if is_set_aside(step, attempt) or str(path) in skip or not (path / MANIFEST).is_file():
            continue
        item = {"path": str(path), "attempt": str(attempt), "step": step}
        try:
            stamp = look(path).stamp
        except CheckpointRefused as error:
            refused.append({**item, "reason": str(error)})
            foreign += [error] if isinstance(error, CheckpointForeign) else []
            continue
        item["unverified"] = verified.get(path.name) != stamp
        if newest_first or not item["unverified"]:
            return item, refused
        newest = newest or item
    if foreign and newest is None:
        raise foreign[0]
    return newest, refused


def _newest_first(root: str | Path) -> list[tuple[int, AttemptId, Path]]:
    """Return step, attempt and path of every checkpoint's folder, sealed or not."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
        for entry in entries:
            parsed = read_folder_name(entry.name)
            if parsed and entry.is_dir(follow_symlinks=False):
                found.append((parsed[1], parsed[0], Path(entry.path)))
    return sorted(found, reverse=True)


def list_removed(root: Path) -> list[Path]:
    """List what a removal that was cut short has left: no checkpoints any more."""
    found = [path for path in sorted(root.glob(f"{_REMOVED}*")) if not path.is_symlink()]
    return [path for path in found if read_folder_name(path.name.removeprefix(_REMOVED))]


def remove(folder: str | Path) -> None:
    """Delete a checkpoint, or what `list_removed` names; a missing folder is no error.

    It is renamed first, durably, so that no half of it is ever taken for a checkpoint. Only the supervisor calls it. Raises
    ValueError for a folder that is not named like a checkpoint, OSError for one that cannot be renamed, such as a mount point.
    """
    folder = Path(folder)
    name = folder.name.removeprefix(_REMOVED)
    if read_folder_name(name) is None or folder.is_symlink():
        raise ValueError(f"{folder} is not a checkpoint folder; those are named <attempt>-<step>")
    removed = folder.with_name(f"{_REMOVED}{name}")
    if folder != removed and folder.is_dir():
        if removed.exists():
            shutil.rmtree(removed)
        folder.rename(removed)
        sync_folder(folder.parent)
    if removed.is_dir():
        shutil.rmtree(removed)
        sync_folder(folder.parent)


def _flush_tree(folder: Path, files: Mapping[str, FileSeal], boundary: Boundary) -> None:
    """Flush all files and every folder on the way to them."""
    folders = {folder}
    for name, expected in files.items():
        with refuse_on_error(folder / name):
            size_bytes = sync_file(folder / name)
        check_equal(folder / name, "bytes", actual=size_bytes, expected=expected.size_bytes)
        folders.update(folder / parent for parent in PurePosixPath(name).parents)
    boundary("files flushed")
    for path in sorted(folders, reverse=True):
        sync_folder(path)
    sync_folder(folder.parent)
    boundary("folders flushed")


def _put_in_place(folder: Path, payload: bytes, boundary: Boundary) -> None:
    """Write the manifest under another name, then rename it, each durably. It belongs to the folder's owner."""
    part = folder / _TEMPORARY
    part.unlink(missing_ok=True)
    # Never through a link: another user may write into the folder, and this process may be root.
    with part.open("xb", buffering=0) as file:
        with suppress(PermissionError):
            os.fchown(file.fileno(), folder.stat().st_uid, -1)
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
