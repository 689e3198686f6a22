"""Gangs of ranks for a benchmark, forked from this process after it has imported what they need: a start takes a second.

One socket per rank is read here; the caller decides which packet is a step. The process must have one thread and have
run no tensor operation, so that its children are sound.
"""

import ctypes
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
MAX_PACKET_BYTES = 64 * 1024
ERROR_TAIL_BYTES = 2000

# Runs in the rank: its number and its end of the socket; returns the exit code.
RankMain = Callable[[int, socket.socket], int]


@dataclass(frozen=True, slots=True)
class _Rank:
    pid: int
    connection: socket.socket
    errors: Path


def free_port() -> int:
    """Return a TCP port that is free at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def stamps_of(
    rank_main: RankMain,
    *,
    num_ranks: int,
    is_step: Callable[[bytes], bool],
    folder: Path,
    timeout_seconds: float,
) -> list[float]:
    """Run a gang to its end; return when each step of rank 0 was received here, in seconds of the monotonic clock.

    Raises RuntimeError with the first rank's last output when one does not end with 0 in time.
    """
    num_threads = len(os.listdir("/proc/self/task"))
    if num_threads != 1:
        raise RuntimeError(
            f"this process has {num_threads} threads: ranks forked from it would hang"
        )
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    ranks = [_fork(rank_main, number, num_ranks, folder) for number in range(num_ranks)]
    deadline = time.monotonic() + timeout_seconds
    try:
        stamps = _listen(ranks, is_step, deadline)
    finally:
        codes = [_wait(rank, deadline) for rank in ranks]
    for number, code in enumerate(codes):
        if code:
            errors = ranks[number].errors.read_text(errors="replace")[-ERROR_TAIL_BYTES:]
            raise RuntimeError(f"rank {number} ended with {code}:\n{errors}")
    return stamps


def _listen(ranks: list[_Rank], is_step: Callable[[bytes], bool], deadline: float) -> list[float]:
    """Drain all sockets until every rank has closed its own."""
    stamps = []
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.connection, selectors.EVENT_READ, rank)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(timeout=1.0):
                packet = key.data.connection.recv(MAX_PACKET_BYTES)
                now = time.monotonic()
                if not packet:
                    selector.unregister(key.fileobj)
                elif key.data is ranks[0] and is_step(packet):
                    stamps.append(now)
    return stamps


def _wait(rank: _Rank, deadline: float) -> int:
    """Reap a rank, killing it at the deadline; return its exit code, negative for a signal."""
    rank.connection.close()
    while True:
        pid, status = os.waitpid(rank.pid, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(rank.pid, signal.SIGKILL)
        time.sleep(0.01)


def _fork(rank_main: RankMain, number: int, num_ranks: int, folder: Path) -> _Rank:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    errors = folder / f"rank{number}.err"
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return _Rank(pid, ours, errors)
    code = 1
    try:
        # The kernel ends a rank whose starter is gone, so that nothing outlives a benchmark.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        ours.close()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
        os.environ.update(
            RANK=str(number),
            LOCAL_RANK=str(number),
            WORLD_SIZE=str(num_ranks),
            LOCAL_WORLD_SIZE=str(num_ranks),
            LOCAL_SIZE=str(num_ranks),
        )
        code = rank_main(number, theirs)
    except BaseException:  # noqa: BLE001 - a forked child must not return into its parent's code
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
