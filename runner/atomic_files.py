"""Small files that a power cut leaves whole: the old content or the new."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# any disk writes a sector whole or not at all
SECTOR_BYTES = 512


def sector(plain: Mapping[str, Any]) -> bytes:
    """Encode a small mapping as JSON that fills a sector."""
    data = json.dumps(plain).encode().ljust(SECTOR_BYTES - 1) + b"\n"
    assert len(data) == SECTOR_BYTES, f"{len(data)} bytes do not fit a sector"
    return data


def overwrite_sector(file: int, plain: Mapping[str, Any]) -> None:
    """Overwrite an open file of one sector in place: many times cheaper than replacing it."""
    os.pwrite(file, sector(plain), 0)
    os.fdatasync(file)


def write_atomically(path: Path, data: str | bytes) -> None:
    """Replace a file in one step that survives a power cut."""
    scratch = path.with_name(f"{path.name}.part")
    with scratch.open("wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
