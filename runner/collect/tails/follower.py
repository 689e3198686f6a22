"""The follower: polls the logs of a live gang many times a second, and reports their new matches and steps.

It reads standard error before standard output, so that a flood of output delays no traceback;
`tails` states how much of a flood is read. A log that is not written to costs one `stat`.
"""

import dataclasses
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from runner.collect.catalogues.catalogues import all_catalogues
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.step_formats.progress_bars import BarSteps
from runner.collect.tails.followed_logs import (
    KERNEL,
    LIMITS,
    MAX_RECORDS,
    MAX_TEXT,
    FollowedKernel,
    FollowedLog,
)
from runner.collect.tails.tail import Tail
from runner.collect.tails.wakeups import Wakeups
from runner.facts.matches import Match
from runner.facts.messages.log_search import FollowReport, FollowRequest, LogPosition
from runner.facts.messages.signals import StepRecord

# All chosen. Matches in one report, which must fit a message.
MAX_MATCHES = 10
# Between two reports of positions when there is nothing else to report.
POSITIONS_SECONDS = 5.0
# Without a step in the log that reports them, until another log may.
STEP_SOURCE_SECONDS = 60.0
# Of logs that were written to before they were followed: enough for the present step.
FIRST_BYTES = 64 * 1024
# Of logs that are read to their ends: a poll reads some megabytes.
MAX_POLLS = 100


class Follower:
    """Follows the logs of one gang."""

    def __init__(
        self,
        request: FollowRequest,
        engine: Engine | None = None,
        *,
        piped: Sequence[FollowedLog] = (),
        ends_only: Collection[str] = (),
    ) -> None:
        """Raises UserError for a metric pattern that cannot be searched for.

        `piped`: logs that are no files, read first. `ends_only`: files of which only the last FIRST_BYTES of today are read.
        """
        own_format = request.metric_pattern or None
        engine = engine or engine_for(own_format=own_format)
        self.gang = request.gang
        # Standard error first.
        paths = sorted(map(Path, request.files), key=lambda path: (path.suffix != ".err", path))
        self._logs = list(piped)
        for path in paths:
            first_bytes = FIRST_BYTES if str(path) in ends_only else None
            limits = dataclasses.replace(LIMITS, first_bytes=first_bytes)
            tail = Tail(path, request.places.get(str(path)), limits)
            other = _other_stream(path, request.files)
            beside = None if other is None else BarSteps(other)
            rank = request.files[str(path)]
            self._logs.append(FollowedLog(tail, rank, engine, own_format, beside=beside))
        self._kernel: FollowedKernel | None = None
        self._kernel_trouble = ""
        try:
            self._kernel = FollowedKernel(request, engine) if request.kernel_log else None
        except OSError as error:
            self._kernel_trouble = f"the kernel's log is not read: {error}"
        # Ranks step together, so one log reports the gang's steps: the first with a step.
        self._step_source: FollowedLog | None = None
        self._stepped_at = 0.0
        folders = {path.parent: None for path in paths}
        if request.kernel_log and not _is_device(request.kernel_log):
            folders[Path(request.kernel_log).parent] = None
        self._wakeups = Wakeups(folders)
        self._reported_troubles: dict[str, None] = {}
        self._reported_positions: dict[str, LogPosition] = {}
        self._reported_lost: dict[str, int] = {}
        self._reported_at = 0.0

    @property
    def is_behind(self) -> bool:
        """Whether there may be more to read already."""
        return any(log.is_behind for log in self._logs)

    @property
    def wakers(self) -> list[int]:
        """Descriptors of which one becomes readable when there is something to read; none: poll often instead."""
        kernel = None if self._kernel is None else self._kernel.log.descriptor
        if not self._wakeups.is_active or kernel is None:
            return self._wakeups.descriptors
        return [*self._wakeups.descriptors, kernel]

    def poll(self, now: float) -> list[FollowReport]:
        """Return what is new, in reports that fit a message each. `now`: monotonic seconds, of this machine."""
        matches: list[Match] = []
        records: list[StepRecord] = []
        self._wakeups.drain()
        for log in self._logs:
            log.poll(now)
            matches += log.matches
            records += self._steps_of(log, now)
        if self._kernel is not None:
            matches += self._kernel.poll(now)
        return self._reports(matches, records, now)

    def _reports(
        self, matches: Sequence[Match], records: Sequence[StepRecord], now: float
    ) -> list[FollowReport]:
        trouble = self._new_trouble()
        # An empty report shows that this process is alive.
        is_due = now >= self._reported_at + POSITIONS_SECONDS
        if not (matches or records or trouble or is_due):
            return []
        positions: dict[str, LogPosition] = {}
        if matches or is_due:
            self._reported_at = now
            known, positions = self._reported_positions, self.positions()
            positions = {path: at for path, at in positions.items() if known.get(path) != at}
            known |= positions
        reports = [
            FollowReport(gang=self.gang, matches=tuple(matches[first : first + MAX_MATCHES]))
            for first in range(0, len(matches) or 1, MAX_MATCHES)
        ]
        # Before the lines that come with them.
        reports[0] = replace(reports[0], lost_bytes=self._newly_lost())
        # Positions come with the last report: a reader that has all of them continues there.
        reports[-1] = replace(
            reports[-1],
            records=tuple(records[-MAX_RECORDS:]),
            records_rank=None if self._step_source is None else self._step_source.rank,
            places=positions,
            num_kept_back=sum(log.throttle.num_dropped for log in self._logs),
            skipped_bytes=sum(log.tail.num_skipped_bytes for log in self._logs),
            trouble=trouble,
        )
        return reports

    def read_all(self, now: float) -> list[FollowReport]:
        """Read to the ends of the logs, to which nothing is written any more; return what is new.

        Lines without an end count as whole now.
        """
        reports = self.poll(now)
        for _ in range(MAX_POLLS):
            if not self.is_behind:
                break
            reports += self.poll(now)
        matches: list[Match] = []
        records: list[StepRecord] = []
        for log in self._logs:
            log.finish(now)
            matches += log.matches
            records += self._steps_of(log, now)
        return reports + self._reports(matches, records, now)

    def _steps_of(self, log: FollowedLog, now: float) -> list[StepRecord]:
        """Return the steps of the log that reports them: of the lowest rank that prints any.

        Another one takes over after STEP_SOURCE_SECONDS without a step.
        """
        if not log.records or log.rank is None:
            return []
        source = self._step_source
        lowest = log.rank if source is None or source.rank is None else source.rank
        if source is None or log.rank < lowest or now > self._stepped_at + STEP_SOURCE_SECONDS:
            self._step_source = log
        if log is not self._step_source:
            return []
        self._stepped_at = now
        return list(log.records)

    def close(self) -> None:
        """Close all files."""
        self._wakeups.close()
        for log in self._logs:
            log.tail.close()
        if self._kernel is not None:
            self._kernel.log.close()

    def _new_trouble(self) -> str:
        """Return which logs and which catalogues cannot be read, each reason once."""
        troubles = [log.tail.trouble or log.trouble for log in self._logs]
        troubles += all_catalogues().defects
        troubles += [self._kernel_trouble if self._kernel is None else self._kernel.log.trouble]
        new = [text for text in troubles if text and text not in self._reported_troubles]
        self._reported_troubles |= dict.fromkeys(new)
        return "; ".join(new)[:MAX_TEXT]

    def _newly_lost(self) -> dict[str, int]:
        lost = {log.tail.path.name: log.tail.num_lost_bytes for log in self._logs}
        if self._kernel is not None:
            lost[KERNEL] = self._kernel.log.num_lost_bytes
        new = {name: num - self._reported_lost.get(name, 0) for name, num in lost.items()}
        self._reported_lost = lost
        return {name: num for name, num in new.items() if num}

    def positions(self) -> dict[str, LogPosition]:
        """Return how far each log was read, by its path: another follower reads on from there."""
        positions = {str(log.tail.path): log.tail.position for log in self._logs}
        if self._kernel is not None:
            positions[str(self._kernel.log.path)] = self._kernel.log.position
        return {path: at for path, at in positions.items() if at is not None}


def _other_stream(path: Path, ranks: Mapping[str, int]) -> Path | None:
    """Return the other log of the same rank; None: it has none."""
    others = (name for name, rank in ranks.items() if rank == ranks[str(path)])
    return next((Path(name) for name in others if name != str(path)), None)


def _is_device(path: str) -> bool:
    """Whether a kernel's log is a device, whose descriptor becomes readable with each record."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False
