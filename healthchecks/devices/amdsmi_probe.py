"""`python -P -m healthchecks.devices.amdsmi_probe`: asks AMD's library, and prints each answer as it has it.

`amdsmi` comes with ROCm, for the interpreter that ROCm was installed for. See `readings.parse_lines`.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any


def main() -> int:
    """Print what the library answers; 1 if it cannot be asked."""
    try:
        _print({"part": "import of amdsmi"})
        import amdsmi

        _print({"part": "amdsmi_init"})
        amdsmi.amdsmi_init()
        handles = amdsmi.amdsmi_get_processor_handles()
    except ImportError as error:
        _print({"refused": f"amdsmi is not installed: {error}"})
        return 1
    except Exception as error:  # noqa: BLE001 - the library's errors are of several classes by version
        _print({"refused": f"amdsmi: {error}"})
        return 1
    for index, handle in enumerate(handles):
        _device(amdsmi, index, handle)
    _print({"end": True})
    return 0


def _device(library: Any, index: int, handle: Any) -> None:
    asic = partial(library.amdsmi_get_gpu_asic_info, handle)
    _ask(index, "pci", lambda: str(library.amdsmi_get_gpu_device_bdf(handle)))
    _ask(index, "name", lambda: str(asic()["market_name"]))
    _ask(index, "package", lambda: f"OAM {asic()['oam_id']}")
    for block in library.AmdSmiGpuBlock:
        if block.name in ("INVALID", "RESERVED"):
            continue
        count = partial(library.amdsmi_get_gpu_ecc_count, handle, block)
        name = block.name.lower()
        _ask(index, f"ue.{name}", partial(_item, count, "uncorrectable_count"))
        _ask(index, f"ce.{name}", partial(_item, count, "correctable_count"))
    _ask(index, "xgmi_status", lambda: float(library.amdsmi_gpu_xgmi_error_status(handle)))
    # From ROCm 6.4 on.
    if hasattr(library, "amdsmi_get_gpu_xgmi_link_status"):
        links = partial(library.amdsmi_get_gpu_xgmi_link_status, handle)
        _ask(index, "xgmi_links_down", lambda: _links_down(links()["status"]))
    kinds, metrics = library.AmdSmiTemperatureType, library.AmdSmiTemperatureMetric
    for key, kind in (("junction_margin", kinds.HOTSPOT), ("memory_margin", kinds.VRAM)):
        temperature = partial(library.amdsmi_get_temp_metric, handle, kind)
        _ask(index, key, partial(_margin, temperature, metrics))


def _links_down(states: list[str]) -> float:
    """Count links that are down: U is up, D is down, X is one that the board does not have."""
    unknown = sum(state not in ("U", "D", "X") for state in states)
    if unknown:
        raise ValueError(f"{unknown} of {len(states)} links have no known state")
    return float(states.count("D"))


def _item(question: Callable[[], Any], name: str) -> float:
    return float(question()[name])


def _margin(temperature: Callable[[Any], Any], metrics: Any) -> float:
    return float(temperature(metrics.CRITICAL)) - float(temperature(metrics.CURRENT))


def _ask(index: int, key: str, question: Callable[[], float | str]) -> None:
    _print({"part": f"{key} of GPU {index}"})
    value, text, trouble = None, "", ""
    try:
        answer = question()
    except Exception as error:  # noqa: BLE001 - as above: it ends in a reading
        # The library's number and name for what a device does not have.
        is_absent = "NOT_SUPPORTED" in str(error) or getattr(error, "err_code", None) == 2
        trouble = "" if is_absent else str(error) or type(error).__name__
    else:
        if isinstance(answer, str):
            text = answer
        else:
            value = answer
    _print({"device": index, "key": key, "value": value, "text": text, "trouble": trouble})


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main())
