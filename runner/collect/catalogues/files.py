"""Files: reads catalogues and validates every row. A row or a file that is not as it must be is named, and the rest goes on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from runner.collect.catalogues.formats import Style
from runner.facts.faults import FAULTS
from runner.facts.matches import Layer, Scope
from runner.facts.wording import printable

# The format of catalogues that this release reads; a header that names none has it.
FORMAT = 1
# All chosen. Bytes of a file and of a row, rows of a file; a file beyond is not read, a row beyond is left out.
MAX_FILE_BYTES, MAX_ROW_BYTES, MAX_ROWS = 32 * 1024 * 1024, 16 * 1024, 100_000
# Characters of a format, and words that a row requires.
MAX_FORMAT, MAX_REQUIRES = 2000, 50

Level = Literal["error", "warning", "info", "debug"]


class CatalogueHeader(msgspec.Struct, frozen=True):
    """The first line of a catalogue: what its rows have in common."""

    emitter: str
    version: str
    made: str
    program: str
    source: str
    style: Style
    layer: Layer
    scope: Scope
    requires: tuple[str, ...] = ()
    format: int = FORMAT


class CatalogueRow(msgspec.Struct, frozen=True):
    """One format string. Of `layer`, `scope`, `style` and `requires`, what is not set is the header's."""

    at: str
    format: str
    level: Level
    fault: str
    layer: Layer | None = None
    scope: Scope | None = None
    style: Style | None = None
    requires: tuple[str, ...] = ()
    lasting: bool = False


@dataclass(slots=True)
class Catalogue:
    """One file. `defect`: what is wrong with it, in one sentence; "" for nothing. Its header is None if nothing can be read."""

    name: str
    header: CatalogueHeader | None = None
    rows: list[CatalogueRow] = field(default_factory=list)
    defect: str = ""


_HEADER = msgspec.json.Decoder(CatalogueHeader)
_ROW = msgspec.json.Decoder(CatalogueRow)


def paths_in(folder: Path) -> list[Path]:
    """Return the catalogues of a folder, in a stable order."""
    return sorted(folder.glob("*.jsonl"))


def read_catalogue(path: Path) -> Catalogue:
    """Read one file."""
    catalogue = Catalogue(path.name)
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            catalogue.defect = f"{size} bytes are more than the {MAX_FILE_BYTES} of a catalogue"
        else:
            _read_into(catalogue, path.read_bytes().splitlines())
    except OSError as error:
        catalogue.defect = error.strerror or str(error)
    if catalogue.defect:
        what = "it is not used" if catalogue.header is None else "its other rows are used"
        catalogue.defect = f"catalogue {path.name}: {printable(catalogue.defect)}; {what}"
    return catalogue


def _read_into(catalogue: Catalogue, lines: Sequence[bytes]) -> None:
    try:
        header = _HEADER.decode(lines[0] if lines else b"")
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        catalogue.defect = f"line 1 is no header: {error}"
        return
    if header.format != FORMAT:
        catalogue.defect = f"format {header.format} is unknown, this release reads {FORMAT}"
        return
    if len(lines) > MAX_ROWS:
        catalogue.defect = f"{len(lines)} rows are more than the {MAX_ROWS} of a catalogue"
        return
    catalogue.header = header
    defects = list(_defects(catalogue, lines[1:]))
    if defects:
        num = f"{len(defects)} row{'s' * (len(defects) != 1)}"
        catalogue.defect = f"{num} cannot be read, the first in {defects[0]}"


def _defects(catalogue: Catalogue, lines: Sequence[bytes]) -> Iterator[str]:
    """Add the rows; yield what is wrong with each other one."""
    for number, line in enumerate(lines, 2):
        if not line.strip():
            continue
        if len(line) > MAX_ROW_BYTES:
            yield f"line {number}: {len(line)} bytes are more than {MAX_ROW_BYTES}"
            continue
        try:
            row = _ROW.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            yield f"line {number}: {error}"
            continue
        if row.fault and row.fault not in FAULTS:
            yield f"line {number}: no fault has the name {row.fault!r}"
        elif len(row.format) > MAX_FORMAT or len(row.requires) > MAX_REQUIRES:
            yield f"line {number}: its format, or what it requires, is too long"
        else:
            catalogue.rows.append(row)
