"""`python -P -m healthchecks.devices.storage_probe PATH`: looks whether a path answers: file system, list, a small read.

It prints each part before it begins with it, for the mount may never answer; then the seconds that all of it took, or the error.
"""

import itertools
import json
import os
import sys
import time
from typing import Any

READ_BYTES = 4096
# Of a folder, in search of a file to read. Chosen, not measured.
MAX_ENTRIES = 64


def main(arguments: list[str]) -> int:
    """Print how it went; 0 always: an error is part of the answer."""
    path = arguments[0]
    began = time.monotonic()
    try:
        _print({"part": "statvfs"})
        os.statvfs(path)
        _print({"part": "stat"})
        name = _first_file(path) if os.path.isdir(path) else path
        num_bytes = 0
        if name:
            _print({"part": f"read of {os.path.basename(name)}"})
            num_bytes = _read(name)
    except OSError as error:
        _print({"errno": error.errno, "error": error.strerror or str(error)})
        return 0
    _print({"seconds": time.monotonic() - began, "num_bytes": num_bytes})
    return 0


def _first_file(folder: str) -> str:
    """Return one of the files in a folder, "" for none."""
    _print({"part": "list"})
    with os.scandir(folder) as entries:
        for entry in itertools.islice(entries, MAX_ENTRIES):
            if entry.is_file(follow_symlinks=False) and os.access(entry.path, os.R_OK):
                return entry.path
    return ""


def _read(path: str) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        # What the page cache has is no answer of the storage.
        os.posix_fadvise(descriptor, 0, READ_BYTES, os.POSIX_FADV_DONTNEED)
        return len(os.read(descriptor, READ_BYTES))
    finally:
        os.close(descriptor)


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
