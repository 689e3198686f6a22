"""Checkpoints that a trainer left before a run of Stoker: which there are, and a sealed copy of one on a person's request."""

import os
import socket
from contextlib import suppress
from pathlib import Path

from runner.checkpoints.formats.adapter import number_of
from runner.checkpoints.formats.folder_scan import MAX_NAMES, FolderScan, Found
from runner.checkpoints.formats.saves import Incomplete
from runner.checkpoints.formats.table import adapters_for
from runner.checkpoints.generation_file import current_generation
from runner.checkpoints.manifest import checkpoint_folder, read_folder_name
from runner.checkpoints.script_saves.sealer import Sealer
from runner.checkpoints.script_saves.sources import FolderSource
from runner.checkpoints.sealed_folder import list_sealed
from runner.errors import PermanentError
from runner.facts.ids import AttemptId
from runner.facts.wording import counted

# Under which a checkpoint is sealed that no attempt of Stoker's has written.
NO_ATTEMPT = AttemptId(0, 0, 0)


def unsealed_remark(saves: Path, checkpoint_format: str, root: Path, run: str) -> str:
    """Return what to say to a run that has nothing sealed of the checkpoints that its script left; "" if there are none.

    They are not judged, for that takes reading.
    """
    found = _find(saves, checkpoint_format)
    if not found:
        return ""
    titles = ", ".join(dict.fromkeys(each.adapter.title for each in found))
    newest = max(found, key=lambda each: (_changed_at(each.path), str(each.path)))
    return (
        f"{counted(len(found), 'checkpoint')} of {titles} in {saves} (the newest is {newest.path.name}) from before this run "
        f"stay unused: `stoker adopt {newest.path} --into {root} --run {run}` seals a copy to resume from"
    )


def unused_remark(saves: Path, checkpoint_format: str, root: Path, step: int) -> str:
    """Return what to say to a run that resumes from a step of newer saves of its script that are not sealed; "" without any."""
    sealed = {path.name.rpartition("-")[2] for path in list_sealed(root)}
    newer = []
    for each in _find(saves, checkpoint_format):
        with suppress(Incomplete):
            number = number_of(each.path.name)
            if number > step and f"{number:08d}" not in sealed:
                newer.append((number, each.path.name))
    if not newer:
        return ""
    names = ", ".join(name for _, name in sorted(newer)[-MAX_NAMES:])
    return f"newer in {saves}, and not sealed: {names} (the agent's log has the reason)"


def _find(saves: Path, checkpoint_format: str) -> list[Found]:
    scan = FolderScan(
        saves,
        adapters_for(checkpoint_format),
        is_own=lambda name: read_folder_name(name) is not None,
    )
    return scan.scan().found


def seal_copy(path: Path, root: Path, run: str) -> Path:
    """Seal a copy of a trainer's checkpoint in a run's folder; return the copy's folder.

    Raises PermanentError for what is no whole checkpoint of a known trainer, and as `checkpoints.seal`.
    """
    path = Path(os.path.abspath(path))
    source = FolderSource(path.parent, reports_repeated=True)
    save = next((each for each in source.saves() if each.path == path), None)
    if save is None:
        titles = ", ".join(adapter.title for adapter in adapters_for(""))
        raise PermanentError(f"{path} is no checkpoint of a known trainer ({titles})")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sealer = Sealer(
            source=source,
            root=root,
            rank=theirs,
            run=run,
            attempt=NO_ATTEMPT,
            generation=current_generation(root),
        )
        root.mkdir(parents=True, exist_ok=True)
        try:
            step = sealer.seal_save(save)
        except Incomplete as error:
            raise PermanentError(f"{path} is not sealed: {error}") from error
    return checkpoint_folder(root, NO_ATTEMPT, step)


def _changed_at(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0
