"""shared_memory: there is room in /dev/shm, and no large file that no process uses any more.

Collectives and data loaders of ranks on one node talk through it, and a killed one leaves its files behind, which take memory
until the machine restarts. A file counts as left over when no process has it open or mapped and it has not been written for
a minute. A process that this user may not inspect could use any file that it may open: such files are unknown.
"""

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from healthchecks.check import Evidence, Judge, NodeFacts, Outcome, Verdict
from healthchecks.declaration import CHOSEN, HealthCheck, at_least_on, at_most

NAME = "shared_memory"
# The other side may be about to open a file that is newer. Chosen, not measured.
YOUNG_SECONDS = 60.0
# The unit of st_blocks, stat(2).
BLOCK_BYTES = 512
# With GPUs, NCCL's buffers lie there. Without, what a container has by default, for each rank: data
# loaders of one rank alone may fill it.
GPU_BYTES, CPU_RANK_BYTES = 1 << 30, 64 << 20
# Leftovers named in the evidence, largest first.
MAX_NAMED = 5

# Device, inode.
FileKey = tuple[int, int]


@dataclass(slots=True)
class Uses:
    """Files in use, by inode or by path, and the users whose processes could not be inspected."""

    keys: set[FileKey] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    uninspected: set[int] = field(default_factory=set)

    def has(self, path: str, about: os.stat_result) -> bool:
        """Whether an inspected process uses the file."""
        return path in self.links or (about.st_dev, about.st_ino) in self.keys

    def may_have(self, about: os.stat_result) -> bool:
        """Whether a process that could not be inspected may use it: it is the owner's, or others may open the file as well."""
        return about.st_uid in self.uninspected or bool(self.uninspected and about.st_mode & 0o077)


def least_free_bytes(node: NodeFacts) -> tuple[float, str]:
    """Return how much a node needs, and why."""
    if node.num_gpus:
        return GPU_BYTES, "NCCL user guide: containers want --shm-size=1g"
    source = "chosen: 64 MiB a slot without GPUs, what a container has by default"
    return min(node.slots * CPU_RANK_BYTES, GPU_BYTES), source


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Check `node.shared_memory`."""
    folder = node.shared_memory
    try:
        space = os.statvfs(folder)
        files = dict(_files(folder))
    except OSError as error:
        missing = judge("shared_memory.free_bytes", None, subject=folder, note=str(error))
        return Verdict(check=NAME, evidence=(missing,))
    free = judge("shared_memory.free_bytes", space.f_bavail * space.f_frsize, subject=folder)
    return Verdict(check=NAME, evidence=(free, _leftovers(folder, files, judge=judge)))


def _leftovers(folder: str, files: Mapping[str, os.stat_result], *, judge: Judge) -> Evidence:
    uses = uses_of_files() if files else Uses()
    left = {path: about for path, about in files.items() if not uses.has(path, about)}
    unsure = {path for path, about in left.items() if uses.may_have(about)}
    # What a file takes counts, not how long it claims to be.
    sizes = {path: about.st_blocks * BLOCK_BYTES for path, about in left.items()}
    largest = sorted(sizes, key=lambda path: (-sizes[path], path))[:MAX_NAMED]
    note = ", ".join(f"{os.path.relpath(path, folder)}: {sizes[path]} bytes" for path in largest)
    name, total = "shared_memory.leftover_bytes", sum(sizes.values())
    sure = sum(size for path, size in sizes.items() if path not in unsure)
    evidence = judge(name, sure, subject=folder, note=note)
    if evidence.outcome is Outcome.PASS and judge(name, total).outcome is Outcome.FAIL:
        note = f"processes that may not be inspected may use some of: {note}"
        return judge(name, None, subject=folder, note=note)
    return evidence


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield regular files that are old enough; raise OSError when the folder itself cannot be listed."""
    now = time.time()
    for parent, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            path = os.path.join(parent, name)
            try:
                about = os.lstat(path)
            except FileNotFoundError:
                # It was removed in the meantime.
                continue
            if now - about.st_mtime >= YOUNG_SECONDS and not os.path.islink(path):
                yield path, about


def _raise(error: OSError) -> None:
    raise error


def uses_of_files() -> Uses:
    """Find which files all visible processes have open or mapped."""
    uses = Uses()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            uses.keys.update(_mapped(process / "maps"))
            uses.links.update(_opened(process / "fd"))
        except (FileNotFoundError, ProcessLookupError):
            # It ended in the meantime.
            continue
        except OSError:
            # Init opens no files of others; in some virtual machines not even root may inspect it.
            if process.name != "1":
                uses.uninspected.update(_user_of(process))
    return uses


def _user_of(process: Path) -> Iterator[int]:
    """Yield the process's real user; none if it ended. The owner of its folder may be root where it dumps no core."""
    try:
        status = (process / "status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return
    for line in status.splitlines():
        if line.startswith("Uid:"):
            yield int(line.split()[1])


def _mapped(maps: Path) -> Iterator[FileKey]:
    # Fields: address permissions offset major:minor inode path
    for line in maps.read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[4] != "0":
            major, _, minor = fields[3].partition(":")
            yield os.makedev(int(major, 16), int(minor, 16)), int(fields[4])


def _opened(folder: Path) -> Iterator[str]:
    # Only the link is read: following it could wait for a file system that does not answer.
    for link in folder.iterdir():
        try:
            yield os.readlink(link)
        except FileNotFoundError:
            continue


CHECK = HealthCheck(
    name=NAME,
    position=40,
    run=check,
    runs_beside=True,
    seconds={"passive": 0.5},
    needs=("shared_memory", "slots", "num_gpus"),
    limits={
        "shared_memory.free_bytes": at_least_on(
            least_free_bytes,
            "bytes",
            most=1e15,
            way_out="`mount -o remount,size=1g /dev/shm` as root, or start the container with --shm-size=1g",
        ),
        "shared_memory.leftover_bytes": at_most(
            16 << 20, "bytes", CHOSEN, most=1e15, way_out="remove the files that no program needs"
        ),
    },
)
