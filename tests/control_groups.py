"""Control groups of their own: for what the kernel does to processes that go beyond a limit, or that get hardly any processor."""

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
PERIOD_MICROSECONDS = 100_000


@contextmanager
def memory_limit(num_bytes: int) -> Iterator[Path]:
    """Make a control group, yield the file into which a process writes its pid to join, and remove the group.

    Skips the test where no group can be had, or the kernel's log cannot be read.
    """
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"no kernel log: {error}")
    limits = {"memory.limit_in_bytes": f"{num_bytes}"}, {"memory.max": f"{num_bytes}"}
    with _group("memory", *limits) as tasks:
        yield tasks


@contextmanager
def processor_limit(ratio: float) -> Iterator[Path]:
    """Make a control group of processes that get this much of one processor together; as `memory_limit` otherwise."""
    quota = int(ratio * PERIOD_MICROSECONDS)
    first = {"cpu.cfs_period_us": f"{PERIOD_MICROSECONDS}", "cpu.cfs_quota_us": f"{quota}"}
    with _group("cpu", first, {"cpu.max": f"{quota} {PERIOD_MICROSECONDS}"}) as tasks:
        yield tasks


@contextmanager
def _group(controller: str, first: dict[str, str], second: dict[str, str]) -> Iterator[Path]:
    """Make a group with the files of version 1 or 2 of control groups; skip the test where that cannot be done."""
    is_first = (ROOT / controller).is_dir()
    group = (ROOT / controller if is_first else ROOT) / f"stoker-test-{uuid.uuid4().hex[:8]}"
    try:
        group.mkdir()
        for name, text in (first if is_first else second).items():
            (group / name).write_text(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group with a limit of {controller} here: {error}")
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
