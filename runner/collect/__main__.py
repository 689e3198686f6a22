"""`python -m runner.collect RANK=FILE...`: search the ends of ranks' output files and print what was found, as one message.

Agents run it as a child with low priority when ranks have died: what hostile text does to it is done to nobody else, and nobody who
restarts ranks waits for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from runner.collect.diagnosis import Diagnosis
from runner.facts import wire

MOST_BYTES = (
    4 * 1024 * 1024
)  # of the end of each file; chosen: a cause stands near the end, or is too old to be one
# That are told, of all files together, and of each of them: thousands of nodes may speak of one death; chosen.
MOST_MATCHES, MOST_TEXT = 10, 300
SPARE_BYTES = 8 * 1024  # of a message, for what stands around it


def main(arguments: list[str]) -> int:
    """Search the files; print one message."""
    diagnosis = Diagnosis()
    for argument in arguments:
        rank, _, name = argument.partition("=")
        path = Path(name)
        try:
            size = path.stat().st_size
        except OSError:
            size = 0
        # Lines are counted from where the search begins.
        part = f" (its last {MOST_BYTES >> 20} MB)" if size > MOST_BYTES else ""
        log = diagnosis.log(f"{path.name}{part}", rank=int(rank))
        try:
            with path.open("rb") as file:
                file.seek(max(0, size - MOST_BYTES))
                log.feed(file.read(MOST_BYTES))
        except OSError as error:
            sys.stderr.write(f"{path.name}: {error.strerror}\n")
        log.finish()
    most = MOST_MATCHES
    message = wire.encode(diagnosis.scanned(most, text=MOST_TEXT))
    while len(message) > wire.MAX_MESSAGE_BYTES - SPARE_BYTES and most:
        most //= 2
        message = wire.encode(diagnosis.scanned(most, text=MOST_TEXT))
    sys.stdout.buffer.write(message + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
