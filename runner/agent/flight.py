"""Flight: which collectives ranks that hang are in, asked of torch's flight recorder before they are stopped.

torch keeps the last collectives of each rank in memory. Where NCCL is used, a thread of torch's own looks once a second at a named
pipe, and writes the record to a file when something was written there; the built-in trainer does the same with gloo
(`trainer/flight.py`). A launch gives ranks the names of both, in the attempt's folder, unless the run has names of its own.

A record is a pickle that a rank wrote, so it is hostile: a child of little memory reads it, and makes nothing but numbers and text
of it (`flight_records`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runner.act.outputs import FLIGHT
from runner.agent import flight_records
from runner.errors import WireError
from runner.facts.stands import MAX_COLLECTIVES, Collective
from runner.facts.wire import from_plain

log = logging.getLogger("stoker.agent")

PIPES, RECORDS = "rank", "record"  # rank3.pipe, record3
PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
RECORD_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
MAX_GROUP, MAX_OPERATION = 40, 30  # characters; chosen
MAX_SEQUENCE = 2**62
# Of the time there is: stacks are to be had as well; and at most so long: torch looks once a second; chosen.
SHARE, MAX_SECONDS = 0.5, 2.0
REAP_SECONDS = 0.05  # for the child to be gone; chosen

Found = Mapping[int, tuple[Collective, ...]]  # rank -> of its groups


def folder_of(output_folder: str) -> str:
    """Return the folder for pipes and records; "" where pipes cannot be made, and so it was not. May block."""
    folder = Path(output_folder, FLIGHT).absolute()
    return str(folder) if folder.is_dir() else ""


def environment(folder: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return what tells ranks where pipes and records are; nothing where the run says so itself, or there is no such folder."""
    if not folder or any(name in given for name in (PIPE_VARIABLE, *RECORD_VARIABLES)):
        return {}
    records = dict.fromkeys(RECORD_VARIABLES, os.path.join(folder, RECORDS))
    return {PIPE_VARIABLE: os.path.join(folder, PIPES), **records}


def ask(output_folder: str, ranks: Iterable[int]) -> list[int]:
    """Ask ranks for their records; return those that have a recorder which listens."""
    folder = Path(output_folder, FLIGHT)
    return [rank for rank in ranks if _ask(folder, rank)]


def gather(output_folder: str, ranks: Sequence[int], *, budget_seconds: float) -> Found:
    """Return what ranks that were asked recorded, as far as it is there in time. Blocks as long at most, and REAP_SECONDS."""
    if not ranks:
        return {}
    folder = Path(output_folder, FLIGHT)
    seconds = min(SHARE * budget_seconds, MAX_SECONDS)
    files = [str(folder / f"{RECORDS}{rank}") for rank in ranks]
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", flight_records.__file__, str(seconds), *files],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            start_new_session=True,
        )
    except OSError as error:  # stacks can be had all the same
        log.warning("cannot read flight records: %s", error)
        return {}
    try:
        said, _ = child.communicate(timeout=seconds + REAP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        said, _ = child.communicate()
    found = {}
    for line in said.splitlines():
        with contextlib.suppress(ValueError, WireError, TypeError, IndexError):
            place, plain = json.loads(line)
            found[ranks[place]] = _collectives(plain)
    return found


def clear(output_folder: str, ranks: Iterable[int]) -> None:
    """Remove pipes of ranks that are gone: who opens one to read it would wait for ever. The folder goes too, without a record."""
    folder = Path(output_folder, FLIGHT)
    with contextlib.suppress(OSError):
        for rank in ranks:
            (folder / f"{PIPES}{rank}.pipe").unlink(missing_ok=True)
        folder.rmdir()


def _ask(folder: Path, rank: int) -> bool:
    try:
        with contextlib.suppress(FileNotFoundError):
            (
                folder / f"{RECORDS}{rank}"
            ).unlink()  # an older one: torch writes one on time-outs, too
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        pipe = os.open(folder / f"{PIPES}{rank}.pipe", flags)
    except OSError:  # no such pipe, or nobody reads it
        return False
    try:
        return stat.S_ISFIFO(os.fstat(pipe).st_mode) and os.write(pipe, b"1\n") > 0
    except OSError:
        return False
    finally:
        os.close(pipe)


def _collectives(plain: Any) -> tuple[Collective, ...]:
    """Believe the child as little as its rank; raises ValueError or WireError for what is no record."""
    if not isinstance(plain, list):
        raise ValueError("no record")
    found = [from_plain(Collective, item) for item in plain[:MAX_COLLECTIVES]]
    for each in found:
        texts = (each.group, MAX_GROUP), (each.operation, MAX_OPERATION)
        is_text = all(len(text) <= most and text.isprintable() for text, most in texts)
        if not (is_text and 0 <= each.sequence < MAX_SEQUENCE):
            raise ValueError("no record")
    return tuple(found)
