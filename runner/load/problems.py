"""Problems: everything wrong with one file, gathered, so that a person repairs it in one go."""

from collections.abc import Callable
from typing import Any

from runner.errors import SpecError
from runner.load.documents import Document, Where

# Chosen, not measured.
MAX_SHOWN_CHARACTERS = 60
MAX_SHOWN_PROBLEMS = 30


class Problems:
    """Gathers problems of one document and raises them as one SpecError."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._found: list[tuple[int, Where, str]] = []
        for where, problem in document.problems:
            self.add(where, problem)

    def add(self, where: Where, problem: str) -> None:
        """Note a problem of the field at `where`: what is wrong, with which value, and the way out."""
        line = self._line(where)
        place = f"{self._document.file}:{line}" if line else self._document.file
        message = ": ".join(part for part in (place, dotted(where), problem) if part)
        self._found.append((line, where, message))

    def has(self, where: Where) -> bool:
        """Whether a problem at `where` or inside it is known already."""
        return any(place[: len(where)] == where for _, place, _ in self._found)

    def raise_if_any(self) -> None:
        """Raise SpecError with all problems in the order of the file, if there are any."""
        if not self._found:
            return
        messages = [message for *_, message in sorted(self._found, key=lambda found: found[0])]
        if len(messages) == 1:
            raise SpecError(messages[0])
        lines = [f"{self._document.file} cannot be used, {len(messages)} problems:"]
        lines += messages[:MAX_SHOWN_PROBLEMS]
        if len(messages) > MAX_SHOWN_PROBLEMS:
            lines.append(f"and {len(messages) - MAX_SHOWN_PROBLEMS} more")
        raise SpecError("\n  ".join(lines))

    def _line(self, where: Where) -> int:
        lines, lengths = self._document.lines, range(len(where), 0, -1)
        return next((lines[where[:n]] for n in lengths if where[:n] in lines), 0)


def dotted(where: Where) -> str:
    """Write a place as people do: `local.nodes`, `command[1]`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: object) -> str:
    """Quote a value from a file, cut to a readable length."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 3] + "..."


def check_names(
    field: str, given: Any, problems: Problems, wrong: Callable[[str], str | None]
) -> Any:
    """Return the names of a field as a list; one may stand alone. Note what `wrong` says of each, and names given twice."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list):
        # Refused for its type, as a whole.
        return names
    for index, name in enumerate(names):
        where = (field,) if isinstance(given, str) else (field, index)
        if not isinstance(name, str):
            continue
        if problem := wrong(name):
            problems.add(where, f"{shown(name)} is {problem}")
        elif name in names[:index]:
            problems.add(where, f"{shown(name)} is named twice; remove one")
    return names
