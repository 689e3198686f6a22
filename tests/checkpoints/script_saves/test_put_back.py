"""Before a script starts: the checkpoint that was chosen is where the script looks, whatever was there."""

import threading
from pathlib import Path

import pytest

from runner.checkpoints.script_saves.put_back import prepare
from runner.errors import CheckpointRefused, PermanentError
from tests.checkpoints.samples import sealed_checkpoint
from tests.checkpoints.script_saves.test_saved_files import saved

WHOLE = saved({"iter_num": 40})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return where the script saves."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out" / "ckpt.pt"


def sealed(tmp_path: Path) -> Path:
    """Seal a save of step 40; return its folder."""
    return sealed_checkpoint(tmp_path / "checkpoints", {"ckpt.pt": WHOLE}, step=40)[0]


def test_a_torn_save_gives_way_to_the_sealed_one(
    tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It stays beside it, under another name; a second start finds all in place."""
    folder = sealed(tmp_path)
    place.write_bytes(WHOLE[:100])
    assert prepare(str(place), resume=str(folder), is_first=True)
    assert place.read_bytes() == WHOLE
    assert Path(f"{place}.replaced").read_bytes() == WHOLE[:100]
    assert str(folder) in capsys.readouterr().err
    assert prepare(str(place), resume=str(folder), is_first=True)
    assert Path(f"{place}.replaced").read_bytes() == WHOLE[:100]
    assert sorted(path.name for path in place.parent.iterdir()) == ["ckpt.pt", "ckpt.pt.replaced"]


def test_other_ranks_wait_for_the_one_that_puts_back(tmp_path: Path, place: Path) -> None:
    """None loads what was torn."""
    folder = sealed(tmp_path)
    place.write_bytes(WHOLE[:100])
    found = list[bytes]()

    def second_rank() -> None:
        prepare(str(place), resume=str(folder), is_first=False)
        found.append(place.read_bytes())

    waiting = threading.Thread(target=second_rank)
    waiting.start()
    prepare(str(place), resume=str(folder), is_first=True)
    waiting.join(30)
    assert found == [WHOLE]


def test_a_checkpoint_that_is_not_what_was_sealed_is_refused(tmp_path: Path, place: Path) -> None:
    """A byte is enough; the script's own save stays."""
    folder = sealed(tmp_path)
    (folder / "ckpt.pt").write_bytes(b"x" + WHOLE[1:])
    place.write_bytes(b"own")
    with pytest.raises(CheckpointRefused, match="sha256"):
        prepare(str(place), resume=str(folder), is_first=True)
    assert [path.name for path in place.parent.iterdir()] == ["ckpt.pt"]
    assert place.read_bytes() == b"own"


def test_without_a_sealed_one_the_script_goes_on_from_its_own_if_that_is_whole(
    place: Path,
) -> None:
    """One that is torn is moved away, and the script starts from nothing."""
    assert not prepare(str(place), resume="", is_first=True)
    place.write_bytes(WHOLE)
    assert prepare(str(place), resume="", is_first=True)
    place.write_bytes(WHOLE[:-1])
    assert not prepare(str(place), resume="", is_first=False)
    assert not prepare(str(place), resume="", is_first=True)
    assert not place.exists()
    assert Path(f"{place}.replaced").exists()


def test_of_a_pattern_the_script_gets_the_folder_itself(tmp_path: Path) -> None:
    """Nothing is moved, and nothing of its own is taken up."""
    (tmp_path / "checkpoint-20").mkdir()
    pattern = str(tmp_path / "checkpoint-*")
    assert not prepare(pattern, resume="", is_first=True)
    assert prepare(pattern, resume=str(tmp_path / "any"), is_first=True)


def test_a_folder_in_place_of_a_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """So is a checkpoint of other files."""
    (tmp_path / "last").mkdir()
    with pytest.raises(PermanentError, match=r"pattern .*checkpoint-\*"):
        prepare(str(tmp_path / "last"), resume="", is_first=True)
    folder = sealed(tmp_path)
    with pytest.raises(PermanentError, match=r"ckpt\.pt and not just other\.pt"):
        prepare(str(tmp_path / "other.pt"), resume=str(folder), is_first=True)
