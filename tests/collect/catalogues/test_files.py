"""A broken catalogue is named once, in one sentence, and everything else serves."""

import json
from pathlib import Path

import pytest

from runner.collect import engines
from runner.collect.catalogues import files
from runner.collect.catalogues.cache import compiled, load_table
from runner.collect.catalogues.catalogues import Catalogues
from runner.collect.catalogues.files import read_catalogue
from runner.collect.diagnosis import Diagnosis
from tests.collect.catalogues.samples import (
    FABRIC,
    HEADER,
    catalogued,
    catalogues_in,
    engine,
    write_catalogue,
)

LINE = "port 3 of mlx5_0: link training gave up after 12 tries"
ROW = json.dumps(FABRIC[0])


@pytest.mark.parametrize(
    ("content", "defect"),
    [
        (b"", "catalogue other.jsonl: line 1 is no header"),
        (b"\xff\xfe\x00", "line 1 is no header"),
        (b'{"emitter": "other"}\n', "missing required field `version`"),
        (b"[" * 100_000, "line 1 is no header"),
        (json.dumps({**HEADER, "format": 7}).encode(), "format 7 is unknown, this release reads 1"),
        (json.dumps({**HEADER, "style": "regex"}).encode(), "Invalid enum value 'regex'"),
        (json.dumps({**HEADER, "layer": "cloud"}).encode(), "Invalid enum value 'cloud'"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, defect: str) -> None:
    """The reason and the file are in the sentence, and the other catalogue is used."""
    write_catalogue(tmp_path)
    (tmp_path / "other.jsonl").write_bytes(content)
    catalogues = catalogues_in(tmp_path)
    (found,) = catalogues.defects
    assert defect in found
    assert found.endswith("; it is not used")
    assert len(catalogued(LINE, catalogues)) == 1


@pytest.mark.parametrize(
    ("row", "defect"),
    [
        ("{", "line 3: Input data was truncated"),
        ('{"at": "x", "format": "y"}', "line 3: Object missing required field `level`"),
        (ROW.replace("error", "fatal"), "line 3: Invalid enum value 'fatal'"),
        (ROW.replace("nccl_network", "gremlins"), "no fault has the name 'gremlins'"),
        (ROW.replace("port %d", "p" * 3000), "is too long"),
        (ROW.replace("port.c", "p" * 20_000), "bytes are more than 16384"),
    ],
)
def test_a_row_that_cannot_be_read_is_left_out(tmp_path: Path, row: str, defect: str) -> None:
    """The first of them is named, with how many there are."""
    path = write_catalogue(tmp_path, rows=[FABRIC[0]])
    with path.open("a") as file:
        file.write(f"{row}\n{row}\n")
    catalogue = read_catalogue(path)
    assert "2 rows cannot be read, the first in line 3" in catalogue.defect
    assert defect in catalogue.defect
    assert len(catalogue.rows) == 1
    assert len(catalogued(LINE, catalogues_in(tmp_path))) == 1


def test_huge_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their size before they are read, and by their number of rows."""
    path = write_catalogue(tmp_path)
    monkeypatch.setattr(files, "MAX_ROWS", 3)
    assert "8 rows are more than the 3 of a catalogue" in read_catalogue(path).defect
    with path.open("r+b") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)
    assert f"{files.MAX_FILE_BYTES + 1} bytes are more" in read_catalogue(path).defect


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    """Nothing but its name is known of it."""
    write_catalogue(tmp_path)
    (tmp_path / "other.jsonl").mkdir()
    assert catalogues_in(tmp_path).defects == (
        "catalogue other.jsonl: Is a directory; it is not used",
    )


def test_defects_are_warnings_of_a_diagnosis(tmp_path: Path) -> None:
    """`stoker diagnose` prints them once, however many logs there are; a table from the cache has them, too."""
    (tmp_path / "other.jsonl").write_bytes(b"{")
    compiled(tmp_path)
    diagnosis = Diagnosis(
        engine=engine(engines.version()), catalogues=Catalogues(load_table(tmp_path))
    )
    for name in ("a", "b"):
        diagnosis.log(name).feed(b"text\n")
    assert len(diagnosis.warnings) == 1


def test_rows_without_words_of_their_own_are_counted(tmp_path: Path) -> None:
    """`%s: error` could be of anyone."""
    write_catalogue(tmp_path)
    (emitter,) = catalogues_in(tmp_path).table.emitters
    assert (emitter.name, emitter.version) == ("fabric", "1.4")
    assert (emitter.num_rows, emitter.num_skipped) == (7, 1)
