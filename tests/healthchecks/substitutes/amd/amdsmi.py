"""In place of `amdsmi` on PYTHONPATH: its functions answer what AMDSMI_GPUS says, a JSON list with a GPU each.

Names and answers of the functions are those of AMD SMI 7.0 (rocm.docs.amd.com/projects/amdsmi). A GPU: {"bdf", "oam_id",
"ue": {block: count}, "xgmi_status": N, "xgmi_links": [STATE]}; AMDSMI_FAULT is `hang FUNCTION`, `stop FUNCTION` or `error
FUNCTION`. The states of links are those of amdsmi_interface.py.
"""

import json
import os
import time
from enum import IntEnum
from typing import Any


class AmdSmiLibraryException(Exception):
    """What the library raises; 2 is AMDSMI_STATUS_NOT_SUPPORTED."""

    def __init__(self, err_code: int) -> None:
        super().__init__(f"Error code: {err_code}")
        self.err_code = err_code


class AmdSmiGpuBlock(IntEnum):
    """Some of the library's blocks."""

    INVALID = 0
    UMC = 1
    GFX = 4
    XGMI_WAFL = 64


class AmdSmiTemperatureType(IntEnum):
    """Two sensors."""

    HOTSPOT = 1
    VRAM = 2


class AmdSmiTemperatureMetric(IntEnum):
    """Two values of a sensor."""

    CURRENT = 0
    CRITICAL = 5


def _fail(name: str) -> None:
    match os.environ.get("AMDSMI_FAULT", "").split():
        case ["hang", other] if other == name:
            time.sleep(600)
        case ["stop", other] if other == name:
            os.write(1, b'{"device": 0, "key": "ue.')
            os._exit(7)
        case ["error", other] if other == name:
            raise AmdSmiLibraryException(10)


def amdsmi_init() -> None:
    """Start the library."""
    _fail("amdsmi_init")


def amdsmi_get_processor_handles() -> list[dict[str, Any]]:
    """Return all GPUs."""
    found: list[dict[str, Any]] = json.loads(os.environ["AMDSMI_GPUS"])
    return found


def amdsmi_get_gpu_device_bdf(handle: dict[str, Any]) -> str:
    """Return the PCI address."""
    return str(handle["bdf"])


def amdsmi_get_gpu_asic_info(handle: dict[str, Any]) -> dict[str, Any]:
    """Return name and module."""
    return {"market_name": "AMD Instinct MI250X", "oam_id": handle["oam_id"]}


def amdsmi_get_gpu_ecc_count(handle: dict[str, Any], block: AmdSmiGpuBlock) -> dict[str, int]:
    """Return the counts of a block."""
    _fail("amdsmi_get_gpu_ecc_count")
    if block is AmdSmiGpuBlock.GFX:
        raise AmdSmiLibraryException(2)
    count = handle.get("ue", {}).get(block.name.lower(), 0)
    return {"correctable_count": 0, "uncorrectable_count": count, "deferred_count": 0}


def amdsmi_gpu_xgmi_error_status(handle: dict[str, Any]) -> int:
    """Return 0 for no error of the links, 1 for one, 2 for several."""
    return int(handle.get("xgmi_status", 0))


def amdsmi_get_gpu_xgmi_link_status(handle: dict[str, Any]) -> dict[str, Any]:
    """Return the state of each link: U up, D down, X not there, N/A not known."""
    _fail("amdsmi_get_gpu_xgmi_link_status")
    states = handle.get("xgmi_links", ["U", "U", "U", "X"])
    return {"status": states, "total_links": len(states)}


def amdsmi_get_temp_metric(handle: dict[str, Any], kind: int, metric: int) -> int:
    """Return degrees."""
    return 105 if metric == AmdSmiTemperatureMetric.CRITICAL else 41
