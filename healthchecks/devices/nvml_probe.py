"""`python -P -m healthchecks.devices.nvml_probe TOPIC NUM_SAMPLES SECONDS`: asks NVML, and prints each answer as it has it.

TOPIC: health, links, counters (what a load may raise), or load (what is sampled meanwhile).

One JSON object a line: a part that is about to be asked for, or an answer. See `readings.parse_lines`.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pynvml as nvml

# The device or the driver has no such thing.
ABSENT = frozenset(
    {
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_DEPRECATED,
        nvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    }
)
# The GPU is there no more, as far as programs are concerned.
LOST = frozenset({nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED})
VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
SYSTEM = -1
# Causes of page retirement: repeated single-bit errors, one double-bit error.
RETIREMENTS = (
    nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS,
    nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR,
)
# The fields of a link's counters, the older driver's first.
REPLAYS = (nvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS)
RECOVERIES = (
    nvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    nvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
)

Answer = float | str | tuple[float | None, str]
Question = Callable[[Any], Answer]


def main(arguments: list[str]) -> int:
    """Print what NVML answers; 0 if it could be asked at all."""
    topic, num_samples, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    try:
        _announce("nvmlInit")
        nvml.nvmlInit()
        _announce("nvmlDeviceGetCount")
        num_devices = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        _print({"refused": f"NVML: {error}", "code": error.value})
        return 1
    _ask(SYSTEM, "driver", nvml.nvmlSystemGetDriverVersion)
    _ask(SYSTEM, "cuda", nvml.nvmlSystemGetCudaDriverVersion)
    handles = {index: _open(index) for index in range(num_devices)}
    questions = {"health": HEALTH, "links": LINKS, "counters": COUNTERS, "load": {}}[topic]
    known = {index: handle for index, handle in handles.items() if handle is not None}
    for index, handle in known.items():
        for key, question in questions.items():
            _ask(index, key, partial(question, handle))
    if topic == "links":
        _sample(known, num_samples, seconds)
    elif topic == "load":
        _sample_load(known, num_samples, seconds)
    _print({"end": True})
    return 0


def _open(index: int) -> Any:
    """Return a GPU's handle and say how it is addressed; None for one that cannot be had."""
    _announce(f"the handle of GPU {index}")
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        value = 0 if error.value in LOST else None
        _answer(index, "usable", value=value, trouble="" if value == 0 else str(error))
        return None
    _answer(index, "usable", value=1)
    _ask(index, "pci", lambda: _text(nvml.nvmlDeviceGetPciInfo_v3(handle).busId))
    _ask(index, "name", lambda: nvml.nvmlDeviceGetName(handle))
    return handle


def _ask(index: int, key: str, question: Callable[[], Answer]) -> None:
    _announce(f"{key} of GPU {index}" if index >= 0 else key)
    try:
        answer = question()
    except nvml.NVMLError as error:
        if error.value in LOST:
            _answer(index, "usable", value=0, text=str(error))
        _answer(index, key, trouble="" if error.value in ABSENT else str(error))
        return
    if isinstance(answer, str):
        _answer(index, key, text=answer)
    elif isinstance(answer, tuple):
        _answer(index, key, value=answer[0], text=answer[1])
    else:
        _answer(index, key, value=answer)


def _announce(part: str) -> None:
    _print({"part": part})


def _answer(
    index: int, key: str, *, value: float | None = None, text: str = "", trouble: str = ""
) -> None:
    _print({"device": index, "key": key, "value": value, "text": text, "trouble": trouble})


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _field(number: int, handle: Any, scope: int = 0) -> float:
    return _value(nvml.nvmlDeviceGetFieldValues(handle, [(number, scope)])[0])


def _seconds(number: int, handle: Any) -> float:
    """Return a field that counts nanoseconds."""
    return _field(number, handle) * 1e-9


def _value(answer: Any) -> float:
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    return float(getattr(answer.value, VALUES[answer.valueType]))


def _text(answer: str | bytes) -> str:
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def _clock_reasons(handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except nvml.NVMLError as error:
        # Drivers before 535 have it under its older name.
        if error.value != nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _retired_pages(handle: Any) -> float:
    return sum(len(nvml.nvmlDeviceGetRetiredPages(handle, cause)) for cause in RETIREMENTS)


def _slowdown_margin(handle: Any) -> float:
    """Degrees until the GPU slows down: the device's own figure, or by its threshold where it has none."""
    try:
        return float(nvml.nvmlDeviceGetMarginTemperature(handle))
    except nvml.NVMLError as error:
        if error.value not in ABSENT:
            raise
    limit = nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    return float(limit - nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))


def _memory_margin(handle: Any) -> float:
    temperature = _field(nvml.NVML_FI_DEV_MEMORY_TEMP, handle)
    # Zero stands for a sensor that there is not.
    if temperature == 0:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    limit = nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)
    return float(limit - temperature)


def _processes(handle: Any) -> Answer:
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return len(running), ", ".join(f"pid {process.pid}" for process in running)


def _fabric_state(handle: Any) -> Answer:
    about = nvml.c_nvmlGpuFabricInfo_t()
    nvml.nvmlDeviceGetGpuFabricInfo(handle, nvml.byref(about))
    return about.state, "" if about.status == 0 else f"status {about.status}"


def _ecc(kind: int, window: int, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, window))


def _sram(handle: Any) -> float:
    return float(
        nvml.nvmlDeviceGetMemoryErrorCounter(
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_AGGREGATE_ECC,
            nvml.NVML_MEMORY_LOCATION_SRAM,
        )
    )


def _sample(handles: dict[int, Any], num_samples: int, seconds: float) -> None:
    """Read all counters so many times, `seconds` apart."""
    links = {index: _links(index, handle) for index, handle in handles.items()}
    for sample in range(num_samples):
        if sample:
            time.sleep(seconds)
        for index, handle in handles.items():
            replays = partial(nvml.nvmlDeviceGetPcieReplayCounter, handle)
            _ask(index, "pcie_replays", replays)
            for key, fields in (("replays", REPLAYS), ("recoveries", RECOVERIES)):
                _ask_links(index, handle, links=links[index], key=key, fields=fields)


def _sample_load(handles: dict[int, Any], num_samples: int, seconds: float) -> None:
    """Read what a load changes so many times, `seconds` apart."""
    for sample in range(num_samples):
        if sample:
            time.sleep(seconds)
        for index, handle in handles.items():
            for key, question in LOAD.items():
                _ask(index, key, partial(question, handle))


def _links(index: int, handle: Any) -> list[int]:
    """Return the links that the device has, and print whether each is active."""
    found = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        _announce(f"link {link} of GPU {index}")
        try:
            state = nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError as error:
            # The first number beyond the device's last link is refused in one way or the other.
            if error.value in ABSENT or error.value == nvml.NVML_ERROR_INVALID_ARGUMENT:
                break
            _answer(index, f"link{link}.active", trouble=str(error))
        else:
            _answer(index, f"link{link}.active", value=state)
        found.append(link)
    _answer(index, "num_links", value=len(found))
    return found


def _ask_links(
    index: int, handle: Any, *, links: list[int], key: str, fields: tuple[int, ...]
) -> None:
    """Print a counter of all links, asked for at once."""
    if not links:
        return
    _announce(f"{key} of the links of GPU {index}")
    try:
        asked = [(number, link) for number in fields for link in links]
        answers = list(nvml.nvmlDeviceGetFieldValues(handle, asked))
    except nvml.NVMLError as error:
        for link in links:
            _answer(index, f"link{link}.{key}", trouble=str(error))
        return
    for position, link in enumerate(links):
        own = [answers[position + len(links) * group] for group in range(len(fields))]
        known = [each for each in own if each.nvmlReturn not in ABSENT]
        # A driver that has neither field has the call that they replace.
        ask = partial(_value, known[0]) if known else partial(_link_counter, handle, link, key=key)
        _ask(index, f"link{link}.{key}", ask)


def _link_counter(handle: Any, link: int, *, key: str) -> float:
    counters = {
        "replays": nvml.NVML_NVLINK_ERROR_DL_REPLAY,
        "recoveries": nvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    }
    return float(nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counters[key]))


HEALTH: dict[str, Question] = {
    "uuid": lambda handle: str(nvml.nvmlDeviceGetUUID(handle)),
    "persistence": nvml.nvmlDeviceGetPersistenceMode,
    "mig": lambda handle: nvml.nvmlDeviceGetMigMode(handle)[0],
    "ecc_enabled": lambda handle: nvml.nvmlDeviceGetEccMode(handle)[0],
    "ecc_uncorrected": partial(
        _ecc, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    ),
    "ecc_corrected": partial(_ecc, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC),
    "sram_uncorrected": _sram,
    "uncorrectable_remaps": lambda handle: nvml.nvmlDeviceGetRemappedRows(handle)[1],
    "pending_remaps": lambda handle: nvml.nvmlDeviceGetRemappedRows(handle)[2],
    "failed_remaps": lambda handle: nvml.nvmlDeviceGetRemappedRows(handle)[3],
    "retired_pages": _retired_pages,
    "pending_retirements": nvml.nvmlDeviceGetRetiredPagesPendingStatus,
    "recovery_action": partial(_field, nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
    "temperature": lambda handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    "slowdown_margin": _slowdown_margin,
    "memory_margin": _memory_margin,
    "clock_reasons": _clock_reasons,
    "sm_clock": lambda handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    "max_sm_clock": lambda handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
    "power_limit": lambda handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
    "processes": _processes,
}
COUNTERS: dict[str, Question] = {
    **{key: HEALTH[key] for key in ("ecc_enabled", "ecc_uncorrected", "ecc_corrected")},
    "hardware_thermal_seconds": partial(
        _seconds, nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN
    ),
    "power_brake_seconds": partial(
        _seconds, nvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN
    ),
}
LOAD: dict[str, Question] = {
    **{
        key: HEALTH[key]
        for key in ("temperature", "slowdown_margin", "memory_margin", "clock_reasons", "sm_clock")
    },
    "power": lambda handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
}
LINKS: dict[str, Question] = {
    "pstate": nvml.nvmlDeviceGetPerformanceState,
    "pcie_width": nvml.nvmlDeviceGetCurrPcieLinkWidth,
    "pcie_max_width": nvml.nvmlDeviceGetMaxPcieLinkWidth,
    "pcie_generation": nvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie_max_generation": nvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "fabric_state": _fabric_state,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
