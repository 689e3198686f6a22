"""A look at a checkpoint reads its manifest and no file, and shows whether a file may have changed."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import checkpoints
from runner.errors import CheckpointRefused
from runner.facts.ids import AttemptId

ATTEMPT = AttemptId(1, 1, 0)
# Prints the names of all files that an inspection opens.
WITNESS = """
import sys
from runner import checkpoints
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
checkpoints.inspect(sys.argv[1], ())
print(*(name for name in opened if str(name).startswith(sys.argv[1])), sep="\\n")
"""


def sealed(
    root: Path, step: int, files: int = 3, size_bytes: int = 10, attempt: AttemptId = ATTEMPT
) -> Path:
    """Seal a checkpoint of files full of holes; their hashes are made up."""
    folder = checkpoints.checkpoint_folder(root, attempt, step)
    (folder / "parts").mkdir(parents=True)
    seals = {}
    for number in range(files):
        with (folder / "parts" / str(number)).open("wb") as file:
            file.truncate(size_bytes)
        seals[f"parts/{number}"] = checkpoints.FileSeal(size_bytes=size_bytes, sha256="0" * 64)
    manifest = checkpoints.Manifest(
        run="mine", attempt=attempt, generation=0, step=step, files=seals
    )
    checkpoints.seal(folder, manifest, generation=0)
    return folder


def test_nothing_is_read_but_the_manifest(tmp_path: Path) -> None:
    """Of 200 GB in 1,000 files."""
    folder = sealed(tmp_path, 1, files=1000, size_bytes=200 * 1024**2)
    command = [sys.executable, "-c", WITNESS, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.split() == [str(folder / checkpoints.MANIFEST)]
    assert checkpoints.inspect(folder).size_bytes == 1000 * 200 * 1024**2


def replaced(file: Path) -> None:
    """Put another file of the same size and time in its place."""
    before = file.stat()
    other = file.with_suffix(".new")
    other.write_bytes(b"x" * before.st_size)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(file)


def rewritten(file: Path) -> None:
    """Change a byte in place, and set the time back."""
    before = file.stat()
    with file.open("r+b") as stream:
        stream.write(b"x")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def restored(file: Path) -> None:
    """Copy it away and back, as a restore from a backup does."""
    shutil.copy2(file, file.with_suffix(".bak"))
    shutil.copy2(file.with_suffix(".bak"), file)


@pytest.mark.parametrize("change", [replaced, rewritten, restored, Path.touch])
def test_a_file_that_was_touched_changes_the_stamp(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    """Also by one of equal size and time; the stamp of an untouched folder stays the same."""
    folder = sealed(tmp_path, 1)
    before = checkpoints.inspect(folder)
    assert checkpoints.inspect(folder) == before
    change(folder / "parts" / "1")
    after = checkpoints.inspect(folder)
    assert after.stamp != before.stamp
    assert after.digest == before.digest


def grow(file: Path) -> None:
    """Make it one byte longer."""
    with file.open("ab") as stream:
        stream.write(b"x")


def to_link(file: Path) -> None:
    """Put a link to another file of that size in its place."""
    file.unlink()
    file.symlink_to(file.with_name("0"))


def to_pipe(file: Path) -> None:
    """Put a pipe in its place, which no reader may open."""
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize("damage", [grow, to_link, to_pipe, Path.unlink])
def test_what_the_manifest_contradicts_is_refused_by_name(
    damage: Callable[[Path], None], tmp_path: Path
) -> None:
    """Without reading it."""
    folder = sealed(tmp_path, 1)
    damage(folder / "parts" / "1")
    with pytest.raises(CheckpointRefused, match="parts/1"):
        checkpoints.inspect(folder)


def surveyed(root: Path, *verified: Path, newest_first: bool = False) -> tuple[int, bool] | None:
    """Survey as before a launch, where these were verified; return the step chosen, and whether it is unverified."""
    stamps = {path.name: checkpoints.inspect(path).stamp for path in verified}
    chosen, _ = checkpoints.survey(
        root, checkpoints.inspect, skip=(), verified=stamps, newest_first=newest_first
    )
    return (chosen["step"], chosen["unverified"]) if chosen is not None else None


def test_the_survey_takes_what_was_verified_and_has_not_changed(tmp_path: Path) -> None:
    """The newest of those; the newest of all where ranks check it, or where nothing was verified."""
    one, two, three = (sealed(tmp_path, step) for step in (1, 2, 3))
    assert surveyed(tmp_path) == (3, True)
    assert surveyed(tmp_path, one, two) == (2, False)
    assert surveyed(tmp_path, one, two, newest_first=True) == (3, True)
    assert surveyed(tmp_path, three, newest_first=True) == (3, False)
    stamps = {path.name: checkpoints.inspect(path).stamp for path in (one, two)}
    rewritten(two / "parts" / "0")

    def survey() -> tuple[int, bool]:
        chosen, _ = checkpoints.survey(
            tmp_path, checkpoints.inspect, skip=[str(three)], verified=stamps, newest_first=False
        )
        assert chosen is not None
        return chosen["step"], chosen["unverified"]

    assert survey() == (1, False)
    rewritten(one / "parts" / "0")
    # Both have changed: the newer one.
    assert survey() == (2, True)


def test_a_refused_one_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    """The survey names each that is newer than what it takes, which was verified, although the newest is whole."""
    one, two, three = (sealed(tmp_path, step) for step in (1, 2, 3))
    stamps = {path.name: checkpoints.inspect(path).stamp for path in (one, two)}
    (two / "parts" / "0").unlink()
    chosen, refused = checkpoints.survey(
        tmp_path, checkpoints.inspect, skip=(), verified=stamps, newest_first=False
    )
    assert chosen is not None
    assert chosen["path"] == str(one)
    assert [item["path"] for item in refused] == [str(two)]
    assert "parts/0" in refused[0]["reason"]
    assert three.exists()


def test_of_two_attempts_that_wrote_the_same_step_the_later_is_newer(tmp_path: Path) -> None:
    """By number, not by name; a verified one of the earlier attempt comes first where verification decides."""
    nine = sealed(tmp_path, 5, attempt=AttemptId(1, 1, 9))
    ten = sealed(tmp_path, 5, attempt=AttemptId(1, 1, 10))
    assert checkpoints.list_sealed(tmp_path) == [ten, nine]
    stamps = {nine.name: checkpoints.inspect(nine).stamp}
    for newest_first, expected in ((True, ten), (False, nine)):
        chosen, _ = checkpoints.survey(
            tmp_path, checkpoints.inspect, skip=(), verified=stamps, newest_first=newest_first
        )
        assert chosen is not None
        assert chosen["path"] == str(expected)
