"""A child process under a hard deadline: checks run in one, and so does what a check starts itself."""

import os
import select
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

# For one check: at least, and of the time that it may take at its level; chosen: some ten times what the slowest short one takes on
# two busy cores.
DEADLINE_SECONDS, DEADLINE_FACTOR = 30.0, 2.0
# For SIGKILL to take effect; a process in uninterruptible sleep stays longer. Chosen, not measured.
KILL_SECONDS = 2.0
# Of a child's output; a verdict is a few KB.
MAX_OUTPUT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a child ended. `code` is as in subprocess, None when not even SIGKILL ended it; `hung`: the deadline passed."""

    pid: int
    code: int | None
    hung: bool
    output: bytes
    errors: bytes


def deadline_of(seconds: float) -> float:
    """Return the deadline of a check that may take so long."""
    return max(DEADLINE_SECONDS, DEADLINE_FACTOR * seconds)


def run_until(command: Sequence[str], deadline_seconds: float) -> Ending:
    """Run a command until it ends or `deadline_seconds` have passed; afterwards its process group is gone.

    Its output goes to memory, not to a pipe that a grandchild could hold open, nor to a disk that may be full.
    Raises OSError when it cannot be started.
    """
    out, err = os.memfd_create("output"), os.memfd_create("errors")
    try:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            hung = not _ends_within(child.pid, deadline_seconds)
        finally:
            # Not reaped yet, so no other group can have its number.
            os.killpg(child.pid, signal.SIGKILL)
            code = _reap(child)
        output, errors = os.pread(out, MAX_OUTPUT_BYTES, 0), os.pread(err, MAX_OUTPUT_BYTES, 0)
        return Ending(pid=child.pid, code=code, hung=hung, output=output, errors=errors)
    finally:
        os.close(out)
        os.close(err)


def _ends_within(pid: int, seconds: float) -> bool:
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))
    finally:
        os.close(handle)


def _reap(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(KILL_SECONDS)
    except subprocess.TimeoutExpired:
        return None
