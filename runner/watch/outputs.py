"""The outputs of a watched gang: which files and pipes they are, what is new in them, and how they end."""

import contextlib
import glob
import os
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from runner.agent.ranks import output_files
from runner.collect.end_search import EndOfLog, end_of_file, search_ends
from runner.collect.engines import Engine
from runner.collect.log_folders.file_kinds import HEAD_BYTES, reason_to_leave
from runner.collect.log_folders.origins import Launch, origins_of
from runner.collect.scan import engine_for
from runner.collect.tails.follower import Follower
from runner.collect.tails.piped_logs import PipedBars, PipedLog, PipeTail
from runner.facts.matches import ScannedLogs
from runner.facts.messages.log_search import FollowReport, FollowRequest
from runner.rootcause.error_output import essential
from runner.watch.processes import RankProcess

# Between two searches for files that match, and at least so many times as long as one takes: half a percent of a core. Chosen.
GLOB_SECONDS, GLOB_FACTOR = 2.0, 200.0
# Each has a descriptor, of which a process has 1,024 by default. Chosen.
MAX_FILES = 900
# Of the end of a stream, for its last words.
_TAIL_BYTES = 64 * 1024
# A launch of files that do not name theirs.
NO_LAUNCH: Launch = ()


class Outputs:
    """Follows the files of the ranks, or those that patterns name, and the pipes of a command, and the kernel's log."""

    def __init__(
        self,
        *,
        patterns: Sequence[str] = (),
        kernel_log: str = "",
        metric_pattern: str = "",
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises UserError for a metric pattern that cannot be searched for."""
        self._patterns = patterns
        self._own_format = metric_pattern or None
        self._engine: Engine = engine_for(own_format=self._own_format)
        # Standard output and standard error of a command.
        self._pipes: tuple[PipeTail, ...] = ()
        self._on_trouble = on_trouble
        self._request = FollowRequest(
            gang="",
            kernel_log=kernel_log,
            since_microseconds=int(time.monotonic() * 1e6),
            metric_pattern=metric_pattern,
        )
        # Of the files that match: what was left out, and why.
        self._left_out: dict[str, str] = {}
        self._glob_due = 0.0
        # Where the output of the present gang begins in files that it did not begin.
        self._begun_at: dict[str, int] = {}
        # Files that were there before the watch began: their past is not of today.
        self._early: set[str] | None = None
        self._rank_files: dict[str, int] = {}
        self._piped_rank: int | None = 0
        # The newest launch that files name.
        self.launch: Launch = NO_LAUNCH
        self._follower = self._follow()

    def add_pipes(self, pipes: tuple[PipeTail, PipeTail]) -> None:
        """Follow standard output and standard error of a command as well."""
        self._pipes = pipes
        self._follower.close()
        self._follower = self._follow()

    @property
    def files(self) -> Mapping[str, int]:
        """The files that are followed, and the rank of each."""
        return self._request.files

    @property
    def is_behind(self) -> bool:
        """Whether there may be more to read already."""
        return self._follower.is_behind or any(pipe.has_unread for pipe in self._pipes)

    @property
    def wakers(self) -> list[int]:
        """Descriptors of which one becomes readable when there is something to read; none: poll often instead."""
        return self._follower.wakers

    def set_ranks(self, ranks: Iterable[RankProcess], pipes: Container[int] = ()) -> list[int]:
        """Follow the files of these ranks from now on; return the ranks whose output cannot be read. `pipes`: inodes of ours."""
        files: dict[str, int] = {}
        unread = []
        ranks = list(ranks)
        for rank in ranks:
            for stream in rank.streams:
                if stream.path:
                    files.setdefault(stream.path, rank.rank)
            if not any(stream.path or stream.pipe in pipes for stream in rank.streams):
                unread.append(rank.rank)
        self._rank_files = files
        # What a command prints is that of its lowest rank, unless ranks have files of their own: then it is their launcher's.
        lowest = min((rank.rank for rank in ranks), default=0)
        self._piped_rank = None if files or self._patterns else lowest
        self._glob_due = 0.0
        self.refresh(time.monotonic(), is_new_gang=True)
        return [] if self._patterns else unread

    def refresh(self, now: float, *, is_new_gang: bool = False) -> None:
        """Look for files that match, now and then; follow all that are there."""
        if now < self._glob_due:
            return
        began = time.monotonic()
        files = self._matching() if self._patterns else self._rank_files
        self._glob_due = now + max(GLOB_SECONDS, GLOB_FACTOR * (time.monotonic() - began))
        if self._early is None and (files or self._patterns):
            self._early = set(files)
        if files != self._request.files or is_new_gang:
            places = {**self._request.places, **self._follower.positions()}
            self._request = replace(self._request, files=files, places=places)
            self._follower.close()
            self._follower = self._follow()

    def poll(self, now: float) -> list[FollowReport]:
        """Return what is new."""
        return self._without_trouble(self._follower.poll(now))

    def read_all(self, now: float) -> list[FollowReport]:
        """Read to the ends, for nothing is written any more."""
        return self._without_trouble(self._follower.read_all(now))

    def stats(self) -> tuple[tuple[int, int], ...]:
        """Return size and time of each output: they change when a rank writes."""
        found = [(pipe.fed_bytes, 0) for pipe in self._pipes]
        for path in self._request.files:
            try:
                state = os.stat(path)
                found.append((state.st_size, state.st_mtime_ns))
            except OSError:
                found.append((0, 0))
        return tuple(found)

    def search_ends(self, ranks: Container[int]) -> ScannedLogs:
        """Search the ends of these ranks' outputs, and of their launcher's, for why they ended."""
        ends = [
            EndOfLog(str(pipe.path), self._piped_rank, bytes(pipe.kept)) for pipe in self._pipes
        ]
        ends += [
            end_of_file(Path(path), rank, since=self._begun_at.get(path, 0))
            for path, rank in self._request.files.items()
            if rank in ranks
        ]
        return search_ends(ends, self._engine, own_format=self._own_format)

    def ends_well(self) -> bool:
        """Whether no output ends with an error, a signal or an exit code: of processes whose exit code is not known."""
        found = self.search_ends(set(self._request.files.values()))
        return not any(match.fault and match.weight == "primary" for match in found.matches)

    def last_words(self, rank: int) -> str:
        """Return the error that ended a rank, and its last lines, as an agent reports them."""
        files = [path for path, of_rank in self._request.files.items() if of_rank == rank]
        # Standard error is the later one of a rank's streams, and has the word in its name elsewhere.
        files.sort(key=lambda path: "err" in os.path.basename(path))
        texts = [output_files.tail(Path(path)) for path in reversed(files)]
        if rank == self._piped_rank or not files:
            texts += [_last_words_of(pipe) for pipe in reversed(self._pipes)]
        return next((text for text in texts if text), "")

    def forget_past(self) -> None:
        """Let no line that was written until now explain how the next gang ends."""
        for pipe in self._pipes:
            pipe.kept.clear()
        for path in self._request.files:
            with contextlib.suppress(OSError):
                self._begun_at[path] = os.stat(path).st_size

    def close(self) -> None:
        """Close all files."""
        self._follower.close()

    def _follow(self) -> Follower:
        logs = []
        for pipe, other in zip(self._pipes, reversed(self._pipes), strict=True):
            bars = PipedBars(other)
            logs.append(
                PipedLog(pipe, self._piped_rank, self._engine, self._own_format, beside=bars)
            )
        # Standard error first, so that a flood of output delays no traceback.
        early = self._early or set()
        return Follower(self._request, self._engine, piped=tuple(reversed(logs)), ends_only=early)

    def _without_trouble(self, reports: list[FollowReport]) -> list[FollowReport]:
        """Pass on what cannot be read."""
        for report in reports:
            if report.trouble:
                self._on_trouble(report.trouble)
        return reports

    def _matching(self) -> dict[str, int]:
        """Return the logs that the patterns name, and their ranks: those of the newest launch, where paths name launches."""
        paths = sorted({path for one in self._patterns for path in glob.glob(one, recursive=True)})
        logs = [path for path in paths if self._is_log(path)]
        if len(logs) > MAX_FILES:
            self._on_trouble(
                f"{len(logs)} files match, of which {MAX_FILES} are followed: the newest"
            )
            followed = self._request.files
            logs.sort(key=lambda path: (path in followed, _changed_at(path)))
            logs = sorted(logs[-MAX_FILES:])
        if not logs:
            return {}
        origins = origins_of(logs, dict.fromkeys(logs, _shared_folder(logs)))
        self.launch = max((origins[path].launch for path in logs), default=NO_LAUNCH)
        return {
            path: origins[path].rank or 0
            for path in logs
            if not origins[path].is_kernel and origins[path].launch == self.launch
        }

    def _is_log(self, path: str) -> bool:
        if path in self._left_out:
            return False
        if path in self._request.files:
            return True
        try:
            if not os.path.isfile(path):
                return False
            with open(path, "rb") as file:
                head = file.read(HEAD_BYTES)
        except OSError as error:
            reason = error.strerror or str(error)
        else:
            reason = reason_to_leave(os.path.basename(path), head) if head else ""
        if reason:
            self._left_out[path] = reason
            self._on_trouble(f"{path} is left out: {reason}")
        return not reason


def _changed_at(path: str) -> float:
    """Return when a file was last written to."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _shared_folder(paths: Sequence[str]) -> str:
    return os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])


def _last_words_of(pipe: PipeTail) -> str:
    text = bytes(pipe.kept[-_TAIL_BYTES:]).rstrip().decode(errors="replace")
    lines, size = output_files.TAIL_LINES, output_files.TAIL_BYTES
    return essential(text, max_lines=lines, max_bytes=size)
