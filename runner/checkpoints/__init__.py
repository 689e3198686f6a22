"""Checkpoints on disk: seal, inspect, verify, survey and prune. A folder counts once its manifest is in place.

It is trusted once every byte agreed with the manifest, for as long as sizes and times of its files stay what they were:

    checkpoints/GENERATION                      the number below which no process may seal
    checkpoints/12.45.2-00000800/...       what the ranks wrote
    checkpoints/12.45.2-00000800/manifest.json

Each rank writes its files and calls `flush_and_hash` on them; one rank, when all are done, calls `seal`. Nodes of the run then
read it once, in the background, each a share of the files, in a program of its own (`share_verification`); the supervisor inspects
and prunes. `docs/contract.md` is the authority on the form. Standard library only (that program aside), so that a foreign trainer
may import it. Needs a file system with rename, fsync and flock; on a shared one, each node must flush its own files, since no other
node can flush its cache.
"""

from runner.checkpoints.checked_file import CheckedFile as CheckedFile
from runner.checkpoints.checked_file import PartFile as PartFile
from runner.checkpoints.checked_file import open_checked as open_checked
from runner.checkpoints.generation_file import GENERATION as GENERATION
from runner.checkpoints.generation_file import current_generation as current_generation
from runner.checkpoints.generation_file import raise_generation as raise_generation
from runner.checkpoints.inspection import Inspection as Inspection
from runner.checkpoints.inspection import inspect as inspect
from runner.checkpoints.manifest import MANIFEST as MANIFEST
from runner.checkpoints.manifest import FileSeal as FileSeal
from runner.checkpoints.manifest import Manifest as Manifest
from runner.checkpoints.manifest import checkpoint_folder as checkpoint_folder
from runner.checkpoints.manifest import read_folder_name as read_folder_name
from runner.checkpoints.ownership import check_place as check_place
from runner.checkpoints.sealed_folder import list_removed as list_removed
from runner.checkpoints.sealed_folder import list_sealed as list_sealed
from runner.checkpoints.sealed_folder import list_unsealed as list_unsealed
from runner.checkpoints.sealed_folder import remove as remove
from runner.checkpoints.sealed_folder import seal as seal
from runner.checkpoints.sealed_folder import seal_again as seal_again
from runner.checkpoints.sealed_folder import survey as survey
from runner.checkpoints.shares import files_of_share as files_of_share
from runner.checkpoints.verification import flush_and_hash as flush_and_hash
from runner.checkpoints.verification import hash_file as hash_file
from runner.checkpoints.verification import read_manifest as read_manifest
from runner.checkpoints.verification import verify as verify
from runner.facts.contract import EXIT_CHECKPOINT_REFUSED as EXIT_CHECKPOINT_REFUSED
