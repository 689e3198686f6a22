"""Checkpoints on disk: seal, verify, survey and prune. A folder counts once its manifest is in place.

It is trusted once every byte agrees with the manifest:

    checkpoints/GENERATION                      the number below which no process may seal
    checkpoints/12.45.2-00000800/...       what the ranks wrote
    checkpoints/12.45.2-00000800/manifest.json

Each rank writes its files and calls `flush_and_hash` on them; one rank, when all are done, calls `seal`. The supervisor
verifies and prunes. `docs/contract.md` is the authority on the form. Standard library only, so that a foreign trainer may
import it. Needs a file system with rename, fsync and flock; on a shared one, each node must flush its own files, since no
other node can flush its cache.
"""

from runner.checkpoints.files import flush_and_hash, hash_file
from runner.checkpoints.generation_file import GENERATION, current_generation, raise_generation
from runner.checkpoints.manifest import (
    MANIFEST,
    FileSeal,
    Manifest,
    checkpoint_folder,
    read_folder_name,
)
from runner.checkpoints.sealed_folder import list_sealed, list_unsealed, remove, seal
from runner.checkpoints.verification import read_manifest, survey, verify

__all__ = [
    "GENERATION",
    "MANIFEST",
    "FileSeal",
    "Manifest",
    "checkpoint_folder",
    "current_generation",
    "flush_and_hash",
    "hash_file",
    "list_sealed",
    "list_unsealed",
    "raise_generation",
    "read_folder_name",
    "read_manifest",
    "remove",
    "seal",
    "survey",
    "verify",
]
