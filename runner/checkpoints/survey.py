"""Checkpoints on disk, for the actions that look at them: survey before a launch, verify after a seal, prune.

Bytes are believed only after `sealing.verify` has read them all.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from runner.act.executor import Outcome
from runner.attempt_folders import make_output_folder
from runner.checkpoints import sealed_folder
from runner.errors import CheckpointRefused
from runner.facts.actions import Action


def prepare_attempt(action: Action) -> Outcome:
    """Find the newest intact checkpoint, verifying newest first, and choose a rendezvous that no attempt used before."""
    folder = str(action.args["folder"])
    # once, so that the nodes of a gang need not all try
    if action.args.get("output"):
        make_output_folder(Path(str(action.args["output"])))
    refused: list[dict[str, Any]] = []
    chosen: dict[str, Any] | None = None
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        # From here on, older attempts cannot commit.
        sealed_folder.raise_epoch(Path(folder), int(action.args["epoch"]))
        chosen, refused = survey(Path(folder), skip=list(action.args["refused"]))
    address = str(action.args["address"])
    detail = {"chosen": chosen, "refused": refused, "address": address, "port": free_port(address)}
    found = f"resume from step {chosen['step']}" if chosen else "start from nothing"
    return "done", detail, found


def survey(folder: Path, *, skip: list[str]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the newest checkpoint that verifies (or None), and those passed over on the way with their reason."""
    refused = []
    for path in sealed_folder.list_sealed(folder):
        if str(path) in skip:
            continue
        attempt, _, step = path.name.rpartition("-")
        item = {"path": str(path), "attempt": attempt, "step": int(step)}
        try:
            sealed_folder.verify(path)
        except CheckpointRefused as error:
            refused.append({**item, "reason": str(error)})
            continue
        return item, refused
    return None, refused


def free_port(address: str) -> int:
    """Return a port nobody listens on. Somebody may take it before the ranks do: then the launch fails and is repeated."""
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except (
            OSError
            # not an address of this machine: any port that is free here is as good a guess as any
        ):
            probe.bind(("", 0))
        return int(probe.getsockname()[1])


def verify_checkpoint(action: Action) -> Outcome:
    """Verify one sealed checkpoint; failed means: not to be trusted, ever."""
    try:
        manifest = sealed_folder.verify(Path(str(action.args["path"])))
    except CheckpointRefused as error:
        return "failed", {}, str(error)
    return "done", {"step": manifest.step}, ""


def prune_checkpoints(action: Action) -> Outcome:
    """Delete the named checkpoints, and beside them what was never sealed; one that is gone already is fine."""
    paths = [Path(path) for path in action.args["paths"]]
    rests = [
        rest for root in dict.fromkeys(path.parent for path in paths) for rest in unsealed(root)
    ]
    for path in (*paths, *rests):
        sealed_folder.remove(path)
    return "done", {}, f"{len(paths)} deleted, and {len(rests)} that were never sealed"


def unsealed(root: Path) -> list[Path]:
    """List the folders of saves that were cut short.

    An attempt that sealed has begun after all older ones had ended: what those left without a manifest never gets one.
    """
    sealed = [sealed_folder.read_folder_name(path.name) for path in sealed_folder.list_sealed(root)]
    newest = max((name[0] for name in sealed if name is not None), default=None)
    if newest is None:
        return []
    rests = []
    for path in sorted(root.iterdir()):
        name = sealed_folder.read_folder_name(path.name)
        if name is not None and name[0] < newest and not (path / sealed_folder.MANIFEST).exists():
            rests.append(path)
    return rests
