"""The ranks below a process that Stoker did not start: which they are, where they write, and how they ended. Reads /proc alone."""

import contextlib
import fcntl
import os
import pwd
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from runner.errors import UserError
from runner.keeper.procfs import Process, read_bytes, read_environment, read_process, read_processes
from runner.watch.programs import NO_RANKS_THEMSELVES

# Variables that name a rank, how many there are, and what must be there besides: RANK alone may be that of a node.
SOURCES: tuple[tuple[str, str, str], ...] = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ""),
    ("PMIX_RANK", "", ""),
    ("PMI_RANK", "PMI_SIZE", ""),
    ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ("RANK", "WORLD_SIZE", ""),
)
# include/uapi/linux/pidfd.h: mask, control group, eleven ids, and the exit status; and the ioctl that asks for them.
_PIDFD_INFO = struct.Struct("=QQ11Ii")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 3 << 30 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11
# Of a tree; more is no run's. Chosen.
MAX_PROCESSES = 20_000
# Words of a command line in which a launcher's name is looked for: an interpreter, its options, and the program.
_PROGRAM_WORDS = 6


class OutputStream(NamedTuple):
    """Where a process writes. `path`: of a regular file, "" otherwise; `pipe`: inode of a pipe, 0 otherwise."""

    path: str = ""
    pipe: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProcess:
    """One rank. `start_ticks` makes its pid unique."""

    rank: int
    pid: int
    start_ticks: int
    streams: tuple[OutputStream, OutputStream] = (OutputStream(), OutputStream())


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRanks:
    """The ranks of this machine, by their number. `world_size`: of all machines, None: no variable says so.

    `is_named`: variables say which rank is which; otherwise the one process that is no launcher counts as rank 0.
    """

    ranks: Mapping[int, RankProcess]
    world_size: int | None = None
    master_address: str = ""
    is_named: bool = False


NO_RANKS = FoundRanks(ranks={})


def find_ranks(root: int, proc: str = "/proc") -> FoundRanks:
    """Find the ranks among a process and what it started; those of the newest gang, if one ends as the next begins.

    Raises UserError where the process belongs to another user.
    """
    tree = _tree(root, proc)
    if not tree:
        return NO_RANKS
    _check_readable(root, proc)
    environments = {pid: read_environment(pid, proc) for pid in tree}
    for name, size_name, also in SOURCES:
        named = {
            pid: int(environment[name])
            for pid, environment in environments.items()
            if _is_number(environment.get(name, "")) and (not also or also in environment)
        }
        tops = {pid: rank for pid, rank in named.items() if named.get(tree[pid].parent) != rank}
        ranks = _below_launchers(tops, tree, proc)
        if tops:
            first = environments[min(tops, key=tops.__getitem__)]
            size = first.get(size_name, "") if size_name else ""
            return FoundRanks(
                ranks=ranks,
                world_size=int(size) if _is_number(size) else None,
                master_address=first.get("MASTER_ADDR", ""),
                is_named=True,
            )
    return FoundRanks(ranks=_below_launchers({root: 0}, tree, proc))


class WatchedProcess:
    """A process that is no child of ours, held by a pidfd: `descriptor` is readable once it has ended.

    Its exit code is read from outside: as long as the parent has not asked for it, or, from Linux 6.15 on, at any time after.
    """

    def __init__(self, pid: int, start_ticks: int, proc: str = "/proc") -> None:
        self.pid, self.start_ticks, self._proc = pid, start_ticks, proc
        self.descriptor: int | None = None
        # It may have ended; then it is found so.
        with contextlib.suppress(OSError):
            self.descriptor = os.pidfd_open(pid)

    @property
    def is_alive(self) -> bool:
        """Whether this very process has not ended."""
        process = read_process(self.pid, self._proc)
        is_there = process is not None and process.start_ticks == self.start_ticks
        return is_there and process is not None and process.state not in "ZX"

    def exit_code(self) -> int | None:
        """Return how it ended, negative for a signal; None: it has not, or that was given to its parent alone."""
        process = read_process(self.pid, self._proc)
        if process is not None and process.start_ticks == self.start_ticks:
            if process.state != "Z":
                return None
            text = read_bytes(f"{self._proc}/{self.pid}/stat")
            # Field 52 of proc(5), as waitpid returns it: readable of processes of one's own user.
            fields = text[text.rindex(b")") + 2 :].split() if text else []
            if len(fields) >= 50:
                return os.waitstatus_to_exitcode(int(fields[49]))
        return self._code_after_the_end()

    def _code_after_the_end(self) -> int | None:
        """Ask the kernel for the exit code of a process that is reaped; it keeps that as long as there is a pidfd."""
        if self.descriptor is None:
            return None
        info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
        try:
            fcntl.ioctl(self.descriptor, _PIDFD_GET_INFO, info)
        except OSError:
            # An older kernel.
            return None
        mask, *_, status = _PIDFD_INFO.unpack(info)
        return os.waitstatus_to_exitcode(status) if mask & _PIDFD_INFO_EXIT else None

    def close(self) -> None:
        """Let go of it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 8


def _tree(root: int, proc: str) -> dict[int, Process]:
    """Return a process and all below it that have not ended, parents first."""
    first = read_process(root, proc)
    if first is None or first.state in "ZX":
        return {}
    found = {root: first}
    # A kernel without lists of children has all processes read.
    everything = (
        None if Path(f"{proc}/{root}/task/{root}/children").exists() else read_processes(proc)
    )
    pending = [root]
    while pending and len(found) < MAX_PROCESSES:
        pid = pending.pop(0)
        for child in _children(pid, proc, everything):
            process = read_process(child, proc)
            if process is not None and process.state not in "ZX" and child not in found:
                found[child] = process
                pending.append(child)
    return found


def _children(pid: int, proc: str, everything: Mapping[int, Process] | None) -> list[int]:
    if everything is not None:
        return [child.pid for child in everything.values() if child.parent == pid]
    try:
        threads = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        # It has ended meanwhile.
        return []
    texts = [read_bytes(f"{proc}/{pid}/task/{thread}/children") for thread in threads]
    return [int(word) for text in texts for word in text.split()]


def _check_readable(pid: int, proc: str) -> None:
    """Raise UserError unless the environment of a process may be read."""
    path = f"{proc}/{pid}/environ"
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except PermissionError as error:
        owner = os.stat(f"{proc}/{pid}").st_uid
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        raise UserError(
            f"process {pid} belongs to {name}, and its environment may not be read; run watch-only as {name} or as root, or "
            "give its logs alone: --logs GLOB"
        ) from error
    except OSError:
        # It has ended meanwhile.
        return


def _below_launchers(
    tops: Mapping[int, int], tree: Mapping[int, Process], proc: str
) -> dict[int, RankProcess]:
    """Return the rank at or below each process: the first that is no launcher, the oldest of several."""
    ranks: dict[int, RankProcess] = {}
    for pid, rank in tops.items():
        found = _first_worker(pid, tree, proc)
        if found is None:
            continue
        known = ranks.get(rank)
        if known is None or found.start_ticks > known.start_ticks:
            ranks[rank] = RankProcess(
                rank=rank,
                pid=found.pid,
                start_ticks=found.start_ticks,
                streams=(_stream(found.pid, 1, proc), _stream(found.pid, 2, proc)),
            )
    return dict(sorted(ranks.items()))


def _first_worker(pid: int, tree: Mapping[int, Process], proc: str) -> Process | None:
    pending = [pid]
    while pending:
        pid = pending.pop(0)
        if not is_launcher(pid, proc):
            return tree[pid]
        below = [process for process in tree.values() if process.parent == pid]
        pending += [child.pid for child in sorted(below, key=lambda one: one.start_ticks)]
    return None


def is_launcher(pid: int, proc: str = "/proc") -> bool:
    """Whether a process starts others and trains nothing, by its command line."""
    raw = read_bytes(f"{proc}/{pid}/cmdline").split(b"\0")
    words = [os.fsdecode(word) for word in raw if word][:_PROGRAM_WORDS]
    if not words:
        # It is about to end.
        return True
    if os.path.basename(words[0]) in NO_RANKS_THEMSELVES:
        return True
    if not os.path.basename(words[0]).startswith(("python", "pypy")):
        return False
    for before, word in pairwise(words):
        if before == "-m":
            return word in NO_RANKS_THEMSELVES
        if not word.startswith("-"):
            # The script: torchrun is one.
            return os.path.basename(word) in NO_RANKS_THEMSELVES
    return False


def _stream(pid: int, descriptor: int, proc: str) -> OutputStream:
    """Return where a descriptor of a process leads to."""
    link = f"{proc}/{pid}/fd/{descriptor}"
    try:
        target, state = os.readlink(link), os.stat(link)
    except OSError:
        return OutputStream()
    if stat.S_ISREG(state.st_mode) and not target.endswith(" (deleted)"):
        return OutputStream(path=target)
    return OutputStream(pipe=state.st_ino) if stat.S_ISFIFO(state.st_mode) else OutputStream()
