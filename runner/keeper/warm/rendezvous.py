"""A head start for rank 0: it listens before the others connect."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time

from runner.keeper.warm.forks import ForkSlot

# Rank 0's head start to listen where the others will connect: torch's client waits 0.25 to 0.75 s after a connection that was
# refused (measured, 2.13). A rank 0 that was forked listens after some 30 ms; one that never does costs no more than this.
_HEAD_START_SECONDS = 0.25
# Between looks for a listener; doubles up to the second. Both chosen.
_POLL_SECONDS = (0.002, 0.02)


def await_rendezvous(slot: ForkSlot) -> None:
    """Let rank 0 listen before the others connect. One rank of a node looks for it, the others wait at the latch."""
    reader, writer = slot.rendezvous_latch
    followers = [rank["rank"] for rank in slot.job["ranks"] if rank["rank"] != 0]
    if slot.rank["rank"] not in followers:
        return
    deadline = time.monotonic() + _HEAD_START_SECONDS
    if slot.rank["rank"] != followers[0]:
        os.close(writer)
        select.select([reader], [], [], _HEAD_START_SECONDS)
        return
    if not _is_local_address(os.environ["MASTER_ADDR"]):
        # Whether it listens cannot be seen from here.
        return
    port = int(os.environ["MASTER_PORT"])
    pause, longest = _POLL_SECONDS
    while time.monotonic() < deadline and not _is_listened_on(port):
        time.sleep(pause)
        pause = min(2 * pause, longest)


def _is_local_address(address: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def _is_listened_on(port: int) -> bool:
    """Look for a listener without connecting: a script's rank 0 may take the first connection for its peer."""
    wanted = b":%04X" % port
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(path, "rb") as table:
            for line in table:
                fields = line.split(None, 4)
                # 0A is the state LISTEN.
                if fields[1].endswith(wanted) and fields[3] == b"0A":
                    return True
    return False
