"""The folder for what an attempt leaves: made once, by whoever prepares the attempt; by a node where nodes share no file system."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path

# in it: pipes at which ranks are asked for their flight records, and the records
FLIGHT = "flight"

log = logging.getLogger("stoker")


def make_output_folder(path: Path) -> None:
    """Make the folder, and that for flight records if pipes can be made there: torch ends a rank that cannot make its own."""
    path.mkdir(parents=True, exist_ok=True)
    probe = path / f".{FLIGHT}-{uuid.uuid4().hex}"
    try:
        os.mkfifo(probe)
        probe.unlink()
        (path / FLIGHT).mkdir(exist_ok=True)
    except OSError as error:
        # an object store, for one
        log.info("no flight records of ranks: no pipes in %s: %s", path, error)
