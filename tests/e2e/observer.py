"""An observer outside Stoker: it reads in /proc which ranks live, and uses no report of Stoker's.

It recognises ranks by the contract's variables in their environment, and, unlike what they start in turn, as leaders of a session.
It reads every process about a hundred times a second and records facts of the kernel: pid, start time, state.
`check` finds out whether two gangs of a run ever lived at once.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from runner import checkpoints
from runner.errors import StokerError
from runner.facts.ids import AttemptId

PAUSE_SECONDS = 0.01
# How long a process that is no rank is not read again.
FOREIGN_SECONDS = 0.2
MARKS = ("STOKER_ATTEMPT", "STOKER_GENERATION", "STOKER_RUN", "RANK", "WORLD_SIZE")


@dataclass(slots=True, kw_only=True)
class RankSeen:
    """One process that is a rank. Times are monotonic seconds of its first and last reading alive."""

    pid: int
    start_ticks: int
    attempt: AttemptId
    generation: int
    run: str
    rank: int
    world_size: int
    resume: str
    first_seen: float
    last_seen: float
    is_gone: bool = False


@dataclass(slots=True)
class Overlap:
    """Ranks of two attempts of one run, proven alive at the same moment."""

    older: AttemptId
    newer: AttemptId
    num_older: int
    num_newer: int
    world_size: int
    # Of the older one's ranks.
    older_pids: frozenset[int] = frozenset()

    @property
    def is_two_gangs(self) -> bool:
        """Whether all ranks of both lived."""
        return self.num_older == self.num_newer == self.world_size


@dataclass(slots=True)
class Observer:
    """Watches the ranks of one cluster while it is entered.

    `paused`: pids of ranks that a test stopped together with their agent and keeper. A node like that is given up, and no one
    there can end its rank, which ends when it may go on.
    """

    cluster: str
    paused: set[int] = field(default_factory=set)
    # Where a checkpoint's bytes are, for a folder that is slow to read.
    stored_at: Callable[[Path], Path] = lambda path: path
    seen: list[RankSeen] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    unsealed_resumes: list[str] = field(default_factory=list)
    longest_pause_seconds: float = 0.0
    num_sweeps: int = 0
    _living: dict[int, RankSeen] = field(default_factory=dict)
    _foreign: dict[int, float] = field(default_factory=dict)
    _error: Exception | None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread = threading.Thread(target=self._watch, name="observer", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    # -- observations

    def attempts(self) -> list[AttemptId]:
        """Return the attempts of which any rank was seen, in the order they were seen."""
        return list(dict.fromkeys(rank.attempt for rank in list(self.seen)))

    def starts(self) -> dict[str, int]:
        """Return how many processes were seen for each attempt."""
        names = [str(rank.attempt) for rank in list(self.seen)]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    def gang(self) -> dict[int, int]:
        """Return the living ranks of the newest attempt: pid by rank; empty while it is not whole."""
        attempts = self.attempts()
        if not attempts:
            return {}
        newest = [rank for rank in list(self.seen) if rank.attempt == attempts[-1]]
        living = {rank.rank: rank.pid for rank in newest if not rank.is_gone}
        return living if len(living) == newest[0].world_size else {}

    def resumes(self) -> dict[str, str]:
        """Return what each attempt had to resume from: a folder's name, "" for nothing."""
        return {str(rank.attempt): Path(rank.resume).name for rank in list(self.seen)}

    def is_gone(self, attempt: AttemptId) -> bool:
        """Whether no rank of an attempt lives any more."""
        return all(rank.is_gone for rank in list(self.seen) if rank.attempt == attempt)

    def check(self, *, out_of_reach: bool = False) -> None:
        """Raise AssertionError if an invariant was violated.

        `out_of_reach`: hosts were cut off, so that single ranks of an older attempt may have lived on out there, stuck.
        """
        assert self._error is None, f"the observer itself failed: {self._error!r}"
        two = [overlap for overlap in self.overlaps if overlap.is_two_gangs]
        assert not two, f"two live gangs: {two}"
        # Stricter than two whole gangs: on one machine every death can be confirmed before the next launch.
        unconfirmed = [each for each in self.overlaps if not each.older_pids <= self.paused]
        assert out_of_reach or not unconfirmed, f"ranks of two attempts at once: {unconfirmed}"
        assert not self.unsealed_resumes, f"resumed from no checkpoint: {self.unsealed_resumes}"
        for name, count in self.starts().items():
            size = next(rank.world_size for rank in self.seen if str(rank.attempt) == name)
            assert count <= size, f"attempt {name} has {size} ranks, but {count} were started"

    # -- watching

    def _watch(self) -> None:
        last = time.monotonic()
        try:
            while not self._ended.wait(PAUSE_SECONDS):
                now = time.monotonic()
                self.longest_pause_seconds = max(self.longest_pause_seconds, now - last)
                last = now
                self._sweep(now)
                self.num_sweeps += 1
        except Exception as error:  # noqa: BLE001 - `check` raises it; a silent end would prove nothing
            self._error = error

    def _sweep(self, now: float) -> None:
        for rank in list(self._living.values()):
            if is_same_process(rank.pid, rank.start_ticks):
                rank.last_seen = time.monotonic()
            else:
                rank.is_gone = True
                del self._living[rank.pid]
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
        for pid in pids:
            if pid not in self._living and now >= self._foreign.get(pid, 0.0):
                self._look_at(pid, now)
        self._compare()

    def _look_at(self, pid: int, now: float) -> None:
        environment = environment_of(pid)
        if environment.get("STOKER_CLUSTER") != self.cluster:
            # An empty file means that the process is just starting: it is read again at once.
            self._foreign[pid] = now + FOREIGN_SECONDS if environment else 0.0
            return
        if any(mark not in environment for mark in MARKS):
            # The keeper, or a fork of it that is about to become a rank.
            return
        stat = stat_of(pid)
        if stat is None or stat[0] in "ZX" or not is_started_as_rank(pid, stat[1]):
            return
        rank = RankSeen(
            pid=pid,
            start_ticks=stat[2],
            attempt=AttemptId.parse(environment["STOKER_ATTEMPT"]),
            generation=int(environment["STOKER_GENERATION"]),
            run=environment["STOKER_RUN"],
            rank=int(environment["RANK"]),
            world_size=int(environment["WORLD_SIZE"]),
            resume=environment.get("STOKER_RESUME", ""),
            first_seen=time.monotonic(),
            last_seen=time.monotonic(),
        )
        if rank.attempt not in self.attempts() and rank.resume:
            self._believe(rank.resume)
        self._living[pid] = rank
        self.seen.append(rank)

    def _believe(self, resume: str) -> None:
        try:
            checkpoints.verify(self.stored_at(Path(resume)))
        except StokerError as error:
            self.unsealed_resumes.append(f"{resume}: {error}")

    def _compare(self) -> None:
        """Record two attempts of a run alive at once: each was seen alive, then the older again, then the newer again."""
        by_attempt: dict[tuple[str, AttemptId], list[RankSeen]] = {}
        for rank in self._living.values():
            by_attempt.setdefault((rank.run, rank.attempt), []).append(rank)
        keys = sorted(by_attempt)
        for before, after in pairwise(keys):
            if before[0] != after[0]:
                continue
            older = _still(by_attempt[before])
            newer = _still(by_attempt[after])
            if older and newer:
                self.overlaps.append(
                    Overlap(
                        before[1],
                        after[1],
                        len(older),
                        len(newer),
                        world_size=newer[0].world_size,
                        older_pids=frozenset(rank.pid for rank in older),
                    )
                )


def _still(ranks: Sequence[RankSeen]) -> list[RankSeen]:
    return [rank for rank in ranks if is_same_process(rank.pid, rank.start_ticks)]


def environment_of(pid: int) -> dict[str, str]:
    """Read a process's environment as it was started with; empty when there is none to read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0") if entry)
    return {
        name.decode(errors="replace"): value.decode(errors="replace") for name, _, value in pairs
    }


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """Return state letter, parent and start time in clock ticks; None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[19])


def is_started_as_rank(pid: int, parent: int) -> bool:
    """Whether a process with a rank's marks is one, and has not inherited them from a rank.

    A rank leads a session, and its parent is the keeper. A rank's child has another parent only as long as that lives and
    is not just being replaced by exec: a pyenv shim, as which `python3` may start, does both.
    """
    try:
        return os.getsid(pid) == pid and "RANK" not in environment_of(parent)
    except ProcessLookupError:
        return False


def is_same_process(pid: int, start_ticks: int) -> bool:
    """Whether this very process exists and is no zombie."""
    stat = stat_of(pid)
    return stat is not None and stat[0] not in "ZX" and stat[2] == start_ticks
