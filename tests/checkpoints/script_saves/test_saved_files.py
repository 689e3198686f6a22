"""Saves of scripts: which are whole, and of which step, by their form alone."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import pytest

from runner.checkpoints.formats.pattern import list_saves, step_of, torn
from runner.checkpoints.formats.saves import Save
from tests.checkpoints.tensor_files import safetensors_file, torch_file

STATE = json.dumps({"global_step": 60, "log_history": [{"loss": 2.5}]}, indent=2).encode()
WEIGHTS = {"wte": ("float32", [1.0, 2.0, 3.0]), "head": ("float32", [4.0])}
FILES = {
    "ckpt.pt": torch_file(WEIGHTS),
    "model.safetensors": safetensors_file(WEIGHTS),
    "trainer_state.json": STATE,
}


def saved(state: object) -> bytes:
    """Return what `torch.save` writes for a state without tensors."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("ckpt/data.pkl", pickle.dumps(state, protocol=2))
    return file.getvalue()


def save_of(folder: Path, name: str, content: bytes) -> Save:
    """Write a save of one file."""
    path = folder / name
    path.write_bytes(content)
    (found,) = list_saves(str(path))
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_cut_off_anywhere_is_torn(tmp_path: Path, name: str) -> None:
    """Whole it is not; short of any number of its last bytes it is."""
    content = FILES[name]
    assert torn(save_of(tmp_path, name, content)) == ""
    whole = [cut for cut in range(len(content)) if not torn(save_of(tmp_path, name, content[:cut]))]
    assert whole == []


def test_a_folder_with_one_torn_file_is_torn(tmp_path: Path) -> None:
    """The answer names the file."""
    folder = tmp_path / "checkpoint-60"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (save,) = list_saves(str(tmp_path / "checkpoint-*"))
    assert torn(save) == ""
    (folder / "model.safetensors").write_bytes(FILES["model.safetensors"][:-1])
    assert torn(save).startswith("model.safetensors: ")


def test_what_has_no_known_form_counts_as_whole(tmp_path: Path) -> None:
    """Nothing is known against it; an empty file may be one that is meant to be."""
    assert torn(save_of(tmp_path, "weights.raw", b"abcdefghi")) == ""
    assert torn(save_of(tmp_path, "done", b"")) == ""


@pytest.mark.parametrize(
    ("state", "step"),
    [
        ({"model": {"step": 7}, "iter_num": 40, "best_val_loss": 2.5}, 40),
        ({"epoch": 3, "global_step": 120}, 120),
        ({"args": {"step": 9}}, None),
        ({"step": 12.5}, None),
        ([1, 2], None),
    ],
)
def test_the_step_is_what_the_file_itself_has(
    tmp_path: Path, state: object, step: int | None
) -> None:
    """Under a usual name, at the top of what was saved, as a whole number; it is read without unpickling."""
    assert step_of(save_of(tmp_path, "ckpt.pt", saved(state))) == step


def test_a_number_in_the_name_is_the_step(tmp_path: Path) -> None:
    """The last one; and another key counts when it is given."""
    assert step_of(save_of(tmp_path, "gpt2-step-0300.pt", saved({"step": 5}))) == 300
    assert step_of(save_of(tmp_path, "last.pt", saved({"it": 8})), names=["it"]) == 8


def test_saves_are_listed_by_their_numbers_and_any_write_shows(tmp_path: Path) -> None:
    """`checkpoint-100` comes after `checkpoint-20`; a signature differs after a write of the same size."""
    for step in (100, 20):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "weights").write_bytes(b"1")
    pattern = str(tmp_path / "checkpoint-*")
    before = list_saves(pattern)
    assert [step_of(save) for save in before] == [20, 100]
    (tmp_path / "checkpoint-20" / "weights").write_bytes(b"2")
    after = list_saves(pattern)
    assert [a == b for a, b in zip(before, after, strict=True)] == [False, True]
