"""Start of a keeper: options, lock, socket and pid file of the node's folder."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import sys
import time
from pathlib import Path

from runner.keeper.child import libc
from runner.keeper.keeper import Keeper
from runner.keeper.procfs import read_process
from runner.keeper.protocol import LOCK_NAME, PID_FILE_NAME, PROTOCOL, SOCKET_NAME

_PR_SET_CHILD_SUBREAPER = 36
# For the keeper before this one to be gone; chosen.
_LOCK_WAIT_SECONDS = 2.0


def main() -> int:
    """Serve the node folder given on the command line; print `ready` once agents may connect."""
    parser = argparse.ArgumentParser(description="Parent of a node's ranks; started by an agent.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--hard-cap-seconds", type=float, default=0.0)
    parser.add_argument("--kill-wait-seconds", type=float, default=1.0)
    options = parser.parse_args()
    # Names in here are short enough for a socket's address, wherever the folder is.
    os.chdir(options.folder)
    lock = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _lock(lock):
        sys.stderr.write(f"another keeper serves {options.folder}\n")
        return 1
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    listener = _listen()
    _write_pid_file()
    os.write(1, b"ready\n")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    Keeper(options).run(listener)
    for name in (SOCKET_NAME, PID_FILE_NAME):
        Path(name).unlink(missing_ok=True)
    return 0


def _lock(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _listen() -> socket.socket:
    Path(SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A process that may connect may start programs as us.
    before = os.umask(0o177)
    listener.bind(SOCKET_NAME)
    os.umask(before)
    listener.listen(8)
    return listener


def _write_pid_file() -> None:
    """Write down who we are, for an agent or a probe that looks from outside."""
    me = read_process(os.getpid())
    assert me is not None
    scratch = Path(f"{PID_FILE_NAME}.{me.pid}")
    scratch.write_text(
        json.dumps({"pid": me.pid, "start_ticks": me.start_ticks, "protocol": PROTOCOL})
    )
    scratch.rename(PID_FILE_NAME)
