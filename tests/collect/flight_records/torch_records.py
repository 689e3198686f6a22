"""Records as torch's NCCL backend writes them, for tests: entries, pickles, and the files of a gang."""

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.collect.flight_records.entries import content_of
from runner.collect.flight_records.places import places_of
from runner.collect.flight_records.record_program import content
from runner.facts.messages.rank_stacks import Collective

CREATED_NS = 1_795_385_231_916_629_124


def entry(number: int, **fields: Any) -> dict[str, Any]:
    """Make an entry of a completed collective of all ranks."""
    return {
        "record_id": number,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": CREATED_NS + number,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "frames": [{"name": "step", "filename": "train.py", "line": 7}],
        **fields,
    }


def open_entry(number: int, **fields: Any) -> dict[str, Any]:
    """Make an entry that is not over."""
    return entry(number, state="scheduled", retired=False, **fields)


def record(
    *entries: dict[str, Any],
    groups: Mapping[str, tuple[str, Sequence[int]]] | None = None,
    status: Mapping[int, tuple[int, int]] | None = None,
) -> dict[str, Any]:
    """Make a record; `groups`: name -> description and ranks; `status`: number -> enqueued and completed."""
    return {
        "version": "2.10",
        "pg_config": {
            name: {"name": name, "desc": description, "ranks": str(list(ranks))}
            for name, (description, ranks) in (groups or {}).items()
        },
        "pg_status": {
            str(number): {
                "last_enqueued_collective": enqueued,
                "last_started_collective": -1,
                "last_completed_collective": completed,
            }
            for number, (enqueued, completed) in (status or {}).items()
        },
        "entries": list(entries),
    }


def write_gang(folder: Path, records: Mapping[int, dict[str, Any]], *, as_json: bool) -> None:
    """Write the file of each rank as torch does, as a pickle or as JSON."""
    for rank, one in records.items():
        if as_json:
            text = {**one, "pg_status": _as_text(one["pg_status"])}
            if not one["entries"]:
                del text["entries"]
            (folder / f"rank_{rank}.json").write_text(json.dumps(text))
        else:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(one, protocol=2))


def _as_text(status: dict[str, dict[str, int]]) -> dict[str, dict[str, str]]:
    """Return counters as torch writes them in JSON."""
    return {
        number: {name: str(value) for name, value in counters.items()}
        for number, counters in status.items()
    }


def places(one: dict[str, Any]) -> tuple[Collective, ...]:
    """Return a record's places, by way of what the child prints."""
    return places_of(content_of(json.loads(json.dumps(content(one)))))
