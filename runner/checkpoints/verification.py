"""Verify a checkpoint: trusted once every byte agrees with its manifest."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from runner.checkpoints.files import check_equal, hash_file, open_regular, refuse_on_error
from runner.checkpoints.manifest import MANIFEST, MAX_MANIFEST_BYTES, FileSeal, Manifest, decode
from runner.checkpoints.sealed_folder import list_sealed
from runner.errors import CheckpointRefused

# hashlib releases the interpreter's lock; more threads only compete for one disk. Chosen, not measured.
HASHING_THREADS = 4
# Below it (about 20 ms of hashing), starting threads costs more than they save. Chosen, not measured.
THREADED_BYTES = 16 * 1024 * 1024


def verify(folder: str | Path) -> Manifest:
    """Read every byte of a checkpoint and return its manifest if all agree.

    Raises CheckpointRefused that names the file and its fault, TemporaryError when a retry may help. Files that the manifest
    does not list are ignored: loading reads none of them, and monitors and network file systems leave files in folders.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    # Sizes first: they cost nothing and catch a torn checkpoint before terabytes are read.
    for name, expected in manifest.files.items():
        with refuse_on_error(folder, name), open_regular(folder / name) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            check_equal(folder, name, "bytes", actual=size_bytes, expected=expected.size_bytes)
    if sum(expected.size_bytes for expected in manifest.files.values()) < THREADED_BYTES:
        for name, expected in manifest.files.items():
            _verify_content(folder, name, expected)
        return manifest
    with ThreadPoolExecutor(max_workers=HASHING_THREADS) as pool:
        checks = [pool.submit(_verify_content, folder, *item) for item in manifest.files.items()]
        try:
            for check in checks:
                check.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return manifest


def read_manifest(folder: str | Path) -> Manifest:
    """Return a checkpoint's manifest, its files unread. Raises CheckpointRefused, TemporaryError."""
    folder = Path(folder)
    with refuse_on_error(folder, MANIFEST), open_regular(folder / MANIFEST) as file:
        payload = file.read(MAX_MANIFEST_BYTES + 1)
    try:
        manifest = decode(payload)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointRefused(f"{folder / MANIFEST} is damaged: {error!r:.200}") from error
    if folder.name != f"{manifest.attempt}-{manifest.step:08d}":
        raise CheckpointRefused(
            f"{folder} holds step {manifest.step} of attempt {manifest.attempt}: it was renamed or copied over"
        )
    return manifest


def _verify_content(folder: Path, name: str, expected: FileSeal) -> None:
    with refuse_on_error(folder, name):
        actual = hash_file(folder / name)
    check_equal(folder, name, "sha256", actual=actual.sha256, expected=expected.sha256)


def survey(folder: Path, *, skip: list[str]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the newest checkpoint that verifies, or None, and those refused on the way with their reason."""
    refused = []
    for path in list_sealed(folder):
        if str(path) in skip:
            continue
        attempt, _, step = path.name.rpartition("-")
        item = {"path": str(path), "attempt": attempt, "step": int(step)}
        try:
            verify(path)
        except CheckpointRefused as error:
            refused.append({**item, "reason": str(error)})
            continue
        return item, refused
    return None, refused
