"""Text of Python: one traceback, line by line, with the exceptions that it is chained with."""

from dataclasses import replace
from typing import Literal

from runner.collect.tracebacks import line_forms as forms
from runner.collect.tracebacks.ends import Ends
from runner.rootcause.tracebacks.objects import Frame, Kind, Raised, Relation

# All chosen. Of a stack, and of a chain: the first and the last ones are stored.
FIRST_FRAMES, LAST_FRAMES = 20, 40
FIRST_RAISED, LAST_RAISED = 8, 8
# Of a message: characters, lines that are stored, and lines that are read.
MAX_MESSAGE, MAX_STORED_LINES, MAX_MESSAGE_LINES = 1200, 12, 60
# Of other writers in a row, within a stack.
MAX_FOREIGN = 12
MAX_TEXT = 500

_State = Literal["frames", "box", "message", "gap"]


class PythonText:
    """Reads one traceback. `add` returns False for the first line that is no part of it."""

    kind: Kind = "python"

    def __init__(self, header: forms.Header | None) -> None:
        """`header`: None for a traceback whose first line is missing."""
        self.is_torn = False
        self.is_cut = header is None
        self.chain: Ends[Raised] = Ends(FIRST_RAISED, LAST_RAISED)
        self.last = 0
        self._has_header = header is not None
        self._state: _State = "frames"
        self._relation: Relation = ""
        self._is_group = False
        self._margin = 0
        self._num_blank = self._num_foreign = self._num_message = 0
        self._last_frame, self._last_text = 0, ""
        self._above = ""
        self._begin_stack(header)

    def _begin_stack(self, header: forms.Header | None) -> None:
        self._frames: Ends[Frame] = Ends(FIRST_FRAMES, LAST_FRAMES)
        self._num_foreign = self._num_blank = 0
        self._state = "box" if header is not None and header.is_box else "frames"
        self._is_group = self._is_group or (header is not None and header.is_group)

    def finish(self) -> None:
        """Its lines are over: a stack whose exception is missing counts as one without a name."""
        if self._state != "message" and self._frames.num_items:
            self.is_cut = True
            self._add_raised(self._last_frame, self._last_text, forms.RaisedLine("", ""))

    def add(self, number: int, text: str) -> bool:
        """Add a line."""
        if self._is_group and self._is_group_line(text):
            return True
        if self._is_group:
            text = forms.GROUP_MARGIN.sub("", text)
        indent = len(text) - len(text.lstrip(" "))
        text = text[min(indent, self._margin) :]
        header = forms.header_of(text)
        if header is not None:
            return self._add_header(header)
        if self._state == "message":
            return self._add_message(number, text)
        if self._state == "box":
            return self._add_box(number, text)
        if self._state == "gap":
            return self._add_gap(number, text)
        return self._add_frame(number, text)

    def _is_group_line(self, text: str) -> bool:
        if forms.SEPARATOR.match(text):
            self._relation = "member"
            self._begin_stack(None)
            return True
        return forms.GROUP_END.match(text) is not None

    def _add_header(self, header: forms.Header) -> bool:
        if self._state == "message":
            newest = self.chain.newest
            quoted = header.is_original or (
                newest is not None and forms.QUOTES.search(f"{newest.name}: {newest.message}")
            )
            if not quoted:
                return False
            self._relation = "original"
        elif self._state == "frames" and (self._frames.num_items or self._relation == ""):
            # Another writer's, or this one's second.
            self.is_torn = True
        self._begin_stack(header)
        return True

    def _add_frame(self, number: int, text: str) -> bool:
        found = forms.frame_of(text)
        if found is not None:
            frame, indent = found
            if not self._frames.num_items and indent > 2:
                self._margin += indent - 2
            self._frames.append(frame)
            self._last_frame, self._last_text = number, text
            self._num_foreign = 0
            return True
        if not text or text[0].isspace():
            self._add_code(number, text.strip())
            self._num_foreign += not text
            return self._num_foreign <= MAX_FOREIGN
        if self._add_chained(text):
            self.is_torn = True
            return True
        is_sure = self._has_header and (self._frames.num_items > 0 or self._relation == "member")
        raised = forms.raised_in(text, is_sure=is_sure)
        if raised is not None:
            self._add_raised(number, text, raised)
            return True
        self._num_foreign += 1
        return self._num_foreign <= MAX_FOREIGN

    def _add_code(self, number: int, code: str) -> None:
        newest = self._frames.newest
        is_code = bool(code) and not code.startswith(("^", "~", "[Previous line"))
        if newest is not None and not newest.code and is_code:
            frame = replace(newest, code=code[: forms.MAX_CODE], code_at=number)
            self._frames.replace_last(frame)

    def _add_raised(self, number: int, text: str, raised: forms.RaisedLine) -> None:
        self.chain.append(
            Raised(
                name=raised.name[: forms.MAX_FUNCTION],
                message=raised.message[:MAX_MESSAGE],
                line=number,
                text=text[:MAX_TEXT],
                frames=self._frames.items(),
                relation=self._relation,
            )
        )
        self.last = number
        self._relation = ""
        self._state = "message"
        self._num_message = self._num_blank = 0

    def _add_message(self, number: int, text: str) -> bool:
        newest = self.chain.newest
        assert newest is not None
        if self._add_chained(text):
            return True
        if (source := forms.RAISED_FROM.search(text)) is not None:
            self.chain.replace_last(replace(newest, source=source["source"]))
            return True
        if forms.CPP_FRAME.match(text):
            return True
        if forms.frame_of(text) is not None:
            if not forms.QUOTES.search(f"{newest.name}: {newest.message}"):
                return False
            # Ray writes the stack of its task without a header.
            self._relation = "original"
            self._begin_stack(None)
            return self._add_frame(number, text)
        return self._add_message_line(newest, text)

    def _add_message_line(self, newest: Raised, text: str) -> bool:
        if not text:
            self._num_blank += 1
            return self._num_blank < 3
        is_quote = text.startswith(('"""', "'''", "-- Process"))
        if self._num_blank and not is_quote and not newest.message.endswith(":"):
            return False
        self._num_message += 1
        if self._num_message <= MAX_STORED_LINES and not text.startswith(('"""', "'''")):
            message = f"{newest.message}\n{text}"[:MAX_MESSAGE]
            self.chain.replace_last(replace(newest, message=message))
        return self._num_message <= MAX_MESSAGE_LINES

    def _add_chained(self, text: str) -> bool:
        for words, relation in forms.CHAINED.items():
            if words in text:
                self._relation = "cause" if relation == "cause" else "context"
                self._state = "gap"
                self._num_foreign = 0
                return True
        return False

    def _add_gap(self, number: int, text: str) -> bool:
        if forms.RAY_HEADER.match(text):
            self._begin_stack(None)
            return True
        self._num_foreign += 1
        if text and forms.frame_of(text) is not None:
            # The header is missing.
            self.is_torn = True
            self._begin_stack(None)
            return self._add_frame(number, text)
        return self._num_foreign <= MAX_FOREIGN

    def _add_box(self, number: int, text: str) -> bool:
        if forms.BOX_END.match(text):
            self._state = "frames"
            return True
        inner = forms.box_text(text)
        frame = forms.box_frame(inner, self._above)
        if frame is not None:
            self._frames.append(frame)
            self._last_frame, self._last_text = number, text.strip()
        elif code := forms.box_code(inner):
            self._add_code(number, code)
        self._above = inner.strip()[: forms.MAX_FILE] if frame is None else ""
        is_inside = text.lstrip().startswith(("│", "|"))
        self._num_foreign = 0 if is_inside else self._num_foreign + 1
        return self._num_foreign <= MAX_FOREIGN
