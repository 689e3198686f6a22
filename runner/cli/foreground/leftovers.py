"""What a cluster left on this machine: processes and files in shared memory, found in /proc alone."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.cli.clusters import leader_of, store_of
from runner.facts.specs.cluster import ClusterSpec
from runner.keeper import orphans, procfs, protocol
from runner.store.registry import exists

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - only read
# In the state folder: the process that starts a supervisor again which `stoker run --detach` left behind.
RESTARTER = "restarter.json"
# Chosen, not measured.
KILL_WAIT_SECONDS = 5.0
TRACKERS_LAST_SECONDS = 1.0
_KILLED_FIRST = {"restarter": 0, "supervisor": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """A process of the cluster. `start_ticks` distinguishes it from a later one with the same pid."""

    pid: int
    start_ticks: int
    what: str

    def __str__(self) -> str:
        return f"{self.what} (pid {self.pid})"


def processes_of(cluster: ClusterSpec) -> list[Leftover]:
    """Find living processes of a cluster's supervisor, its restarter, agents, keepers and ranks."""
    found = (
        *restarter_of(cluster),
        *_supervisor(cluster),
        *_from_pid_files(cluster),
        *_from_environ(cluster),
    )
    by_pid = {left.pid: left for left in found}
    return [by_pid[pid] for pid in sorted(by_pid)]


def kill_all(cluster: ClusterSpec) -> list[Leftover]:
    """SIGKILL every process of the cluster, what starts others first, until none is found; return those that survive."""
    return _kill_found(lambda: processes_of(cluster))


def kill_ranks(cluster: ClusterSpec, run: int) -> list[Leftover]:
    """SIGKILL the ranks of one run and their children until none is found; return those that survive."""
    return _kill_found(lambda: [*_from_environ(cluster, attempts=f"{run}.")])


def _kill_found(find: Callable[[], list[Leftover]]) -> list[Leftover]:
    """Kill what is found. Resource trackers, which remove the ranks' shared memory, are last, if they do not end by themselves."""
    deadline = time.monotonic() + KILL_WAIT_SECONDS
    left = find()
    while left and time.monotonic() < deadline:
        is_late = time.monotonic() >= deadline - TRACKERS_LAST_SECONDS
        for process in sorted(left, key=lambda each: _KILLED_FIRST.get(each.what, 2)):
            if is_late or not orphans.is_resource_tracker(process.pid):
                _kill(process)
        time.sleep(0.05)
        left = find()
    return left


def shared_memory() -> frozenset[str]:
    """Name the files in shared memory."""
    return frozenset(path.name for path in SHARED_MEMORY.glob("*"))


def new_shared_memory(before: frozenset[str]) -> list[str]:
    """Name files that came into shared memory since `before` and that no living process has open or mapped."""
    new = shared_memory() - before
    unused = new - _used_shared_memory() if new else new
    return sorted(name for name in unused if (SHARED_MEMORY / name).exists())


def _kill(process: Leftover) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        seen = procfs.read_process(process.pid)
        if seen is not None and seen.start_ticks == process.start_ticks:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(handle)


def _supervisor(cluster: ClusterSpec) -> Iterator[Leftover]:
    from runner.supervisor.lease import holder_pid

    if exists(cluster):
        with store_of(cluster) as store:
            pid = holder_pid(leader_of(store).holder)
        if pid is not None and pid != os.getpid():
            yield from _if_alive(pid, "supervisor")


def restarter_of(cluster: ClusterSpec) -> Iterator[Leftover]:
    """Yield the process of this machine that would start the cluster's supervisor again."""
    yield from _from_pid_file(Path(cluster.state) / RESTARTER, "restarter")


def _from_pid_files(cluster: ClusterSpec) -> Iterator[Leftover]:
    """Yield agents and keepers, by the files in which they write their pid."""
    for folder in sorted((Path(cluster.state) / "nodes").glob("*")):
        for name, what in (("agent.lock", "agent"), (protocol.PID_FILE_NAME, "keeper")):
            yield from _from_pid_file(folder / name, f"{what} of {folder.name}")


def _from_pid_file(path: Path, what: str) -> Iterator[Leftover]:
    try:
        note = json.loads(path.read_text())
        pid, start_ticks = int(note["pid"]), int(note["start_ticks"])
    except (OSError, ValueError, LookupError, TypeError):
        return
    yield from (left for left in _if_alive(pid, what) if left.start_ticks == start_ticks)


def _from_environ(cluster: ClusterSpec, *, attempts: str = "") -> Iterator[Leftover]:
    """Yield keepers, ranks and their children, by cluster and node in their environment, and by their output or folder.

    With `attempts` only ranks whose attempt begins so.
    """
    nodes = {folder.name for folder in (Path(cluster.state) / "nodes").glob("*")}
    for pid in procfs.read_processes():
        environment = procfs.read_environment(pid)
        is_keeper = environment.get(protocol.KEEPER_VARIABLE, "").startswith(f"{cluster.state}/")
        is_ours = environment.get("STOKER_CLUSTER") == cluster.name
        node = environment.get("STOKER_NODE")
        is_asked = environment.get("STOKER_ATTEMPT", "").startswith(attempts)
        if is_keeper and not attempts:
            yield from _if_alive(pid, "keeper")
        elif (
            not is_keeper
            and is_asked
            and is_ours
            and node in nodes
            and _touches(pid, environment, cluster.state)
        ):
            yield from _if_alive(pid, f"rank {environment.get('RANK', '?')} of {node}")


def _touches(pid: int, environment: dict[str, str], state: str) -> bool:
    paths = list(environment.values())
    for link in ("fd/1", "fd/2", "cwd"):
        with contextlib.suppress(OSError):
            paths.append(os.readlink(f"/proc/{pid}/{link}"))
    return any(path.startswith(f"{state}/") for path in paths)


def _if_alive(pid: int, what: str) -> Iterator[Leftover]:
    seen = procfs.read_process(pid)
    if seen is not None and seen.state not in "ZX":
        yield Leftover(pid=pid, start_ticks=seen.start_ticks, what=what)


def _used_shared_memory() -> frozenset[str]:
    used: set[str] = set()
    prefix = f"{SHARED_MEMORY}/"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text(errors="replace")
            links = [os.readlink(link) for link in (process / "fd").iterdir()]
        except OSError:
            # It ended, or belongs to another user.
            continue
        used |= {
            line.partition(prefix)[2].split(" ")[0] for line in maps.splitlines() if prefix in line
        }
        used |= {link.removeprefix(prefix) for link in links if link.startswith(prefix)}
    return frozenset(used)
