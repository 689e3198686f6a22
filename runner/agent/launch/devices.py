"""Whether the GPUs that ranks are to use are free: memory of ranks that died is released a moment later, or never.

The agent runs `nvidia-smi` with a deadline, because drivers hang. Without NVIDIA GPUs it runs nothing.

    nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader,nounits              0, GPU-5af4bc55-..., 70012
    nvidia-smi --query-compute-apps=gpu_uuid,pid,used_gpu_memory --format=...                 GPU-5af4bc55-..., 4711, 69500
    nvidia-smi --query-gpu=index,addressing_mode --format=...                                 0, ATS

Form as in NVIDIA's manual of nvidia-smi(1): MiB, and text in brackets ("[N/A]", "[Not Supported]") where there is no number.
`memory.used` leaves out what driver and firmware reserve for themselves (`memory.reserved`, from driver 510 on).
"""

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.agent.event_loop import EventLoop
from runner.errors import TemporaryError
from runner.keeper.procfs import read_environment

log = logging.getLogger("stoker.agent")

# As in NVRx: idle devices show some MiB, ranks that train tens of thousands.
FREE_MIB = 512
# Chosen: without persistence mode the driver first wakes every GPU.
ANSWER_SECONDS = 20.0
# Chosen, not measured. The pause between two queries doubles while a launch waits.
FIRST_PAUSE_SECONDS = 0.1
LAST_PAUSE_SECONDS = 1.0
WATCH_SECONDS = 5.0


class DevicesBusy(TemporaryError):
    """Memory of a device that the ranks may use was not released in time."""


class _QueryFailed(Exception):
    """nvidia-smi gave no answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU. `used_mib` None: not known."""

    index: int
    uuid: str
    used_mib: int | None


@dataclass(slots=True)
class Devices:
    """The GPUs of this machine. `wait` blocks and is for a thread of its own; the rest is for the event loop's thread.

    `on_released` is called once the devices of a failed launch are free. `folder` holds the device files.
    """

    node: str
    loop: EventLoop
    on_released: Callable[[], None]
    folder: Path = Path("/dev")
    _is_watching: bool = False
    # This one was killed and does not die.
    _stuck: "subprocess.Popen[str] | None" = None

    def program(self) -> str:
        """Return the path of nvidia-smi; "" where there is no GPU or no such program."""
        if not any(self.folder.glob("nvidia[0-9]*")):
            return ""
        return shutil.which("nvidia-smi") or ""

    def wait(
        self, environment: Mapping[str, str], seconds: float, is_wanted: Callable[[], bool]
    ) -> None:
        """Return once the devices that ranks with this environment may use are free, or `is_wanted()` is False.

        Raises DevicesBusy when they are not free in time. `seconds` 0: returns at once.
        """
        if not seconds or not self.program():
            return
        deadline = time.monotonic() + seconds
        pause_seconds = FIRST_PAUSE_SECONDS
        while reason := self.busy_reason(environment):
            if not is_wanted():
                return
            if time.monotonic() + pause_seconds >= deadline:
                raise DevicesBusy(f"{reason} after {seconds:g} s")
            time.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LAST_PAUSE_SECONDS)

    def watch(self, environment: Mapping[str, str]) -> None:
        """Query until the devices are free, then call `on_released`."""

        def query() -> None:
            self.loop.in_background(lambda: self.busy_reason(environment), on_answer)

        def on_answer(reason: str | None, error: Exception | None) -> None:
            if not self._is_watching:
                return
            if reason or error is not None:
                self.watch(environment)
            else:
                self._is_watching = False
                self.on_released()

        self._is_watching = True
        self.loop.at("devices", time.monotonic() + WATCH_SECONDS, query)

    def stop_watching(self) -> None:
        """End `watch`."""
        self._is_watching = False
        self.loop.cancel("devices")

    def busy_reason(self, environment: Mapping[str, str]) -> str:
        """Return which devices are not free, or why that is not known; "" when all are free."""
        selected = environment.get("CUDA_VISIBLE_DEVICES")
        if selected in ("", "-1"):
            return ""
        try:
            devices = visible(self._devices(), selected)
            busy = [d for d in devices if d.used_mib is not None and d.used_mib > FREE_MIB]
            used_mib = self._used_by_node(busy) if busy else {}
        except _QueryFailed as error:
            return str(error)
        return ", ".join(
            f"GPU {device.index} has {used_mib[device.uuid]} MiB in use"
            for device in busy
            if device.uuid in used_mib
        )

    def uuids(self) -> list[str]:
        """Return the UUIDs of all GPUs; none without nvidia-smi or an answer. Blocks for at most `ANSWER_SECONDS`."""
        if not self.program():
            return []
        try:
            return sorted(device.uuid for device in self._devices())
        except _QueryFailed as error:
            log.warning("the UUIDs of the GPUs are not known: %s", error)
            return []

    def _devices(self) -> list[Device]:
        lines = self._query("--query-gpu=index,uuid,memory.used")
        devices = [
            Device(index=int(line[0]), uuid=line[1], used_mib=_number(line[2]))
            for line in lines
            if len(line) == 3 and line[0].isdecimal()
        ]
        if not devices:
            reason = f"nvidia-smi knows of no GPU though there are device files: {lines[:2]}"
            raise _QueryFailed(reason)
        return devices

    def _used_by_node(self, busy: list[Device]) -> dict[str, int]:
        """Return the MiB that this node uses of each device that is not free, by UUID.

        Where several nodes share a machine, memory of other nodes' ranks is the business of their agents. Where GPU memory is
        managed as the system's own (ATS), it stays in use after its process: there only living processes count.
        """
        modes = self._modes()
        processes = self._query("--query-compute-apps=gpu_uuid,pid,used_gpu_memory")
        result = {}
        for device in busy:
            users = [line for line in processes if len(line) == 3 and line[0] == device.uuid]
            neighbours = [_number(mib) for _, pid, mib in users if self._is_neighbour(pid)]
            used = device.used_mib or 0
            # A neighbour whose share is not known may use all of it.
            rest = used - sum(used if mib is None else mib for mib in neighbours)
            has_others = len(neighbours) < len(users)
            if rest > FREE_MIB and (has_others or modes.get(str(device.index)) != "ATS"):
                result[device.uuid] = rest
        return result

    def _modes(self) -> dict[str, str]:
        try:
            lines = self._query("--query-gpu=index,addressing_mode")
        except _QueryFailed:
            # Drivers that lack this field are older than the machines where it matters.
            return {}
        return {line[0]: line[-1] for line in lines}

    def _is_neighbour(self, pid: str) -> bool:
        """Whether a process is a rank of another node on this machine; a container does not show others."""
        node = read_environment(int(pid)).get("STOKER_NODE") if pid.isdecimal() else None
        return node is not None and node != self.node

    def _query(self, query: str) -> list[list[str]]:
        """Run nvidia-smi and return the fields of its lines. Raises _QueryFailed, after `ANSWER_SECONDS` at the latest."""
        if self._stuck is not None and self._stuck.poll() is None:
            pid = self._stuck.pid
            raise _QueryFailed(f"nvidia-smi (pid {pid}) outlives SIGKILL: the driver hangs")
        self._stuck = None
        try:
            child = subprocess.Popen(
                [self.program() or "nvidia-smi", query, "--format=csv,noheader,nounits"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                encoding="utf-8",
                errors="backslashreplace",
            )
        except OSError as error:
            raise _QueryFailed(f"nvidia-smi cannot be started: {error}") from error
        try:
            output, _ = child.communicate(timeout=ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            # It is not waited for: a process that hangs in the driver does not die.
            child.kill()
            self._stuck = child
            raise _QueryFailed(f"nvidia-smi did not answer within {ANSWER_SECONDS:.0f} s") from None
        if child.returncode != 0:
            text = " ".join(output.split())[:200]
            raise _QueryFailed(f"nvidia-smi ended with {child.returncode}: {text}")
        lines = filter(str.strip, output.splitlines())
        return [[part.strip() for part in line.split(",")] for line in lines]


def visible(devices: list[Device], selected: str | None) -> list[Device]:
    """Return the devices that CUDA_VISIBLE_DEVICES selects, as CUDA reads it: all when unset, none from the first unknown on.

    The use of parts of a device (MIG-...) is not known, so they are left out.
    """
    if selected is None:
        return devices
    found = []
    for word in (part.strip() for part in selected.split(",")):
        if word.startswith("MIG-"):
            continue
        is_uuid = word.startswith("GPU-")
        match = [
            d for d in devices if word == str(d.index) or (is_uuid and d.uuid.startswith(word))
        ]
        if not match:
            break
        found += match
    return found


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
