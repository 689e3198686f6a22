"""What a rank loads is compared with the manifest while it is loaded: the bytes that it uses are those that were hashed."""

import errno
import io
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.checkpoints import CheckedFile, FileSeal, checked_file, open_checked
from runner.errors import CheckpointRefused, CheckpointUnreadable, TemporaryError

NAME = "model.pt"
SIZE = 10_000


@pytest.fixture(params=["one chunk", "a thread and chunks of 100 bytes"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files be hashed at once, and by a thread."""
    if request.param != "one chunk":
        monkeypatch.setattr(checked_file, "CHUNK_BYTES", 100)


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """Write a file, and return what is in it."""
    written = random.Random(1).randbytes(SIZE)
    (tmp_path / NAME).write_bytes(written)
    return written


def seals(folder: Path) -> dict[str, FileSeal]:
    """Return the seals of the file as it is now."""
    return {NAME: checkpoints.hash_file(folder / NAME)}


def change(path: Path, place: int) -> None:
    """Flip a bit in place; size and times stay."""
    was = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 4]))
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def load(
    path: Path,
    seal: FileSeal,
    parts: list[tuple[int, int]],
    *,
    fails: bool = False,
    between: Callable[[], object] = lambda: None,
) -> None:
    """Load parts of a file, as a rank does; `fails`: its decoder does; `between`: what happens after the first part."""
    with CheckedFile(path, seal) as file:
        for part in parts:
            file.part(*part)
            if part == parts[0]:
                between()
        if fails:
            raise RuntimeError("no such record")


@pytest.mark.usefixtures("chunks")
def test_parts_are_the_bytes_of_the_file(tmp_path: Path, content: bytes) -> None:
    """Parts from front to back, with gaps, empty, repeated, and after the block; what follows the last one is read too."""
    with open_checked(tmp_path, NAME, seals(tmp_path)) as file:
        first, empty = file.part(0, 250), file.part(250, 0)
        second = file.part(999, 3001)
        again = file.part(999, 3001)
        assert again.view.obj is second.view.obj
        with pytest.raises(ValueError, match="ask for parts from front to back"):
            file.part(998, 10)
        with pytest.raises(ValueError, match="bytes 9999 to 10001"):
            file.part(SIZE - 1, 2)
    assert (first.read(), empty.read()) == (content[:250], b"")
    assert (second.read(), again.read()) == (content[999:4000], content[999:4000])
    assert file.size_bytes == SIZE
    with open_checked(tmp_path, NAME, seals(tmp_path)) as file:
        assert file.part().read() == content


def test_a_part_is_a_file_that_cannot_be_written(tmp_path: Path, content: bytes) -> None:
    """It is read and sought as any file, and buffered by those who need that."""
    with open_checked(tmp_path, NAME, seals(tmp_path)) as file:
        part = file.part(10, 20)
    assert (part.seek(-4, io.SEEK_END), part.tell(), part.read()) == (16, 16, content[26:30])
    assert (part.seek(2), part.seek(3, io.SEEK_CUR), part.read(2)) == (2, 5, content[15:17])
    assert (part.seek(100), part.read(), part.readable(), part.seekable()) == (100, b"", True, True)
    with pytest.raises(ValueError, match="-1 lies before the start"):
        part.seek(-1)
    with pytest.raises(TypeError, match="read-only"):
        part.view[0] = 1
    part.seek(0)
    assert io.BufferedReader(part).read() == content[10:30]


@pytest.mark.usefixtures("chunks")
def test_no_change_of_bytes_is_loaded(tmp_path: Path, content: bytes) -> None:
    """Each of 200 changes is refused with file and fault, whatever parts are asked for; with the bytes back, the file loads."""
    path, known = tmp_path / NAME, seals(tmp_path)
    values = random.Random(20261123)
    for number in range(200):
        place = values.randrange(SIZE)
        change(path, place)
        start = values.randrange(SIZE)
        parts = [(start, values.randrange(SIZE - start + 1))]
        refused = rf"{NAME} is damaged: sha256 \w+, the manifest says {known[NAME].sha256}"
        with pytest.raises(CheckpointRefused, match=refused):
            load(path, known[NAME], parts, fails=number % 3 == 0)
        path.write_bytes(content)
    with open_checked(tmp_path, NAME, known) as file:
        assert file.part().read() == content


@pytest.mark.usefixtures("chunks")
def test_what_is_used_is_what_was_hashed(tmp_path: Path, content: bytes) -> None:
    """A change behind the reader reaches neither the caller nor the hash; one before it reaches both."""
    path, known = tmp_path / NAME, seals(tmp_path)
    with open_checked(tmp_path, NAME, known) as file:
        part = file.part(0, 6000)
        change(path, 300)
    assert part.read() == content[:6000]
    path.write_bytes(content)
    parts = [(0, 100), (9000, 1000)]
    with pytest.raises(CheckpointRefused, match="is damaged: sha256"):
        load(path, known[NAME], parts, between=lambda: path.write_bytes(bytes(SIZE)))
    os.replace(path, tmp_path / "old")
    path.write_bytes(content)
    with open_checked(tmp_path, NAME, known) as file:
        (tmp_path / "other").write_bytes(bytes(SIZE))
        os.replace(tmp_path / "other", path)
        # The open file, not the one that has its name now.
        assert file.part().read() == content


def test_an_error_of_the_block_stands_where_the_file_is_whole(
    tmp_path: Path, content: bytes
) -> None:
    """Only damage explains it otherwise; one that is no Exception is never replaced, and the file is closed."""
    known = seals(tmp_path)
    with pytest.raises(KeyError, match="'wte'"), open_checked(tmp_path, NAME, known):
        raise KeyError("wte")
    change(tmp_path / NAME, 5)
    with pytest.raises(KeyboardInterrupt), open_checked(tmp_path, NAME, known) as file:
        raise KeyboardInterrupt
    with pytest.raises(ValueError, match="closed file"):
        file.finish()
    assert len(content) == SIZE


def test_a_file_of_another_size_is_refused_unread(tmp_path: Path, content: bytes) -> None:
    """One that is short, long, or cut while it is read."""
    path, known = tmp_path / NAME, seals(tmp_path)
    for other in (content[:-1], content + b"\n", b""):
        path.write_bytes(other)
        with pytest.raises(CheckpointRefused, match=rf"is damaged: bytes {len(other)}, the manif"):
            open_checked(tmp_path, NAME, known)
    big = bytes(checked_file.CHUNK_BYTES * 3)
    path.write_bytes(big)
    seal, half = checkpoints.hash_file(path), checked_file.CHUNK_BYTES + 1
    with pytest.raises(CheckpointRefused, match=f"bytes {half}, the manifest says {len(big)}"):
        load(path, seal, [(0, 10), (half, 10)], between=lambda: os.truncate(path, half))


def test_what_cannot_be_read_here_speaks_for_no_damage_unless_the_storage_says_so(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing, a link, a pipe: unreadable here; an I/O error: damaged; a stale handle: it may pass; not listed: refused."""
    known = seals(tmp_path)
    (tmp_path / NAME).rename(tmp_path / "away")
    with pytest.raises(CheckpointUnreadable, match=f"{NAME} cannot be read: No such file"):
        open_checked(tmp_path, NAME, known)
    (tmp_path / NAME).symlink_to("away")
    with pytest.raises(CheckpointUnreadable, match="symbolic links"):
        open_checked(tmp_path, NAME, known)
    (tmp_path / NAME).unlink()
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(CheckpointUnreadable, match="not a regular file"):
        open_checked(tmp_path, NAME, known)
    with pytest.raises(CheckpointRefused, match="is not listed in the manifest"):
        open_checked(tmp_path, "away", known)
    cases: list[tuple[int, type[Exception]]] = [
        (errno.EIO, CheckpointRefused),
        (errno.ESTALE, TemporaryError),
        (errno.EACCES, CheckpointUnreadable),
    ]
    for number, expected in cases:

        def fail(*_: Any, number: int = number) -> Any:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(checked_file, "open_regular", fail)
        with pytest.raises(expected) as caught:
            open_checked(tmp_path, NAME, known)
        assert type(caught.value) is expected
    assert content
