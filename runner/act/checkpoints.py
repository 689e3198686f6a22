"""Handlers of the actions on checkpoints: survey before a launch, verify after a seal, prune."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from runner.attempt_folders import make_output_folder
from runner.checkpoints import list_unsealed, raise_generation, remove, survey, verify
from runner.errors import CheckpointRefused
from runner.facts.actions import (
    Action,
    Outcome,
    PrepareAttempt,
    PruneCheckpoints,
    VerifyCheckpoint,
)


def prepare_attempt(action: Action) -> Outcome:
    """Find the newest intact checkpoint, verifying newest first, and choose a free rendezvous port."""
    work = action.read(PrepareAttempt)
    folder, address = work.folder, work.address
    if work.output:
        # Made once here, so that the nodes of a gang need not all try.
        make_output_folder(Path(work.output))
    chosen: dict[str, Any] | None = None
    refused: list[dict[str, Any]] = []
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        # From here on, older attempts cannot seal.
        raise_generation(folder, work.generation)
        chosen, refused = survey(Path(folder), skip=list(work.refused))
    detail = {"chosen": chosen, "refused": refused, "address": address, "port": free_port(address)}
    return (
        "done",
        detail,
        f"resume from step {chosen['step']}" if chosen else "start from nothing",
    )


def free_port(address: str) -> int:
    """Return a free port. If another process takes it before the ranks do, the launch fails and is repeated."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            # The address is another machine's: a port that is free here is as good a guess as any.
            probe.bind(("", 0))
        return int(probe.getsockname()[1])


def verify_checkpoint(action: Action) -> Outcome:
    """Verify one sealed checkpoint; one that fails is never trusted again."""
    try:
        manifest = verify(action.read(VerifyCheckpoint).path)
    except CheckpointRefused as error:
        return "failed", {}, str(error)
    return "done", {"step": manifest.step}, ""


def prune_checkpoints(action: Action) -> Outcome:
    """Delete the named checkpoints and unsealed ones beside them; a missing one is no error."""
    paths = [Path(path) for path in action.read(PruneCheckpoints).paths]
    roots = dict.fromkeys(path.parent for path in paths)
    unsealed = [path for root in roots for path in list_unsealed(root)]
    for path in (*paths, *unsealed):
        remove(path)
    return "done", {}, f"{len(paths)} deleted, and {len(unsealed)} that were never sealed"
