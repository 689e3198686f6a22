"""Problems: everything wrong with one file, gathered, so that a person repairs it in one go."""

from __future__ import annotations

from runner.errors import SpecError
from runner.load.documents import Document, Where

# characters of a value that a message quotes; chosen, not measured
MAX_SHOWN_VALUE = 60
# chosen, not measured
MAX_SHOWN_PROBLEMS = 30


class Problems:
    """Gathers problems of one document and raises them as one SpecError."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: list[tuple[int, str]] = []
        self._places: list[Where] = []
        for where, problem in document.problems:
            self.add(where, problem)

    def add(self, where: Where, problem: str) -> None:
        """Note a problem of the field at `where`: what is wrong, with which value, and the way out."""
        line = self._line(where)
        place = f"{self._document.file}:{line}" if line else self._document.file
        self._found.append(
            (line, ": ".join(part for part in (place, dotted(where), problem) if part))
        )
        self._places.append(where)

    def has(self, where: Where) -> bool:
        """Whether a problem at `where` or inside it is known already."""
        return any(place[: len(where)] == where for place in self._places)

    def raise_if_any(self) -> None:
        """Raise SpecError with all problems in the order of the file, if there are any."""
        if not self._found:
            return
        messages = [message for _, message in sorted(self._found, key=lambda found: found[0])]
        if len(messages) == 1:
            raise SpecError(messages[0])
        shown = messages[:MAX_SHOWN_PROBLEMS]
        more = len(messages) - len(shown)
        tail = [f"and {more} more"] if more else []
        heading = f"{self._document.file} cannot be used, {len(messages)} problems:"
        raise SpecError("\n  ".join([heading, *shown, *tail]))

    def _line(self, where: Where) -> int:
        for length in range(len(where), 0, -1):
            line = self._document.lines.get(where[:length])
            if line is not None:
                return line
        return 0


def dotted(where: Where) -> str:
    """Write a place as people do: `local.nodes`, `command[1]`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """Quote a value from a file, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_VALUE else text[: MAX_SHOWN_VALUE - 3] + "..."
