"""`python -P -m healthchecks.devices.sysfs_probe ROOT NUM_SAMPLES SECONDS PATTERN ...`: prints what files below ROOT hold.

One JSON object a line: a file that is about to be read, or its text. The driver behind a file may never answer. Patterns are those
of glob; all files are read so many times, `SECONDS` apart. See `sysfs.read_files`.
"""

import glob
import json
import os
import sys
import time
from typing import Any

# Of one file. Chosen: a table of retired pages may have hundreds of lines.
MAX_BYTES = 64 << 10


def main(arguments: list[str]) -> int:
    """Print all files, in order; 0 always: what cannot be read is part of the answer."""
    root, num_samples, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    found = {path for pattern in arguments[3:] for path in glob.glob(os.path.join(root, pattern))}
    for sample in range(num_samples):
        if sample:
            time.sleep(seconds)
        for path in sorted(found):
            _read(path, os.path.relpath(path, root))
    _print({"end": True})
    return 0


def _read(path: str, name: str) -> None:
    _print({"part": name})
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES).decode(errors="replace")
    except OSError as error:
        _print({"file": name, "text": "", "trouble": error.strerror or str(error)})
    else:
        _print({"file": name, "text": text.strip(), "trouble": ""})


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
