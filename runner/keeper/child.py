"""Children of the keeper: started as a user, in a folder, so that they die with the keeper."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from typing import Any

from runner.keeper.protocol import Message

EXIT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def start_child(command: list[str], *, user: Message | None, folder: str, **options: Any) -> int:
    """Start a process in a folder, as a user (name, uid, gid) or, None, as the keeper itself; return its pid.

    The main loop reaps it. Raises OSError, ValueError or SubprocessError when it cannot be started.
    """
    keeper = os.getpid()
    reader, writer = os.pipe()
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            # A folder that only the user may enter is entered as the user.
            cwd=None if user else folder or None,
            # Safe: the keeper has one thread.
            preexec_fn=lambda: _become_child(user, folder, keeper=keeper, errors=writer),
            **options,
        )
    except subprocess.SubprocessError as error:
        os.set_blocking(reader, False)
        try:
            reason = os.read(reader, 1000).decode(errors="replace")
        except BlockingIOError:
            reason = str(error)
        raise subprocess.SubprocessError(reason) from error
    finally:
        os.close(reader)
        os.close(writer)
    # A Popen without a return code would wait for its process when it is deleted.
    child.returncode = 0
    return child.pid


def _become_child(user: Message | None, folder: str, *, keeper: int, errors: int) -> None:
    """Become the user, die with the keeper, and handle signals as a program does that was started from a shell."""
    if user is not None:
        try:
            os.initgroups(user["name"], user["gid"])
            os.setgid(user["gid"])
            os.setuid(user["uid"])
            if folder:
                os.chdir(folder)
        except OSError as error:
            os.write(errors, f"as user {user['name']}: {error}".encode())
            raise
    # After the change of user, which would undo it.
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The keeper died before the line above took effect.
    if os.getppid() != keeper:
        os._exit(1)
    for number in (*EXIT_SIGNALS, signal.SIGQUIT, signal.SIGCHLD):
        # An ignored signal would stay ignored through exec.
        signal.signal(number, signal.SIG_DFL)


def open_output(path: str, user: Message | None = None) -> int:
    """Open a file to append to, and hand it over to the user, so that `/dev/stdout` can be opened."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    if user is not None:
        # Some file systems keep root out.
        with contextlib.suppress(OSError):
            os.fchown(descriptor, user["uid"], user["gid"])
    return descriptor
