"""Small catalogues for tests, and the folders that they are read from."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from runner.collect import engines
from runner.collect.catalogues.cache import compiled
from runner.collect.catalogues.catalogues import Catalogues
from runner.collect.catalogues.table import Table
from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.facts.matches import Match

HEADER = {
    "emitter": "fabric",
    "version": "1.4",
    "made": "2026-11-26",
    "program": "tests",
    "source": "written by hand",
    "style": "printf",
    "layer": "network",
    "scope": "fabric",
}
FABRIC = (
    row := {
        "at": "port.c",
        "format": "port %d of %s: link training gave up after %u tries",
        "level": "error",
        "fault": "nccl_network",
    },
    {**row, "format": "queue pair %x entered an unforeseen state", "fault": ""},
    {**row, "format": "port %d of %s: link training gave up after %u tries, trained at half width",
     "level": "info", "fault": ""},
    {**row, "format": "port %d is congested, pausing senders", "level": "warning"},
    {**row, "format": "polling port counters of %s every %d ms", "level": "debug", "fault": ""},
    {**row, "format": "flush failed", "requires": ["fabricd"]},
    {**row, "format": "%s: error"},
)  # fmt: skip


@cache
def engine(version: str) -> Engine:
    """Return the engine of all signatures, made once for each kind of engine."""
    return engine_for()


def write_catalogue(
    folder: Path,
    name: str = "fabric",
    header: Mapping[str, object] | None = None,
    rows: Iterable[Mapping[str, object]] = FABRIC,
) -> Path:
    """Write a catalogue, and return its path."""
    lines = [json.dumps(one) for one in ({**HEADER, **(header or {})}, *rows)]
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def catalogues_in(folder: Path) -> Catalogues:
    """Compile the catalogues of a folder in this process."""
    return Catalogues(Table(memoryview(compiled(folder))))


def matches(text: str, catalogues: Catalogues, file: str = "log") -> list[Match]:
    """Return all matches in a log."""
    diagnosis = Diagnosis(engine=engine(engines.version()), catalogues=catalogues)
    log = diagnosis.log(file)
    log.feed(text.encode())
    log.finish()
    return log.matches


def catalogued(text: str, catalogues: Catalogues) -> list[Match]:
    """Return the matches that catalogues made in a log."""
    return [match for match in matches(text, catalogues) if match.known_by == "catalogue"]
