"""A control group with a memory limit of its own, for what the kernel does to processes that go beyond it."""

import contextlib
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")
LEFT_SECONDS = 10.0


@contextmanager
def memory_limit(num_bytes: int) -> Iterator[Path]:
    """Make a control group, yield the file into which a process writes its pid to join, and remove the group.

    Skips the test where no group can be had, or the kernel's log cannot be read.
    """
    # version 1 of control groups
    is_first = (ROOT / "memory").is_dir()
    group = (ROOT / "memory" if is_first else ROOT) / f"stoker-test-{uuid.uuid4().hex[:8]}"
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
        group.mkdir()
        (group / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(num_bytes))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group with a memory limit here, or no kernel log: {error}")
    try:
        yield group / ("tasks" if is_first else "cgroup.procs")
    finally:
        deadline = time.monotonic() + LEFT_SECONDS
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
