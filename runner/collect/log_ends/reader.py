"""The reader of the end of one log: it keeps the last bytes, and makes facts of their lines once the log is over."""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from runner.collect.lines import Line, segment, unwrapped
from runner.collect.log_ends.line_kinds import Kind, is_last_epoch, kind_of, total_reached
from runner.collect.tracebacks.line_forms import frame_of
from runner.rootcause.log_ends import LAST_LINES, MIN_SILENT_SECONDS, EndLine, LogEnding
from runner.rootcause.tracebacks.messages import is_message

# Of the end of a log, in which its end is searched for; of a line; all chosen.
TAIL_BYTES, MAX_LINE, MAX_TEXT = 24 * 1024, 2_000, 500
# Of the end of a log, in which plain words state why it ended; chosen.
STATED_LINES = 40
# Kinds of waiting lines that are counted, and gaps between progresses that show how often it comes; chosen.
MAX_KINDS, MIN_GAPS = 64, 3
_RANK = re.compile(r"(?i)\brank\W{0,3}(\d+)")
# A line that ends so goes on.
_OPEN_END = re.compile(r"(?::| at|^Error using .{1,200}\(line \d+\))\s*$")
_VARIABLE = re.compile(r"0x[0-9a-f]+|\d+(?:[.:\-]\d+)*")


class EndReader:
    """Reads how one log ends."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._tail = b""
        # Ends of lines that were fed.
        self._num_ends = 0

    def feed(self, block: bytes, num_ends: int) -> None:
        """Keep the last bytes. `num_ends`: the ends of lines in this block and all blocks before."""
        self._num_ends = num_ends
        if len(self._tail) + len(block) <= 2 * TAIL_BYTES:
            self._tail += block
            return
        whole = block if len(block) >= TAIL_BYTES else self._tail + block
        cut = len(whole) - TAIL_BYTES
        self._tail = whole[whole.find(b"\n", cut) + 1 or cut :]

    def is_last_step(self, number: int, step: int) -> bool:
        """Whether the line with this number, one of the last ones, shows this step as the last one of the run, not of an epoch."""
        lines = self._tail.split(b"\n")
        offset = number - self._num_before(lines) - 1
        if not 0 <= offset < len(lines):
            return False
        text = unwrapped(segment(lines[offset][-MAX_LINE:].decode(errors="replace"))).text
        total = total_reached(text)
        above = b"\n".join(lines[: offset + 1]).decode(errors="replace")
        is_over = is_last_epoch(above)
        if not total or is_over is None:
            return step == total
        return is_over and step % total == 0

    def end(self, last_step_line: int = 0) -> LogEnding:
        """Return how the log ends so far. `last_step_line`: of the last line with a step that was read."""
        lines = self._tail.split(b"\n")
        num_before = self._num_before(lines)
        num_lines = num_before + len(lines) - (not lines[-1].strip())
        after: list[tuple[Kind, EndLine]] = []
        last, offset = None, 0
        # Of the lines below: how many are none of a stack, and the text of the next.
        num_after, below = 0, ""
        # From the end back to the last progress: what came before it was survived.
        for offset in reversed(range(len(lines))):
            number = num_before + offset + 1
            text = segment(lines[offset][-MAX_LINE:].decode(errors="replace"))
            if not text.strip():
                continue
            line = unwrapped(text)
            kind = kind_of(line.text, reads_statements=num_after < STATED_LINES)
            if number == last_step_line and kind.name not in ("error", "exit", "statement"):
                # The line of an error may hold a step too.
                kind = Kind("progress")
            end_line = _end_line(number, line, num_after, below)
            last = last or end_line
            if kind.name not in ("other", "stack"):
                after.append((kind, end_line))
            if kind.name == "progress":
                break
            num_after += kind.name != "stack" and not _is_code(lines, offset)
            below = line.text
        found = _Found()
        for kind, end_line in reversed(after):
            found.add(kind, end_line)
        ending = found.ending(self.file, num_lines, last_step_line)
        return replace(
            ending,
            last=last,
            has_steps=last_step_line > 0,
            **_silence(ending, last, lines[:offset]),
        )

    def _num_before(self, lines: Sequence[bytes]) -> int:
        """Return how many lines came before these of the tail."""
        return self._num_ends - len(lines) + 1


def _is_code(lines: Sequence[bytes], offset: int) -> bool:
    """Whether a line is the source of the frame above it."""
    above = lines[offset - 1] if offset else b""
    return b'File "' in above and frame_of(_text_of(above)) is not None


def _text_of(raw: bytes) -> str:
    return unwrapped(segment(raw[-MAX_LINE:].decode(errors="replace"))).text


def _silence(
    ending: LogEnding, last: EndLine | None, before: Sequence[bytes]
) -> dict[str, float | None]:
    """Return how long lines went on without progress, and the longest gap between two progresses before, if they have times."""
    progress = ending.progress
    if progress is None or progress.at is None or last is None or last.at is None:
        return {}
    silent = last.at - progress.at
    if silent < MIN_SILENT_SECONDS:
        return {"silent_seconds": silent}
    at, gaps = progress.at, list[float]()
    for raw in reversed(before):
        line = unwrapped(segment(raw[-MAX_LINE:].decode(errors="replace")))
        if line.at is not None and kind_of(line.text).name == "progress":
            gaps.append(at - line.at)
            at = line.at
    usual = max(gaps) if len(gaps) >= MIN_GAPS else None
    return {"silent_seconds": silent, "usual_seconds": usual}


def _end_line(number: int, line: Line, num_after: int, below: str) -> EndLine:
    text = line.text
    if _OPEN_END.search(text) or is_message(below):
        # What it means is on the next line.
        text = f"{text.rstrip()} {below.strip()}".rstrip()
    return EndLine(
        line=number,
        text=text[:MAX_TEXT],
        num_after=num_after,
        at=line.at,
        rank=line.rank,
        node=line.node or "",
    )


class _Found:
    """What was found so far, from the last progress on."""

    def __init__(self) -> None:
        self.progress: EndLine | None = None
        self.is_complete = False
        self.well: EndLine | None = None
        self.exit: tuple[EndLine, Kind] | None = None
        self.errors: list[EndLine] = []
        self.num_errors = 0
        self.failed_call: EndLine | None = None
        # The last of lines that read like failures.
        self.failures: list[EndLine] = []
        self.statement: EndLine | None = None
        self.stacks: EndLine | None = None
        # Waiting lines by their kind: the first, the last, how many.
        self.waiting: dict[str, tuple[EndLine, EndLine, int]] = {}
        # Likewise of those that wait for their peers at a start, each rank for itself.
        self.meeting: dict[str, tuple[EndLine, EndLine, int]] = {}

    def add(self, kind: Kind, line: EndLine) -> None:
        """Add the next line."""
        if kind.name == "progress":
            self.progress, self.is_complete = line, kind.is_complete
        elif kind.name == "well":
            self.well = line
        elif kind.name == "exit":
            if self.exit is None or (self.exit[1].code is None and kind.code is not None):
                self.exit = (line, kind)
        elif kind.name == "error":
            self.num_errors += 1
            self.errors = [*self.errors[:1], line]
        elif kind.name == "failed-call":
            self.failed_call = self.failed_call or line
        elif kind.name == "failure":
            self.failures = [*self.failures, line][-LAST_LINES:]
        elif kind.name == "statement":
            self.statement = self.statement or line
        elif kind.name == "stacks":
            self.stacks = self.stacks or line
        elif kind.name == "waiting":
            _count(self.waiting, _VARIABLE.sub("#", line.text), line)
        elif kind.name == "meeting":
            named = _RANK.search(line.text)
            rank = named[1] if named is not None else line.rank
            _count(self.meeting, f"{rank} {kind.words}", line)
        elif kind.name == "met":
            self.meeting.clear()

    def ending(self, file: str, num_lines: int, last_step_line: int) -> LogEnding:
        """Return the facts."""
        most = max(self.waiting.values(), key=lambda one: one[2], default=None)
        unmet = max(self.meeting.values(), key=lambda one: (one[2], one[1].line), default=None)
        last_unmet = max(
            (one[1] for one in self.meeting.values()), key=lambda one: one.line, default=None
        )
        left, kind = self.exit if self.exit is not None else (None, Kind("other"))
        progress = self.progress
        if progress is None and last_step_line:
            progress = EndLine(line=last_step_line, text="")
        return LogEnding(
            file=file,
            num_lines=num_lines,
            progress=progress,
            is_complete=self.is_complete,
            ended_well=self.well,
            exit=left,
            exit_code=kind.code,
            signal=kind.signal,
            first_error=self.errors[0] if self.errors else None,
            num_errors=self.num_errors,
            num_after_errors=self.errors[-1].num_after if self.errors else 0,
            failures=tuple(self.failures),
            failed_call=self.failed_call,
            statement=self.statement,
            waiting=most[0] if most is not None else None,
            last_waiting=most[1] if most is not None else None,
            num_waiting=most[2] if most is not None else 0,
            meeting=last_unmet,
            num_meeting=unmet[2] if unmet is not None else 0,
            waited_seconds=_seconds(most[0], most[1]) if most is not None else None,
            stacks=self.stacks,
        )


def _count(kinds: dict[str, tuple[EndLine, EndLine, int]], name: str, line: EndLine) -> None:
    """Add a line to those of its kind, of which so many are counted."""
    first, _, num = kinds.get(name, (line, line, 0))
    if name in kinds or len(kinds) < MAX_KINDS:
        kinds[name] = (first, line, num + 1)


def _seconds(first: EndLine, last: EndLine) -> float | None:
    return None if first.at is None or last.at is None else last.at - first.at
