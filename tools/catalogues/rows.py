"""Rows of catalogues and the one writer of their files: validated, without duplicates, in a stable order."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Literal, get_args

from runner.facts.faults import FAULTS
from runner.facts.matches import LAYERS, Layer, Scope

FOLDER = Path(__file__).parents[2] / "runner/rootcause/catalogues"

Level = Literal["error", "warning", "info", "debug"]
LEVELS: tuple[Level, ...] = get_args(Level)
Style = Literal["printf", "braces", "plain"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
# Longer ones are texts of several sentences, whose beginning is enough; chosen.
MAX_FORMAT = 400


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a catalogue. `source` is what was read; one of the words in `requires` is in each line."""

    emitter: str
    version: str
    _: KW_ONLY
    made: str
    program: str
    source: str
    style: Style
    layer: Layer
    scope: Scope
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One format string. Of `layer`, `scope`, `requires` and `style`, what is not set is the header's."""

    at: str
    format: str
    level: Level
    fault: str = ""
    _: KW_ONLY
    layer: Layer | None = None
    scope: Scope | None = None
    style: Style | None = None
    requires: tuple[str, ...] = ()
    lasting: bool = False
    # The reason of a class that was set by hand.
    why: str = field(default="", compare=False)


def write(name: str, header: Header, rows: Iterable[Row], *, folder: Path = FOLDER) -> Counter[str]:
    """Write `<name>.jsonl` and return its rows by level. Of equal formats the most severe level stays, and a class before none.

    Raises ValueError for a row that names an unknown fault, level, layer or scope.
    """
    best: dict[tuple[str, tuple[str, ...]], Row] = {}
    for row in rows:
        check(row)
        key = (row.format.casefold(), row.requires)
        if key not in best or _rank(row) < _rank(best[key]):
            best[key] = row
    ordered = sorted(best.values(), key=lambda row: (row.at, row.format, row.requires))
    lines = [_encoded({"emitter": header.emitter, "version": header.version, **_set(header)})]
    lines += [_encoded(_set(row)) for row in ordered]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(lines))
    return Counter(row.level for row in ordered)


def check(row: Row) -> None:
    """Raise ValueError for what no reader of catalogues knows."""
    if row.fault and row.fault not in FAULTS:
        raise ValueError(f"{row.at}: no fault {row.fault!r}; known: {', '.join(FAULTS)}")
    if row.level not in LEVELS:
        raise ValueError(f"{row.at}: no level {row.level!r}; known: {', '.join(LEVELS)}")
    if row.layer is not None and row.layer not in LAYERS:
        raise ValueError(f"{row.at}: no layer {row.layer!r}; known: {', '.join(LAYERS)}")
    if row.scope is not None and row.scope not in SCOPES:
        raise ValueError(f"{row.at}: no scope {row.scope!r}; known: {', '.join(SCOPES)}")
    if not row.format.strip() or "\n" in row.format or len(row.format) > MAX_FORMAT:
        raise ValueError(f"{row.at}: {row.format[:80]!r} is no format of one line")


def first_line(text: str) -> str:
    """Return the first line of a message that is not empty, cut to what a row may hold."""
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    return line[:MAX_FORMAT]


def _rank(row: Row) -> tuple[int, bool, str, str]:
    return (LEVELS.index(row.level), not row.fault, row.at, row.fault)


def _set(value: Header | Row) -> dict[str, object]:
    """Return the fields that are set, in the order of the class."""
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__ if name != "_"}
    always = ("at", "format", "level", "fault")
    return {name: one for name, one in fields.items() if name in always or one}


def _encoded(value: dict[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"
