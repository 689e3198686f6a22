"""Handlers of the actions on checkpoints: survey before a launch, inspect after a seal, prune. None reads more than manifests."""

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from runner import checkpoints
from runner.attempt_folders import make_output_folder
from runner.checkpoints import Inspection
from runner.checkpoints.script_saves.adoption import unsealed_remark, unused_remark
from runner.errors import CheckpointRefused
from runner.facts import actions
from runner.facts.checkpoints import Rewind

# Returns the keys for the manifests of a run, given its name; none in a cluster without a token.
SealKeys = Callable[[str], Sequence[bytes]]


def prepare_attempt(action: actions.Action, seal_keys: SealKeys) -> actions.Outcome:
    """Choose the checkpoint to resume from, by what was verified before, and a free rendezvous port."""
    work = action.read(actions.PrepareAttempt)
    keys = seal_keys(work.run_name)
    if work.output:
        # Made once here, so that the nodes of a gang need not all try.
        make_output_folder(Path(work.output))
    chosen: dict[str, Any] | None = None
    refused: list[dict[str, Any]] = []
    if work.folder:
        Path(work.folder).mkdir(parents=True, exist_ok=True)
        # From here on, older attempts cannot seal.
        checkpoints.raise_generation(work.folder, work.generation)
        rewinds = [Rewind.of_plain(each) for each in work.set_aside]
        chosen, refused = checkpoints.survey(
            Path(work.folder),
            partial(_inspect_own, work=work, keys=keys),
            skip=work.refused,
            verified=work.verified,
            newest_first=work.newest_first,
            is_set_aside=lambda step, attempt: any(
                rewind.sets_aside(step, attempt) for rewind in rewinds
            ),
        )
    where = {"address": work.address, "port": free_port(work.address)}
    message = _outcome_in_words(work, chosen)
    chosen = chosen and {**chosen, "needs_code": bool(keys)}
    return "done", {"chosen": chosen, "refused": refused, **where}, message


def _outcome_in_words(work: actions.PrepareAttempt, chosen: dict[str, Any] | None) -> str:
    """Say what the attempt starts from, and what its script has saved that stays unused. No file of it is read."""
    remark, saves, form = "", Path(work.saves or ""), work.checkpoint_format or ""
    if chosen:
        message = f"resume from step {chosen['step']}"
        if work.saves:
            remark = unused_remark(saves, form, Path(work.folder), chosen["step"])
    else:
        message = "no sealed checkpoint: the command starts as it is written"
        if work.saves and not work.refused and not work.set_aside:
            remark = unsealed_remark(saves, form, Path(work.folder), work.run_name)
    return f"{message}; {remark}" if remark else message


def free_port(address: str) -> int:
    """Return a free port. If another process takes it before the ranks do, the launch fails and is repeated."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            # The address is another machine's: a port that is free here is as good a guess as any.
            probe.bind(("", 0))
        return int(probe.getsockname()[1])


def inspect_checkpoint(action: actions.Action, seal_keys: SealKeys) -> actions.Outcome:
    """Look at one sealed checkpoint of the run, before nodes read it; one that is not the run's own is never trusted."""
    work = action.read(actions.InspectCheckpoint)
    keys = seal_keys(work.run_name)
    try:
        found = _inspect_own(work.path, work=work, keys=keys)
    except CheckpointRefused as error:
        kind = "refused" if os.path.lexists(work.path) else "missing"
        return "failed", {kind: True}, str(error)
    detail = {
        "step": found.manifest.step,
        "manifest": found.digest,
        "stamp": found.stamp,
        "size_bytes": found.size_bytes,
        "needs_code": bool(keys),
    }
    return "done", detail, ""


def _inspect_own(
    path: str | Path,
    *,
    work: actions.PrepareAttempt | actions.InspectCheckpoint,
    keys: Sequence[bytes],
) -> Inspection:
    """Inspect a checkpoint of the run as `inspect` does; one that counts without a code gets it. Raises OSError if it cannot."""
    place = checkpoints.check_place(path, work.folder)
    is_known = work.uncoded is None or place.name in work.uncoded
    found = checkpoints.inspect(place, () if is_known else keys, run=work.run_name)
    if is_known and keys:
        checkpoints.seal_again(place, found.manifest, keys[0])
        found = checkpoints.inspect(place, keys, run=work.run_name)
    return found


def prune_checkpoints(action: actions.Action) -> actions.Outcome:
    """Delete the named checkpoints, and unsealed ones in the run's folder; a missing one is no error.

    What is not the run's own stays where it is, and the message says why.
    """
    work = action.read(actions.PruneCheckpoints)
    refused = []
    for path in work.paths:
        try:
            _remove_own(path, work)
        except CheckpointRefused as error:
            refused.append(f"; left alone: {error}")
    unsealed = _remove_unsealed(Path(work.folder)) if work.folder else 0
    summary = f"{len(work.paths) - len(refused)} deleted, and {unsealed} that were never sealed"
    return "done", {}, summary + "".join(refused)


def _remove_own(path: str, work: actions.PruneCheckpoints) -> None:
    """Delete one checkpoint of the run. Raises CheckpointRefused for any other."""
    place = checkpoints.check_place(path, work.folder)
    if (place / checkpoints.MANIFEST).exists():
        checkpoints.read_manifest(place, (), run=work.run_name)
    checkpoints.remove(place)


def _remove_unsealed(root: Path) -> int:
    """Delete what was never sealed, and what earlier removals have left; return the number of the first."""
    removed = 0
    for path in checkpoints.list_unsealed(root):
        with suppress(CheckpointRefused):
            checkpoints.remove(checkpoints.check_place(path, root))
            removed += 1
    for path in checkpoints.list_removed(root):
        checkpoints.remove(path)
    return removed
