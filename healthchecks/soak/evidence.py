"""What follows from watching GPUs under load: new memory errors, clocks that heat or the supply held down, values for peers. Pure.

Newer drivers count how long the hardware itself held clocks down; samples show the other reasons. A cap of power alone is normal.
"""

import statistics
from collections.abc import Iterator, Sequence

from healthchecks.check import Better, Evidence, Judge, Outcome
from healthchecks.declaration import CHOSEN, Limit, at_least, at_most, none_of
from healthchecks.devices.readings import Device, Reading, Survey, counter
from healthchecks.soak.watch import Watched

# Bits of NVML's mask of what holds clocks down: hardware slowdown, hardware heat, power brake; heat by the driver.
HARDWARE, SOFTWARE_THERMAL = 0x8 | 0x40 | 0x80, 0x20
COUNTERS = {"ecc_uncorrected": "new_uncorrected_errors", "ecc_corrected": "new_corrected_errors"}
SLOWDOWN_SECONDS = ("hardware_thermal_seconds", "power_brake_seconds")
MARGINS = ("slowdown_margin", "memory_margin")
# Key, name, unit, and how it compares with peers.
FOR_PEERS: tuple[tuple[str, str, str, Better], ...] = (
    ("temperature", "median_temperature", "celsius", "lower"),
    ("power", "median_power", "W", "higher"),
    ("sm_clock", "median_clock", "MHz", "higher"),
)


def soak_limits(check: str) -> dict[str, Limit]:
    """Return the limits that every check has whose load is watched."""
    return {
        f"{check}.new_uncorrected_errors": none_of("errors"),
        f"{check}.new_corrected_errors": at_most(
            10, "errors", "DCGM: its limit on corrected errors of one watch", most=1e12
        ),
        f"{check}.hardware_slowdown_ratio": at_most(
            0, "ratio", "NVML: the hardware itself holds the clocks down", most=0.99
        ),
        f"{check}.thermal_slowdown_ratio": at_most(0.2, "ratio", CHOSEN, most=0.99),
        f"{check}.heat_margin_celsius": at_least(1, "degrees", CHOSEN, least=-50, most=100),
    }


def judge_soak(check: str, watched: Watched | None, judge: Judge) -> Iterator[Evidence]:
    """Judge every GPU that was watched; nothing where there is none."""
    if watched is None:
        return
    name = f"{check}.new_uncorrected_errors"
    if not watched.before.devices:
        note = watched.before.trouble or "no GPU was found"
        yield judge(name, None, subject=watched.before.source, note=note)
    after = {device.name: device for device in watched.after.devices}
    gone = watched.after.trouble or "it was not found after the load"
    for device in watched.before.devices:
        later = after.get(device.name, Device(name=device.name, series={}, trouble=gone))
        yield from _new_errors(check, device, later, judge)
    yield from _samples(check, watched, judge)


def _new_errors(check: str, before: Device, after: Device, judge: Judge) -> Iterator[Evidence]:
    has_ecc = before.last("ecc_enabled").value == 1
    for key, name in COUNTERS.items():
        first, last = before.last(key), after.last(key)
        if first.is_absent and last.is_absent and not has_ecc:
            note = "this GPU counts no errors of its memory"
            yield Evidence(name=f"{check}.{name}", value=None, subject=before.name, note=note)
            continue
        growth, why = _growth(first, last)
        yield judge(f"{check}.{name}", growth, subject=before.name, note=why)


def _growth(before: Reading, after: Reading) -> tuple[float | None, str]:
    """Return by how much a counter rose; None, and why, if that cannot be known."""
    first, last = counter(before), counter(after)
    for reading in (first, last):
        if reading.value is None:
            return None, reading.trouble or "there is no count although ECC is on"
    growth = (last.value or 0) - (first.value or 0)
    if growth < 0:
        return None, "its counter was reset meanwhile"
    return growth, f"{first.value:.0f} before, {last.value:.0f} after"


def _samples(check: str, watched: Watched, judge: Judge) -> Iterator[Evidence]:
    if not watched.during.devices:
        note = watched.during.trouble or "no GPU was sampled"
        name = f"{check}.hardware_slowdown_ratio"
        yield judge(name, None, subject=watched.during.source, note=note)
        return
    for device in watched.during.devices:
        yield from _slowdowns(check, device, watched, judge)
        yield _heat_margin(check, device, judge)
        for key, name, unit, better in FOR_PEERS:
            readings = device.all(key)
            values = [each.value for each in readings if each.value is not None]
            yield Evidence(
                name=f"{check}.{name}",
                value=statistics.median(values) if values else None,
                unit=unit,
                subject=device.name,
                note=f"{len(values)} samples" if values else readings[-1].trouble or "not reported",
                better=better,
            )


def _slowdowns(check: str, device: Device, watched: Watched, judge: Judge) -> Iterator[Evidence]:
    readings = device.all("clock_reasons")
    # Heat that the driver acts upon has no counter to rely on: some drivers count it as a cap of power, too.
    for name, bits, counted in (
        ("hardware_slowdown_ratio", HARDWARE, _counted_share(device.name, watched)),
        ("thermal_slowdown_ratio", SOFTWARE_THERMAL, None),
    ):
        sampled = _sampled_share(readings, bits)
        shares = [share for share in (sampled, counted) if share is not None]
        full = f"{check}.{name}"
        if readings[-1].is_absent and not shares:
            yield Evidence(name=full, value=None, subject=device.name, note="not reported")
        elif sampled is None and not (shares and judge(full, max(shares)).outcome == "FAIL"):
            note = next((each.trouble for each in readings if each.trouble), "not reported")
            yield judge(full, None, subject=device.name, note=note)
        else:
            yield judge(full, max(shares), subject=device.name, note=f"{len(readings)} samples")


def _sampled_share(readings: Sequence[Reading], bits: int) -> float | None:
    """Return in which share of the samples one of the bits was set; None if one could not be read."""
    masks = [reading.value for reading in readings]
    known = [int(mask) for mask in masks if mask is not None]
    return (
        sum(bool(mask & bits) for mask in known) / len(known) if len(known) == len(masks) else None
    )


def _counted_share(name: str, watched: Watched) -> float | None:
    """Return which share of the time the hardware counted as slowed down; None where a driver does not count it."""
    before, after = (_named(survey, name) for survey in (watched.before, watched.after))
    growths = []
    for key in SLOWDOWN_SECONDS:
        first, last = before.last(key).value, after.last(key).value
        if first is not None and last is not None and last >= first:
            growths.append(last - first)
    return min(1.0, max(growths) / watched.seconds) if growths and watched.seconds else None


def _named(survey: Survey, name: str) -> Device:
    return next(
        (device for device in survey.devices if device.name == name), Device(name=name, series={})
    )


def _heat_margin(check: str, device: Device, judge: Judge) -> Evidence:
    """Judge how near the hottest sample came to where the GPU slows down."""
    name = f"{check}.heat_margin_celsius"
    readings = [each for key in MARGINS for each in device.all(key) if not each.is_absent]
    values = [each.value for each in readings if each.value is not None]
    if not readings:
        return Evidence(name=name, value=None, subject=device.name, note="not reported")
    unread = [each.trouble for each in readings if each.value is None]
    evidence = judge(name, min(values, default=None), subject=device.name)
    if unread and evidence.outcome is not Outcome.FAIL:
        return judge(name, None, subject=device.name, note=unread[0])
    return evidence
