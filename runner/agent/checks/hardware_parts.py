"""Hardware: the node's identity as a machine, read from its parts and not from a name or an address.

    a file `hardware.json` in the node's folder     wins: nodes that share a machine have nothing else of their own
    board serial, product UUID                      /sys/class/dmi/id, which only root may read
    GPU UUIDs                                       nvidia-smi
    MACs of physical interfaces                     /sys/class/net; not of bridges, containers, or made up by software

The strongest of these is the node's hardware, all of them are its parts. Makers of boards and
firmware leave placeholders such as "Default string"; those, and repeated characters, do not count.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.atomic_files import write_atomically
from runner.errors import PermanentError
from runner.facts.wording import valid_text

log = logging.getLogger("stoker.agent")

HARDWARE_NAME = "hardware.json"
# As many as the supervisor stores of one machine; chosen.
MAX_PARTS = 64
# Characters; chosen.
MAX_PART = 200
# Characters of a board's serial; chosen.
MIN_SERIAL = 4
# Seen on boards; compared in lower case, letters and digits only. The UUIDs are defaults of firmware.
_PLACEHOLDERS = frozenset(
    [
        "tobefilledbyoem",
        "defaultstring",
        "none",
        "notspecified",
        "notapplicable",
        "notavailable",
        "notprovided",
        "na",
        "null",
        "empty",
        "unknown",
        "invalid",
        "oem",
        "standard",
        "serial",
        "serialnumber",
        "systemserialnumber",
        "baseboardserialnumber",
        "boardserialnumber",
        "chassisserialnumber",
        "type2boardserialnumber",
        "systemproductname",
        "0123456789",
        "123456789",
        "1234567890",
        "12345678",
        "03000200040005000006000700080009",
        "00020003000400050006000700080009",
        "fefefefefefefefefefefefefefefefe",
        "12345678123456789012345678901234",
    ]
)


@dataclass(frozen=True, slots=True)
class HardwareIdentity:
    """A node's machine. `hardware` is the first of `parts`, which are ordered by strength."""

    hardware: str
    parts: tuple[str, ...]


def find(
    folder: Path, *, shares_machine: bool, gpus: Callable[[], Sequence[str]], root: Path = Path("/")
) -> HardwareIdentity:
    """Return the hardware of the node with this folder. Raises PermanentError for a file that cannot be read or written.

    `shares_machine`: a file is written at the first start. `gpus` returns UUIDs; `root` holds
    `sys`.
    """
    path = folder / HARDWARE_NAME
    if path.exists() or shares_machine:
        return _from_file(path)
    parts = [*boards(root), *(f"gpu:{gpu}" for gpu in gpus()), *cards(root)]
    if not parts:
        log.warning(
            "no board serial, GPU or network card identifies this machine, so %s does: "
            "move the node's folder only together with the machine",
            path,
        )
        return _from_file(path)
    return HardwareIdentity(parts[0], tuple(parts[:MAX_PARTS]))


def boards(root: Path) -> list[str]:
    """Return the identifiers of the board: its serial, and the machine's UUID."""
    dmi = root / "sys/class/dmi/id"
    texts = (_text(dmi / "board_serial"), _text(dmi / "product_uuid"))
    return [f"board:{text}" for text in dict.fromkeys(texts) if is_serial(text)]


def cards(root: Path) -> list[str]:
    """Return the permanent addresses of network cards."""
    found = []
    for interface in sorted((root / "sys/class/net").glob("*")):
        # Software made it.
        if not (interface / "device").exists():
            continue
        # A card in a bond shows the bond's address; its own is in another file.
        address = _text(interface / "bonding_slave/perm_hwaddr") or _text(interface / "address")
        if _is_permanent(address):
            found.append(f"mac:{address.lower()}")
    return list(dict.fromkeys(found))


def is_serial(text: str) -> bool:
    """Whether a text of the firmware identifies one board, and is no placeholder."""
    plain = re.sub("[^a-z0-9]", "", text.lower())
    return len(plain) >= MIN_SERIAL and len(set(plain)) > 1 and plain not in _PLACEHOLDERS


def _is_permanent(address: str) -> bool:
    if not re.fullmatch("([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", address):
        return False
    first = int(address[:2], 16)
    # Bit 0: a group address. Bit 1: assigned by an administrator or a hypervisor.
    return not first & 0b11 and len(set(address.lower()) - {":"}) > 1


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[:MAX_PART]
    except OSError:
        # It is missing, or not readable for this user.
        return ""


def _from_file(path: Path) -> HardwareIdentity:
    if not path.exists():
        try:
            write_atomically(path, json.dumps({"serial": uuid.uuid4().hex}))
        except OSError as error:
            raise PermanentError(
                f"{path} cannot be written ({error}); it identifies this node's hardware"
            ) from error
    try:
        plain = json.loads(path.read_text())
        serial, parts = plain["serial"], plain.get("parts", [])
        texts = [serial, *parts] if isinstance(parts, list) else [None]
        if not all(isinstance(text, str) and 0 < len(text) <= MAX_PART for text in texts):
            raise ValueError(f"serial and parts are texts of 1 to {MAX_PART} characters")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PermanentError(
            f'{path} should hold {{"serial": "...", "parts": ["..."]}} ({error}); repair it, or delete it'
        ) from error
    hardware, *others = map(valid_text, [f"file:{serial}", *parts])
    return HardwareIdentity(hardware, tuple(dict.fromkeys([hardware, *others]))[:MAX_PARTS])
