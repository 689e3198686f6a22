"""What smartctl reports of disks, as readings: whether a disk calls itself sound, its warnings, and the errors that it counted."""

import json
from collections.abc import Mapping
from typing import Any

from healthchecks.commands import Ending, run_together
from healthchecks.devices.endings import how_it_ended
from healthchecks.devices.readings import Device, Reading, Survey

SCAN = ("smartctl", "--json", "--scan")
# Of one machine; more than a server has. Chosen.
MAX_DISKS = 64


def parse_scan(output: bytes) -> list[str]:
    """Return the names of the disks; raises ValueError for half an answer."""
    try:
        return [str(each["name"]) for each in json.loads(output).get("devices", [])][:MAX_DISKS]
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not understood: {error}") from error


def survey(disks: list[str], limit_seconds: float) -> Survey:
    """Ask every disk, side by side."""
    commands = {disk: ("smartctl", "--json", "-H", "-A", disk) for disk in disks}
    endings = run_together(commands, limit_seconds)
    devices = tuple(_disk(disk, endings[disk], limit_seconds) for disk in disks)
    return Survey(source="smartctl", devices=devices)


def _disk(name: str, ending: Ending | OSError, limit_seconds: float) -> Device:
    if isinstance(ending, OSError):
        return Device(name=name, series={}, trouble=f"smartctl cannot be started: {ending}")
    if ending.hung:
        return Device(
            name=name, series={}, trouble=f"smartctl {how_it_ended(ending, limit_seconds)}"
        )
    try:
        answer = json.loads(ending.output)
        return Device(name=name, series=_readings(answer), trouble="not reported")
    except (ValueError, AttributeError, LookupError, TypeError) as error:
        return Device(name=name, series={}, trouble=f"smartctl gave no whole answer: {error}")


def _readings(answer: Mapping[str, Any]) -> dict[str, tuple[Reading, ...]]:
    """Read a disk's answer. Its exit status says the same in bits, and more that are no faults of the disk."""
    messages = [str(each.get("string", "")) for each in answer["smartctl"].get("messages", [])]
    status = answer.get("smart_status")
    log = answer.get("nvme_smart_health_information_log", {})
    if status is None:
        # Not permitted, or a disk of a virtual machine: nothing can be seen, and the message says why.
        sound = Reading(text="; ".join(messages) or "this disk reports no SMART status")
    elif isinstance(status["passed"], bool):
        sound = Reading(value=float(status["passed"]))
    else:
        sound = Reading(trouble=f"passed: {status['passed']!r} is no answer")
    series: dict[str, tuple[Reading, ...]] = {"sound": (sound,)}
    for key in ("critical_warning", "media_errors", "percentage_used"):
        series[key] = (Reading(value=float(log[key])) if key in log else Reading(),)
    return series
