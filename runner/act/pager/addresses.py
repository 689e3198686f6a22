"""The file of addresses: `NAME ADDRESS` a line. It is read again for each page, so that a mended file needs no restart."""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from runner.errors import UserError
from runner.facts.specs.pages import HEARTBEAT

# Chosen: people to reach, not a mailing list.
MAX_ADDRESSES = 32
MAX_FILE_BYTES = 64 * 1024
_LINE = re.compile(r"([a-z0-9-]{1,40})[ \t]+(\S+)")
_ALERTMANAGER = ("alertmanager", "alertmanagers")
_WEBHOOK = ("http", "https")


class Address(NamedTuple):
    """One address: the `number`th of its `name`. `url` may hold a secret: only the program that sends gets it."""

    name: str
    number: int
    url: str

    @property
    def id(self) -> str:
        """What the address is called everywhere: "oncall/1"."""
        return f"{self.name}/{self.number}"

    @property
    def scheme(self) -> str:
        """The part before `://`: it says which service, and holds no secret."""
        return self.url.partition("://")[0].lower()

    @property
    def is_alertmanager(self) -> bool:
        """Whether alerts are posted there, all that are raised at once."""
        return self.scheme in _ALERTMANAGER

    @property
    def is_webhook(self) -> bool:
        """Whether Stoker posts there by itself; other schemes are apprise's."""
        return self.scheme in _WEBHOOK

    @property
    def is_heartbeat(self) -> bool:
        """Whether a dead-man's switch is there, which gets signs of life and no page."""
        return self.name == HEARTBEAT


def read_addresses(path: Path) -> tuple[Address, ...]:
    """Return the addresses of a file.

    Raises UserError, which quotes no address, for a file that is missing, readable by others or wrong.
    """
    where = f"pages.addresses_file: {path}"
    try:
        with path.open(encoding="utf-8") as file:
            found = os.fstat(file.fileno())
            text = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(found.st_mode) else None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(f"{where} cannot be read: {reason}; see `stoker docs paging`") from None
    if text is None or len(text) > MAX_FILE_BYTES:
        raise UserError(f"{where} is no file of addresses; see `stoker docs paging`")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(found.st_mode)
        raise UserError(f"{where} has mode {mode:o}: others may use it; `chmod 600 {path}`")
    return _parsed(text, where)


def _parsed(text: str, where: str) -> tuple[Address, ...]:
    addresses: list[Address] = []
    for at, line in enumerate(text.splitlines(), 1):
        content = line.strip()
        if not content or content.startswith("#"):
            continue
        match = _LINE.fullmatch(content)
        if match is None or not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://.", match[2]):
            raise UserError(
                f"{where}, line {at} is not NAME ADDRESS, such as `oncall https://...`; a name has 1 to 40 characters of a-z, "
                "0-9 and -"
            )
        number = 1 + sum(each.name == match[1] for each in addresses)
        addresses.append(Address(match[1], number, match[2]))
    if not addresses or len(addresses) > MAX_ADDRESSES:
        raise UserError(f"{where} has {len(addresses)} addresses; give 1 to {MAX_ADDRESSES}")
    for each in addresses:
        if each.is_heartbeat and not each.is_webhook:
            raise UserError(f"{where}: {each.id} is no http:// or https:// address")
    return tuple(addresses)
