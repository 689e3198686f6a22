"""Forking ranks by way of a middle process, so that the keeper becomes their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import time
from typing import NamedTuple

from runner.keeper.protocol import Message
from runner.keeper.warm.packets import refuse, send

_PR_SET_PDEATHSIG = 1
# For the middle process to end; chosen, it takes milliseconds.
_ADOPTION_SECONDS = 10.0


class ForkSlot(NamedTuple):
    """What a forked process is to become: one rank of a job, with its descriptors.

    `start_barrier` is readable once the keeper knows the rank. `rendezvous_latch` is a pipe: the first of this node's ranks that
    connect to rank 0 closes its writing end.
    """

    job: Message
    rank: Message
    start_barrier: int
    channel: int
    output: int
    errors: int
    rendezvous_latch: tuple[int, int]

    @property
    def environment(self) -> dict[str, str]:
        """What a fresh process would be started with."""
        channel = {"STOKER_CHANNEL": str(self.channel)}
        return {**self.job["environment"], **self.rank["environment"], **channel}


def fork_ranks(stream: socket.socket, job: Message, descriptors: list[int]) -> ForkSlot | None:
    """Fork the ranks of a job by way of a middle process; return a rank's slot in the rank, None here."""
    middle = os.fork()
    if middle:
        _, status = os.waitpid(middle, 0)
        if status:
            refuse(stream, job, f"forking ended with status {status}")
        return None
    # The keeper kills the group of a warm process that it replaces, perhaps before a rank that runs already has a group of its own.
    os.setsid()
    pids: dict[int, int] = {}
    try:
        latch = os.pipe()
        for index, rank in enumerate(job["ranks"]):
            pid = os.fork()
            if pid == 0:
                channel, output, errors = descriptors[1 + 3 * index : 4 + 3 * index]
                return ForkSlot(job, rank, descriptors[0], channel, output, errors, latch)
            pids[rank["rank"]] = pid
        send(stream, kind="forked", job=job["job"], pids=pids)
    except OSError as error:
        # They wait at the barrier, which never opens for them, and end by themselves.
        refuse(stream, job, f"cannot fork: {error}")
    os._exit(0)


def await_adoption(start_barrier: int, keeper: int) -> None:
    """Wait until the keeper knows of this rank and is its parent; end if it never will."""
    if os.read(start_barrier, 1) != b"g":
        os._exit(1)
    deadline = time.monotonic() + _ADOPTION_SECONDS
    while os.getppid() != keeper:
        if time.monotonic() > deadline:
            os._exit(1)
        time.sleep(0.0002)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The keeper died before the line above took effect.
    if os.getppid() != keeper:
        os._exit(1)
