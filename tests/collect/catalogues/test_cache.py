"""Tables are compiled once; a cache that is not whole, or another user's, is made again, and no two writers disturb each other."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from runner.collect import engines
from runner.collect.catalogues import cache as cache_module
from runner.collect.catalogues.cache import cache_path, compile_if_missing, compiled, load_table
from runner.collect.catalogues.catalogues import Catalogues
from runner.collect.catalogues.table import is_whole
from tests.collect.catalogues.samples import FABRIC, catalogued, write_catalogue

LINE = "port 3 of mlx5_0: link training gave up after 12 tries"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with one catalogue."""
    write_catalogue(tmp_path)
    return tmp_path


@pytest.mark.costly
def test_a_table_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process of its own; the next process maps what that one wrote."""
    table = load_table(folder)
    monkeypatch.setattr(cache_module, "pack", None)
    monkeypatch.setattr(cache_module, "_compile_apart", None)
    assert len(load_table(folder)) == len(table) == len(FABRIC) - 1
    assert len(catalogued(LINE, Catalogues(table))) == 1


def test_other_catalogues_have_another_cache(folder: Path) -> None:
    """One character is enough."""
    before = cache_path(folder)
    write_catalogue(folder, rows=FABRIC[:-1])
    assert cache_path(folder) != before


@pytest.mark.parametrize("size", [0, 60, -1])
def test_a_truncated_cache_is_made_again(folder: Path, size: int) -> None:
    """As after a crash of the machine."""
    compiled(folder)
    path = cache_path(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    assert len(load_table(folder)) == len(FABRIC) - 1
    assert path.read_bytes() == whole


def test_a_cache_with_a_wrong_byte_is_made_again(folder: Path) -> None:
    """Wherever it is: a checksum covers all of it."""
    compiled(folder)
    path = cache_path(folder)
    whole = path.read_bytes()
    for at in (0, 25, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert not is_whole(memoryview(path.read_bytes()))
    assert len(load_table(folder)) == len(FABRIC) - 1
    assert path.read_bytes() == whole


def test_a_cache_of_another_user_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content is not used, whole or not."""
    compiled(folder)
    user = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: user + 1)
    folders = list[Path]()
    monkeypatch.setattr(cache_module, "_compile_apart", folders.append)
    assert len(load_table(folder)) == len(FABRIC) - 1
    assert folders == [folder]


def test_without_a_place_for_the_cache_the_table_is_compiled_in_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every process compiles then."""
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    assert len(load_table(folder)) == len(FABRIC) - 1


def test_what_cannot_be_compiled_is_a_defect(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signatures serve without catalogues."""

    def refuse(literals: Sequence[bytes]) -> bytes:
        if literals:
            raise ValueError(f"{len(literals)} literals: out of memory")
        return b""

    monkeypatch.setattr(engines, "compile_literals", refuse)
    monkeypatch.setattr(cache_module, "_compile_apart", lambda folder: None)
    table = load_table(folder)
    assert len(table) == 0
    assert "no catalogue is used, they cannot be compiled" in table.defects[0]
    assert not catalogued(LINE, Catalogues(table))


def test_processes_that_compile_at_once_leave_one_whole_table(folder: Path, cache: Path) -> None:
    """Each of them ends well, and nothing but the table is left."""
    command = [sys.executable, "-m", "runner.collect.catalogues", str(folder)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in processes] == [0] * 3
    assert [path.name for path in cache.iterdir()] == [cache_path(folder).name]
    assert len(load_table(folder)) == len(FABRIC) - 1


def test_a_second_process_waits_for_the_table_of_the_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agents of a machine start at once; one of their log readers compiles."""
    compiled_folders = list[Path]()

    def count(path: Path) -> bytes:
        compiled_folders.append(path)
        return compiled(path)

    monkeypatch.setattr(cache_module, "compiled", count)
    waiting = threading.Thread(target=compile_if_missing, args=(folder,))
    with locked_cache():
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        assert not compiled_folders
        compiled(folder)
    waiting.join(10)
    assert not waiting.is_alive()
    assert not compiled_folders


def test_a_lock_that_cannot_be_had_is_no_obstacle(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some shared file systems have none for folders; a process that hangs holds its own."""
    monkeypatch.setattr(cache_module, "LOCK_SECONDS", 0.2)
    with locked_cache():
        compile_if_missing(folder)
    assert is_whole(memoryview(cache_path(folder).read_bytes()))


def test_a_compiler_has_time_left_where_the_lock_is_never_free() -> None:
    """Its parent waits for so long in all."""
    assert cache_module.LOCK_SECONDS < cache_module.COMPILE_SECONDS


def test_what_a_killed_process_was_writing_is_removed(folder: Path, cache: Path) -> None:
    """The table itself is moved to its place once it is whole."""
    cache.mkdir()
    cache_path(folder).with_suffix(".4711").write_bytes(b"half")
    compile_if_missing(folder)
    assert [path.name for path in cache.iterdir()] == [cache_path(folder).name]


def test_a_compiler_ends_with_its_parent(folder: Path) -> None:
    """However that one ends: a run that is over leaves nothing that works."""
    program = (
        "import sys; from pathlib import Path; from runner.collect.catalogues.cache import load_table; "
        "load_table(Path(sys.argv[1]))"
    )
    with locked_cache():
        with subprocess.Popen([sys.executable, "-c", program, str(folder)]) as reader:
            children = Path(f"/proc/{reader.pid}/task/{reader.pid}/children")
            wait_until(lambda: is_compiling(children.read_text()))
            pid = children.read_text()
            reader.kill()
        wait_until(lambda: not is_compiling(pid))


@contextmanager
def locked_cache() -> Iterator[None]:
    """Hold the lock that a process has while it compiles."""
    engines.cache_folder().mkdir(parents=True, exist_ok=True)
    file = os.open(engines.cache_folder(), os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for ten seconds at most."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_compiling(pid: str) -> bool:
    """Whether there is such a process, and it compiles."""
    try:
        command = Path(f"/proc/{pid.strip() or 0}/cmdline").read_bytes()
    except OSError:
        return False
    return b"runner.collect.catalogues" in command
