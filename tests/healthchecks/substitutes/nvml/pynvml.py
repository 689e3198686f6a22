"""In place of `pynvml` on PYTHONPATH: nvidia-ml-py itself, with a recording where the driver's library would be.

All of nvidia-ml-py runs, its structures and error codes included; the functions of libnvidia-ml.so.1 answer what NVML_RECORDING,
an output of `nvidia-smi -q -x`, says of that machine. NVML_LINKS is an output of `nvidia-smi nvlink -s`. NVML_FAULT is what goes
wrong: `hang FUNCTION`, `stop FUNCTION` (the process dies within a line), or `error FUNCTION CODE`. NVML_COUNTS has counters at each
look, the last of which stays: {"GPU.LINK.replays": [0, 3, 6]}.
"""

import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from healthchecks.devices.nvidia_smi import parse
from healthchecks.devices.readings import Reading

OWN_FOLDER = str(Path(__file__).parent)


def _real_module() -> Any:
    places = [place for place in sys.path if os.path.abspath(place or ".") != OWN_FOLDER]
    spec = importlib.machinery.PathFinder.find_spec("pynvml", places)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


nvml = _real_module()
# Key of a reading -> function whose last argument is where one number goes.
PLAIN = {
    "nvmlDeviceGetPersistenceMode": "persistence",
    "nvmlDeviceGetRetiredPagesPendingStatus": "pending_retirements",
    "nvmlDeviceGetCurrentClocksEventReasons": "clock_reasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons": "clock_reasons",
    "nvmlDeviceGetPerformanceState": "pstate",
    "nvmlDeviceGetCurrPcieLinkWidth": "pcie_width",
    "nvmlDeviceGetMaxPcieLinkWidth": "pcie_max_width",
    "nvmlDeviceGetCurrPcieLinkGeneration": "pcie_generation",
    "nvmlDeviceGetMaxPcieLinkGeneration": "pcie_max_generation",
    "nvmlDeviceGetTemperature": "temperature",
}
# Functions that drivers of before 535 do not have.
NEWER = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMarginTemperature"}
Function = Callable[..., int]


class Library:
    """What the driver's library would be: its functions, by name, which write into what they are given."""

    def __init__(self) -> None:
        links = Path(os.environ["NVML_LINKS"]).read_bytes() if "NVML_LINKS" in os.environ else b""
        recording = Path(os.environ["NVML_RECORDING"]).read_bytes()
        self._survey = parse(recording, (links,))
        self._fault = os.environ.get("NVML_FAULT", "").split()
        self._counts: dict[str, list[int]] = json.loads(os.environ.get("NVML_COUNTS", "{}"))
        self._looks: Counter[str] = Counter()
        self._is_old = int(self._system("driver").split(".")[0]) < 535

    def __getattr__(self, name: str) -> Function:
        if self._is_old and name in NEWER:
            raise AttributeError(name)
        if name in PLAIN:
            function = self._plain(PLAIN[name])
        else:
            function = object.__getattribute__(self, f"_{name}")
        return lambda *arguments: self._fault_code(name) or function(*arguments)

    def _fault_code(self, name: str) -> int:
        """Return the error that a call of this function gives; 0 for none."""
        if self._fault[1:2] != [name]:
            return 0
        match self._fault:
            case ["hang", _]:
                time.sleep(600)
            case ["stop", _]:
                os.write(1, b'{"device": 0, "key": "ecc_corr')
                os._exit(7)
            case ["error", _, code]:
                return int(code)
        return 0

    def _system(self, key: str) -> str:
        return self._survey.system.last(key).text

    def _reading(self, handle: Any, key: str) -> Reading:
        reading: Reading = self._survey.devices[handle.index].last(key)
        return reading

    def _plain(self, key: str) -> Function:
        return lambda handle, *others: self._put(others[-1], self._reading(handle, key))

    def _put(self, place: Any, reading: Reading) -> int:
        if reading.value is None:
            code: int = nvml.NVML_ERROR_NOT_SUPPORTED if reading.is_absent else 999
            return code
        place._obj.value = int(reading.value)
        return 0

    def _nvmlInitWithFlags(self, flags: int) -> int:
        return 0

    def _nvmlErrorString(self, code: int) -> bytes:
        return f"error {code}".encode()

    def _nvmlDeviceGetCount_v2(self, place: Any) -> int:
        return self._put(place, Reading(value=len(self._survey.devices)))

    def _nvmlSystemGetDriverVersion(self, place: Any, size: Any) -> int:
        place.value = self._system("driver").encode()
        return 0

    def _nvmlSystemGetCudaDriverVersion(self, place: Any) -> int:
        major, minor = self._system("cuda").split(".")
        return self._put(place, Reading(value=int(major) * 1000 + int(minor) * 10))

    def _nvmlDeviceGetHandleByIndex_v2(self, index: Any, place: Any) -> int:
        place._obj.index = index.value
        if self._reading(place._obj, "usable").value == 0:
            lost: int = nvml.NVML_ERROR_GPU_IS_LOST
            return lost
        return 0

    def _nvmlDeviceGetPciInfo_v3(self, handle: Any, place: Any) -> int:
        name = self._survey.devices[handle.index].name
        place._obj.busId = name.partition("(")[2].rstrip(")").encode()
        return 0

    def _nvmlDeviceGetName(self, handle: Any, place: Any, size: Any) -> int:
        place.value = self._reading(handle, "name").text.encode()
        return 0

    def _nvmlDeviceGetUUID(self, handle: Any, place: Any, size: Any) -> int:
        place.value = self._reading(handle, "uuid").text.encode()
        return 0

    def _nvmlDeviceGetMigMode(self, handle: Any, current: Any, pending: Any) -> int:
        return self._put(current, self._reading(handle, "mig"))

    def _nvmlDeviceGetEccMode(self, handle: Any, current: Any, pending: Any) -> int:
        return self._put(current, self._reading(handle, "ecc_enabled"))

    def _nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, window: Any, place: Any) -> int:
        uncorrected = kind.value == nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        key = "ecc_uncorrected" if uncorrected else "ecc_corrected"
        return self._put(place, self._reading(handle, key))

    def _nvmlDeviceGetMemoryErrorCounter(self, handle: Any, *others: Any) -> int:
        assert others[2].value == nvml.NVML_MEMORY_LOCATION_SRAM
        return self._put(others[-1], self._reading(handle, "sram_uncorrected"))

    def _nvmlDeviceGetRemappedRows(self, handle: Any, *places: Any) -> int:
        keys = ("uncorrectable_remaps", "pending_remaps", "failed_remaps")
        return max(
            self._put(place, self._reading(handle, key))
            for place, key in zip(places[1:], keys, strict=True)
        )

    def _nvmlDeviceGetRetiredPages(self, handle: Any, cause: Any, count: Any, pages: Any) -> int:
        """All retired pages are of the first cause; the recording has their sum alone."""
        reading = self._reading(handle, "retired_pages")
        if cause.value != 0 and reading.value is not None:
            reading = Reading(value=0)
        return self._put(count, reading)

    def _nvmlDeviceGetMarginTemperature(self, handle: Any, place: Any) -> int:
        driver = int(self._system("driver").split(".")[0])
        if driver < 550:
            absent: int = nvml.NVML_ERROR_NOT_SUPPORTED
            return absent
        place._obj.marginTemperature = int(self._reading(handle, "slowdown_margin").value or 0)
        return 0

    def _nvmlDeviceGetTemperatureThreshold(self, handle: Any, kind: Any, place: Any) -> int:
        if kind.value == nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
            margin = self._reading(handle, "slowdown_margin").value or 0
            temperature = self._reading(handle, "temperature").value or 0
            return self._put(place, Reading(value=temperature + margin))
        # The stand-in's memory is at 40 degrees.
        margin = self._reading(handle, "memory_margin").value or 0
        return self._put(place, Reading(value=40 + margin))

    def _nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, place: Any) -> int:
        return self._put(place, self._reading(handle, "sm_clock"))

    def _nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, place: Any) -> int:
        return self._put(place, self._reading(handle, "max_sm_clock"))

    def _nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, place: Any) -> int:
        watts = self._reading(handle, "power_limit").value
        return self._put(place, Reading(value=None if watts is None else 1000 * watts))

    def _nvmlDeviceGetPowerUsage(self, handle: Any, place: Any) -> int:
        watts = self._reading(handle, "power")
        return self._put(place, watts if watts.value is None else Reading(value=1000 * watts.value))

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, places: Any) -> int:
        pids = [
            int(word)
            for word in self._reading(handle, "processes").text.split()
            if word.isdecimal()
        ]
        if places is not None:
            for place, pid in zip(places, pids, strict=False):
                place.pid = pid
        count._obj.value = len(pids)
        short: int = nvml.NVML_ERROR_INSUFFICIENT_SIZE
        return short if places is None and pids else 0

    def _nvmlDeviceGetGpuFabricInfo(self, handle: Any, place: Any) -> int:
        reading = self._reading(handle, "fabric_state")
        if reading.value is None:
            absent: int = nvml.NVML_ERROR_NOT_SUPPORTED
            return absent
        place._obj.state = int(reading.value)
        place._obj.status = 999 if reading.text.startswith("status") else 0
        return 0

    def _nvmlDeviceGetNvLinkState(self, handle: Any, link: int, place: Any) -> int:
        key = f"link{link}.active"
        if key not in self._survey.devices[handle.index].series:
            invalid: int = nvml.NVML_ERROR_INVALID_ARGUMENT
            return invalid
        return self._put(place, self._reading(handle, key))

    def _nvmlDeviceGetFieldValues(self, handle: Any, count: Any, places: Any) -> int:
        for place in places._obj:
            reading = self._field(handle, place.fieldId, place.scopeId)
            place.valueType = nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            place.nvmlReturn = 0 if reading.value is not None else nvml.NVML_ERROR_NOT_SUPPORTED
            place.value.ullVal = int(reading.value or 0)
        return 0

    def _field(self, handle: Any, number: int, link: int) -> Reading:
        if number == nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
            return self._reading(handle, "recovery_action")
        if number == nvml.NVML_FI_DEV_MEMORY_TEMP:
            margin = self._reading(handle, "memory_margin")
            return margin if margin.value is None else Reading(value=40)
        seconds = {
            nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "hardware_thermal_seconds",
            nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "power_brake_seconds",
        }
        if number in seconds:
            counted = self._reading(handle, seconds[number])
            return counted if counted.value is None else Reading(value=counted.value * 1e9)
        keys = {
            nvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY: "replays",
            nvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY: "recoveries",
        }
        if number not in keys or self._is_old:
            return Reading()
        return Reading(value=self._link_count(handle, link, keys[number]))

    def _nvmlDeviceGetNvLinkErrorCounter(
        self, handle: Any, link: int, kind: int, place: Any
    ) -> int:
        recovery = kind == nvml.NVML_NVLINK_ERROR_DL_RECOVERY
        count = self._link_count(handle, link, "recoveries" if recovery else "replays")
        return self._put(place, Reading(value=count))

    def _nvmlDeviceGetPcieReplayCounter(self, handle: Any, place: Any) -> int:
        if f"{handle.index}.pcie_replays" in self._counts:
            return self._put(place, Reading(value=self._count(f"{handle.index}.pcie_replays")))
        return self._put(place, self._reading(handle, "pcie_replays"))

    def _link_count(self, handle: Any, link: int, key: str) -> int:
        return self._count(f"{handle.index}.{link}.{key}")

    def _count(self, name: str) -> int:
        counts = self._counts.get(name, [0])
        self._looks[name] += 1
        return counts[min(self._looks[name], len(counts)) - 1]


nvml.nvmlLib = Library()
sys.modules[__name__] = nvml
