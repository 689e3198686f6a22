"""The flight recorder of ranks that use gloo: it writes the record on request, as torch itself does with NCCL.

The agent writes to the pipe that the environment names and reads the file that it names; the variables are torch's. A thread
of its own answers, since the rank's other threads may hang.
"""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

from torch._C import _distributed_c10d as c10d

from runner.facts.contract import FLIGHT_PIPE, FLIGHT_RECORDS


def answer_requests(rank: int) -> None:
    """Start the thread that answers, if the environment names a pipe and a file, and this torch has a recorder for gloo."""
    stem, record = os.environ.get(FLIGHT_PIPE, ""), os.environ.get(FLIGHT_RECORDS[0], "")
    dump = getattr(c10d, "_dump_fr_trace", None)
    if not stem or not record or dump is None:
        return
    pipe = Path(f"{stem}{rank}.pipe")
    try:
        with contextlib.suppress(FileNotFoundError):
            pipe.unlink()
        os.mkfifo(pipe, 0o600)
        # Open for writing too, so that reading never meets an end of file.
        descriptor = os.open(pipe, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # Without a pipe the agent gets no record; training goes on.
        return
    listener = threading.Thread(
        target=_listen, args=(descriptor, Path(f"{record}{rank}"), dump), name="flight", daemon=True
    )
    listener.start()


def _listen(descriptor: int, path: Path, dump: Callable[..., bytes]) -> None:
    while os.read(descriptor, 128):
        with contextlib.suppress(OSError, RuntimeError):
            part = path.with_name(path.name + ".part")
            part.write_bytes(dump(includeStackTraces=False))
            part.rename(path)
