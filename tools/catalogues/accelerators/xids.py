"""Xids: all numbers with NVIDIA's own resolutions, and what follows of them for a run."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tools.catalogues.native.classes import row
from tools.catalogues.native.facts import table
from tools.catalogues.rows import FOLDER, Header, Level, Row, write

NAMES = ("nvidia-xid",)
# Resolutions after which nothing is to be done about a run: the driver repaired it, or says so of another line.
_INFORMATIONAL = ("IGNORE",)
# By number, where the resolution alone misleads, with the reason.
_BY_NUMBER: dict[int, tuple[Level, str, str]] = {
    **dict.fromkeys(
        (48, 64, 95, 140, 171, 172), ("error", "gpu_ecc", "an uncorrectable memory error")
    ),
    94: ("error", "gpu_ecc", "a contained memory error: the application ends, the GPU stays"),
    63: ("warning", "", "a row was remapped; NVIDIA: ignore"),
    92: ("warning", "", "many corrected errors; NVIDIA: ignore"),
    168: ("error", "gpu_ecc", "errors in the write-protected region of memory"),
    **dict.fromkeys((74, 136, 155), ("error", "nvlink_error", "an NVLink")),
    **dict.fromkeys(
        range(144, 151), ("error", "nvlink_error", "an NVLink of the fifth generation")
    ),
    79: ("error", "gpu_lost", "the GPU is off the bus"),
    167: ("error", "gpu_lost", "the bus does not answer"),
    54: ("error", "thermal_power", "auxiliary power is not connected"),
    45: ("info", "", "cleaning up after another error, or the end of a process"),
    154: ("info", "", "the driver's verdict on another Xid"),
    43: ("warning", "", "a channel was reset after an error of its program"),
    **dict.fromkeys((162, 163), ("info", "", "power smoothing was switched")),
    **dict.fromkeys((164, 165), ("warning", "", "the wear of power smoothing circuits")),
    **dict.fromkeys((166, 170), ("error", "gpu_xid_other", "confidential computing")),
}
_SOFTWARE = ("RESTART_APP", "CHECK_UVM")


class Xid(NamedTuple):
    """One number: its name in the driver, what NVIDIA says to do at once, what to look into, and its description."""

    number: int
    name: str
    immediate: str
    investigatory: str
    description: str


@cache
def facts() -> dict[int, Xid]:
    """Return the table of facts by number."""
    return {int(one[0]): Xid(int(one[0]), *one[1:]) for one in table("xids")}


def xid_class(number: int) -> tuple[Level, str, str]:
    """Return the level, the fault and the reason of an Xid."""
    if number in _BY_NUMBER:
        return _BY_NUMBER[number]
    one = facts().get(number)
    if one is None:
        return "error", "gpu_xid_other", "not in NVIDIA's table"
    if one.immediate in _INFORMATIONAL:
        return "warning", "", f"NVIDIA: {one.immediate}"
    return "error", "gpu_xid_other", f"NVIDIA: {one.immediate}" if one.immediate else ""


def make(name: str, *, folder: Path = FOLDER) -> Counter[str]:
    """Write the catalogue and return its rows by level."""
    header = Header(
        "NVIDIA Xid",
        "catalogue of 2025-10",
        made="2026-11-26",
        program=__name__,
        source="facts/xids.tsv, compiled of NVIDIA's table of Xid errors and their resolutions",
        style="printf",
        layer="device",
        scope="gpu",
        requires=("Xid",),
    )
    return write(name, header, [_row(one) for one in facts().values()], folder=folder)


def _row(one: Xid) -> Row:
    level, fault, why = xid_class(one.number)
    is_of_program = one.immediate in _SOFTWARE and fault == "gpu_xid_other"
    more = {"layer": "consequence"} if is_of_program else {}
    is_lasting = fault in ("gpu_lost", "nvlink_error", "thermal_power") or (
        fault == "gpu_ecc" and one.number != 94
    )
    text = f"NVRM: Xid (%s): {one.number},"
    at = f"Xid {one.number} {one.name}"
    return row(at, text, level, fault, lasting=is_lasting, why=why, **more)
