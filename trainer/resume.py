"""Where a start goes on: the step and the data position of its checkpoint, resets that happened, and what refuses a start."""

import dataclasses
import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.checkpoints import Manifest, read_manifest
from runner.errors import SpecError
from runner.facts.contract import ANY_DATA
from runner.facts.remedies.skipped_steps import data_step
from trainer.config.settings import Settings
from trainer.contract.remedies import RESETS, Remedies
from trainer.data.batches import Corpus
from trainer.parallel.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """What a start goes on from. `read`: the data step that step `done` read; `resets`: kind -> names of those that happened."""

    done: int = 0
    read: int = 0
    resets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def start_point(manifest: Manifest) -> StartPoint:
    """Return what a checkpoint's manifest says. One of an earlier release holds its step as position, since it skipped nothing."""
    position = manifest.data.get("position")
    resets = manifest.settings.get("resets", {})
    return StartPoint(
        done=manifest.step,
        read=position if type(position) is int and position >= 0 else manifest.step,
        resets={name: tuple(map(str, resets.get(name, ()))) for name in RESETS},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """Which data step each training step of this start reads."""

    start: StartPoint
    skipped: tuple[tuple[int, int], ...] = ()

    def position(self, step: int) -> int:
        """Return the data step that a training step reads, or had read."""
        if step <= self.start.done:
            return self.start.read
        return data_step(step, self.skipped, after=(self.start.done, self.start.read))


def carry_out_resets(engine: Engine, remedies: Remedies, start: StartPoint) -> dict[str, list[str]]:
    """Reset what is to have happened and has not; return the names of all that have, as the engine's state shows.

    What has just begun is as if it had been reset.
    """
    happened: dict[str, list[str]] = {}
    for name, reset in (
        ("loss_scale_reset", engine.reset_loss_scale),
        ("optimizer_reset", engine.reset_optimizer),
    ):
        known = start.resets.get(name, ())
        due = [each for each in remedies.resets.get(name, ()) if each not in known]
        happened[name] = [*known, *(due if due and reset() else ())]
    return happened


def refuse_other_data(manifest: Manifest | None, data: Corpus, *, approved: str) -> None:
    """Raise SpecError when a checkpoint was trained on other data, unless that is `approved`: its fingerprint, or ANY_DATA."""
    saved = manifest.data.get("fingerprint") if manifest is not None else data.fingerprint
    if manifest is None or saved == data.fingerprint or approved in (ANY_DATA, data.fingerprint):
        return
    raise SpecError(
        f"data: the checkpoint of step {manifest.step} by {manifest.attempt} was trained on data {saved}, this run reads data "
        f"{data.fingerprint}: give back the old source, approve of the new one (--accept-drift), or start without a checkpoint"
    )


def refuse_other_model(folder: Path, settings: Settings) -> Manifest:
    """Return a checkpoint's manifest; raise SpecError when it holds another model.

    Raises CheckpointRefused for a manifest that is refused. Its files are checked while they are loaded.
    """
    manifest = read_manifest(folder)
    wanted = dataclasses.asdict(settings.model)
    was = {**wanted, **dict(manifest.settings.get("model", {}))}
    for name in sorted(wanted):
        if was[name] != wanted[name] and name != "init_std":
            raise SpecError(
                f"model.{name} = {wanted[name]}: checkpoint {folder.name} holds a model with "
                f"{was[name]}; set it back, or start without a checkpoint"
            )
    return manifest


# No repetition helps against these; a full disk, a quota or a server that is away may pass, and are a crash.
_FOR_GOOD = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT),
    *(errno.ENAMETOOLONG, errno.ELOOP),
)


def refuse_unwritable(folder: Path, rank: int) -> None:
    """Raise SpecError when this rank may not write into the folder for checkpoints; OSError when it cannot at the moment."""
    probe = folder / f".writable-{rank}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        if error.errno not in _FOR_GOOD:
            raise
        raise SpecError(
            f"checkpoints: folder {folder} cannot be written ({error.strerror or error}): "
            "make it writable for this user, or name another"
        ) from error
