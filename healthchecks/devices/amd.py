"""AMD GPUs: sysfs, which needs no library, and over it what `amdsmi` reports, or rocm-smi where that is not installed.

Two dies of one package (MI250X and its like) are two devices for programs, and one part for who replaces them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from healthchecks.check import NodeFacts
from healthchecks.commands import Ending, run_together
from healthchecks.devices.endings import how_it_ended
from healthchecks.devices.readings import Device, Reading, Survey, counter, number, parse_lines
from healthchecks.devices.sysfs import Files, files_command, files_of, read_files
from runner.facts.specs.programs import module_command

COMMANDS = {
    "amdsmi": module_command("healthchecks.devices.amdsmi_probe"),
    "rocm-smi": ("rocm-smi", "-a", "--json"),
}
# Of the check's deadline; sysfs is read before, with a share of its own.
SHARE = 0.4
LIMIT_SECONDS = 8.0
CARD = "class/drm/card*/device"
PATTERNS = (
    f"{CARD}/vendor",
    f"{CARD}/device",
    f"{CARD}/uevent",
    f"{CARD}/serial_number",
    f"{CARD}/ras/*_err_count",
    f"{CARD}/ras/aca_*",
    f"{CARD}/ras/gpu_vram_bad_pages",
    f"{CARD}/hwmon/hwmon*/temp*_*",
    f"{CARD}/current_link_width",
    f"{CARD}/max_link_width",
    "module/amdgpu/version",
)
AMD = "0x1002"
# PCI device ids of which two are dies of one package: MI250X; MI250.
TWIN_DIES = ("0x7408", "0x740c")
LOAD_PATTERNS = (
    f"{CARD}/vendor",
    f"{CARD}/uevent",
    f"{CARD}/hwmon/hwmon*/temp*_*",
    f"{CARD}/hwmon/hwmon*/power1_*",
    f"{CARD}/hwmon/hwmon*/freq1_input",
)
# Microwatts: the mean of the moment, or in newer drivers the moment.
POWERS = ("power1_average", "power1_input")
# Keys of rocm-smi's JSON, which differ by version.
ROCM_SMI = {
    "junction_temperature": ("Temperature (Sensor junction) (C)",),
    "memory_temperature": ("Temperature (Sensor memory) (C)", "Temperature (Sensor HBM 0) (C)"),
    "pcie_replays": ("PCIe Replay Count",),
}


def survey(node: NodeFacts) -> Survey:
    """Read all GPUs; what hung or failed is in its trouble, unless another source answers for it."""
    files = read_files(node, PATTERNS)
    limit = min(LIMIT_SECONDS, SHARE * node.deadline_seconds)
    endings = run_together(COMMANDS, limit)
    by_library = _by_library(endings["amdsmi"], limit)
    by_tool = _by_tool(endings["rocm-smi"], limit)
    chosen = by_library if by_library.devices else by_tool
    devices = _merge(_of_sysfs(files), chosen.devices)
    source = f"sysfs, {chosen.source}" if chosen.devices else "sysfs"
    # A library or tool that is not there is no trouble; one that hung, or ended in the middle, is.
    troubles = [files.trouble, *(each.trouble for each in (by_library, by_tool) if _counts(each))]
    if not devices:
        troubles = [files.trouble, by_library.trouble, by_tool.trouble]
    system = {"driver": (Reading(text=files.text("module/amdgpu/version")),)}
    return Survey(
        source=source,
        devices=devices,
        system=Device(name="system", series=system),
        trouble="; ".join(filter(None, troubles)),
    )


def counters(node: NodeFacts, *, share: float) -> Survey:
    """Read what sysfs counts of errors, added up over the blocks of each GPU."""
    files = read_files(node, PATTERNS, share=share)
    devices = tuple(_added_up(device) for device in _of_sysfs(files))
    return Survey(source="sysfs", devices=devices, trouble=files.trouble)


def sampler(node: NodeFacts, num_samples: int, window_seconds: float) -> tuple[str, ...]:
    """Return the command that samples what a load changes; `parse_samples` reads what it prints."""
    return files_command(node, LOAD_PATTERNS, num_samples, window_seconds)


def parse_samples(ending: Ending | OSError, limit_seconds: float) -> Survey:
    """Read heat, power and clock of each GPU. What holds its clock down is in no file."""
    files = files_of(ending, limit_seconds)
    devices = []
    for path in files.matching(f"{CARD}/vendor"):
        card = path.removesuffix("/vendor")
        address = _address(files.text(f"{card}/uevent"))
        if files.text(path) == AMD and list(files.matching(f"{card}/hwmon/hwmon*/temp*_label")):
            margins = _temperatures(files, card)
            series = {
                "slowdown_margin": margins.get("junction_margin", (Reading(),)),
                "memory_margin": margins.get("memory_margin", (Reading(),)),
                "temperature": _junction(files, card),
                "power": _scaled(files, card, names=POWERS, scale=1e-6),
                "sm_clock": _scaled(files, card, names=("freq1_input",), scale=1e-6),
                "clock_reasons": (Reading(),),
            }
            devices.append(Device(name=f"GPU {address}", series=series, trouble=files.trouble))
    return Survey(source="sysfs", devices=tuple(devices), trouble=files.trouble)


def packages(devices: Iterable[Device]) -> dict[str, list[Device]]:
    """Return which devices are dies of one package, by the package's name."""
    ordered = sorted(devices, key=lambda device: device.last("pci").text)
    groups: dict[str, list[Device]] = {}
    twins: list[Device] = []
    for device in ordered:
        named = device.last("package").text
        if named:
            groups.setdefault(named, []).append(device)
        elif device.last("device_id").text.lower() in TWIN_DIES:
            twins.append(device)
        else:
            groups[device.last("pci").text] = [device]
    for first in range(0, len(twins), 2):
        pair = twins[first : first + 2]
        groups[" and ".join(device.last("pci").text for device in pair)] = pair
    return groups


def _counts(survey: Survey) -> bool:
    return bool(survey.trouble) and not survey.trouble.startswith("absent")


def _by_library(ending: Ending | OSError, limit: float) -> Survey:
    if isinstance(ending, OSError):
        return Survey(source="amdsmi", trouble=f"the probe could not be started: {ending}")
    lines = ending.output.decode(errors="replace").splitlines()
    found = parse_lines(lines, source="amdsmi", ending=how_it_ended(ending, limit))
    missing = "amdsmi is not installed" in found.trouble
    return replace(found, trouble=f"absent: {found.trouble}") if missing else found


def _by_tool(ending: Ending | OSError, limit: float) -> Survey:
    if isinstance(ending, OSError):
        return Survey(source="rocm-smi", trouble=f"absent: rocm-smi cannot be started: {ending}")
    ended = how_it_ended(ending, limit)
    if ended:
        return Survey(source="rocm-smi", trouble=f"rocm-smi {ended}")
    try:
        answer = json.loads(ending.output)
        cards = {name: card for name, card in answer.items() if name.startswith("card")}
        devices = tuple(_of_tool(card) for card in cards.values())
    except (ValueError, AttributeError, TypeError) as error:
        return Survey(source="rocm-smi", trouble=f"rocm-smi gave no whole answer: {error}")
    return Survey(source="rocm-smi", devices=devices)


def _of_tool(card: Mapping[str, str]) -> Device:
    address = card.get("PCI Bus", "").lower()
    series = {"pci": (Reading(text=address),)}
    for key, names in ROCM_SMI.items():
        texts = [card[name] for name in names if name in card]
        series[key] = (number(texts[0]) if texts else Reading(),)
    series["name"] = (Reading(text=card.get("Card series", card.get("Card Series", ""))),)
    ids = card.get("Device ID", card.get("GPU ID", ""))
    series["device_id"] = (Reading(text=ids),)
    serial = card.get("Serial Number", "N/A")
    if serial != "N/A":
        series["package"] = (Reading(text=f"package {serial}"),)
    return Device(name=f"GPU {address}", series=series, trouble="not in rocm-smi's answer")


def _of_sysfs(files: Files) -> tuple[Device, ...]:
    found: dict[str, Device] = {}
    for path in files.matching(f"{CARD}/vendor"):
        card = path.removesuffix("/vendor")
        if files.text(path) != AMD or not list(files.matching(f"{card}/ras/*")):
            continue
        address = _address(files.text(f"{card}/uevent"))
        series = {
            "pci": (Reading(text=address),),
            "device_id": (Reading(text=files.text(f"{card}/device")),),
            "pcie_width": files.numbers(f"{card}/current_link_width"),
            "pcie_max_width": files.numbers(f"{card}/max_link_width"),
            **_ras(files, card),
            **_temperatures(files, card),
        }
        if serial := files.text(f"{card}/serial_number"):
            series["package"] = (Reading(text=f"package {serial}"),)
        found[address or card] = Device(
            name=f"GPU {address}", series=series, trouble=files.trouble or "not in sysfs"
        )
    return tuple(found[address] for address in sorted(found))


def _address(uevent: str) -> str:
    lines = (line.partition("=") for line in uevent.splitlines())
    return next((value.lower() for name, _, value in lines if name == "PCI_SLOT_NAME"), "")


def _ras(files: Files, card: str) -> dict[str, tuple[Reading, ...]]:
    """Read counts of errors by block: `ue: 0`, `ce: 0`, and in newer drivers `de: 0`, a line each; and the retired pages."""
    series: dict[str, tuple[Reading, ...]] = {}
    for path in (*files.matching(f"{card}/ras/*_err_count"), *files.matching(f"{card}/ras/aca_*")):
        block = path.rpartition("/")[2].removesuffix("_err_count").removeprefix("aca_")
        reading = files.all(path)[-1]
        counts = dict(line.partition(":")[::2] for line in reading.text.splitlines())
        for kind in ("ue", "ce"):
            text = counts.get(kind)
            missing = reading.trouble or f"no count in {reading.text[:40]!r}"
            read = Reading(trouble=missing) if text is None else _count(text)
            series[f"{kind}.{block}"] = (read,)
    pages = files.all(f"{card}/ras/gpu_vram_bad_pages")[-1]
    flags = [line.rpartition(":")[2].strip() for line in pages.text.splitlines() if line]
    for key, flag in (("bad_pages", "R"), ("pending_bad_pages", "P"), ("failed_bad_pages", "F")):
        unread = pages.is_absent and f"{card}/ras/gpu_vram_bad_pages" not in files.series
        read = Reading(value=flags.count(flag), trouble="")
        series[key] = (pages if pages.trouble or unread else read,)
    return series


def _count(text: str) -> Reading:
    reading = number(text)
    return Reading(trouble=f"{text.strip()[:40]!r} is no count") if reading.is_absent else reading


def _temperatures(files: Files, card: str) -> dict[str, tuple[Reading, ...]]:
    """Read how far each sensor is below its critical temperature; sysfs has thousandths of a degree."""
    series: dict[str, tuple[Reading, ...]] = {}
    for path in files.matching(f"{card}/hwmon/hwmon*/temp*_label"):
        sensor = path.removesuffix("_label")
        key = {"junction": "junction_margin", "mem": "memory_margin"}.get(files.text(path))
        if key is not None:
            series[key] = tuple(
                _margin(critical, current)
                for critical, current in zip(
                    files.numbers(f"{sensor}_crit"), files.numbers(f"{sensor}_input"), strict=False
                )
            )
    return series


def _margin(critical: Reading, current: Reading) -> Reading:
    for reading in (critical, current):
        if reading.value is None:
            return reading
    return Reading(value=((critical.value or 0) - (current.value or 0)) / 1000)


def _junction(files: Files, card: str) -> tuple[Reading, ...]:
    for path in files.matching(f"{card}/hwmon/hwmon*/temp*_label"):
        if files.text(path) == "junction":
            return _times(files.numbers(f"{path.removesuffix('_label')}_input"), 1e-3)
    return (Reading(),)


def _scaled(files: Files, card: str, *, names: Iterable[str], scale: float) -> tuple[Reading, ...]:
    """Return the numbers of the first file of these names that there is."""
    for name in names:
        for path in files.matching(f"{card}/hwmon/hwmon*/{name}"):
            return _times(files.numbers(path), scale)
    return (Reading(),)


def _times(readings: Iterable[Reading], scale: float) -> tuple[Reading, ...]:
    return tuple(
        each if each.value is None else Reading(value=each.value * scale) for each in readings
    )


def _added_up(device: Device) -> Device:
    """Return a GPU with the sums over its blocks; a count that cannot be read leaves no sum."""
    series = {}
    for key, kind in (("ecc_uncorrected", "ue."), ("ecc_corrected", "ce.")):
        counts = [
            counter(each[-1]) for name, each in device.series.items() if name.startswith(kind)
        ]
        unread = [each for each in counts if each.value is None]
        total = Reading(value=sum(each.value or 0 for each in counts))
        series[key] = (unread[0] if unread else total if counts else Reading(),)
    return Device(name=device.name, series=series, trouble=device.trouble)


def _merge(by_sysfs: Iterable[Device], others: Iterable[Device]) -> tuple[Device, ...]:
    """Lay what a library or tool reports over what sysfs has of the same device."""
    found = {device.last("pci").text: device for device in by_sysfs}
    for other in others:
        address = other.last("pci").text.lower()
        below = found.get(address)
        answered = {
            key: readings
            for key, readings in other.series.items()
            if below is None or not readings[-1].is_absent or readings[-1].text
        }
        series = answered if below is None else {**below.series, **answered}
        trouble = other.trouble if below is None else below.trouble
        found[address] = Device(name=f"GPU {address}", series=series, trouble=trouble)
    return tuple(found[address] for address in sorted(found))
