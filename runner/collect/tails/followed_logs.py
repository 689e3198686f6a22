"""Followed logs: one log, or the kernel's, polled again and again, and the throttle of its matches.

A match is reported when it names a fault in its context (`rootcause.context`), twice an hour
for each signature, log and process or device, so that a message of every step does not drown one
that comes once. The logs of ranks that died are searched again, in context.
"""

import os
from collections import Counter, deque
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from runner.collect.engines import Engine
from runner.collect.kernel import KernelLog, this_boot
from runner.collect.scan import Scan, ScannedLine
from runner.collect.step_formats.name_value_pairs import Reading
from runner.collect.step_formats.progress_bars import BarSteps
from runner.collect.tails.tail import Block, ReadLimits, Tail
from runner.facts.matches import Match
from runner.facts.messages.log_search import FollowRequest
from runner.facts.messages.signals import StepRecord
from runner.rootcause.context.line_context import in_context

LIMITS = ReadLimits(poll_bytes=8 << 20, behind_bytes=64 << 20, partial_seconds=0.5)
# All chosen. Of one signature in one log, within REPEAT_SECONDS: about one subject, and in all.
MAX_REPEATS, MAX_REPEATS_IN_ALL = 2, 20
REPEAT_SECONDS = 3600.0
# Characters of a reported line, and of each named group of it.
MAX_TEXT, MAX_NAMED = 300, 100
# Matches of a log that give the next ones their context.
MAX_CONTEXT = 60
# Steps in one message, the newest.
MAX_RECORDS = 80
# Between two polls of a log of unchanged size and time: it may have been replaced.
UNCHANGED_SECONDS = 1.0
# The kernel log's file name in matches.
KERNEL = "kernel"


class MatchThrottle:
    """Decides which matches of one log are reported. `num_dropped`: repeats of reported ones."""

    def __init__(self) -> None:
        self.num_dropped = 0
        self._recent: deque[Match] = deque(maxlen=MAX_CONTEXT)
        self._num_reported: Counter[str] = Counter()
        self._counting_since = 0.0

    def filter(self, new: Iterable[Match], now: float) -> list[Match]:
        """Return the new matches that name a fault in their context, and are no repeats."""
        new = list(new)
        if not new:
            return []
        if now > self._counting_since + REPEAT_SECONDS:
            self._num_reported.clear()
            self._counting_since = now
        context = [*self._recent, *new]
        self._recent.extend(new)
        new_keys = {(match.line, match.signature): True for match in new}
        return [
            _cut(match)
            for match in in_context(context)
            if (match.line, match.signature) in new_keys
            and match.fault
            and (match.weight == "primary" or match.role in ("interrupted", "cleared"))
            and not self._is_repeat(match)
        ]

    def restart(self) -> None:
        """Begin another file: its lines are counted from 1, and those of the file before are no context."""
        self._recent.clear()

    def _is_repeat(self, match: Match) -> bool:
        """Count a match that is to be reported; True: enough like it were."""
        num, subject = self._num_reported, " ".join(match.named.values())[:MAX_NAMED]
        key = f"{match.signature} {subject}"
        if num[match.signature] >= MAX_REPEATS_IN_ALL or num[key] >= MAX_REPEATS:
            self.num_dropped += 1
            return True
        num.update((match.signature, key))
        return False


def _cut(match: Match) -> Match:
    """Bound the hostile text of a match."""
    named = {name: value[:MAX_NAMED] for name, value in match.named.items()}
    text, node = match.text[:MAX_TEXT], match.node[:MAX_NAMED]
    return replace(match, text=text, node=node, named=named)


class FollowedLog:
    """One file of one rank; `rank` None: of what started the ranks. `matches` and `records` are those of the last poll.

    `beside`: the rank's other stream, where a progress bar may show the step of what is printed here. `trouble`: which part could
    not be searched last.
    """

    def __init__(
        self,
        tail: Tail,
        rank: int | None,
        engine: Engine,
        own_format: str | None,
        *,
        beside: BarSteps | None = None,
    ) -> None:
        self.tail = tail
        self.matches: list[Match] = []
        self.records: deque[StepRecord] = deque(maxlen=MAX_RECORDS)
        self.trouble = ""
        self.is_behind = False
        self.throttle = MatchThrottle()
        self.rank = rank
        self._engine, self._own_format = engine, own_format
        self._scan: Scan | None = None
        self._bar_steps = beside
        # Readings of the last poll whose step is to be seen beside them.
        self._unnumbered: list[Reading] = []
        self._last_step: int | None = None
        self._key: tuple[int, int] | None = None
        # Matches that the throttle has not seen yet.
        self._unfiltered: list[Match] = []
        self._version: tuple[int, int, int] | None = None
        self._due = 0.0

    def poll(self, now: float) -> None:
        """Read what is new into `matches` and `records`."""
        self.matches = []
        self.records.clear()
        self._unnumbered.clear()
        if self._may_have_changed(now):
            if self._bar_steps is not None:
                self._bar_steps.mark()
            self._search_new(now)
        if self._bar_steps is not None:
            self.records.extend(self._bar_steps.number(self._unnumbered, now))

    def finish(self, now: float) -> None:
        """Read a last line without an end into `matches` and `records`: nothing is written any more."""
        self.matches = []
        self.records.clear()
        self._unnumbered.clear()
        self.tail.is_final = True
        self._search_new(now)
        self.tail.is_final = False
        scan, self._scan = self._scan, None
        if scan is not None:
            self._add(scan.finish())
        self._filter(now)
        if self._bar_steps is not None:
            self.records.extend(self._bar_steps.number(self._unnumbered, now))

    def _search_new(self, now: float) -> None:
        blocks = self.tail.poll(now)
        self.is_behind = bool(blocks)
        for block in blocks:
            is_other = self._key != (block.device, block.inode)
            if self._scan is None or is_other or block.skipped_bytes or block.may_lack:
                self._restart_scan(block, now)
            self._add(self._feed(block))
        self._filter(now)

    def _feed(self, block: Block) -> list[ScannedLine]:
        """Search a block; skip one whose search fails, since the next poll would meet it again."""
        assert self._scan is not None
        try:
            found = list(self._scan.feed(block.data))
            if not block.data.endswith(b"\n"):
                found += self._scan.flush()
        except Exception as error:  # noqa: BLE001 - a bulkhead against hostile text
            self.trouble = f"{self.tail.path.name}: a part of {len(block.data)} bytes cannot be searched: {error!r}"
            self._scan = None
            return []
        return found

    def _restart_scan(self, block: Block, now: float) -> None:
        if self._scan is not None:
            self._add(self._scan.finish())
        self._filter(now)
        self.throttle.restart()
        self._key = (block.device, block.inode)
        self._scan = Scan(
            self.tail.path.name,
            own_format=self._own_format,
            engine=self._engine,
            first_line=block.line or 1,
            max_matches=None,
        )

    def _add(self, lines: Iterable[ScannedLine]) -> None:
        for line in lines:
            if line.match is not None:
                rank = self.rank if line.match.rank is None else line.match.rank
                self._unfiltered.append(replace(line.match, rank=rank))
            if line.record is not None:
                self._last_step = line.record.step
                self.records.append(line.record)
            elif line.unnumbered is not None and "skipped" not in line.unnumbered.numbers:
                self._unnumbered.append(line.unnumbered)
            elif line.unnumbered is not None and self._last_step is not None:
                # A loss scaler's sentence is about the step after the last one that was printed, or about one that is not.
                skipped = Reading(step=self._last_step, numbers=line.unnumbered.numbers).record()
                self.records.extend([skipped] if skipped is not None else [])

    def _filter(self, now: float) -> None:
        self.matches += self.throttle.filter(self._unfiltered, now)
        self._unfiltered.clear()

    def _may_have_changed(self, now: float) -> bool:
        """Compare size and time; an unchanged log is polled every UNCHANGED_SECONDS only."""
        try:
            state = os.stat(self.tail.path)
            version = (state.st_ino, state.st_size, state.st_mtime_ns)
        except OSError:
            version = None
        is_same = version == self._version and not self.is_behind and now < self._due
        self._version = version
        if not is_same:
            self._due = now + UNCHANGED_SECONDS
        return not is_same


class FollowedKernel:
    """The kernel's log of the node."""

    def __init__(self, request: FollowRequest, engine: Engine) -> None:
        self.log = KernelLog(
            Path(request.kernel_log),
            this_boot(),
            since_microseconds=request.since_microseconds,
            position=request.places.get(request.kernel_log),
        )
        self._scan = Scan(KERNEL, engine=engine, max_matches=None)
        self._num_records = 0
        self._throttle = MatchThrottle()

    def poll(self, now: float) -> list[Match]:
        """Return new matches that are to be reported.

        The line of a match is the kernel's own number of its record; a rank in its text is not the kernel's.
        """
        matches = []
        for record in self.log.poll(now):
            self._num_records += 1
            line, number = record.line, record.line.sequence
            matches += [
                replace(
                    found.match,
                    line=self._num_records if number is None else number,
                    of_kernel=True,
                    at=record.at,
                    rank=None,
                )
                for found in self._scan.feed(line.text.replace("\n", " ").encode() + b"\n")
                if found.match is not None
            ]
        return self._throttle.filter(matches, now)
