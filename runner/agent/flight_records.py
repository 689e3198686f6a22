"""Reads records of torch's flight recorder: `python flight_records.py SECONDS FILE...`. Standard library alone; hostile files.

Waits as long for each file to be whole. Prints a line of JSON for each that is: its place among the arguments, and the last
collective of each of its process groups, those in which the rank waits first, then those used last. A pickle is a program: this
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
from typing import Any

MAX_FILE_BYTES = (
    64 * 1024 * 1024
)  # ten times what a record of 2,000 collectives with their frames takes; chosen
MAX_MEMORY_BYTES = 2 * 1024**3  # of this process; chosen
MAX_CPU_SECONDS = 5
MAX_ENTRIES = 20_000  # the newest; chosen
LOOK_SECONDS = 0.02
MAX_GROUPS, MAX_GROUP, MAX_OPERATION = 4, 40, 30  # see `flight`


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
    """Return the last collective of each group that a record tells of; raises whatever a strange one leads to."""
    groups: dict[str, dict[str, Any]] = {}
    entries = sorted(record["entries"], key=lambda entry: entry["record_id"])
    for entry in entries[-MAX_ENTRIES:]:
        if entry.get("is_p2p"):
            continue
        name = _group(entry["process_group"])
        sequence = int(entry["collective_seq_id"])
        is_over = bool(entry.get("retired")) or entry.get("state") == "completed"
        operation = _printable(str(entry["profiling_name"]).split(":")[-1], MAX_OPERATION)
        known = groups.pop(name, {"group": name, "sequence": 0})
        groups[name] = known  # in the order in which they were used last
        known["sequence"] = max(known["sequence"], sequence)
        if not known.get("waits"):  # of those that are not over, the first is waited for
            known["operation"], known["waits"] = operation, not is_over
    newest_first = list(groups.values())[::-1]
    return sorted(newest_first, key=lambda group: not group["waits"])[:MAX_GROUPS]


def _group(names: Any) -> str:
    """Return a group's name, the same on all its ranks, and what it is called."""
    name, called = (str(part) for part in names)
    shown = name if called in ("", "undefined", name) else f"{name} {called}"
    return _printable(shown, MAX_GROUP)


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
