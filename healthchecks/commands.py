"""Commands under a deadline: each in a process group of its own, which is gone afterwards, whatever the command does.

What may hang runs here: a check, a library of a driver, a vendor's tool, a look at a mount. Several run side by side until one
deadline, so that the slowest one decides how long they take.
"""

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# For SIGKILL to take effect; a process in uninterruptible sleep stays longer. Chosen, not measured.
KILL_SECONDS = 2.0
# Of a child's output; a verdict is a few KB.
MAX_OUTPUT_BYTES = 1 << 20
# From prctl(2).
PR_SET_PDEATHSIG = 1

_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a child ended. `code` is as in subprocess, None when not even SIGKILL ended it; `hung`: the deadline passed."""

    pid: int
    code: int | None
    hung: bool
    output: bytes
    errors: bytes


def run_until(command: Sequence[str], deadline_seconds: float) -> Ending:
    """Run a command until it ends or `deadline_seconds` have passed; afterwards its process group is gone.

    Its output goes to memory, not to a pipe that a grandchild could hold open, nor to a disk that may be full.
    Raises OSError when it cannot be started.
    """
    child = _Child(command)
    try:
        return child.end_by(time.monotonic() + deadline_seconds)
    finally:
        child.close()


def run_together(
    commands: Mapping[str, Sequence[str]], deadline_seconds: float
) -> dict[str, Ending | OSError]:
    """Run commands side by side until all have ended or the deadline has passed; OSError for one that cannot be started."""
    endings = dict(as_they_end(commands, dict.fromkeys(commands, deadline_seconds)))
    return {name: endings[name] for name in commands}


def as_they_end(
    commands: Mapping[str, Sequence[str]], deadline_seconds: Mapping[str, float]
) -> Iterator[tuple[str, Ending | OSError]]:
    """Run commands side by side, each until its own deadline; yield how each ended, as it ends. OSError: it cannot be started."""
    began = time.monotonic()
    children: dict[str, _Child] = {}
    failed: dict[str, OSError] = {}
    try:
        for name, command in commands.items():
            try:
                children[name] = _Child(command)
            except OSError as error:
                failed[name] = error
        yield from failed.items()
        deadlines = {name: began + deadline_seconds[name] for name in children}
        while deadlines:
            name = _next_to_end({children[name].pid: name for name in deadlines}, deadlines)
            yield name, children[name].end_by(deadlines.pop(name))
    finally:
        for child in children.values():
            child.close()


def _next_to_end(names: Mapping[int, str], deadlines: Mapping[str, float]) -> str:
    """Wait until a process has ended or its deadline has passed; return its name. `names` are by pid."""
    first = min(deadlines, key=lambda name: deadlines[name])
    poll, handles = select.poll(), {}
    try:
        for pid, name in names.items():
            handle = os.pidfd_open(pid)
            handles[handle] = name
            poll.register(handle, select.POLLIN)
        ended = poll.poll(max(0.0, deadlines[first] - time.monotonic()) * 1000)
        return handles[ended[0][0]] if ended else first
    finally:
        for handle in handles:
            os.close(handle)


class _Child:
    def __init__(self, command: Sequence[str]) -> None:
        self._out, self._err = os.memfd_create("output"), os.memfd_create("errors")
        self._parent = os.getpid()
        self._hung: bool | None = None
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=self._err,
                start_new_session=True,
                preexec_fn=self._die_with_parent,
            )
        except BaseException:
            self._close_files()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def end_by(self, deadline: float) -> Ending:
        """Wait for the child's end until the deadline, then kill its group."""
        pid = self.pid
        try:
            self._hung = not _ends_within(pid, deadline - time.monotonic())
        finally:
            code = self._kill()
        output, errors = (os.pread(file, MAX_OUTPUT_BYTES, 0) for file in (self._out, self._err))
        return Ending(pid=pid, code=code, hung=self._hung, output=output, errors=errors)

    def close(self) -> None:
        """Kill the group if it was not, and free what the child's output took."""
        if self._hung is None:
            self._kill()
        self._close_files()

    def _kill(self) -> int | None:
        # Not reaped yet, so no other group can have its number.
        os.killpg(self.pid, signal.SIGKILL)
        try:
            return self._process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def _die_with_parent(self) -> None:
        """End with the process that enforces the deadline, which may itself be killed."""
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._parent:
            os.kill(os.getpid(), signal.SIGKILL)

    def _close_files(self) -> None:
        os.close(self._out)
        os.close(self._err)


def _ends_within(pid: int, seconds: float) -> bool:
    handle = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))
    finally:
        os.close(handle)
