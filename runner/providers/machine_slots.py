"""Slots of this machine's local nodes: each supervisor registers those of its own cluster, so that others can count and name them.

One file for each cluster, in a folder of this user. Its supervisor holds it locked, so a dead one's counts for nothing. The slots
are for limits and for people: what a launch waits for is what its devices report (`agent/launch/devices.py`).
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.facts.specs.cluster import ClusterSpec

# The same for every process of a user, whatever its session or environment.
FOLDER = Path(f"/tmp/stoker-{os.geteuid()}")  # noqa: S108 - its owner and mode are checked
# Larger ones are not ours.
MAX_ENTRY_BYTES = 64 * 1024
_LOG = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSlots:
    """The local nodes of a cluster that a supervisor on this machine leads. `slots`: ranks that they can hold in all."""

    cluster: str
    state: str
    pid: int
    slots: int
    # Of one node: its ranks take the GPUs 0, 1, ... by local rank.
    slots_per_node: int


def slots_of(cluster: ClusterSpec) -> int:
    """Return how many ranks the local nodes of a cluster can hold, spares included."""
    local = cluster.local
    return (local.nodes + local.spares) * local.slots


@contextlib.contextmanager
def registered(cluster: ClusterSpec) -> Iterator[None]:
    """Register the cluster's local nodes; without any, or where the folder is not ours alone, register nothing, and log why."""
    file = None
    if slots_of(cluster):
        try:
            file = _locked(_folder() / _name(cluster.state))
            entry = LocalSlots(
                cluster=cluster.name,
                state=cluster.state,
                pid=os.getpid(),
                slots=slots_of(cluster),
                slots_per_node=cluster.local.slots,
            )
            os.ftruncate(file, 0)
            os.pwrite(file, json.dumps(asdict(entry)).encode(), 0)
        except OSError as error:
            _LOG.warning("other clusters of this machine do not see this one's slots: %s", error)
    try:
        yield
    finally:
        if file is not None:
            # Unlocked first, another supervisor of this cluster could lock what is then removed.
            with contextlib.suppress(OSError):
                (_folder() / _name(cluster.state)).unlink()
            os.close(file)


def other_clusters(state: str) -> list[LocalSlots]:
    """Return the clusters of this user with a living supervisor on this machine, except the one in `state`; by state folder."""
    try:
        paths = sorted(_folder().glob("*.json")) if FOLDER.exists() else []
    except OSError:
        return []
    found = [entry for path in paths if (entry := _read(path)) is not None]
    return sorted((each for each in found if each.state != state), key=lambda each: each.state)


def slots_of_machine(cluster: ClusterSpec) -> int:
    """Return how many ranks the local nodes of this cluster and of all others on this machine can hold."""
    return slots_of(cluster) + sum(each.slots for each in other_clusters(cluster.state))


def _name(state: str) -> str:
    return f"{hashlib.sha256(os.fsencode(state)).hexdigest()[:16]}.json"


def _folder() -> Path:
    """Return the folder, made if it is missing. Raises OSError unless it is this user's alone, and no link."""
    with contextlib.suppress(FileExistsError):
        FOLDER.mkdir(mode=0o700)
    found = FOLDER.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_ours or found.st_mode & 0o077:
        raise PermissionError(
            f"{FOLDER} has owner {found.st_uid} and mode {stat.filemode(found.st_mode)}, and must be a folder of user "
            f"{os.geteuid()} alone; remove it"
        )
    return FOLDER


def _locked(path: Path) -> int:
    """Open and lock the file of a cluster. Raises BlockingIOError while its earlier supervisor lives."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # An earlier supervisor may have removed it between the two calls.
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_ino == os.fstat(file).st_ino:
                    return file
        except OSError:
            os.close(file)
            raise
        os.close(file)


def _read(path: Path) -> LocalSlots | None:
    """Return a file's entry; None unless its supervisor lives."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(OSError, ValueError, TypeError):
            return LocalSlots(**json.loads(os.read(file, MAX_ENTRY_BYTES)))
    except OSError:
        pass
    finally:
        os.close(file)
    return None
