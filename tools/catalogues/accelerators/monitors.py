"""Monitors of NVIDIA's GPUs: NVML, DCGM, and the fabric manager, of tables of facts."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.native.classes import letters, required, row, rules
from tools.catalogues.native.facts import table
from tools.catalogues.rows import FOLDER, Header, Level, Row, write

NAMES = ("nvml", "dcgm", "nvidia-fabric-manager")
_NVML: dict[str, tuple[Level, str, str]] = {
    "GPU_IS_LOST": ("error", "gpu_lost", ""),
    "GPU_NOT_FOUND": ("error", "gpu_lost", ""),
    "OPERATING_SYSTEM": ("error", "gpu_lost", "the operating system blocks the GPU"),
    "DRIVER_NOT_LOADED": ("error", "gpu_lost", "the node's driver is not there"),
    "RESET_REQUIRED": ("error", "gpu_lost", "only a reset brings the GPU back"),
    "IRQ_ISSUE": ("error", "gpu_xid_other", "no interrupts arrive"),
    "CORRUPTED_INFOROM": ("error", "gpu_xid_other", "the board's memory"),
    "INSUFFICIENT_POWER": ("error", "thermal_power", "external power"),
    "LIB_RM_VERSION_MISMATCH": ("error", "config_error", "library and driver do not fit"),
    "LIBRARY_NOT_FOUND": ("error", "config_error", "what is installed"),
    "NO_PERMISSION": ("error", "config_error", "rights of the process"),
    "MEMORY": ("error", "host_oom", ""),
    "UNKNOWN": ("error", "gpu_xid_other", "the GPU does not answer as it should"),
    "TIMEOUT": ("error", "gpu_xid_other", "the GPU does not answer"),
}
# Texts with fewer letters are known only behind their prefix; chosen.
_FEW_LETTERS = 14
# Monitors ask for what a GPU lacks, and go on.
_NVML_OTHER: tuple[Level, str, str] = ("warning", "", "")
# DCGM's severities: what it isolates, resets or wants looked into has failed.
_DCGM_LEVELS: dict[str, Level] = {
    "ISOLATE": "error",
    "RESET": "error",
    "TRIAGE": "error",
    "CONFIG": "warning",
    "MONITOR": "warning",
    "UNKNOWN": "warning",
}
# What was measured too hot or without power did happen, whatever DCGM wants done about it.
_DCGM_MEASURED = re.compile(r"THERMAL|TEMP_VIOLATION|POWER_BRAKE")
_DCGM = rules(
    (r"^DCGM_FR_\w*NVLINKS?_\w*|NVSWITCH", "nvlink_error", ""),
    (r"HARDWARE_MEMORY", "gpu_ecc", ""),
    (r"HARDWARE_PCIE", "host_hardware", "the bus between host and GPU"),
    (
        r"HARDWARE_(?:THERMAL|POWER)|THERMAL|PERF_THRESHOLD",
        "thermal_power",
        "below the speed of its kind",
    ),
    (r"SOFTWARE_XID", "gpu_xid_other", ""),
    (r"HARDWARE_OTHER|PERF_", "gpu_xid_other", "the GPU failed its test"),
    (r"MEMORY_ALLOC_HOST", "host_oom", ""),
    (r"SOFTWARE_", "config_error", "what is installed, or a setting"),
)


def make(name: str, *, folder: Path = FOLDER) -> Counter[str]:
    """Write the catalogue and return its rows by level."""
    version, rows = {
        "nvml": ("of 2026", _nvml),
        "dcgm": ("of 2025", _dcgm),
        "nvidia-fabric-manager": ("of 2025", _fabric_manager),
    }[name]
    emitters = {"nvml": "NVML", "dcgm": "DCGM", "nvidia-fabric-manager": "NVIDIA fabric manager"}
    header = Header(
        emitters[name],
        version,
        made="2026-11-26",
        program=__name__,
        source=f"facts/{name}.tsv",
        style="printf",
        layer="link" if name == "nvidia-fabric-manager" else "device",
        scope="node" if name == "nvidia-fabric-manager" else "gpu",
    )
    return write(name, header, rows(), folder=folder)


def _nvml() -> Iterator[Row]:
    for name, text in table("nvml"):
        level, fault, why = _NVML.get(name.removeprefix("NVML_ERROR_"), _NVML_OTHER)
        words = name.removeprefix("NVML_ERROR_").title().replace("_", "")
        yield row(name, name, level, fault, why=why)
        # Of its Python bindings.
        yield row(name, f"NVMLError_{words}", level, fault, why=why)
        yield row(name, f"Failed to initialize NVML: {text}", level, fault, why=why)
        if letters(text, "plain") >= _FEW_LETTERS:
            yield row(name, text, level, fault, requires=("nvml", "nvidia", "gpu"), why=why)


def _dcgm() -> Iterator[Row]:
    for name, severity, category, text in table("dcgm"):
        is_measured = _DCGM_MEASURED.search(f"{name} {category}") is not None
        level = "error" if is_measured else _DCGM_LEVELS[severity]
        words = f"{name} {category}"
        rule = next((rule for rule in _DCGM if rule.pattern.search(words)), None)
        fault = rule.fault if rule and level == "error" else ""
        why = rule.why if rule and fault else ""
        is_lasting = severity == "ISOLATE" and fault in ("gpu_ecc", "nvlink_error")
        requires = required(text, "printf", ("dcgm", "nvvs", "error:"))
        if re.match(r"Detected %[\w.]+ %s for GPU", text):
            requires = ("dcgm", "nvvs", "error:")
        yield row(name, text, level, fault, requires=requires, lasting=is_lasting, why=why)
        # How monitors above DCGM repeat it; a field of codes may also name what was looked for and not found.
        yield row(name, f"ErrorCode:{name}", level, fault, lasting=is_lasting, why=why)


def _fabric_manager() -> Iterator[Row]:
    for level, fault, text, why in table("nvidia-fabric-manager"):
        found: Level = "error" if level == "error" else "warning" if level == "warning" else "info"
        more = {"scope": "node"} if fault == "nvlink_error" else {}
        yield row("fabricmanager.log", text, found, fault, why=why, **more)
