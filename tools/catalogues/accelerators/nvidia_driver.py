"""NVIDIA's open kernel modules: SXids with their severity, texts of Xids, and what the driver prints of hardware."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.accelerators.xids import xid_class
from tools.catalogues.c_source.calls import formats
from tools.catalogues.c_source.tokens import without_comments
from tools.catalogues.native.archives import c_files, debian
from tools.catalogues.native.call_sites import CallSite, call_sites
from tools.catalogues.native.classes import classify, letters, row, rules
from tools.catalogues.native.texts import lines
from tools.catalogues.rows import Header, Level, Row, write

NAMES = ("nvidia-sxid", "nvidia-driver")
_VERSION = "555.58.02"
_SWITCH = "src/common/nvswitch"
_ENUMERATOR = re.compile(r"^\s*(NVSWITCH_ERR_\w+)\s*(?:=\s*(\d+))?\s*,", re.MULTILINE)
_XID = re.compile(r"^#define\s+(\w+)\s+\((\d+)\)", re.MULTILINE)
_REPORTS = re.compile(r"NVSWITCH_REPORT_(?:FATAL|NONFATAL|CONTAIN|CORRECTABLE\w*|PRI_ERROR_\w+)")
_PRINTS = re.compile(r"NVSWITCH_PRINT_SXID\w*")
# What the macros put before a text, by the severity in their names.
_SEVERITIES: dict[str, tuple[tuple[str, Level], ...]] = {
    "FATAL": (("Fatal", "error"),),
    "NONFATAL": (("Non-fatal", "warning"),),
    "CONTAIN": (("Fatal", "error"), ("Non-fatal", "warning")),
    "CORRECTABLE": (("Correctable", "info"),),
}
_TOO_HOT = re.compile(r"shutting down|slowdown engaged|alert activated", re.IGNORECASE)
_SWITCH_RULES = rules(
    (r"THERMAL|TEMPERATURE|overtemp|thermal", "thermal_power", "the switch is too hot"),
    (r".", "nvlink_error", ""),
)
_RULES = rules(
    (r"fallen off|gpu .*\blost\b|not (?:on|responding on) the bus|all f's|0xffffffff", "gpu_lost", "the bus"),
    (r"\bECC\b|\bDBE\b|row remap|page retire|dram .*error|poison", "gpu_ecc", "memory of the GPU"),
    (
        r"nvlink|nvswitch|\bC2C\b|link train|minion",
        "nvlink_error",
        "a link between GPUs",
    ),
    (r"overheat|thermal|power (?:brake|cable|connector)|external power|insufficient power", "thermal_power", ""),
    (
        r"\bGSP\b|RPC.*(?:fail|time)|timeout|timed out|watchdog|hang|halt|RmInitAdapter|reset|"
        r"failed to initialize|interrupt|falcon|firmware|crash",
        "gpu_xid_other",
        "the GPU or its firmware does not answer",
    ),
    (r"version|API mismatch|signature|module|parameter|registry|not supported|unsupported|invalid|ignored",
     "config_error", "what is installed, or a setting"),
)  # fmt: skip
_LEVELS: dict[str, Level] = {
    "NV_DBG_ERRORS": "error",
    "LEVEL_ERROR": "error",
    "LEVEL_FATAL": "error",
    "NV_DBG_WARNINGS": "warning",
}
# Printed as errors, so that they are always there.
_BANNER = re.compile(r"^NVRM: loading|persistence mode|is called even though")
# Only what is about hardware: of the rest a healthy node writes lines, too.
_HARDWARE = re.compile(
    r"kernel/gpu/(?:gsp|nvlink|rc|bif|bus|ccu|falcon|mem_sys|mmu)|rmapi/nv_gpu|osinit"
)


def make(name: str) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    is_switch = name == "nvidia-sxid"
    with debian("nvidia-open-gpu-kernel-modules", "nvopen/NVIDIA-kernel-module-source-*") as root:
        rows = list(_of_switch(root) if is_switch else _of_driver(root))
    header = Header(
        "NVIDIA NVSwitch driver" if is_switch else "NVIDIA kernel module",
        _VERSION,
        made="2026-11-26",
        program=__name__,
        source=f"Debian source package nvidia-open-gpu-kernel-modules {_VERSION}"
        + (f", {_SWITCH}" if is_switch else ", kernel-open and src/nvidia"),
        style="printf",
        layer="link" if is_switch else "device",
        scope="node" if is_switch else "gpu",
        requires=("SXid",) if is_switch else (),
    )
    return write(name, header, rows)


def _of_switch(root: Path) -> Iterator[Row]:
    numbers = _numbers(
        (root / _SWITCH / "interface/ctrl_dev_nvswitch.h").read_text(errors="replace")
    )
    for _, text in c_files(root, f"{_SWITCH}/kernel"):
        for call in call_sites(text, _REPORTS):
            name = f"NVSWITCH_ERR{call.arguments[0]}" if call.arguments else ""
            for message in formats(call.arguments[1]) if len(call.arguments) > 1 else []:
                for severity, level in _severities(call.name):
                    where = "" if "PRI_ERROR" in call.name else "Link %02d "
                    yield from _sxid(numbers, name, f"{severity}, {where}{message}", level)
        for call in call_sites(text, _PRINTS):
            name = call.arguments[1].strip() if len(call.arguments) > 1 else ""
            for message in formats(call.arguments[2]) if len(call.arguments) > 2 else []:
                is_error = message.startswith("Fatal") or _TOO_HOT.search(message)
                yield from _sxid(numbers, name, message.strip(), "error" if is_error else "warning")


def _severities(name: str) -> tuple[tuple[str, Level], ...]:
    return next(value for key, value in _SEVERITIES.items() if re.search(rf"_{key}(?:_|$)", name))


def _sxid(numbers: dict[str, int], name: str, message: str, level: Level) -> Iterator[Row]:
    if name not in numbers and message.startswith(("Severity", "Data")):
        # What follows the line that names the error.
        yield row("NVSWITCH_PRINT_SXID", f"SXid (PCI:%s): %05d, {message}", "info", scope="node")
    elif name in numbers and "%s%s" not in message:
        fault, why = classify(f"{name} {message}", _SWITCH_RULES, "")
        text = f"SXid (PCI:%s): {numbers[name]:05d}, {message}"
        fault = fault if level == "error" else ""
        yield row(
            f"NVSWITCH_ERR {name}", text, level, fault, scope="node", lasting=bool(fault), why=why
        )


def _numbers(text: str) -> dict[str, int]:
    """Return the value of each enumerator; one without a number follows the one before it."""
    found: dict[str, int] = {}
    last = -1
    for name, number in _ENUMERATOR.findall(without_comments(text)):
        last = int(number) if number else last + 1
        found[name] = last
    return found


def _of_driver(root: Path) -> Iterator[Row]:
    header = (root / "src/common/sdk/nvidia/inc/nverror.h").read_text(errors="replace")
    xids = {name: int(number) for name, number in _XID.findall(without_comments(header))}
    for at, text in c_files(root, "src/nvidia/src", "src/nvidia/arch", "kernel-open"):
        for call in call_sites(text, re.compile(r"nvErrorLog\w*")):
            yield from _xid_text(xids, call)
        for call in call_sites(text, re.compile(r"nv_printf|NV_PRINTF|NV_DEV_PRINTF\w*")):
            yield from _printed(at, call)


def _xid_text(xids: dict[str, int], call: CallSite) -> Iterator[Row]:
    name = call.arguments[1].strip() if len(call.arguments) > 2 else ""
    if name not in xids:
        return
    level, fault, why = xid_class(xids[name])
    for message in formats(call.arguments[2]):
        for line in lines(message):
            if letters(line, "printf") >= 8:
                text = f"Xid (%s): {xids[name]}, %s{line}"
                yield row(f"nverror.h {name}", text, level, fault, requires=("Xid",), why=why)


def _printed(at: str, call: CallSite) -> Iterator[Row]:
    level = _LEVELS.get(call.arguments[0].strip()) if call.arguments else None
    is_internal = call.name == "NV_PRINTF"
    if level is None or (is_internal and not _HARDWARE.search(at)):
        return
    for argument in call.arguments[1:3]:
        for message in formats(argument):
            for line in lines(message):
                if _BANNER.search(line):
                    yield row(at, line, "info", requires=("NVRM",))
                    continue
                fault, why = classify(line, _RULES, "") if level == "error" else ("", "")
                is_known = fault not in ("", "host_oom", "config_error")
                if letters(line, "printf") >= 8 and (is_known or not is_internal):
                    yield row(at, line, level, fault, requires=("NVRM",), why=why)
