"""Catalogues of emitters that only documents and public logs tell of: facts compiled by hand, `facts/documents/*.tsv`."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar, get_args

from runner.facts.matches import Layer, Scope
from tools.catalogues import rows
from tools.catalogues.rows import Header, Level, Row, Style

_Name = TypeVar("_Name", bound=str)
FACTS = Path(__file__).parent / "facts/documents"
NAMES = tuple(sorted(path.stem for path in FACTS.glob("*.tsv")))
# Columns of a row, in their order; `requires` holds words between bars, and a seventh may name another layer than the file's.
_COLUMNS = ("at", "level", "fault", "scope", "requires", "format")


def make(name: str) -> Counter[str]:
    """Write the catalogue of one file of facts. Raises ValueError for a line that has not the columns."""
    lines = (FACTS / f"{name}.tsv").read_text().splitlines()
    settings = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    header = Header(
        settings["emitter"],
        settings["version"],
        made="2026-11-26",
        program=f"tools/catalogues/facts/documents/{name}.tsv",
        source=settings["source"],
        style=_one_of(settings["style"], get_args(Style)),
        layer=_one_of(settings["layer"], get_args(Layer)),
        scope=_one_of(settings["scope"], get_args(Scope)),
        requires=tuple(filter(None, settings.get("requires", "").split("|"))),
    )
    return rows.write(name, header, _rows(name, lines))


def _rows(name: str, lines: list[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) not in (len(_COLUMNS), len(_COLUMNS) + 1):
            raise ValueError(
                f"{name}.tsv:{number}: {len(fields)} columns; needs {', '.join(_COLUMNS)}, layer or not"
            )
        at, level, fault, scope, requires, text, *layer = fields
        yield Row(
            at,
            text,
            _one_of(level, get_args(Level)),
            fault,
            layer=_one_of(layer[0], get_args(Layer)) if layer else None,
            scope=_one_of(scope, get_args(Scope)) if scope else None,
            requires=tuple(filter(None, requires.split("|"))),
        )


def _one_of(given: str, known: tuple[_Name, ...]) -> _Name:
    for one in known:
        if one == given:
            return one
    raise ValueError(f"no {given!r}; known: {', '.join(known)}")
