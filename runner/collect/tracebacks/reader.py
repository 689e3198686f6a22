"""The reader of one log: blocks of lines in, tracebacks out. Lines of several ranks may be mixed."""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from runner.collect.lines import Bare, num_ends
from runner.collect.tracebacks import line_forms as forms
from runner.collect.tracebacks.ends import Ends
from runner.collect.tracebacks.native_text import FATAL, TERMINATE, CppText, FatalText
from runner.collect.tracebacks.prefixes import WrittenLine, read_line
from runner.collect.tracebacks.python_text import PythonText
from runner.collect.tracebacks.streams import IDLE_LINES, Introduction, Stream, introduction_of
from runner.rootcause.tracebacks.objects import Traceback

# All chosen. Tracebacks of a log that are stored: the first and the last ones.
FIRST_TRACEBACKS, LAST_TRACEBACKS = 200, 100
# Tracebacks that are read at the same time: more ranks than write one file.
MAX_OPEN = 256
# Lines of a log that are read; later ones only in its last blocks.
MAX_LINES, LAST_BLOCKS = 200_000, 2
MAX_LATE_BYTES = 1 << 20
# Before a header.
ABOVE_BYTES = 600
# Of a line that holds a whole traceback, its ends of lines escaped.
MAX_ESCAPED_BYTES = 64 * 1024


class TracebackReader:
    """Reads one log. `feed` takes its blocks in order, `finish` ends it; `tracebacks` are those read so far."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: Ends[Traceback] = Ends(FIRST_TRACEBACKS, LAST_TRACEBACKS)
        # By the key of their lines, in the order in which they began.
        self._streams: dict[str, list[Stream]] = {}
        self._num_open = 0
        self.num_lines = 0
        self._checked = 0
        self._above = b""
        self._late: deque[tuple[bytes, int, list[int], Bare | None]] = deque(maxlen=LAST_BLOCKS)

    @property
    def tracebacks(self) -> Sequence[Traceback]:
        """The tracebacks whose ends were read."""
        return self._found.items()

    def feed(self, block: bytes, first: int, starts: Sequence[int], bare: Bare | None) -> None:
        """Read a block. `first`: the number of its first line; `starts`: the offsets of lines where one may begin, sorted."""
        if not starts and not self._num_open:
            self._above = block[-ABOVE_BYTES:]
        elif self.num_lines > MAX_LINES:
            self._late.append(_cut(block, first, starts, bare))
        else:
            self._read(block, first, starts, bare)

    def finish(self) -> None:
        """Read what was left for the end, and close what is open."""
        late = list(self._late)
        self._late.clear()
        for block, first, starts, bare in late:
            self._read(block, first, starts, bare)
        for stream in [one for streams in self._streams.values() for one in streams]:
            self._close(stream)

    def _read(self, block: bytes, first: int, starts: Sequence[int], bare: Bare | None) -> None:
        position, number = 0, first
        while position < len(block):
            if not self._num_open:
                at = bisect_left(starts, position)
                if at == len(starts):
                    break
                number += num_ends(block, position, starts[at])
                position = starts[at]
            end = block.find(b"\n", position)
            end = len(block) if end < 0 else end
            self._add(block[position:end], number, bare, above=(block, position))
            position, number = end + 1, number + 1
        self._above = block[-ABOVE_BYTES:]

    def _add(self, raw: bytes, number: int, bare: Bare | None, *, above: tuple[bytes, int]) -> None:
        """Add a line. `above`: its block, and its offset there."""
        self.num_lines += 1
        line = read_line(raw, number, bare)
        if number - self._checked > IDLE_LINES:
            self._close_idle(number)
        if r"\n" in line.text and forms.HEADER in line.text:
            self._add_escaped(raw, line)
            return
        found = self._stream_of(line)
        if found is not None:
            stream, text = found
            if stream.add(number, text):
                return
            self._close(stream)
        if forms.HEADER in line.text or '"' in line.text or "error" in line.text.lower():
            block, at = above
            self._begin(line, block[max(0, at - ABOVE_BYTES) : at] if at else self._above)
        elif TERMINATE.search(line.text):
            self._begin(line, b"")

    def _begin(self, line: WrittenLine, above: bytes) -> None:
        """Begin a traceback, if this is its first line, or a frame whose header is missing."""
        header = forms.header_of(line.text)
        if header is not None:
            prefix = header.prefix
            lines = introduction_of(above, prefix)
            self._open(Stream(line, PythonText(header), prefix=prefix, introduction=lines))
        elif TERMINATE.search(line.text):
            text = CppText(line.number, line.text)
            self._open(Stream(line, text, introduction=Introduction()))
        elif FATAL.search(line.text):
            fatal = FatalText(line.number, line.text)
            self._open(Stream(line, fatal, introduction=Introduction()))
        else:
            self._begin_cut(line)

    def _begin_cut(self, line: WrittenLine) -> None:
        """Begin a traceback whose header is missing, if this line is a frame."""
        prefix = forms.prefix_of_frame(line.text) if '"' in line.text else ""
        text = line.text[len(prefix) :]
        frame = forms.frame_of(text)
        if frame is not None and frame[0].function:
            stream = Stream(line, PythonText(None), prefix=prefix, introduction=Introduction())
            stream.add(line.number, text)
            self._open(stream)

    def _stream_of(self, line: WrittenLine) -> tuple[Stream, str] | None:
        """Return the traceback to which a line may belong, and its text."""
        unprefixed: Stream | None = None
        for stream in reversed(self._streams.get(line.key, [])):
            if stream.prefix is None:
                unprefixed = unprefixed or stream
            elif (text := stream.own_text(line)) is not None:
                return stream, text
        if unprefixed is not None:
            return unprefixed, line.text
        if line.key or not (line.text[:1].isspace() or forms.frame_of(line.text)):
            return None
        # A logger wrote what stands before the header once.
        for streams in self._streams.values():
            for stream in streams:
                if not stream.num_lines and stream.begin.number == line.number - 1:
                    return self._rebind(stream), line.text
        return None

    def _rebind(self, stream: Stream) -> Stream:
        self._remove(stream)
        stream.key, stream.prefix = "", None
        self._open(stream)
        return stream

    def _open(self, stream: Stream) -> None:
        self._streams.setdefault(stream.key, []).append(stream)
        self._num_open += 1
        if self._num_open > MAX_OPEN:
            self._close(next(iter(self._streams.values()))[0])

    def _remove(self, stream: Stream) -> None:
        streams = self._streams[stream.key]
        streams.remove(stream)
        self._num_open -= 1
        if not streams:
            del self._streams[stream.key]

    def _close_idle(self, number: int) -> None:
        self._checked = number
        every = [one for streams in self._streams.values() for one in streams]
        for stream in every:
            if stream.is_over(number):
                self._close(stream)

    def _close(self, stream: Stream) -> None:
        self._remove(stream)
        self._store(stream)

    def _store(self, stream: Stream) -> None:
        text, introduction = stream.text, stream.introduction
        text.finish()
        chain = text.chain.items()
        if not chain:
            return
        self._found.append(
            Traceback(
                file=self._file,
                first=stream.begin.number,
                last=max(text.last, stream.begin.number),
                chain=chain,
                kind=text.kind,
                rank=stream.rank,
                node=stream.begin.node,
                at=stream.begin.at,
                owner=introduction.owner,
                is_ignored=introduction.is_ignored,
                is_logged=introduction.is_logged,
                is_torn=text.is_torn,
                is_cut=text.is_cut,
            )
        )

    def _add_escaped(self, raw: bytes, line: WrittenLine) -> None:
        """Read a traceback in one line, as loggers of JSON write it."""
        whole = raw[:MAX_ESCAPED_BYTES].decode(errors="replace")
        begin = whole.find(forms.HEADER)
        parts = whole[begin:].replace('\\"', '"').split(r"\n")
        stream = Stream(
            line, PythonText(forms.Header("")), introduction=introduction_of(b"", whole[:begin])
        )
        for part in parts[1:]:
            # What follows a message in its object.
            text = part.partition('", "')[0] if not part.startswith(" ") else part
            if not stream.add(line.number, text):
                break
        self._store(stream)


def _cut(
    block: bytes, first: int, starts: Sequence[int], bare: Bare | None
) -> tuple[bytes, int, list[int], Bare | None]:
    """Return the end of a block that is stored for later."""
    begin = block.rfind(b"\n", 0, max(0, len(block) - MAX_LATE_BYTES)) + 1
    begin = begin if len(block) > MAX_LATE_BYTES else 0
    left = [start - begin for start in starts if start >= begin]
    return block[begin:], first + num_ends(block, 0, begin), left, bare
