"""Following: the logs of a gang that lives, looked at many times a second, and what of them is worth telling at once.

Standard error is read before standard output, so that a flood of words keeps no traceback waiting; how much of a flood is read
stands in `tails`. A log that nobody writes to costs one look at its size.

A line is told when it names a fault where it stands (`decide.context`): of one signature, in one log, about one process or device,
twice an hour, so that what a program says at every step does not drown what it says once. What kills ranks is searched for again
after they died, in context.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from runner.collect.engines import Engine
from runner.collect.kernel import KernelLog, KernelPosition, KernelRecord, this_boot
from runner.collect.scan import Found, Scan, engine_for
from runner.collect.tails import Block, Policy, Position, Tail
from runner.collect.wakeups import Wakeups
from runner.decide.context import in_context
from runner.facts.matches import Match
from runner.facts.searches import Follow, Followed, Place
from runner.facts.signals import StepRecord

POLICY = Policy(look_bytes=8 << 20, behind_bytes=64 << 20, partial_seconds=0.5)
# Lines of one signature in one log that are told in `ALIKE_SECONDS`: that name the same process or device, and in all; chosen.
ALIKE, ALIKE_IN_ALL = 2, 20
ALIKE_SECONDS = 3600.0
MAX_TEXT = 300  # characters of a line that are told; chosen
MAX_NAMED = 100  # characters of what a line names; chosen
MAX_TOLD = 10  # lines in one word: it must fit a message; chosen
MAX_RECORDS = 80  # steps in one word, the newest; chosen
REMEMBERED = 60  # matches of a log that give the next ones their context; chosen
# Between two looks at a log that has not changed in size or time: it may have been replaced; chosen.
CALM_SECONDS = 1.0
PLACES_SECONDS = (
    5.0  # between two words on how far logs were read, when there is nothing else to say; chosen
)
TELLER_SECONDS = 60.0  # without a step, until another log may tell them; chosen
KERNEL = "kernel"  # what the kernel's log is called in what is found


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
            _Log(path, order.files[str(path)], engine, own_format, order.places.get(str(path)))
            for path in paths
        ]
        self._kernel: _Kernel | None = None
        self._unread = ""  # why the kernel's log is not read at all
        try:
            self._kernel = _Kernel(order, engine) if order.kernel_log else None
        except OSError as error:
            self._unread = f"the kernel's log is not read: {error}"
        # Of a gang that steps together, one log says all: the first that tells a step.
        self._teller: _Log | None = None
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
        is_due = now >= self._placed_at + PLACES_SECONDS  # also to say that we are still here
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

    def _steps_of(self, log: _Log, now: float) -> list[StepRecord]:
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


class _Telling:
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


class _Log:
    """One file of one rank."""

    def __init__(
        self, path: Path, rank: int, engine: Engine, own_format: str | None, place: Place | None
    ) -> None:
        self.tail = Tail(path, _position(place), POLICY)
        self.matches: list[Match] = []  # of the last look
        self.records: deque[StepRecord] = deque(maxlen=MAX_RECORDS)
        self.trouble = ""  # what could not be searched last
        self._rank = rank
        self._engine, self._own_format = engine, own_format
        self._scan: Scan | None = None
        self._key: tuple[int, int] | None = None
        self._telling = _Telling()
        self._found: list[Match] = []  # not judged yet
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
            if not block.data.endswith(b"\n"):  # a line that waits for its end
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


class _Kernel:
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
        self._telling = _Telling()

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


def _is_device(path: str) -> bool:
    """Whether a kernel's log is a device, which tells by itself when there is something to read."""
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except OSError:
        return False


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
