"""Following: the logs of a gang that lives, looked at many times a second, and what of them is worth telling at once.

Standard error is read before standard output, so that a flood of words keeps no traceback waiting; how much of a flood is read
stands in `tails`. A log that nobody writes to costs one look at its size.

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
from runner.collect.scan import Found, Scan, engine_for
from runner.collect.tails import Block, Policy, Position, Tail
from runner.decide.context import in_context
from runner.facts.matches import Match
from runner.facts.searches import Follow, Followed, Place
from runner.facts.signals import StepRecord

POLICY = Policy(look_bytes=8 << 20, behind_bytes=64 << 20, partial_seconds=0.5)
# Lines of one signature in one log that are told in `ALIKE_SECONDS`: that name the same process or device, and in all; chosen.
ALIKE, ALIKE_IN_ALL = 2, 20
ALIKE_SECONDS = 3600.0
MAX_TEXT = 300  # characters of a line that are told; chosen
MAX_TOLD = 10  # lines in one word: it must fit a message; chosen
MAX_RECORDS = 80  # steps in one word, the newest; chosen
REMEMBERED = 60  # matches of a log that give the next ones their context; chosen
# Between two looks at a log that has not changed in size or time: it may have been replaced; chosen.
CALM_SECONDS = 1.0
PLACES_SECONDS = (
    5.0  # between two words on how far logs were read, when there is nothing else to say; chosen
)
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
        self._kernel = _Kernel(order, engine) if order.kernel_log else None
        # Of a gang that steps together, one log says all: the first that tells a step.
        self._teller: _Log | None = None
        self._troubles: dict[str, None] = {}
        self._placed_at = 0.0
        self._placed: dict[str, Place] = {}

    def look(self, now: float) -> list[Followed]:
        """Return what is new, in words that fit a message each. `now`: monotonic seconds, of this machine."""
        matches: list[Match] = []
        records: list[StepRecord] = []
        for log in self._logs:
            log.look(now)
            matches += log.matches
            if log.records and self._teller is None:
                self._teller = log
            if log is self._teller:
                records += log.records
        if self._kernel is not None:
            matches += self._kernel.look(now)
        trouble = self._trouble()
        if not (matches or records or trouble) and now < self._placed_at + PLACES_SECONDS:
            return []
        places = self._places()
        if not (matches or records or trouble) and places == self._placed:
            self._placed_at = now
            return []
        self._placed_at, self._placed = now, places
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

    def close(self) -> None:
        """Let go of all files."""
        for log in self._logs:
            log.tail.close()
        if self._kernel is not None:
            self._kernel.log.close()

    def _trouble(self) -> str:
        """Return what cannot be read, each log's once."""
        said = [log.tail.trouble for log in self._logs]
        said += [self._kernel.log.trouble] if self._kernel is not None else []
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
        self._recent += new
        known = {(match.line, match.signature): True for match in new}
        worth = []
        for match in in_context(list(self._recent)):
            if (match.line, match.signature) not in known or not match.fault:
                continue
            if match.weight != "names":
                continue
            about = ",".join(match.named.values())
            self._told[match.signature] += 1
            self._told[f"{match.signature} {about}"] += 1
            is_alike = self._told[f"{match.signature} {about}"] > ALIKE
            if is_alike or self._told[match.signature] > ALIKE_IN_ALL:
                self.num_kept_back += 1
            else:
                worth.append(replace(match, text=match.text[:MAX_TEXT]))
        return worth


class _Log:
    """One file of one rank."""

    def __init__(
        self, path: Path, rank: int, engine: Engine, own_format: str | None, place: Place | None
    ) -> None:
        self.tail = Tail(path, _position(place), POLICY)
        self.matches: list[Match] = []  # of the last look
        self.records: list[StepRecord] = []
        self._rank = rank
        self._engine, self._own_format = engine, own_format
        self._scan: Scan | None = None
        self._key: tuple[int, int] | None = None
        self._telling = _Telling()
        self._seen: tuple[int, int, int] | None = None
        self._due = 0.0
        self._is_behind = False

    @property
    def num_kept_back(self) -> int:
        """How many lines were known and not told."""
        return self._telling.num_kept_back

    def look(self, now: float) -> None:
        """Read what is new into `matches` and `records`."""
        self.matches, self.records = [], []
        if not self._may_be_new(now):
            return
        found: list[Match] = []
        blocks = self.tail.look(now)
        self._is_behind = bool(blocks)
        for block in blocks:
            for one in self._search(block):
                if one.match is not None:
                    rank = self._rank if one.match.rank is None else one.match.rank
                    found.append(replace(one.match, rank=rank))
                if one.record is not None:
                    self.records.append(one.record)
        self.matches = self._telling.worth(found, now)

    def _may_be_new(self, now: float) -> bool:
        """Look at size and time alone, most of the time."""
        try:
            state = os.stat(self.tail.path)
            seen = (state.st_ino, state.st_size, state.st_mtime_ns)
        except OSError:
            seen = None
        is_calm = seen == self._seen and not self._is_behind and now < self._due
        self._seen = seen
        if not is_calm:
            self._due = now + CALM_SECONDS
        return not is_calm

    def _search(self, block: Block) -> Iterable[Found]:
        key = (block.device, block.inode)
        if self._scan is None or self._key != key or block.skipped_bytes or block.may_lack:
            rest = [] if self._scan is None else list(self._scan.finish())
            self._key = key
            self._scan = Scan(
                self.tail.path.name,
                own_format=self._own_format,
                searching=self._engine,
                first_line=block.line or 1,
            )
            yield from rest
        yield from self._scan.feed(block.data)


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
        self._scan = Scan(KERNEL, searching=engine)
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
        line = record.text.replace("\n", " ").encode()
        searched = self._scan.feed(line + b"\n")
        return [
            replace(one.match, of_kernel=True, at=record.at)
            for one in searched
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
