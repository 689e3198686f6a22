"""Reads records of torch's flight recorder: `python flight_records.py SECONDS FILE...`. Standard library alone; hostile files.

Waits so long for each file to be complete. Prints a line of JSON for each that is: its index among the arguments, and the rank's
state in the process groups in which it waits, or in those used last. A pickle is a program: this unpickler refuses every name
(`find_class`), so a record yields numbers, text, lists and dicts only, within limits of memory and processor time.
"""

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

# Chosen: ten times the size of a record of 2,000 collectives with their frames.
MAX_FILE_BYTES = 64 * 1024 * 1024
# Chosen, not measured.
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_CPU_SECONDS = 5
MAX_ENTRIES = 20_000
POLL_SECONDS = 0.02
MAX_GROUP, MAX_OPERATION = 40, 30
# As in `runner.facts.messages.rank_stacks`: a test compares.
PEERS, MAX_GROUPS = "peers", 4


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"a record names {module[:40]}.{name[:40]}")


def read(path: str) -> list[dict[str, Any]] | None:
    """Return the groups of a file's record; None: it is incomplete, or no record."""
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
        return summary(_PlainUnpickler(io.BytesIO(data)).load())
    except Exception:  # noqa: BLE001 - a hostile pickle may raise anything
        return None


def summary(record: Any) -> list[dict[str, Any]]:
    """Return the state of a record's groups: those in which its rank waits, or the last used. Raises any error."""
    # Group -> sequence -> operation, and whether it is completed; both in the order of use.
    groups: dict[str, dict[int, tuple[str, bool]]] = {}
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
        # Of several entries of one sequence (parts of a coalesced collective) the last one counts.
        steps = groups.pop(name, {})
        steps[int(entry["collective_seq_id"])] = operation, is_over
        groups[name] = steps
    states = [_state(name, steps) for name, steps in reversed(groups.items())]
    if open_peers:
        states.append({"group": PEERS, "sequence": 1, "operation": open_peers, "waits_at": 1})
    return ([state for state in states if state["waits_at"]] or states)[:MAX_GROUPS]


def _state(name: str, steps: dict[int, tuple[str, bool]]) -> dict[str, Any]:
    last = max(steps)
    at = min((number for number, (_, is_over) in steps.items() if not is_over), default=0)
    return {"group": name, "sequence": last, "operation": steps[at or last][0], "waits_at": at}


def _group(names: Any, config: Any) -> str:
    """Return a group's name, the same on all its ranks, with a hash of its ranks: two groups may have the same name."""
    name, description = (str(part) for part in names)
    shown = name if description in ("", "undefined", name) else f"{name} {description}"
    ranks = str(config.get(name, {}).get("ranks", "[]"))
    mark = f" #{zlib.crc32(ranks.encode()) & 0xFFFF:04x}" if ranks != "[]" else ""
    return _printable(shown, MAX_GROUP - len(mark)) + mark


def _printable(text: str, most: int) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:most])


def main(seconds: float, paths: list[str]) -> None:
    """Print the records of files as they become complete, for so many seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    until = time.monotonic() + seconds
    left = dict(enumerate(paths))
    while left and time.monotonic() < until:
        for index, path in list(left.items()):
            groups = read(path)
            if groups is not None:
                sys.stdout.write(json.dumps([index, groups]) + "\n")
                sys.stdout.flush()
                del left[index]
        if left:
            time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
