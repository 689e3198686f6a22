"""`stoker diagnose --timeline`: what all files say, in the order of time: begins, steps, errors, deaths, ends. Repeats are folded.

A line without a time has that of the line before it in its file. Files without any time come last, each in its own order.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from runner.cli import output
from runner.cli.diagnose.verdict_text import escaped
from runner.collect.lines import decode_line, unwrapped
from runner.collect.log_folders.inputs import LogSource
from runner.collect.log_folders.origins import Launch
from runner.collect.log_folders.packed_files import LogBytes
from runner.collect.log_folders.readers import ReadLog
from runner.errors import UserError
from runner.facts.matches import LAYERS, Match

# Logs whose lines are read again for the time of their first and last step; chosen: ranks of a run step together.
MAX_STEP_LOGS, MAX_STEP_LOGS_OF_LAUNCH = 16, 2
# Events that are printed, and writers that one names; chosen.
MAX_EVENTS, MAX_WRITERS = 200, 4
MAX_TEXT = 120
# Between events that are one entry; chosen.
FOLDED_SECONDS = 60.0
# After the last line of any log.
END_LINE = 1 << 62


class LogEvent(NamedTuple):
    """What one log says at one moment. `fold`: events with the same are one entry. `at`: Unix seconds; None: no time is known."""

    at: float | None
    file: str
    line: int
    writer: str
    kind: str
    text: str
    fold: str


@dataclass(slots=True)
class FoldedEvents:
    """Events that are told as one: the first of them, how many there are, who wrote them, and the time of the last."""

    first: LogEvent
    num: int = 1
    writers: list[str] = field(default_factory=list)
    last_at: float | None = None

    def add(self, event: LogEvent) -> None:
        """Count one more."""
        self.num += 1
        self.last_at = event.at if event.at is not None else self.last_at
        if event.writer not in self.writers:
            self.writers.append(event.writer)


def timeline(logs: Sequence[tuple[LogSource, ReadLog]]) -> list[FoldedEvents]:
    """Return the entries of all logs, in the order of time."""
    again = _read_again(logs)
    events: list[LogEvent] = []
    for source, read in logs:
        events += _events_of(source, read, has_step_times=source.path in again)
    order = {source.path: at for at, (source, _) in enumerate(logs)}
    # Of files without times, each is printed whole; else an end comes after all else of its moment.
    events.sort(
        key=lambda one: (
            one.at is None,
            one.at or 0.0,
            one.at is not None and one.line == END_LINE,
            order[one.file],
            one.line,
        )
    )
    return _folded(events)


def _read_again(logs: Sequence[tuple[LogSource, ReadLog]]) -> set[str]:
    """Return the paths of a few logs of each launch that have steps, the newest launch first."""
    of_launch: dict[Launch, list[str]] = {}
    for source, read in logs:
        if read.log.steps.furthest is not None:
            of_launch.setdefault(source.origin.launch, []).append(source.path)
    newest_first = [of_launch[launch] for launch in sorted(of_launch, reverse=True)]
    paths = [path for of_one in newest_first for path in of_one[:MAX_STEP_LOGS_OF_LAUNCH]]
    return set(paths[:MAX_STEP_LOGS])


def printed(entries: Sequence[FoldedEvents]) -> Iterator[str]:
    """Yield a line for each entry."""
    for entry in entries[:MAX_EVENTS]:
        first = entry.first
        when = output.moment(first.at) if first.at is not None else "no time"
        writers = ", ".join(entry.writers[:MAX_WRITERS])
        if len(entry.writers) > MAX_WRITERS:
            writers += f" and {len(entry.writers) - MAX_WRITERS} more"
        again = ""
        if entry.num > 1:
            until = (
                entry.last_at if entry.last_at is not None and entry.last_at != first.at else None
            )
            again = f" [{entry.num} times{f', until {output.moment(until)}' if until else ''}]"
        text = escaped(first.text[:MAX_TEXT])
        where = f" ({escaped(first.file)}:{first.line})" if first.line != END_LINE else ""
        yield f"{when:<19}  {escaped(writers)}: {first.kind}: {text}{again}{where}"
    if len(entries) > MAX_EVENTS:
        yield f"and {len(entries) - MAX_EVENTS} more"


def as_object(entry: FoldedEvents) -> dict[str, object]:
    """Return an entry as programs read it."""
    first = entry.first
    return {
        "event": first.kind,
        "at": first.at,
        "last_at": entry.last_at if entry.num > 1 else first.at,
        "writers": entry.writers,
        "count": entry.num,
        "file": first.file,
        "line": first.line if first.line != END_LINE else None,
        "text": first.text,
    }


def _events_of(source: LogSource, read: ReadLog, *, has_step_times: bool) -> list[LogEvent]:
    """Return the events of one log, in the order of its lines; a line without a time has that of the line before it."""
    writer, launch = _writer(source), source.origin.launch_name
    times = _step_times(source, read) if has_step_times else {}
    placed: list[LogEvent] = []
    for step, kind in (
        (read.log.steps.first, "first step"),
        (read.log.steps.furthest, "last step"),
    ):
        if step is not None:
            text = f"step {step.step}"
            at = times.get(step.line)
            fold = f"{kind} {launch}"
            placed.append(LogEvent(at, source.path, step.line, writer, kind, text, fold))
    for match in _deciding(read.log.matches):
        by = _writer_of(match, source) or writer
        kind = _kind_of(match) or ""
        text = match.text.strip()
        placed.append(LogEvent(match.at, source.path, match.line, by, kind, text, match.signature))
    placed.sort(key=lambda event: event.line)
    if read.begin.at is not None or read.begin.text:
        first = LogEvent(
            read.begin.at, source.path, 1, writer, "begins", read.begin.text, f"begins {launch}"
        )
        placed.insert(0, first)
    if read.end.at is not None or read.end.text:
        end = LogEvent(
            read.end.at, source.path, END_LINE, writer, "ends", read.end.text, f"ends {launch}"
        )
        placed.append(end)
    last_step = read.log.steps.furthest.line if read.log.steps.furthest is not None else None
    events: list[LogEvent] = []
    for event in placed:
        before = events[-1].at if events else None
        if last_step is not None and event.line >= last_step:
            # As a rule nothing with a time is between the last step and a traceback.
            before = read.end.at or before
        events.append(event if event.at is not None else event._replace(at=before))
    return events


def _deciding(matches: Iterable[Match]) -> list[Match]:
    """Return of each line the match that says most: one with a fault that is known, of the deepest layer."""
    best: dict[int, Match] = {}
    for match in matches:
        if _kind_of(match) is None:
            continue
        known = best.get(match.line)
        if known is None or _order(match) < _order(known):
            best[match.line] = match
    return list(best.values())


def _order(match: Match) -> tuple[bool, bool, int]:
    return (match.fault in ("", "unknown"), match.weight != "primary", LAYERS.index(match.layer))


def _kind_of(match: Match) -> str | None:
    """Return what kind of event a line is; None: none."""
    if match.role in ("death", "root-cause"):
        return "dies"
    if match.role == "ended-well":
        return "ended well"
    if match.weight == "benign" or not match.fault:
        return None
    return match.fault if match.weight == "primary" else f"sign of {match.fault}"


def _writer(source: LogSource) -> str:
    origin = source.origin
    parts = [
        origin.launch_name,
        f"rank {origin.rank}" if origin.rank is not None else "",
        f"local rank {origin.local_rank}"
        if origin.rank is None and origin.local_rank is not None
        else "",
        origin.node,
    ]
    named = " ".join(part for part in parts if part)
    return named or source.path.rpartition("/")[2]


def _writer_of(match: Match, source: LogSource) -> str:
    """Return who wrote a line by the line itself; "": it does not say more than the path."""
    if match.rank == source.origin.rank:
        return ""
    parts = [source.origin.launch_name, f"rank {match.rank}", match.node]
    return " ".join(part for part in parts if part)


def _folded(events: Iterable[LogEvent]) -> list[FoldedEvents]:
    """Fold events that say the same within a minute, by any writer; where no time is known, in any order."""
    entries: list[FoldedEvents] = []
    recent: dict[str, FoldedEvents] = {}
    for event in events:
        entry = recent.get(event.fold)
        if entry is not None and _is_near(event, entry):
            entry.add(event)
            continue
        recent[event.fold] = FoldedEvents(event, writers=[event.writer], last_at=event.at)
        entries.append(recent[event.fold])
    return entries


def _is_near(event: LogEvent, entry: FoldedEvents) -> bool:
    if event.at is None or entry.last_at is None:
        return event.at is None and entry.last_at is None
    return event.at - entry.last_at <= FOLDED_SECONDS


def _step_times(source: LogSource, read: ReadLog) -> dict[int, float]:
    """Return the times of a log's first and last line with a step, by their numbers, where these lines have one."""
    steps = [step for step in (read.log.steps.first, read.log.steps.furthest) if step is not None]
    wanted = sorted({step.line for step in steps})
    if source.path == "-" or not wanted:
        return {}
    times: dict[int, float] = {}
    try:
        for number, raw in _lines_at(source.path, wanted):
            at = unwrapped(decode_line(raw)).at
            if at is not None:
                times[number] = at
    except UserError:
        # It was readable before: what was found then is shown without times.
        return times
    return times


def _lines_at(path: str, wanted: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with these numbers, as far as they are within one block."""
    passed, numbers = 0, list(wanted)
    is_first = True
    for block in LogBytes(path).blocks():
        if is_first:
            block, is_first = block.lstrip(b"\0"), False
        num = block.count(b"\n")
        while numbers and numbers[0] <= passed + num + 1:
            number = numbers.pop(0)
            yield number, _line_in(block, number - passed - 1)
        passed += num
        if not numbers:
            return


def _line_in(block: bytes, index: int) -> bytes:
    """Return the line of a block that begins after so many line ends."""
    start = 0
    for _ in range(index):
        start = block.find(b"\n", start) + 1
    end = block.find(b"\n", start)
    return block[start : len(block) if end < 0 else end]
