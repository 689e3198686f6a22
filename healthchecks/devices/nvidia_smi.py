"""What `nvidia-smi -q -x` prints, as the same readings that NVML gives; drivers of several generations name things differently.

Absent are values that the driver writes as N/A, and elements that a generation does not have.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from xml.etree import ElementTree

from healthchecks.devices.readings import Device, Reading, Survey, counter, flag, number

# The last two are about links: their state, and their errors.
COMMANDS = (
    ("nvidia-smi", "-q", "-x"),
    ("nvidia-smi", "nvlink", "-s"),
    ("nvidia-smi", "nvlink", "-e"),
)
# By the ending of the element's name: the bit of NVML's mask.
CLOCK_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
# As nvidia-smi writes them; NVML's numbers.
RECOVERY_ACTIONS = {
    "none": 0,
    "reset": 1,
    "gpu reset": 1,
    "reboot": 2,
    "node reboot": 2,
    "drain p2p": 3,
    "drain and reset": 4,
}
FABRIC_STATES = {"not started": 1, "in progress": 2, "completed": 3}
# In place of a value, where the device is there no more for programs.
LOST = ("gpu is lost", "requires reset")


_GPU = re.compile(r"GPU (\d+):")
_LINK = re.compile(r"\s*Link (\d+): (?:(<?inactive>?)|(Replay|Recovery) Errors: (\d+)|[\d.]+ GB/s)")


def parse(output: bytes, link_outputs: Sequence[bytes] = ()) -> Survey:
    """Read the tool's answers. Half an answer is none: its trouble says so."""
    source = "nvidia-smi"
    try:
        root = ElementTree.fromstring(_without_doctype(output))  # noqa: S314 - no document type
    except (ElementTree.ParseError, ValueError) as error:
        return Survey(source=source, trouble=f"nvidia-smi gave no whole answer: {error}")
    links = _links(b"\n".join(link_outputs)) if link_outputs else {}
    devices = tuple(
        _device(index, gpu, links.get(index, {})) for index, gpu in enumerate(root.iter("gpu"))
    )
    system = {
        "driver": (Reading(text=root.findtext("driver_version") or ""),),
        "cuda": (Reading(text=root.findtext("cuda_version") or ""),),
    }
    return Survey(source=source, devices=devices, system=Device(name="system", series=system))


def _without_doctype(output: bytes) -> str:
    """Leave out the line that names a document type: with it, entities could be declared."""
    text = output.decode(errors="replace")
    _, found, rest = text.partition("<nvidia_smi_log>")
    if not found:
        raise ValueError(f"no <nvidia_smi_log> in {text.strip()[:200]!r}")
    return found + rest


def _links(output: bytes) -> dict[int, dict[str, Reading]]:
    """Read states and counters of links, by GPU. One look at a counter is no rate."""
    found: dict[int, dict[str, Reading]] = {}
    own: dict[str, Reading] = {}
    for line in output.decode(errors="replace").splitlines():
        if gpu := _GPU.match(line):
            own = found.setdefault(int(gpu[1]), {})
        elif link := _LINK.match(line):
            number, inactive, counter, count = link.groups()
            if counter is None:
                own[f"link{number}.active"] = Reading(value=0 if inactive else 1)
            else:
                key = "replays" if counter == "Replay" else "recoveries"
                own[f"link{number}.{key}"] = Reading(value=int(count))
    for keys in found.values():
        num_links = sum(key.endswith(".active") for key in keys)
        keys["num_links"] = Reading(value=num_links)
    return found


def _device(index: int, gpu: ElementTree.Element, links: Mapping[str, Reading]) -> Device:
    address = gpu.get("id", "")
    series = {key: (read(gpu),) for key, read in READERS.items()}
    series |= {key: (reading,) for key, reading in links.items()}
    whole = "".join(gpu.itertext()).lower()
    is_lost = any(word in whole for word in LOST)
    series["usable"] = (Reading(value=0 if is_lost else 1, text="lost" if is_lost else ""),)
    series["name"] = (Reading(text=gpu.findtext("product_name") or ""),)
    series["uuid"] = (Reading(text=gpu.findtext("uuid") or ""),)
    return Device(name=f"GPU {index} ({address})", series=series, trouble="not in nvidia-smi -q")


def _number(*paths: str) -> Callable[[ElementTree.Element], Reading]:
    """Read the number at the first path that the answer has."""

    def read(gpu: ElementTree.Element) -> Reading:
        texts = [text for path in paths if (text := gpu.findtext(path)) is not None]
        return number(texts[0]) if texts else Reading()

    return read


def _flag(path: str) -> Callable[[ElementTree.Element], Reading]:
    return lambda gpu: Reading() if (text := gpu.findtext(path)) is None else flag(text)


def _named(path: str, values: Mapping[str, int]) -> Callable[[ElementTree.Element], Reading]:
    def read(gpu: ElementTree.Element) -> Reading:
        text = (gpu.findtext(path) or "N/A").strip()
        if text == "N/A":
            return Reading()
        value = values.get(text.lower())
        if value is None:
            return Reading(trouble=f"{text[:80]!r} is not known; known: {', '.join(values)}")
        return Reading(value=value, text=text)

    return read


def _total(*ways: tuple[str, ...]) -> Callable[[ElementTree.Element], Reading]:
    """Add up counts, by the first of several ways of which the answer has any."""

    def read(gpu: ElementTree.Element) -> Reading:
        for way in ways:
            texts = [text for path in way if (text := gpu.findtext(path)) is not None]
            found = [counter(number(text)) for text in texts]
            counted = [reading for reading in found if not reading.is_absent]
            if counted:
                unread = [reading for reading in counted if reading.trouble]
                total = sum(reading.value or 0 for reading in counted)
                return unread[0] if unread else Reading(value=total)
        return Reading()

    return read


def _clock_reasons(gpu: ElementTree.Element) -> Reading:
    """Return NVML's mask. The element had another name before driver 535."""
    parent = gpu.find("clocks_event_reasons")
    if parent is None:
        parent = gpu.find("clocks_throttle_reasons")
    if parent is None or len(parent) == 0:
        return Reading()
    mask = 0
    for reason in parent:
        for ending, bit in CLOCK_REASONS.items():
            if reason.tag.endswith(f"_reason_{ending}"):
                active = flag(reason.text or "")
                if active.trouble:
                    return active
                mask |= bit if active.value else 0
    return Reading(value=mask)


def _slowdown_margin(gpu: ElementTree.Element) -> Reading:
    own = _number("temperature/gpu_temp_tlimit")(gpu)
    return _margin(gpu, "gpu_temp", "gpu_temp_slow_threshold") if own.is_absent else own


def _margin(gpu: ElementTree.Element, value: str, limit: str) -> Reading:
    readings = [_number(f"temperature/{name}")(gpu) for name in (value, limit)]
    for reading in readings:
        if reading.value is None:
            return reading
    return Reading(value=(readings[1].value or 0) - (readings[0].value or 0))


def _processes(gpu: ElementTree.Element) -> Reading:
    found = gpu.findall("processes/process_info")
    pids = [f"pid {process.findtext('pid')}" for process in found]
    return Reading(value=len(pids), text=", ".join(pids))


def _seconds(name: str) -> Callable[[ElementTree.Element], Reading]:
    """Read a counter of microseconds, which drivers since 550 have."""
    path = f"clocks_event_reasons_counters/clocks_event_reasons_counters_{name}"

    def read(gpu: ElementTree.Element) -> Reading:
        reading = _number(path)(gpu)
        return reading if reading.value is None else Reading(value=reading.value * 1e-6)

    return read


def _fabric(gpu: ElementTree.Element) -> Reading:
    reading = _named("fabric/state", FABRIC_STATES)(gpu)
    status = (gpu.findtext("fabric/status") or "").strip()
    failed = reading.value is not None and status.lower() not in ("success", "n/a", "")
    return Reading(value=reading.value, text=f"status {status}") if failed else reading


def _ecc(window: str, *counts: str) -> tuple[str, ...]:
    return tuple(f"ecc_errors/{window}/{count}" for count in counts)


_SPLIT_SRAM = ("sram_uncorrectable_parity", "sram_uncorrectable_secded")
READERS: Mapping[str, Callable[[ElementTree.Element], Reading]] = {
    "pstate": lambda gpu: number((gpu.findtext("performance_state") or "N/A").removeprefix("P")),
    "persistence": _flag("persistence_mode"),
    "mig": _flag("mig_mode/current_mig"),
    "ecc_enabled": _flag("ecc_mode/current_ecc"),
    "ecc_uncorrected": _total(
        _ecc("volatile", "sram_uncorrectable", *_SPLIT_SRAM, "dram_uncorrectable"),
        ("ecc_errors/volatile/double_bit/total",),
    ),
    "ecc_corrected": _total(
        _ecc("volatile", "sram_correctable", "dram_correctable"),
        ("ecc_errors/volatile/single_bit/total",),
    ),
    "sram_uncorrected": _total(_ecc("aggregate", "sram_uncorrectable", *_SPLIT_SRAM)),
    "uncorrectable_remaps": _number("remapped_rows/remapped_row_unc"),
    "pending_remaps": _flag("remapped_rows/remapped_row_pending"),
    "failed_remaps": _flag("remapped_rows/remapped_row_failure"),
    "retired_pages": _total(
        (
            "retired_pages/multiple_single_bit_retirement/retired_count",
            "retired_pages/double_bit_retirement/retired_count",
        )
    ),
    "pending_retirements": _flag("retired_pages/pending_retirement"),
    "recovery_action": _named("gpu_recovery_action", RECOVERY_ACTIONS),
    "temperature": _number("temperature/gpu_temp"),
    "slowdown_margin": _slowdown_margin,
    "memory_margin": lambda gpu: _margin(gpu, "memory_temp", "gpu_temp_max_mem_threshold"),
    "clock_reasons": _clock_reasons,
    "sm_clock": _number("clocks/sm_clock"),
    "max_sm_clock": _number("max_clocks/sm_clock"),
    "power_limit": _number(
        "gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit"
    ),
    "power": _number(
        "gpu_power_readings/instant_power_draw",
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
    ),
    "hardware_thermal_seconds": _seconds("hw_therm_slowdown"),
    "power_brake_seconds": _seconds("hw_power_brake"),
    "processes": _processes,
    "pcie_width": _number("pci/pci_gpu_link_info/link_widths/current_link_width"),
    "pcie_max_width": _number("pci/pci_gpu_link_info/link_widths/max_link_width"),
    "pcie_generation": _number("pci/pci_gpu_link_info/pcie_gen/current_link_gen"),
    "pcie_max_generation": _number("pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
    "pcie_replays": _number("pci/replay_counter"),
    "fabric_state": _fabric,
}
