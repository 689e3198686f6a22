"""The ends of logs, searched for why their ranks ended: whole tracebacks and their context, not line by line."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.facts import wire
from runner.facts.matches import ScannedLogs

# All chosen. Of the end of each file: a cause is near the end.
MAX_FILE_BYTES = 4 * 1024 * 1024
# Matches in a result, and characters of each: thousands of nodes may report at once.
MAX_MATCHES, MAX_TEXT = 10, 300
# The rest of a message is for the fields around the matches.
MAX_RESULT_BYTES = wire.MAX_MESSAGE_BYTES - 8 * 1024


class EndOfLog(NamedTuple):
    """The last bytes of a log. `rank`: its writer, None: not known."""

    name: str
    rank: int | None
    data: bytes


def end_of_file(path: Path, rank: int | None, *, since: int = 0) -> EndOfLog:
    """Read the end of a file; one that cannot be read is empty, and the reason is on standard error.

    `since`: where in it that begins which counts; a file that is shorter was begun again.
    """
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    first = max(since if since <= size else 0, size - MAX_FILE_BYTES)
    # Lines are counted from the start of the part that is searched.
    part = f" (its last {MAX_FILE_BYTES >> 20} MB)" if first > since else ""
    data = b""
    try:
        with path.open("rb") as file:
            file.seek(max(0, first))
            data = file.read(MAX_FILE_BYTES)
    except OSError as error:
        sys.stderr.write(f"{path.name}: {error.strerror}\n")
    return EndOfLog(f"{path.name}{part}", rank, data)


def search_ends(
    ends: Iterable[EndOfLog], engine: Engine | None, *, own_format: str | None = None
) -> ScannedLogs:
    """Return the matches in the ends of the logs of one gang, as many as fit a message."""
    diagnosis = Diagnosis(engine=engine, own_format=own_format)
    for end in ends:
        log = diagnosis.log(end.name, rank=end.rank)
        log.feed(end.data)
        log.finish()
    num_matches = MAX_MATCHES
    while True:
        found = diagnosis.scanned(num_matches, text=MAX_TEXT)
        if not num_matches or len(wire.encode(found)) <= MAX_RESULT_BYTES:
            return found
        num_matches //= 2
