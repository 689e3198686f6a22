"""Flight: which collectives ranks that hang are in, asked of torch's flight recorder before they are stopped.

torch keeps the last collectives of each rank in memory. Where NCCL is used, a thread of torch's own looks once a second at a named
pipe, and writes the record to a file when something was written there; the built-in trainer does the same with gloo
(`trainer/contract/flight_recorder.py`). A launch gives ranks the names of both, in the attempt's folder, unless the run has
names of its own.

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

from runner.agent.hangs import flight_records
from runner.agent.hangs.stack_dumps import interpreter
from runner.agent.launch.users import RankUser
from runner.attempt_folders import FLIGHT
from runner.errors import WireError
from runner.facts.contract import FLIGHT_PIPE, FLIGHT_RECORDS, FLIGHT_VARIABLES
from runner.facts.messages.rank_stacks import MAX_COLLECTIVES, Collective
from runner.facts.wire import from_plain

log = logging.getLogger("stoker.agent")

# What a Python may need to start at all, where it is not the system's.
KEPT_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")
MAX_SEQUENCE = 2**62
# Of the time there is: stacks are to be had as well; and at most so long: torch looks once a second; chosen.
SHARE, MAX_SECONDS = 0.5, 2.0
# for the child to be gone; chosen
REAP_SECONDS = 0.05

# rank -> of its groups
CollectivesByRank = Mapping[int, tuple[Collective, ...]]


def recorder_folder(output_folder: str, user: RankUser | None) -> str:
    """Return the folder for pipes and records; "" where ranks that run as `user` may not make a pipe. May block.

    None is made, or it belongs to a supervisor that runs as somebody else, or lies behind a folder that is closed to them.
    """
    folder = Path(output_folder, FLIGHT).absolute()
    uid = os.geteuid() if user is None else user.uid
    try:
        is_theirs = folder.stat().st_uid == uid and all(
            _is_open(place.stat(), uid) for place in (folder, *folder.parents)
        )
    except OSError:
        return ""
    return str(folder) if is_theirs else ""


def _is_open(seen: os.stat_result, uid: int) -> bool:
    """Whether a user may go through a folder: as its owner, or as anybody."""
    return uid == 0 or bool(seen.st_mode & (stat.S_IXUSR if seen.st_uid == uid else stat.S_IXOTH))


def environment(folder: str, rank: int, given: Mapping[str, str]) -> dict[str, str]:
    """Return what tells a rank where its pipe and record are; nothing where the run says so itself, or there is no such folder.

    torch adds the rank as the process knows it. What a rank starts has these variables too, and may be a rank of another world:
    so each of ours has names of its own, and theirs get in nobody's way.
    """
    if not folder or any(name in given for name in FLIGHT_VARIABLES):
        return {}
    records = dict.fromkeys(FLIGHT_RECORDS, os.path.join(folder, f"record{rank}-"))
    return {FLIGHT_PIPE: os.path.join(folder, f"rank{rank}-"), **records}


def pipe_path(folder: Path, rank: int) -> Path:
    """Return where a rank listens."""
    return folder / f"rank{rank}-{rank}.pipe"


def record_path(folder: Path, rank: int) -> Path:
    """Return where a rank writes."""
    return folder / f"record{rank}-{rank}"


def request_records(output_folder: str, pids: Mapping[int, int]) -> list[int]:
    """Ask ranks (rank -> pid) for their records; return those that have a recorder which listens."""
    folder = Path(output_folder, FLIGHT)
    return [
        rank for rank, pid in pids.items() if _listens(folder, rank, pid) and _request(folder, rank)
    ]


def collect_records(
    output_folder: str, ranks: Sequence[int], *, budget_seconds: float
) -> CollectivesByRank:
    """Return what ranks that were asked recorded, as far as it is there in time. Blocks as long at most, and REAP_SECONDS."""
    if not ranks:
        return {}
    folder = Path(output_folder, FLIGHT)
    seconds = min(SHARE * budget_seconds, MAX_SECONDS)
    files = [str(record_path(folder, rank)) for rank in ranks]
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", flight_records.__file__, str(seconds), *files],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, **kept},
            start_new_session=True,
        )
    except OSError as error:
        # stacks can be had all the same
        log.warning("cannot read flight records: %s", error)
        return {}
    try:
        said, _ = child.communicate(timeout=seconds + REAP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        said, _ = child.communicate()
    if child.returncode > 0:
        log.warning("cannot read flight records: the reader ended with %s", child.returncode)
    found = {}
    for line in said.splitlines():
        with contextlib.suppress(ValueError, WireError, TypeError, IndexError):
            place, plain = json.loads(line)
            found[ranks[place]] = _collectives(plain)
    return found


def remove_pipes(output_folder: str, ranks: Iterable[int]) -> None:
    """Remove pipes of ranks that are gone: who opens one to read it would wait for ever. The folder goes too, without a record."""
    folder = Path(output_folder, FLIGHT)
    for rank in ranks:
        # its own, and of what it has started
        for pipe in folder.glob(f"rank{rank}-*.pipe"):
            with contextlib.suppress(OSError):
                pipe.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _listens(folder: Path, rank: int, pid: int) -> bool:
    """Whether it is the rank itself that has its pipe open, and nobody who took its place."""
    try:
        there = pipe_path(folder, rank).lstat()
        if not stat.S_ISFIFO(there.st_mode):
            return False
        descriptors = f"/proc/{interpreter(pid)}/fd"
        return any(_is_same(f"{descriptors}/{name}", there) for name in os.listdir(descriptors))
    except OSError:
        return False


def _is_same(descriptor: str, there: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(descriptor), there)
    except OSError:
        # closed meanwhile
        return False


def _request(folder: Path, rank: int) -> bool:
    try:
        with contextlib.suppress(FileNotFoundError):
            # an older one: torch writes one on time-outs, too
            (record_path(folder, rank)).unlink()
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        pipe = os.open(pipe_path(folder, rank), flags)
    except OSError:
        # no such pipe, or nobody reads it
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
        texts = (
            (each.group, flight_records.MAX_GROUP),
            (each.operation, flight_records.MAX_OPERATION),
        )
        is_text = all(len(text) <= most and text.isprintable() for text, most in texts)
        is_number = all(0 <= number < MAX_SEQUENCE for number in (each.sequence, each.waits_at))
        if not (is_text and is_number):
            raise ValueError("no record")
    return tuple(found)
