"""Margins: what every line of a pasted log begins with, such as the blanks of a list or the marks of a quotation or a comment.

A margin is what all lines begin with that were read so far, so it only becomes shorter. A program's own log has none from its
first line on that is not indented, and costs nothing from there.
"""

import re

# Longer ones are no margin; chosen.
MAX_MARGIN = 64
_MARGIN = re.compile(rb"(?:[ \t]|[>#](?= ))+")
# A stack whose first lines are missing is indented itself.
_STACK = re.compile(rb'  File "')


class Margin:
    """Removes the margin of one log. `feed` takes its blocks in order, `finish` returns what is left."""

    def __init__(self) -> None:
        # None: no line with text was read.
        self._margin: bytes | None = None
        # The start of an unfinished line.
        self._rest = b""
        # The start of the unfinished line was passed on.
        self._is_within = False

    def feed(self, block: bytes) -> bytes:
        """Return a block without the margin; the start of an unfinished line may be kept for the next one."""
        if self._margin == b"":
            return block
        if self._is_within:
            end = block.find(b"\n") + 1
            if not end:
                return block
            self._is_within = False
            return block[:end] + self.feed(block[end:])
        block = self._rest + block
        end = block.rfind(b"\n") + 1
        self._rest = b""
        if len(block) - end <= MAX_MARGIN:
            block, self._rest = block[:end], block[end:]
        else:
            self._is_within = True
        return self._without(block)

    def finish(self) -> bytes:
        """Return the rest of the last line."""
        rest, self._rest = self._rest, b""
        return self._without(rest) if self._margin != b"" else rest

    def _without(self, block: bytes) -> bytes:
        lines = block.split(b"\n")
        margin = self._margin
        for line in lines:
            own = _margin_of(line)
            if own is None or (margin is not None and own.startswith(margin)):
                continue
            margin = own if margin is None else _shared(margin, own)
            if not margin:
                break
        if margin:
            margin = margin[: len(margin) - _num_of_stack(lines, margin)]
        self._margin = margin
        if not margin:
            if margin == b"" and self._rest:
                block, self._rest = block + self._rest, b""
            return block
        # A line of nothing but the margin has lost the blanks at its end.
        bare = margin.rstrip()
        cut = [
            line[len(margin) :]
            if line.startswith(margin)
            else line[len(bare) :].lstrip()
            if line.startswith(bare)
            else line
            for line in lines
        ]
        return b"\n".join(cut)


def _margin_of(line: bytes) -> bytes | None:
    """Return what may be the margin of a line; None for a line that has no text."""
    found = _MARGIN.match(line[: MAX_MARGIN + 1])
    own = found[0] if found is not None else b""
    return None if not line[len(own) :].strip(b"># \t\r") else own


def _shared(one: bytes, other: bytes) -> bytes:
    """Return what both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    num = next((at for at, (mine, its) in pairs if mine != its), min(len(one), len(other)))
    return one[:num]


def _num_of_stack(lines: list[bytes], margin: bytes) -> int:
    """Return how many blanks of a margin are those that Python writes before the frames of a stack."""
    is_stack = margin.endswith(b"  ") and any(
        _STACK.match(line, len(margin) - 2) for line in lines if line.startswith(margin)
    )
    return 2 if is_stack else 0
