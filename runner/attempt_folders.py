"""The output folder of an attempt. The supervisor makes it; nodes that share no file system with it make their own."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path

# A folder in it: pipes by which flight records are requested from ranks, and the records.
FLIGHT = "flight"

log = logging.getLogger("stoker")


def make_output_folder(path: Path) -> None:
    """Make the folder, and one for flight records if it can hold pipes: torch ends a rank that cannot make its pipe."""
    path.mkdir(parents=True, exist_ok=True)
    probe = path / f".{FLIGHT}-{uuid.uuid4().hex}"
    try:
        os.mkfifo(probe)
        probe.unlink()
        (path / FLIGHT).mkdir(exist_ok=True)
    except OSError as error:
        # Some file systems, such as mounted object stores, have no pipes.
        log.info("no flight records of ranks: no pipes in %s: %s", path, error)
