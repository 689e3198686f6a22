"""Which GPUs the node has by what the kernel and the drivers show without any library."""

import glob
import os
from collections import Counter

from healthchecks.check import GpuVendor

# One for each NVIDIA GPU that the driver serves.
NVIDIA_DEVICES = "/dev/nvidia[0-9]*"
VENDORS: dict[str, GpuVendor] = {"0x10de": "nvidia", "0x1002": "amd"}
# PCI class codes: 3D controllers, and processing accelerators. A display's card (0x0300) may be all that a laptop has, so it
# counts where its driver serves it.
ACCELERATORS = ("0x0302", "0x1200", "0x0380")


def gpus_of(sysfs: str) -> tuple[GpuVendor, int]:
    """Return whose GPUs programs can use here and how many; the vendor of those on the bus where a driver serves none."""
    num_nvidia = len(glob.glob(NVIDIA_DEVICES)) if sysfs == "/sys" else 0
    if num_nvidia:
        return "nvidia", num_nvidia
    num_amd = len(amd_cards(sysfs))
    if num_amd:
        return "amd", num_amd
    on_bus = Counter(
        vendor
        for device in glob.glob(os.path.join(sysfs, "bus/pci/devices/*"))
        if _read(device, "class").startswith(ACCELERATORS)
        and (vendor := VENDORS.get(_read(device, "vendor")))
    )
    return (on_bus.most_common(1)[0][0], 0) if on_bus else ("", 0)


def amd_cards(sysfs: str) -> list[str]:
    """Return the folders of AMD's devices that compute, in the order of their PCI addresses.

    The device of a display alone, such as one within a CPU, has no reports of its memory's errors.
    """
    cards = glob.glob(os.path.join(sysfs, "class/drm/card[0-9]*/device"))
    own = {
        os.path.realpath(card)
        for card in cards
        if _read(card, "vendor") == "0x1002" and os.path.isdir(os.path.join(card, "ras"))
    }
    return sorted(own)


def _read(folder: str, name: str) -> str:
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read().strip()
    except OSError:
        return ""
