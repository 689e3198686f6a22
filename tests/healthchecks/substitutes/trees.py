"""Trees of sysfs of machines with devices that this one does not have, as the kernel writes them.

Forms of the files of InfiniBand: Linux, Documentation/ABI/stable/sysfs-class-infiniband; types and rates of a machine with H100s
(MT4129) as recorded in leptonai/gpud (Apache-2.0), pkg/nvidia-query/infiniband/class/testdata, and of one with ConnectX-3 (MT4099,
mlx4) by a public report of a port that stayed in `2: Polling`. Of amdgpu: Linux, drivers/gpu/drm/amd/amdgpu, amdgpu_ras.c.
"""

from collections.abc import Mapping
from pathlib import Path

BLOCKS = ("umc", "gfx", "sdma", "mmhub", "xgmi_wafl")


def write(root: Path, files: Mapping[str, str]) -> Path:
    """Write files below a folder, and return it."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


def infiniband(
    adapter: str, *, hca_type: str = "MT4129", rate: str = "400 Gb/sec (4X NDR)"
) -> dict[str, str]:
    """Return the files of an adapter with one port that is up and has counted nothing."""
    own = f"class/infiniband/{adapter}"
    port = f"{own}/ports/1"
    counters = (
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
    )
    return {
        f"{own}/hca_type": hca_type,
        f"{own}/board_id": "MT_0000000838" if hca_type == "MT4129" else "MT_1090120019",
        f"{own}/fw_ver": "28.39.1002" if hca_type == "MT4129" else "2.40.5030",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/rate": rate,
        f"{port}/link_layer": "InfiniBand",
        **{f"{port}/counters/{name}": "0" for name in counters},
        f"{port}/hw_counters/rnr_nak_retry_err": "0",
    }


def amd_gpu(
    number: int, address: str, *, device: str = "0x7408", serial: str = "", deferred: bool = False
) -> dict[str, str]:
    """Return the files of a sound AMD GPU; newer drivers count deferred errors, too."""
    own = f"class/drm/card{number}/device"
    counts = "ue: 0\nce: 0\nde: 0" if deferred else "ue: 0\nce: 0"
    sensors = {"1": ("edge", "38000", "100000"), "2": ("junction", "41000", "105000")}
    sensors |= {"3": ("mem", "45000", "95000")}
    files = {
        f"{own}/vendor": "0x1002",
        f"{own}/device": device,
        f"{own}/uevent": f"DRIVER=amdgpu\nPCI_CLASS=38000\nPCI_SLOT_NAME={address}",
        f"{own}/current_link_width": "16",
        f"{own}/max_link_width": "16",
        f"{own}/ras/gpu_vram_bad_pages": "",
        "module/amdgpu/version": "6.3.6",
        **{f"{own}/ras/{block}_err_count": counts for block in BLOCKS},
    }
    if serial:
        files[f"{own}/serial_number"] = serial
    for sensor, (label, value, critical) in sensors.items():
        place = f"{own}/hwmon/hwmon{number}/temp{sensor}"
        files |= {f"{place}_label": label, f"{place}_input": value, f"{place}_crit": critical}
    return files


def card(name: str) -> dict[str, str]:
    """Return the files of an Ethernet card that is up: its carrier came once, and was lost once when it was configured."""
    own = f"class/net/{name}"
    statistics = ("rx_errors", "tx_errors", "rx_crc_errors", "rx_dropped", "tx_dropped")
    return {
        f"{own}/device/uevent": "DRIVER=mlx5_core",
        f"{own}/operstate": "up",
        f"{own}/carrier_changes": "3",
        f"{own}/carrier_up_count": "2",
        f"{own}/carrier_down_count": "1",
        f"{own}/speed": "100000",
        **{f"{own}/statistics/{each}": "0" for each in statistics},
    }
