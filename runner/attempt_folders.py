"""The output folder of an attempt. The supervisor makes it; nodes that share no file system with it make their own."""

import logging
import os
import uuid
from pathlib import Path

from runner.folder_modes import make_folder

# A folder in it: pipes by which flight records are requested from ranks, and the records.
FLIGHT = "flight"

log = logging.getLogger("stoker")


def make_output_folder(path: Path) -> None:
    """Make the folder, and one for flight records if it can hold pipes: torch ends a rank that cannot make its pipe."""
    make_folder(path)
    probe = path / f".{FLIGHT}-{uuid.uuid4().hex}"
    try:
        os.mkfifo(probe)
        probe.unlink()
        make_folder(path / FLIGHT)
    except OSError as error:
        # Some file systems, such as mounted object stores, have no pipes.
        log.info("no flight records of ranks: no pipes in %s: %s", path, error)
