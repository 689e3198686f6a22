"""How much memory one rank's device has on this machine, without torch and without a call of a driver.

A GPU's memory is asked of nvidia-smi, which is ended when it hangs. On a CPU the ranks of a machine share what the machine or the
control group of this process has. Ranks take a GPU where there are device files of one, as `trainer.parallel.device` does.
"""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
KIB = 1 << 10
# Chosen: without persistence mode the driver first wakes every GPU.
ANSWER_SECONDS = 20.0
DEVICES = Path("/dev")
MEMORY = Path("/proc/meminfo")
GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
QUERY = ("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Bytes that one rank may use, None where that is not known, and in words where the number comes from."""

    size_bytes: int | None
    source: str


def device_memory(stated_bytes: int, ranks_here: int) -> DeviceMemory:
    """Return the memory of a rank's device: the stated number unless it is 0, else what this machine has for each of its ranks.

    `ranks_here`: ranks that this machine runs; 0: others run them, and what they have is not known.
    """
    if stated_bytes:
        return DeviceMemory(size_bytes=stated_bytes, source="device_memory_bytes")
    if not ranks_here:
        return DeviceMemory(size_bytes=None, source="the ranks run on other machines")
    if _has_gpu_files():
        return _gpu_memory()
    shared = _machine_memory()
    if shared is None:
        return DeviceMemory(size_bytes=None, source=f"{MEMORY} states no total")
    return DeviceMemory(
        size_bytes=shared // ranks_here,
        source=f"this machine's {shared} bytes, which {ranks_here} ranks share",
    )


def _has_gpu_files() -> bool:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(DEVICES.glob("nvidia[0-9]*"))


def _gpu_memory() -> DeviceMemory:
    """Return the memory of the smallest GPU."""
    try:
        done = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True
        )
        sizes = [int(line) * MIB for line in done.stdout.splitlines() if line.strip()]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return DeviceMemory(size_bytes=None, source=f"nvidia-smi does not answer: {error}")
    if not sizes:
        return DeviceMemory(size_bytes=None, source="nvidia-smi lists no GPU")
    return DeviceMemory(size_bytes=min(sizes), source=f"the smallest of {len(sizes)} GPUs here")


def _machine_memory() -> int | None:
    """Return the least of the machine's memory and the limits of this process's control groups, in bytes."""
    return min([*_total(), *_group_limits()], default=None)


def _total() -> Iterator[int]:
    for line in MEMORY.read_text(encoding="ascii").splitlines():
        name, _, size = line.partition(":")
        if name == "MemTotal":
            yield int(size.split()[0]) * KIB


def _group_limits() -> Iterator[int]:
    """Yield the limits of the groups that this process is in, and of those above; versions 2 and 1."""
    for line in OWN_GROUPS.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        mount = GROUPS / controllers
        inside = mount / path.lstrip("/")
        for folder in (inside, *inside.parents):
            for name in ("memory.max", "memory.limit_in_bytes"):
                file = folder / name
                # In a container the path is the host's and the mount is the group itself: missing folders are skipped.
                if folder.is_relative_to(mount) and file.is_file():
                    text = file.read_text(encoding="ascii").strip()
                    yield from [int(text)] if text.isdecimal() else []
