"""How an unchanged script goes on from a sealed copy of what it saved: the arguments that its trainer takes."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from runner.checkpoints.formats.saves import read_save
from runner.checkpoints.formats.table import BY_NAME
from runner.checkpoints.manifest import FileSeal
from runner.checkpoints.script_saves.sources import SAVE_SETTING
from runner.checkpoints.verification import read_manifest
from runner.errors import PermanentError

# Of a checkpoint that is no copy of a known trainer's.
OTHERWISE = "--resume"


def resume_arguments(
    folder: Path, saves: Path, *, may_restore: bool = False, owner: tuple[int, int] | None = None
) -> tuple[str, ...]:
    """Return the arguments that resume from a sealed checkpoint.

    `saves`: where the script saves. A trainer that resumes only from there gets its checkpoint back if it is gone, with
    `may_restore`, for this user and group. Raises CheckpointRefused, TemporaryError; PermanentError if another is in its place.
    """
    manifest = read_manifest(folder, ())
    setting = manifest.settings.get(SAVE_SETTING)
    save: Mapping[str, Any] = setting if isinstance(setting, Mapping) else {}
    adapter, name = BY_NAME.get(str(save.get("format"))), PurePosixPath(str(save.get("name", "")))
    if adapter is None or name.is_absolute() or ".." in name.parts or not name.name:
        return (OTHERWISE, str(folder))
    if adapter.loads_original:
        original = saves / name
        if may_restore and not original.exists():
            _restore(folder, original, manifest.files, owner)
        elif original.exists():
            _check(original, manifest.files, folder)
    return adapter.resume_arguments(folder, name.name, manifest.step)


def _check(original: Path, files: Mapping[str, FileSeal], folder: Path) -> None:
    sizes = read_save(original).names
    differing = [name for name, seal in files.items() if sizes.get(name) != seal.size_bytes]
    if differing:
        raise PermanentError(
            f"{original / differing[0]} is not what was sealed in {folder}, and this trainer resumes from nowhere else; move "
            f"{original} away, and the sealed copy takes its place"
        )


def _restore(
    folder: Path, original: Path, files: Mapping[str, FileSeal], owner: tuple[int, int] | None
) -> None:
    """Put a copy of what was sealed in the place where its trainer looks for it."""
    part = original.with_name(f".{original.name}.{os.getpid()}.part")
    try:
        for name in files:
            (part / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, part / name)
        for path in [part, *part.rglob("*")] if owner is not None else []:
            os.chown(path, *owner, follow_symlinks=False)  # type: ignore[misc]
        part.rename(original)
    finally:
        shutil.rmtree(part, ignore_errors=True)
