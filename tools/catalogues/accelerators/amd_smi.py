"""AMD SMI: the statuses that its Python bindings explain."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.catalogues.native.archives import packed_wheel
from tools.catalogues.native.classes import row
from tools.catalogues.rows import FOLDER, Header, Level, Row, write

NAMES = ("amd-smi",)
_VERSION = "7.0.2"
_EXPLAINED = re.compile(r'AMDSMI_STATUS_(\w+)\s*:\s*"(AMD\w+) -\s+([^"]+)"')
# Monitors ask for what a device lacks, and go on: all others are warnings.
_ERRORS = {
    "DRIVER_NOT_LOADED": ("gpu_lost", "the node's driver is not there"),
    "AMDGPU_RESTART_ERR": ("gpu_xid_other", "the driver does not come back"),
    "CORRUPTED_EEPROM": ("gpu_xid_other", "the board's memory, where bad pages are kept"),
    "DRM_ERROR": ("gpu_xid_other", "the driver does not answer as it should"),
    "TIMEOUT": ("gpu_xid_other", "the device does not answer"),
    "IO": ("gpu_xid_other", "the device does not answer"),
    "FAIL_LOAD_MODULE": ("config_error", "what is installed"),
    "FAIL_LOAD_SYMBOL": ("config_error", "library and bindings do not fit"),
    "NO_PERM": ("config_error", "rights of the process"),
    "OUT_OF_RESOURCES": ("host_oom", ""),
}


def make(name: str, *, folder: Path = FOLDER) -> Counter[str]:
    """Write the catalogue and return its rows by level. Raises SourceMissing."""
    with packed_wheel(f"amdsmi=={_VERSION}") as wheel:
        text = wheel.read("amdsmi/amdsmi_exception.py").decode()
    header = Header(
        "AMD SMI",
        _VERSION,
        made="2026-11-26",
        program=__name__,
        source=f"wheel amdsmi {_VERSION}: amdsmi_exception.py",
        style="plain",
        layer="device",
        scope="gpu",
    )
    return write(name, header, _rows(text), folder=folder)


def _rows(text: str) -> Iterator[Row]:
    for name, written, explained in _EXPLAINED.findall(text):
        fault, why = _ERRORS.get(name, ("", ""))
        at = f"AMDSMI_STATUS_{name}"
        level: Level = "error" if fault else "warning"
        # Some bindings write another name than the library's.
        yield row(at, at, level, fault, why=why)
        if written != at:
            yield row(at, f"{written} - {explained.strip()}", level, fault, why=why)
