"""Reads files of torch's flight recorder: `python record_program.py SECONDS FILE...`. Standard library alone; hostile files.

Waits so long for each file to be complete; with 0 seconds each is read once. Prints a line of JSON for each: its index among the
arguments, then its content as rows, or why it has none. A pickle is a program: this unpickler refuses every name (`find_class`),
so a record yields numbers, text, lists and dicts only, within limits of memory and processor time. A file that exceeds them ends
the process; the caller goes on with the next one.
"""

import io
import json
import math
import os
import pickle
import resource
import signal
import stat
import sys
import time
from typing import Any

# Chosen: ten times the size of a record of 2,000 collectives with their frames.
MAX_FILE_BYTES = 64 * 1024 * 1024
# Chosen, not measured.
MAX_MEMORY_BYTES = 2 * 1024**3
MAX_CPU_SECONDS_PER_FILE = 5
MAX_ENTRIES = 20_000
# Process groups, and characters of one's list of ranks: 100,000 ranks.
MAX_GROUPS, MAX_RANKS_TEXT = 4096, 800_000
POLL_SECONDS = 0.02
MAX_NAME, MAX_OPERATION, MAX_SHAPE, MAX_REASON = 80, 40, 60, 160
MAX_NUMBER = 2**62


class NoRecord(ValueError):
    """The file holds no record; the text is the reason."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise NoRecord(
            f"it is a program that would call {module[:40]}.{name[:40]}, and was not run"
        )


def read(path: str) -> dict[str, Any]:
    """Return a file's content: `groups`, `status`, `entries`. Raises NoRecord."""
    try:
        return content(_load(_bytes_of(path)))
    except NoRecord:
        raise
    except MemoryError:
        raise NoRecord("it needs too much memory") from None
    except RecursionError:
        raise NoRecord("it is nested too deeply") from None
    except (EOFError, pickle.UnpicklingError, json.JSONDecodeError) as error:
        raise NoRecord("it is cut off, or no flight record") from error
    except OSError as error:
        raise NoRecord(os.strerror(error.errno or 0).lower()) from error
    # A hostile pickle may raise anything.
    except Exception as error:
        raise NoRecord(f"no flight record: {type(error).__name__} {error}") from error


def _bytes_of(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoRecord("it is no regular file")
        data = file.read(MAX_FILE_BYTES + 1)
    if not data:
        raise NoRecord("it is empty")
    if len(data) > MAX_FILE_BYTES:
        raise NoRecord(f"it is larger than {MAX_FILE_BYTES // 1024**2} MiB")
    return data


def _load(data: bytes) -> Any:
    if data.lstrip()[:1] == b"{":
        return json.loads(data)
    return _PlainUnpickler(io.BytesIO(data)).load()


def content(record: Any) -> dict[str, Any]:
    """Return the rows of a record. Raises any error where it is none."""
    # torch leaves out an empty list of entries in JSON.
    is_record = isinstance(record, dict) and ("entries" in record or "pg_config" in record)
    if not is_record:
        raise NoRecord("no flight record: it has no entries")
    groups = [
        [_text(name, MAX_NAME), _text(each.get("desc", ""), MAX_NAME), _ranks(each.get("ranks"))]
        for name, each in list((record.get("pg_config") or {}).items())[:MAX_GROUPS]
    ]
    status = [
        [
            _number(pg_id),
            _number(each["last_enqueued_collective"]),
            _number(each["last_completed_collective"]),
        ]
        for pg_id, each in list((record.get("pg_status") or {}).items())[:MAX_GROUPS]
    ]
    entries = sorted(record.get("entries") or [], key=lambda entry: entry["record_id"])
    return {
        "groups": groups,
        "status": status,
        "entries": [_row(entry) for entry in entries[-MAX_ENTRIES:]],
    }


def _row(entry: Any) -> list[Any]:
    """Return an entry as a row: see `flight_records.entries.Entry`."""
    backend, _, operation = str(entry["profiling_name"]).rpartition(":")
    name, description = entry["process_group"]
    is_p2p = bool(entry.get("is_p2p"))
    # gloo never sets the state; NCCL retires what timed out without completing it.
    is_over = entry.get("state") == "completed" or (
        backend == "gloo" and bool(entry.get("retired"))
    )
    return [
        _number(entry.get("pg_id", -1)),
        _text(name, MAX_NAME),
        _text(description, MAX_NAME),
        _text(backend, MAX_OPERATION),
        _text(operation, MAX_OPERATION),
        is_p2p,
        _number(entry.get("p2p_seq_id") or 0 if is_p2p else entry["collective_seq_id"]),
        _number(entry.get("op_id", 0)),
        is_over,
        _shape(entry),
        _num_parts(entry, operation),
        _number(entry.get("time_created_ns") or 0),
    ]


def _shape(entry: Any) -> str:
    """Return sizes and types of the inputs: `4096x5120 BFloat16`."""
    sizes = ["x".join(str(int(size)) for size in sizes) for sizes in entry.get("input_sizes") or ()]
    types = sorted({str(each) for each in entry.get("input_dtypes") or ()})
    return _text(" ".join([",".join(sizes), *types]).strip(), MAX_SHAPE)


def _num_parts(entry: Any, operation: str) -> int:
    """Return how many ranks gave a part, by the sizes of a gather from all; 0: not known."""
    if "gather" not in operation:
        return 0
    given, taken = (
        sum(math.prod(sizes) for sizes in entry.get(key) or ())
        for key in ("input_sizes", "output_sizes")
    )
    return taken // given if given > 0 and taken % given == 0 else 0


def _ranks(listed: Any) -> list[int]:
    """Return the ranks that torch lists as text, `[0, 1]`."""
    text = str(listed or "[]")
    ranks = json.loads(text) if len(text) <= MAX_RANKS_TEXT else []
    return sorted({_number(rank) for rank in ranks})


def _number(value: Any) -> int:
    number = int(value)
    if not -1 <= number < MAX_NUMBER:
        raise NoRecord("no flight record: it has numbers that torch does not write")
    return number


def _text(value: Any, most: int) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in str(value)[:most])


def main(seconds: float, paths: list[str]) -> None:
    """Print the content of files as they become complete, for so many seconds."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    until = time.monotonic() + seconds
    left = dict(enumerate(paths))
    while True:
        for index, path in list(left.items()):
            # The default action of the signal ends the process: C code runs no handler.
            signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS_PER_FILE)
            try:
                line = json.dumps([index, read(path)])
            except NoRecord as error:
                if seconds:
                    continue
                line = json.dumps([index, _text(error, MAX_REASON)])
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            del left[index]
        if not left or time.monotonic() >= until:
            return
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
