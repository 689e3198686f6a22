"""Reads the flight records of a gang from files, one of each rank, and says which are missing or unfit. For `stoker diagnose`.

The rank is the number that ends a file's name before its suffix, as torch and Stoker write it: `nccl_trace_rank_12`,
`record3-3`, `rank12.json`.
"""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.collect.flight_records import record_program
from runner.collect.flight_records.entries import Content, content_of
from runner.collect.flight_records.places import places_of
from runner.errors import UserError
from runner.facts.messages.rank_stacks import Collective

# Without these, a Python other than the system's may not start.
PYTHON_VARIABLES = ("LD_LIBRARY_PATH", "PYTHONHOME")
# Files that one child reads; chosen.
FILES_PER_CHILD = 64
# Seconds that it may take in all; it measures its processor time per file.
CHILD_SECONDS = FILES_PER_CHILD * record_program.MAX_CPU_SECONDS_PER_FILE
# Ranks of one gang; files beyond are refused. Chosen.
MAX_FILES = 100_000
# Bytes at the start of a file by which a record is known; chosen.
SNIFFED_BYTES = 4096
# A gang that hangs begins its last collectives within minutes. Chosen.
MAX_APART_NS = 3600 * 10**9
# Suffixes that records of one rank may have.
SUFFIXES = (".pickle", ".pkl", ".json", ".trace", ".bin", ".dump", ".pt", "")

_RANK = re.compile(r"(\d{1,9})$")


@dataclass(slots=True)
class RecordSet:
    """The records of a gang. `num_ranks`: how many ranks it has, as far as records or `expected` show it."""

    places: dict[int, tuple[Collective, ...]] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    num_ranks: int = 0
    # Sentences: files that hold no record, records that do not fit the others.
    warnings: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[int]:
        """Return the ranks without a record."""
        return [rank for rank in range(self.num_ranks) if rank not in self.places]


def is_flight_record(path: str) -> bool:
    """Whether a file looks like a record, by its first bytes; a record of an older torch or of JSON, too. Never raises."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return False
            head = file.read(SNIFFED_BYTES)
    except OSError:
        return False
    if head[:1] == b"\x80":
        return b"pg_config" in head or b"entries" in head or b"nccl_version" in head
    if head.lstrip()[:1] == b"{":
        keys = (b'"comm_lib_version"', b'"nccl_version"', b'"pg_config"', b'"collective_seq_id"')
        return any(key in head for key in keys)
    return False


def rank_of(path: str) -> int | None:
    """Return the rank by a file's name; None: the name has no number at its end."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    found = _RANK.search(stem if suffix.lower() in SUFFIXES and suffix else name)
    return int(found[1]) if found is not None else None


def expand(names: Sequence[str]) -> list[str]:
    """Return the files that names mean: a folder means the records in it. Raises UserError."""
    files = list[str]()
    for name in names:
        path = Path(name)
        if not path.exists():
            raise UserError(f"no file {name}")
        if not path.is_dir():
            files.append(name)
            continue
        inside = sorted(str(each) for each in path.iterdir() if is_flight_record(str(each)))
        if not inside:
            raise UserError(f"no flight records in {name}")
        files += inside
    if len(files) > MAX_FILES:
        raise UserError(f"{len(files)} files; at most {MAX_FILES} flight records are read")
    return files


def read_record_files(paths: Sequence[str], *, expected: int = 0) -> RecordSet:
    """Read records; `expected`: ranks of the gang, 0 if not known. Files that hold none become warnings.

    Raises UserError where no rank's record can be read, or the records are of different runs.
    """
    found, of_ranks = RecordSet(num_ranks=expected), dict[int, Content]()
    named = dict[int, str]()
    for path in paths:
        rank = rank_of(path)
        if rank is None:
            found.warnings.append(f"{path}: no rank's number at the end of its name; left out")
        elif rank in named:
            raise UserError(f"{path} and {named[rank]} are both of rank {rank}: give one run's")
        else:
            named[rank] = path
    for (rank, path), content in zip(named.items(), _contents(list(named.values())), strict=True):
        if isinstance(content, str):
            found.warnings.append(f"{path}: {content}")
            continue
        of_ranks[rank] = content
    if not of_ranks:
        raise UserError("\n".join(["no flight record could be read", *found.warnings]))
    _refuse_mixed(of_ranks, named)
    for rank, content in of_ranks.items():
        found.places[rank] = places_of(content)
        found.files[rank] = named[rank]
    found.num_ranks = max(
        expected, max(of_ranks) + 1, *(_num_ranks(content) for content in of_ranks.values())
    )
    return found


def _contents(paths: Sequence[str]) -> Iterator[Content | str]:
    """Yield the content of each file, or why it has none."""
    at = 0
    while at < len(paths):
        some = paths[at : at + FILES_PER_CHILD]
        read = _read(some)
        for index in range(len(some)):
            if index not in read:
                # It ended the child; the next one begins behind it.
                yield "reading it took too much memory or time; left out"
                at += index + 1
                break
            yield read[index]
        else:
            at += len(some)


def _read(paths: Sequence[str]) -> dict[int, Content | str]:
    """Have a child read files; return what it printed until it ended."""
    program = [sys.executable, "-I", "-S", record_program.__file__, "0"]
    try:
        output = subprocess.run(
            [*program, *(os.path.abspath(path) for path in paths)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            timeout=CHILD_SECONDS,
        ).stdout
    except subprocess.TimeoutExpired as killed:
        output = killed.stdout or b""
    return dict(parsed_lines(output))


def parsed_lines(output: bytes) -> Iterator[tuple[int, Content | str]]:
    """Yield what the child printed: a file's index, and its content or the reason that it has none."""
    for line in output.splitlines():
        try:
            index, plain = json.loads(line)
            yield int(index), plain if isinstance(plain, str) else content_of(plain)
        except (ValueError, TypeError):
            # The last line of a child that was ended.
            continue


def child_environment() -> dict[str, str]:
    """Return the variables with which the child starts."""
    variables = {name: os.environ[name] for name in PYTHON_VARIABLES if name in os.environ}
    return {"PATH": os.defpath, **variables}


def _num_ranks(content: Content) -> int:
    """Return how many ranks a record shows: by the group of all, or by what all of them gathered."""
    listed = max((group.ranks[-1] + 1 for group in content.groups if group.ranks), default=0)
    gathered = (entry.num_parts for entry in content.entries if entry.description == "default_pg")
    return listed or max(gathered, default=0)


def _refuse_mixed(of_ranks: dict[int, Content], files: dict[int, str]) -> None:
    """Raise UserError where records cannot be of one run, or a file is named for another rank."""
    worlds = dict[tuple[int, ...], int]()
    for rank, content in of_ranks.items():
        strange = [group for group in content.groups if group.ranks and rank not in group.ranks]
        if strange:
            raise UserError(
                f"{files[rank]} is named for rank {rank}, which is not in its group {strange[0].name}:"
                " give the records of one run, named by rank"
            )
        for group in content.groups:
            if group.description == "default_pg" and group.ranks:
                worlds.setdefault(group.ranks, rank)
    if len(worlds) > 1:
        (one, a), (other, b), *_ = worlds.items()
        raise UserError(
            f"{files[a]} is of a run of {len(one)} ranks, {files[b]} of one of {len(other)}:"
            " give the records of one run"
        )
    _refuse_apart(of_ranks, files)


def _refuse_apart(of_ranks: dict[int, Content], files: dict[int, str]) -> None:
    """Raise UserError where one record ends long before another begins."""
    spans = {
        rank: [entry.created_ns for entry in content.entries if entry.created_ns > 0]
        for rank, content in of_ranks.items()
    }
    spans = {rank: times for rank, times in spans.items() if times}
    if not spans:
        return
    early = min(spans, key=lambda rank: max(spans[rank]))
    late = max(spans, key=lambda rank: min(spans[rank]))
    apart = min(spans[late]) - max(spans[early])
    if apart > MAX_APART_NS:
        raise UserError(
            f"{files[early]} ends {apart / 3.6e12:.1f} hours before {files[late]} begins:"
            " give the records of one run"
        )
