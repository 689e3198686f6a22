"""Following: the logs of a gang that lives, looked at many times a second, and what of them is worth telling at once.

Standard error is read before standard output, so that a flood of words keeps no traceback waiting; how much of a flood is read
stands in `tails`. A log that nobody writes to costs one look at its size.
"""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, replace
from pathlib import Path

from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.tails.followed_logs import (
    MAX_RECORDS,
    MAX_TEXT,
    FollowedKernel,
    FollowedLog,
)
from runner.collect.tails.wakeups import Wakeups
from runner.facts.matches import Match
from runner.facts.messages.log_search import Follow, Followed, Place
from runner.facts.messages.signals import StepRecord

# lines in one word: it must fit a message; chosen
MAX_TOLD = 10
# between two words on how far logs were read, when there is nothing else to say; chosen
PLACES_SECONDS = 5.0
# without a step, until another log may tell them; chosen
TELLER_SECONDS = 60.0


class Follower:
    """Follows the logs of one gang."""

    def __init__(self, order: Follow, searching: Engine | None = None) -> None:
        """Raises UserError for a metric pattern that cannot be searched for."""
        own_format = order.metric_pattern or None
        engine = searching or engine_for(own_format=own_format)
        self.gang = order.gang
        # Standard error first.
        paths = sorted(map(Path, order.files), key=lambda path: (path.suffix != ".err", path))
        self._logs = [
            FollowedLog(
                path, order.files[str(path)], engine, own_format, order.places.get(str(path))
            )
            for path in paths
        ]
        self._kernel: FollowedKernel | None = None
        # why the kernel's log is not read at all
        self._unread = ""
        try:
            self._kernel = FollowedKernel(order, engine) if order.kernel_log else None
        except OSError as error:
            self._unread = f"the kernel's log is not read: {error}"
        # Of a gang that steps together, one log says all: the first that tells a step.
        self._teller: FollowedLog | None = None
        folders = {path.parent: None for path in paths}
        if order.kernel_log and not _is_device(order.kernel_log):
            folders[Path(order.kernel_log).parent] = None
        self._wakeups = Wakeups(folders)
        self._troubles: dict[str, None] = {}
        self._told_step_at = 0.0
        self._placed_at = 0.0
        self._placed: dict[str, Place] = {}

    @property
    def is_behind(self) -> bool:
        """Whether there may be more to read already."""
        return any(log.is_behind for log in self._logs)

    @property
    def wakers(self) -> list[int]:
        """Descriptors of which one can be read once there is something to look at; none: nobody tells, so look often."""
        if not self._wakeups.is_active:
            return []
        kernel = None if self._kernel is None else self._kernel.log.descriptor
        return self._wakeups.descriptors + ([] if kernel is None else [kernel])

    def look(self, now: float) -> list[Followed]:
        """Return what is new, in words that fit a message each. `now`: monotonic seconds, of this machine."""
        matches: list[Match] = []
        records: list[StepRecord] = []
        self._wakeups.drain()
        for log in self._logs:
            log.look(now)
            matches += log.matches
            records += self._steps_of(log, now)
        if self._kernel is not None:
            matches += self._kernel.look(now)
        trouble = self._trouble()
        # also to say that we are still here
        is_due = now >= self._placed_at + PLACES_SECONDS
        if not (matches or records or trouble or is_due):
            return []
        places: dict[str, Place] = {}
        if matches or is_due:
            self._placed_at = now
            places = {
                path: at for path, at in self._places().items() if self._placed.get(path) != at
            }
            self._placed |= places
        told = [
            Followed(gang=self.gang, matches=tuple(matches[first : first + MAX_TOLD]))
            for first in range(0, len(matches), MAX_TOLD)
        ] or [Followed(gang=self.gang)]
        kept_back = sum(log.num_kept_back for log in self._logs)
        skipped_bytes = sum(log.tail.num_skipped_bytes for log in self._logs)
        # Places come with the last word: whoever has heard all of them goes on there.
        told[-1] = replace(
            told[-1],
            records=tuple(records[-MAX_RECORDS:]),
            places=places,
            num_kept_back=kept_back,
            skipped_bytes=skipped_bytes,
            trouble=trouble,
        )
        return told

    def _steps_of(self, log: FollowedLog, now: float) -> list[StepRecord]:
        """Return a log's steps if it is the one that tells them; another takes over from one that has fallen silent."""
        if not log.records:
            return []
        if self._teller is None or now > self._told_step_at + TELLER_SECONDS:
            self._teller = log
        if log is not self._teller:
            return []
        self._told_step_at = now
        return list(log.records)

    def close(self) -> None:
        """Let go of all files."""
        self._wakeups.close()
        for log in self._logs:
            log.tail.close()
        if self._kernel is not None:
            self._kernel.log.close()

    def _trouble(self) -> str:
        """Return what cannot be read, each log's once."""
        said = [log.tail.trouble or log.trouble for log in self._logs]
        said += [self._unread if self._kernel is None else self._kernel.log.trouble]
        new = [trouble for trouble in said if trouble and trouble not in self._troubles]
        self._troubles |= dict.fromkeys(new)
        return "; ".join(new)[:MAX_TEXT]

    def _places(self) -> dict[str, Place]:
        places = {
            str(log.tail.path): Place(**asdict(position))
            for log in self._logs
            if (position := log.tail.position) is not None
        }
        if self._kernel is not None:
            places[str(self._kernel.log.path)] = self._kernel.place
        return places


def _is_device(path: str) -> bool:
    """Whether a kernel's log is a device, which tells by itself when there is something to read."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False
