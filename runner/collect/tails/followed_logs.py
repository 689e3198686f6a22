"""Followed logs: one log, or the kernel's, that is looked at again and again; and which of its lines are worth telling at once.

A line is told when it names a fault where it stands (`decide.context`): of one signature, in one log, about one process or device,
twice an hour, so that what a program says at every step does not drown what it says once. What kills ranks is searched for again
after they died, in context.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from runner.collect.engines import Engine
from runner.collect.kernel import KernelLog, KernelPosition, KernelRecord, this_boot
from runner.collect.scan import Found, Scan
from runner.collect.tails.tail import Block, Policy, Position, Tail
from runner.facts.matches import Match
from runner.facts.messages.log_search import Follow, Place
from runner.facts.messages.signals import StepRecord
from runner.rootcause.line_context import in_context

POLICY = Policy(look_bytes=8 << 20, behind_bytes=64 << 20, partial_seconds=0.5)
# Lines of one signature in one log that are told in `ALIKE_SECONDS`: that name the same process or device, and in all; chosen.
ALIKE, ALIKE_IN_ALL = 2, 20
ALIKE_SECONDS = 3600.0
# characters of what a line names; chosen
MAX_NAMED = 100
# matches of a log that give the next ones their context; chosen
REMEMBERED = 60
# Between two looks at a log that has not changed in size or time: it may have been replaced; chosen.
CALM_SECONDS = 1.0
# what the kernel's log is called in what is found
KERNEL = "kernel"
# characters of a line that are told; chosen
MAX_TEXT = 300
# steps in one word, the newest; chosen
MAX_RECORDS = 80


class MatchThrottle:
    """Decides which matches of one log are told."""

    def __init__(self) -> None:
        self.num_kept_back = 0
        self._recent: deque[Match] = deque(maxlen=REMEMBERED)
        self._told: Counter[str] = Counter()
        self._counted_from = 0.0

    def worth(self, new: Iterable[Match], now: float) -> list[Match]:
        """Return those of new matches that name a fault where they stand."""
        new = list(new)
        if not new:
            return []
        if now > self._counted_from + ALIKE_SECONDS:
            self._told.clear()
            self._counted_from = now
        context = [*self._recent, *new]
        self._recent.extend(new)
        known = {(match.line, match.signature): True for match in new}
        worth = []
        for match in in_context(context):
            is_new = (match.line, match.signature) in known
            if is_new and match.fault and match.weight == "names":
                worth += [_cut(match)] if self._is_told(match) else []
        return worth

    def restart(self) -> None:
        """Begin with another file: its lines are counted from 1 again, and what stands in the old one is no context."""
        self._recent.clear()

    def _is_told(self, match: Match) -> bool:
        """Count what is told: of one signature so much about each that it names, and in all."""
        about = f"{match.signature} {' '.join(match.named.values())[:MAX_NAMED]}"
        is_enough = self._told[match.signature] >= ALIKE_IN_ALL or self._told[about] >= ALIKE
        if is_enough:
            self.num_kept_back += 1
            return False
        self._told[match.signature] += 1
        self._told[about] += 1
        return True


def _cut(match: Match) -> Match:
    """Bound what hostile text may have made of a match."""
    named = {name: value[:MAX_NAMED] for name, value in match.named.items()}
    text, node = match.text[:MAX_TEXT], match.node[:MAX_NAMED]
    return replace(match, text=text, node=node, named=named)


class FollowedLog:
    """One file of one rank."""

    def __init__(
        self, path: Path, rank: int, engine: Engine, own_format: str | None, place: Place | None
    ) -> None:
        self.tail = Tail(path, _position(place), POLICY)
        # of the last look
        self.matches: list[Match] = []
        self.records: deque[StepRecord] = deque(maxlen=MAX_RECORDS)
        # what could not be searched last
        self.trouble = ""
        self._rank = rank
        self._engine, self._own_format = engine, own_format
        self._scan: Scan | None = None
        self._key: tuple[int, int] | None = None
        self._telling = MatchThrottle()
        # not judged yet
        self._found: list[Match] = []
        self._seen: tuple[int, int, int] | None = None
        self._due = 0.0
        self.is_behind = False

    @property
    def num_kept_back(self) -> int:
        """How many lines were known and not told."""
        return self._telling.num_kept_back

    def look(self, now: float) -> None:
        """Read what is new into `matches` and `records`."""
        self.matches = []
        self.records.clear()
        if not self._may_be_new(now):
            return
        blocks = self.tail.look(now)
        self.is_behind = bool(blocks)
        for block in blocks:
            if self._begins_anew(block):
                self._end_scan(now)
                self._begin_scan(block)
            self._take(self._feed(block))
        self._tell(now)

    def _feed(self, block: Block) -> list[Found]:
        """Search a block; one that nobody can search is passed over, for it would be met again and again."""
        assert self._scan is not None
        try:
            found = list(self._scan.feed(block.data))
            # a line that waits for its end
            if not block.data.endswith(b"\n"):
                found += self._scan.flush()
        except Exception as error:  # noqa: BLE001 - a bulkhead against hostile text
            self.trouble = f"{self.tail.path.name}: a part of {len(block.data)} bytes cannot be searched: {error!r}"
            self._scan = None
            return []
        return found

    def _begins_anew(self, block: Block) -> bool:
        is_other = self._key != (block.device, block.inode)
        return self._scan is None or is_other or bool(block.skipped_bytes) or block.may_lack

    def _begin_scan(self, block: Block) -> None:
        self._key = (block.device, block.inode)
        self._scan = Scan(
            self.tail.path.name,
            own_format=self._own_format,
            searching=self._engine,
            first_line=block.line or 1,
            most_told=None,
        )

    def _end_scan(self, now: float) -> None:
        if self._scan is not None:
            self._take(list(self._scan.finish()))
        self._tell(now)
        self._telling.restart()

    def _take(self, found: Iterable[Found]) -> None:
        for one in found:
            if one.match is not None:
                rank = self._rank if one.match.rank is None else one.match.rank
                self._found.append(replace(one.match, rank=rank))
            if one.record is not None:
                self.records.append(one.record)

    def _tell(self, now: float) -> None:
        self.matches += self._telling.worth(self._found, now)
        self._found.clear()

    def _may_be_new(self, now: float) -> bool:
        """Look at size and time alone, most of the time."""
        try:
            state = os.stat(self.tail.path)
            seen = (state.st_ino, state.st_size, state.st_mtime_ns)
        except OSError:
            seen = None
        is_calm = seen == self._seen and not self.is_behind and now < self._due
        self._seen = seen
        if not is_calm:
            self._due = now + CALM_SECONDS
        return not is_calm


class FollowedKernel:
    """The kernel's log of the node."""

    def __init__(self, order: Follow, engine: Engine) -> None:
        path, place = Path(order.kernel_log), order.places.get(order.kernel_log)
        boot_id = this_boot()
        position = (
            None
            if place is None
            else KernelPosition(
                boot_id=place.boot_id,
                sequence=place.sequence,
                file=_position(place) if place.inode else None,
            )
        )
        self.log = KernelLog(
            path, boot_id, since_microseconds=order.since_microseconds, position=position
        )
        self._engine = engine
        self._num_records = 0
        self._telling = MatchThrottle()

    @property
    def place(self) -> Place:
        """How far it was read."""
        position = self.log.position
        file = asdict(position.file) if position.file is not None else {}
        return Place(**file, boot_id=position.boot_id, sequence=position.sequence)

    def look(self, now: float) -> list[Match]:
        """Return new lines that are worth telling."""
        found = []
        for record in self.log.look(now):
            found += self._matches(record)
        return self._telling.worth(found, now)

    def _matches(self, record: KernelRecord) -> list[Match]:
        """Search one record: its number in the kernel's own count is its line, and what it says of ranks is not the kernel's."""
        self._num_records += 1
        number = self._num_records if record.sequence is None else record.sequence
        scan = Scan(KERNEL, searching=self._engine, first_line=number)
        line = record.text.replace("\n", " ").encode()
        return [
            replace(one.match, of_kernel=True, at=record.at, rank=None)
            for one in scan.feed(line + b"\n")
            if one.match is not None
        ]


def _position(place: Place | None) -> Position | None:
    if place is None:
        return None
    return Position(
        device=place.device,
        inode=place.inode,
        offset=place.offset,
        before=place.before,
        line=place.line,
        changed_ns=place.changed_ns,
    )
