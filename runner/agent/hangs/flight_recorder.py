"""The flight recorder: asks torch for the collectives that hanging ranks are in, before the ranks are stopped.

torch keeps the last collectives of each rank in memory. With NCCL, a thread of torch polls a named
pipe once a second, and writes the record to a file when the pipe was written to; so does the
built-in trainer with gloo. A launch sets the names of both, unless the run does.

A record is a pickle that a rank wrote, hence hostile: a child with little memory extracts numbers
and text only (`runner.collect.flight_records`).
"""

import contextlib
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from runner.agent.hangs.stack_dumps import REAP_SECONDS, interpreter
from runner.agent.launch.users import RankUser
from runner.attempt_folders import FLIGHT
from runner.collect.flight_records import record_program
from runner.collect.flight_records.places import places_of
from runner.collect.flight_records.record_files import child_environment, parsed_lines
from runner.facts.contract import (
    FLIGHT_CONTENT,
    FLIGHT_PIPE,
    FLIGHT_RECORDS,
    FLIGHT_VARIABLES,
)
from runner.facts.messages.rank_stacks import Collective

log = logging.getLogger("stoker.agent")

# Chosen: stacks need time, too, and torch polls once a second.
BUDGET_RATIO, MAX_SECONDS = 0.5, 2.0

CollectivesByRank = Mapping[int, tuple[Collective, ...]]


def recorder_folder(output_folder: str, user: RankUser | None) -> str:
    """Return the folder for pipes and records; "" where ranks that run as `user` cannot make a pipe. May block.

    It may be missing, belong to a supervisor of another user, or lie below a closed folder.
    """
    folder = Path(output_folder, FLIGHT).absolute()
    uid = os.geteuid() if user is None else user.uid
    try:
        is_usable = folder.stat().st_uid == uid and all(
            _is_open(place.stat(), uid) for place in (folder, *folder.parents)
        )
    except OSError:
        return ""
    return str(folder) if is_usable else ""


def _is_open(folder: os.stat_result, uid: int) -> bool:
    """Whether a user may pass through a folder, as its owner or as any user."""
    bit = stat.S_IXUSR if folder.st_uid == uid else stat.S_IXOTH
    return uid == 0 or bool(folder.st_mode & bit)


def environment(folder: str, rank: int, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a rank's recorder: pipe, record, and that a record has completed collectives too.

    None where the run's `own` variables name a pipe or a record, or without a folder; its own setting of what a record has
    stands. torch appends the process's rank. A child of a rank inherits the variables and may be a rank of another world, so each
    rank has names of its own.
    """
    if not folder or any(name in own for name in FLIGHT_VARIABLES):
        return {}
    records = dict.fromkeys(FLIGHT_RECORDS, os.path.join(folder, f"record{rank}-"))
    content = {name: value for name, value in FLIGHT_CONTENT.items() if name not in own}
    return {FLIGHT_PIPE: os.path.join(folder, f"rank{rank}-"), **records, **content}


def pipe_path(folder: Path, rank: int) -> Path:
    """Return the pipe of a rank."""
    return folder / f"rank{rank}-{rank}.pipe"


def record_path(folder: Path, rank: int) -> Path:
    """Return the record of a rank."""
    return folder / f"record{rank}-{rank}"


def request_records(output_folder: str, pids: Mapping[int, int]) -> list[int]:
    """Request the records of ranks (rank -> pid); return the ranks whose recorder reads its pipe."""
    folder = Path(output_folder, FLIGHT)
    return [
        rank for rank, pid in pids.items() if _listens(folder, rank, pid) and _request(folder, rank)
    ]


def collect_records(
    output_folder: str, ranks: Sequence[int], *, budget_seconds: float
) -> CollectivesByRank:
    """Return the records of `ranks` that are there in time. Blocks for that time and REAP_SECONDS at most."""
    if not ranks:
        return {}
    folder = Path(output_folder, FLIGHT)
    seconds = min(BUDGET_RATIO * budget_seconds, MAX_SECONDS)
    files = [str(record_path(folder, rank)) for rank in ranks]
    try:
        reader = subprocess.run(
            [sys.executable, "-I", "-S", record_program.__file__, str(seconds), *files],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            start_new_session=True,
            timeout=seconds + REAP_SECONDS,
        )
        output = reader.stdout
        if reader.returncode > 0:
            code = reader.returncode
            log.warning("cannot read flight records: the reader ended with %s", code)
    except subprocess.TimeoutExpired as killed:
        output = killed.stdout or b""
    except OSError as error:
        # Stacks can still be read.
        log.warning("cannot read flight records: %s", error)
        return {}
    return {
        ranks[index]: places_of(content)
        for index, content in parsed_lines(output)
        if not isinstance(content, str) and 0 <= index < len(ranks)
    }


def remove_pipes(output_folder: str, ranks: Iterable[int]) -> None:
    """Remove the pipes of ranks that are gone, on which a reader would wait for ever; the folder too, if it has no record."""
    folder = Path(output_folder, FLIGHT)
    for rank in ranks:
        # Its own, and those of its children.
        for pipe in folder.glob(f"rank{rank}-*.pipe"):
            with contextlib.suppress(OSError):
                pipe.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _listens(folder: Path, rank: int, pid: int) -> bool:
    """Whether the rank itself has its pipe open, and not a process in its place."""
    try:
        pipe = pipe_path(folder, rank).lstat()
        if not stat.S_ISFIFO(pipe.st_mode):
            return False
        descriptors = f"/proc/{interpreter(pid)}/fd"
        return any(_is_same(f"{descriptors}/{name}", pipe) for name in os.listdir(descriptors))
    except OSError:
        return False


def _is_same(descriptor: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(descriptor), status)
    except OSError:
        return False


def _request(folder: Path, rank: int) -> bool:
    """Write to a rank's pipe; False: there is none, or it has no reader."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        # An older record: torch writes one on time-outs, too.
        record_path(folder, rank).unlink(missing_ok=True)
        with os.fdopen(os.open(pipe_path(folder, rank), flags), "wb", 0) as pipe:
            is_pipe = stat.S_ISFIFO(os.fstat(pipe.fileno()).st_mode)
            return is_pipe and os.write(pipe.fileno(), b"1\n") > 0
    return False
