"""Reads records of torch's flight recorder: `python flight_records.py SECONDS FILE...`. Standard library alone; hostile files.

Waits as long for each file to be whole. Prints a line of JSON for each that is: its place among the arguments, and how far the
rank is in each of its process groups in which it waits, or in those used last. A pickle is a program: this
one may name nothing (`find_class`), so that it makes numbers, text, lists and dicts and no more, in so much memory and processor
time.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import stat
import sys
import time
import zlib
from typing import Any

MAX_FILE_BYTES = (
    64 * 1024 * 1024
    # ten times what a record of 2,000 collectives with their frames takes; chosen
)
# of this process; chosen
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_CPU_SECONDS = 5
# the newest; chosen
MAX_ENTRIES = 20_000
LOOK_SECONDS = 0.02
# as `runner.facts.messages.rank_stacks` has them: a test compares
PEERS, MAX_GROUPS = "peers", 4
# characters; chosen
MAX_GROUP, MAX_OPERATION = 40, 30


class _Plain(pickle.Unpickler):
    """Makes nothing that has a name."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a record names {module[:40]}.{name[:40]}")


def read(path: str) -> list[dict[str, Any]] | None:
    """Return what a file says of each group; None while it is not whole, or if it is no record."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = file.read(MAX_FILE_BYTES + 1)
    if not data or len(data) > MAX_FILE_BYTES:
        return None
    try:
        return summary(_Plain(io.BytesIO(data)).load())
    except Exception:  # noqa: BLE001 - whatever a hostile pickle leads to: it is no record
        return None


def summary(record: Any) -> list[dict[str, Any]]:
    """Return how far a record's rank is in its groups: those in which it waits, or the last used; raises whatever junk leads to."""
    groups: dict[
        str, dict[int, tuple[str, bool]]
        # -> by sequence, in order: what, and whether it is over
    ] = {}
    open_peers = ""
    config = record.get("pg_config", {})
    entries = sorted(record["entries"], key=lambda entry: entry["record_id"])
    for entry in entries[-MAX_ENTRIES:]:
        is_over = bool(entry.get("retired")) or entry.get("state") == "completed"
        operation = _printable(str(entry["profiling_name"]).split(":")[-1], MAX_OPERATION)
        if entry.get("is_p2p"):
            open_peers = open_peers if is_over else operation
            continue
        name = _group(entry["process_group"], config)
        # Of a sequence that has several entries (parts of one that were put together) the last one tells.
        steps = groups.pop(name, {})
        steps[int(entry["collective_seq_id"])] = operation, is_over
        # in the order in which they were used last
        groups[name] = steps
    told = [_told(name, steps) for name, steps in reversed(groups.items())]
    if open_peers:
        told.append({"group": PEERS, "sequence": 1, "operation": open_peers, "waits_at": 1})
    return ([group for group in told if group["waits_at"]] or told)[:MAX_GROUPS]


def _told(name: str, steps: dict[int, tuple[str, bool]]) -> dict[str, Any]:
    last = max(steps)
    at = min((number for number, (_, is_over) in steps.items() if not is_over), default=0)
    return {"group": name, "sequence": last, "operation": steps[at or last][0], "waits_at": at}


def _group(names: Any, config: Any) -> str:
    """Return what a group is called, the same on all its ranks, and a mark of who is in it: others may be called the same."""
    name, called = (str(part) for part in names)
    shown = name if called in ("", "undefined", name) else f"{name} {called}"
    ranks = str(config.get(name, {}).get("ranks", "[]"))
    mark = f" #{zlib.crc32(ranks.encode()) & 0xFFFF:04x}" if ranks != "[]" else ""
    return _printable(shown, MAX_GROUP - len(mark)) + mark


def _printable(text: str, most: int) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:most])


def main(seconds: float, paths: list[str]) -> None:
    """Read them all, for as long as it takes, but no longer."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    until = time.monotonic() + seconds
    left = dict(enumerate(paths))
    while left and time.monotonic() < until:
        for place, path in list(left.items()):
            said = read(path)
            if said is not None:
                sys.stdout.write(json.dumps([place, said]) + "\n")
                sys.stdout.flush()
                del left[place]
        if left:
            time.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
