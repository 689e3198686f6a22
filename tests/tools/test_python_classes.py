"""Messages of libraries are classed by directory, words and exception; each catalogue that was made is sound."""

import json
from pathlib import Path

import pytest

from tools.catalogues.python import packages, shared_objects, standard_library
from tools.catalogues.python.classes import OVERRIDES, area_of
from tools.catalogues.python.libraries import LIBRARIES
from tools.catalogues.python.packages import row_of
from tools.catalogues.python.shared_objects import Phrases
from tools.catalogues.python.statements import Statement
from tools.catalogues.rows import FOLDER, Row, check

NAMES = (*packages.NAMES, *standard_library.NAMES, *shared_objects.NAMES)


def _fault(text: str, exception: str, path: str, level: str = "error") -> str:
    statement = Statement(text, level, exception, 1)  # type: ignore[arg-type]
    row = row_of(statement, path, area_of(path, "settings"))
    assert row is not None
    return row.fault


@pytest.mark.parametrize(
    ("text", "exception", "path", "fault"),
    [
        ("shard {} is truncated at byte {}", "ValueError", "x/data/reader.py", "data_error"),
        ("num_workers must be at least 0, got {}", "ValueError", "x/data/loader.py", "config_error"),
        ("metadata of the checkpoint is missing", "RuntimeError", "x/checkpoint/io.py", "checkpoint_io"),
        ("Invalid learning rate: {} of the group", "ValueError", "optim/adam.py", "config_error"),
        ("install h5py to read such files", "ImportError", "x/checkpoint/io.py", "config_error"),
        ("Connection to the bucket was reset", "ConnectionError", "x/download.py", "filesystem"),
        ("no credentials were found for the bucket", "NoAuth", "x/object_store/s3.py", "config_error"),
        ("the store was closed during rendezvous", "RendezvousClosedError", "x/rendezvous.py", "rendezvous"),
        ("the world size {} must be divisible by the group size {}", "AssertionError", "x/parallel_state.py", "config_error"),
        ("a collective timed out after {} seconds", "RuntimeError", "x/distributed/a.py", "nccl_timeout"),
        ("Current loss scale already at minimum", "Exception", "fp16/loss_scaler.py", "loss_scale_floor"),
        ("the loss of step {} is NaN, training ends", "RuntimeError", "loops/fit.py", "nan_loss"),
        ("CUDA is out of memory in the evaluation", "RuntimeError", "trainer.py", "cuda_oom"),
        ("uploading the run's metrics failed with {}", "", "loggers/wandb.py", ""),
    ],
)  # fmt: skip
def test_a_message_has_the_class_of_its_directory_words_and_exception(
    text: str, exception: str, path: str, fault: str
) -> None:
    """Words of a fault outrank the directory; settings are settings wherever they are read."""
    assert _fault(text, exception, path) == fault


def test_warnings_and_notes_have_no_class() -> None:
    """A lower level shows what is harmless."""
    assert _fault("shard {} is truncated at byte {}", "", "x/data/reader.py", "warning") == ""


def test_a_short_message_is_only_searched_for_beside_its_exception() -> None:
    """Few words may stand anywhere."""
    row = row_of(
        Statement("the axis {} is not an axis", "error", "ValueError", 1), "nn/a.py", "settings"
    )
    assert row is not None
    assert row.requires == ("ValueError",)
    assert (
        row_of(Statement("the axis {} is not an axis", "error", "", 1), "nn/a.py", "settings")
        is None
    )


@pytest.mark.parametrize("text", ["No such file: {}", "{}: no space left on device", "Caught {}."])
def test_what_any_program_writes_is_no_row_of_a_library(text: str) -> None:
    """Texts of errno, and two words with an exception of Python, show no library."""
    assert row_of(Statement(text, "error", "OSError", 1), "data/a.py", "data") is None


@pytest.mark.parametrize("name", NAMES)
def test_each_catalogue_that_was_made_is_sound(name: str) -> None:
    """Its header names what it was made of, and each row is one that the writer accepts."""
    header, *rows = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").open()]
    assert header["emitter"] == name
    assert header["version"] != "unknown"
    assert len(rows) >= 10
    levels = set()
    for row in rows:
        row["requires"] = tuple(row.get("requires", ()))
        check(Row(**row))
        levels.add(row["level"])
    assert "error" in levels


def test_each_override_is_used_and_says_why() -> None:
    """A class by hand has its reason, and a message that it is about."""
    files = {one.library: (FOLDER / f"{one.library}.jsonl").read_text() for one in OVERRIDES}
    for one in OVERRIDES:
        assert one.why
        assert json.dumps(one.text)[1:-1] in files[one.library], one


def test_no_two_libraries_have_one_name() -> None:
    """A catalogue has one maker."""
    assert len({library.name for library in LIBRARIES}) == len(LIBRARIES)


def test_a_phrase_that_a_shared_object_lacks_is_no_row(tmp_path: Path) -> None:
    """What a version does not contain is not kept in its catalogue; the longest constant part decides."""
    path = tmp_path / "lib.so"
    path.write_bytes(b"\x00tensor \x00 is not covered by the file\x00")
    texts = ("tensor {} is not covered by the file", "tensor {} is larger than the file")
    phrases = Phrases("package", "*.so", {"checkpoint_io": texts})
    assert [(row.at, row.format) for row in shared_objects.rows(phrases, [path])] == [
        ("lib.so", texts[0])
    ]
