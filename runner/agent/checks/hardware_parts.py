"""Hardware: the node's identity as a machine, read from its parts and not from a name or an address.

    a file `hardware.json` in the node's folder     wins: nodes that share a machine have nothing else of their own
    board serial, product UUID                      /sys/class/dmi/id, which only root may read
    GPU UUIDs                                       nvidia-smi
    MACs of physical interfaces                     /sys/class/net; not of bridges, containers, or made up by software

The strongest of these is the node's hardware, all of them are its parts. Makers of boards and
firmware leave placeholders such as "Default string"; those, and repeated characters, do not count.
"""

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
from runner.keeper.procfs import read_bytes

log = logging.getLogger("stoker.agent")

HARDWARE_NAME = "hardware.json"
# Chosen, not measured. The supervisor stores as many parts of one machine.
MAX_PARTS = 64
MAX_PART_CHARACTERS = 200
MIN_SERIAL_CHARACTERS = 4
# Seen on boards; compared in lower case, letters and digits only. The UUIDs are defaults of firmware.
_PLACEHOLDER = re.compile(
    "tobefilledbyoem|defaultstring|none|not(specified|applicable|available|provided)|na|null|empty"
    "|unknown|invalid|oem|standard|serial|(system|(base|type2)?board|chassis)?serialnumber"
    "|systemproductname|0?123456789|1234567890|12345678|12345678123456789012345678901234"
    "|03000200040005000006000700080009|00020003000400050006000700080009|(fe){16}"
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

    `shares_machine`: a file is written at the first start. `gpus` returns UUIDs; `root` holds `sys`.
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
    # Interfaces without a device are made by software.
    devices = sorted((root / "sys/class/net").glob("*/device"))
    addresses = [
        # A card in a bond shows the bond's address; its own is in another file.
        _text(device.with_name("bonding_slave") / "perm_hwaddr")
        or _text(device.with_name("address"))
        for device in devices
    ]
    permanent = [f"mac:{each.lower()}" for each in addresses if _is_permanent(each)]
    return list(dict.fromkeys(permanent))


def is_serial(text: str) -> bool:
    """Whether a text of the firmware identifies one board, and is no placeholder."""
    plain = re.sub("[^a-z0-9]", "", text.lower())
    is_varied = len(plain) >= MIN_SERIAL_CHARACTERS and len(set(plain)) > 1
    return is_varied and not _PLACEHOLDER.fullmatch(plain)


def _is_permanent(address: str) -> bool:
    if not re.fullmatch("([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}", address):
        return False
    first = int(address[:2], 16)
    # Bit 0: a group address. Bit 1: assigned by an administrator or a hypervisor.
    return not first & 0b11 and len(set(address.lower()) - {":"}) > 1


def _text(path: Path) -> str:
    return read_bytes(str(path)).decode(errors="replace").strip()[:MAX_PART_CHARACTERS]


def _from_file(path: Path) -> HardwareIdentity:
    if not path.exists():
        try:
            write_atomically(path, json.dumps({"serial": uuid.uuid4().hex}))
        except OSError as error:
            reason = f"{path} cannot be written ({error}); it identifies this node's hardware"
            raise PermanentError(reason) from error
    try:
        plain = json.loads(path.read_text())
        serial, parts = plain["serial"], plain.get("parts", [])
        texts = [serial, *parts] if isinstance(parts, list) else [None]
        if not all(
            isinstance(text, str) and 0 < len(text) <= MAX_PART_CHARACTERS for text in texts
        ):
            raise ValueError(f"serial and parts are texts of 1 to {MAX_PART_CHARACTERS} characters")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise PermanentError(
            f'{path} should hold {{"serial": "...", "parts": ["..."]}} ({error}); repair it, or delete it'
        ) from error
    hardware, *others = map(valid_text, [f"file:{serial}", *parts])
    return HardwareIdentity(hardware, tuple(dict.fromkeys([hardware, *others]))[:MAX_PARTS])
