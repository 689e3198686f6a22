"""Native text: what the C++ runtime writes of an exception that nothing caught, and the stacks of Python's fault handler."""

import re
from dataclasses import replace

from runner.collect.tracebacks import line_forms as forms
from runner.collect.tracebacks.ends import Ends
from runner.collect.tracebacks.python_text import (
    FIRST_FRAMES,
    LAST_FRAMES,
    MAX_FOREIGN,
    MAX_MESSAGE,
    MAX_STORED_LINES,
    MAX_TEXT,
)
from runner.rootcause.tracebacks.objects import Frame, Kind, Raised

TERMINATE = re.compile(
    r"terminate called (?:after throwing an instance of '(?P<name>[^']{1,200})'|without an active exception)"
    # libc++, which writes the message on the same line.
    r"|: terminating (?:due to|with) uncaught (?:foreign )?exception(?: of type (?P<type>(?:[^:]|::){1,200}?)(?:: (?P<what>.*))?$)?"
)
FATAL = re.compile(r"Fatal Python error: (?P<message>.*)")
_WHAT = re.compile(r"\s*what\(\):\s*(?P<message>.*)")
_CURRENT = re.compile(r"Current thread 0x[0-9a-fA-F]+.*\(most recent call first\):")
_OTHER = re.compile(r"Thread 0x[0-9a-fA-F]+.*\(most recent call first\):")


class CppText:
    """Reads what `std::terminate` and libc10 write."""

    kind: Kind = "cpp"

    def __init__(self, number: int, text: str) -> None:
        found = TERMINATE.search(text)
        name = message = ""
        if found is not None:
            name, message = found["name"] or found["type"] or "", found["what"] or ""
        self._raised = Raised(
            name=name or "std::terminate",
            message=message[:MAX_MESSAGE],
            line=number,
            text=text[:MAX_TEXT],
        )
        self._frames: Ends[Frame] = Ends(FIRST_FRAMES, LAST_FRAMES)
        self._num_lines = 0
        self._has_stack = False
        self.is_torn = self.is_cut = False
        self.last = number

    @property
    def chain(self) -> Ends[Raised]:
        """The exception."""
        chain: Ends[Raised] = Ends(1, 0)
        # The innermost call is printed first.
        chain.append(replace(self._raised, frames=self._frames.items()[::-1]))
        return chain

    def finish(self) -> None:
        """Its lines are over."""
        self.is_cut = not self._raised.message

    def add(self, number: int, text: str) -> bool:
        """Add a line."""
        self._num_lines += 1
        what = _WHAT.match(text)
        source = forms.RAISED_FROM.search(text)
        frame = forms.CPP_FRAME.match(text)
        if what is not None and not self._raised.message:
            message = what["message"][:MAX_MESSAGE]
            self._raised = replace(self._raised, message=message, line=number, text=text[:MAX_TEXT])
            self.last = number
        elif source is not None:
            self._raised = replace(self._raised, source=source["source"])
            self._has_stack = True
        elif frame is not None:
            file = (frame["file"] or "")[-forms.MAX_FILE :]
            self._frames.append(Frame(file, 0, frame["symbol"][: forms.MAX_FUNCTION]))
            self._has_stack = True
        elif not text:
            return self._num_lines <= MAX_STORED_LINES
        elif self._has_stack or self._num_lines > MAX_STORED_LINES:
            return False
        elif self._raised.message:
            message = f"{self._raised.message}\n{text}"[:MAX_MESSAGE]
            self._raised = replace(self._raised, message=message)
        return True


class FatalText:
    """Reads what Python's fault handler writes: the stack of the thread that failed, the innermost call first."""

    kind: Kind = "fatal"

    def __init__(self, number: int, text: str) -> None:
        found = FATAL.search(text)
        message = found["message"][:MAX_MESSAGE] if found is not None else ""
        self._raised = Raised(
            name="Fatal Python error", message=message, line=number, text=text[:MAX_TEXT]
        )
        self._frames: Ends[Frame] = Ends(FIRST_FRAMES, LAST_FRAMES)
        self._is_current = False
        self._num_foreign = 0
        self.is_torn = self.is_cut = False
        self.last = number

    @property
    def chain(self) -> Ends[Raised]:
        """What failed."""
        chain: Ends[Raised] = Ends(1, 0)
        chain.append(replace(self._raised, frames=self._frames.items()[::-1]))
        return chain

    def finish(self) -> None:
        """Its lines are over."""
        self.is_cut = not self._frames.num_items

    def add(self, number: int, text: str) -> bool:
        """Add a line."""
        found = forms.frame_of(text)
        if _CURRENT.search(text):
            self._is_current = True
        elif _OTHER.search(text):
            self._is_current = False
        elif found is not None:
            self.last = number
            if self._is_current:
                self._frames.append(found[0])
        elif text:
            self._num_foreign += 1
            return self._num_foreign <= MAX_FOREIGN and not text.startswith("Extension modules:")
        return True
