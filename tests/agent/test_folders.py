"""Folders of users: what hangs there hangs on a thread, one for each mount, and is named by its mount."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runner.agent import folders
from runner.agent.event_loop import EventLoop
from runner.agent.folders import FolderHangs, Folders
from runner.agent.mounts import Mount, mount_of, read_mounts
from runner.agent.ranks import output_files
from tests.agent.node import WAIT_SECONDS, wait_until
from tests.hanging_folder import Hanging, hanging_folder

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
# Exits as an agent does, while a thread of it asks a folder that does not answer.
EXITS = """
import os, sys, threading, time
from functools import partial
from runner.agent.event_loop import EventLoop
from runner.agent.folders import Folders
loop = EventLoop(lambda seconds: None)
folders = Folders(loop)
folders.run(sys.argv[1], partial(os.listdir, sys.argv[1]), lambda *_: None)
time.sleep(0.5)
assert [each for each in threading.enumerate() if each.name == "stoker-folder"]
folders.close()
loop.close()
print("exits", flush=True)
"""


class Asker:
    """A loop on a thread of its own, as an agent has it, and what came back."""

    def __init__(self) -> None:
        self.loop = EventLoop(lambda seconds: None)
        self.folders = Folders(self.loop)
        self.answers: list[tuple[str, Any, Exception | None]] = []
        self.num_back = 0
        self.folders.on_back = self._on_back
        self._thread = threading.Thread(target=self.loop.run)
        self._thread.start()

    def _on_back(self) -> None:
        self.num_back += 1

    def on_loop(self, call: Callable[[], T]) -> T:
        """Make a call on the loop, whose owner alone may."""
        results: list[T | Exception] = []
        done = threading.Event()

        def work() -> None:
            try:
                results.append(call())
            except FolderHangs as error:
                results.append(error)
            done.set()

        self.loop.post(work)
        assert done.wait(WAIT_SECONDS)
        if isinstance(results[0], Exception):
            raise results[0]
        return results[0]

    def run(self, name: str, folder: Path, job: Callable[[], Any], **more: Any) -> None:
        """Run a job, whose answer goes to `answers` under its name."""

        def then(result: Any, error: Exception | None) -> None:
            self.answers.append((name, result, error))

        self.on_loop(partial(self.folders.run, str(folder), job, then, **more))

    def answer(self, name: str) -> tuple[Any, Exception | None]:
        """Wait for the answer of a job."""
        found = wait_until(
            lambda: [each for each in self.answers if each[0] == name], f"an answer of {name}"
        )
        return found[0][1:]

    def is_waiting(self) -> bool:
        """Whether a thread is busy and does not count as hung."""
        return any(lane.is_busy and not lane.is_hung for lane in self.folders._lanes)

    def end(self) -> None:
        """End loop and threads."""
        self.on_loop(self.folders.close)
        self.loop.post(self.loop.stop)
        self._thread.join(WAIT_SECONDS)
        wait_until(lambda: num_threads() == 0, "the end of the threads")
        self.loop.close()


def num_threads() -> int:
    """Count the threads that are for folders."""
    return sum(each.name == "stoker-folder" for each in threading.enumerate())


@pytest.fixture
def asker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Asker]:
    """Give a loop with folders, for which a call is overdue after half a second, and ten checks at least."""
    monkeypatch.setattr(folders, "OVERDUE_SECONDS", 0.5)
    monkeypatch.setattr(folders, "CHECK_SECONDS", 0.05)
    made = Asker()
    yield made
    made.end()


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    """Give a folder that hangs on demand."""
    with hanging_folder(tmp_path / "mount", tmp_path / "behind") as made:
        yield made


def test_a_path_is_of_the_deepest_mount_above_it(tmp_path: Path) -> None:
    """As the kernel's table has them: blanks escaped, several on one place, optional fields, rows that are none."""
    table = tmp_path / "table"
    table.write_text(
        "1 0 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n"
        "2 1 0:5 / /mnt/a\\040b rw - nfs4 files:/a\\040b rw\n"
        "3 1 0:6 / /mnt rw master:2 shared:3 - tmpfs none rw\n"
        "4 2 0:7 / /mnt/a\\040b rw - fuse.lower  rw\n"
        "no row\n"
    )
    mounts = read_mounts(str(table))
    assert [mount.number for mount in mounts] == [1, 2, 3, 4]
    assert mount_of("/mnt/a b/run/x", mounts).number == 4
    assert mount_of("/mnt/a b", mounts).number == 4
    assert mount_of("/mnt/a bc", mounts).number == 3
    assert mount_of("/mntx", mounts).number == 1
    assert str(mounts[1]) == "/mnt/a b (nfs4 of files:/a b)"
    assert mounts[3].source == "none"
    assert mount_of("/x", read_mounts(str(tmp_path / "none"))).file_system == "unknown"


def test_jobs_answer_or_fail_on_the_loop(asker: Asker, tmp_path: Path) -> None:
    """In their order, on one thread; the loop itself may wait for one."""
    (tmp_path / "x").touch()
    asker.run("list", tmp_path, partial(os.listdir, tmp_path))
    asker.run("fail", tmp_path, partial(os.listdir, tmp_path / "none"))
    assert asker.answer("list") == (["x"], None)
    assert isinstance(asker.answer("fail")[1], FileNotFoundError)
    assert [name for name, _, _ in asker.answers] == ["list", "fail"]
    assert asker.on_loop(lambda: asker.folders.ask(str(tmp_path), lambda: 7)) == 7
    assert num_threads() == 1
    assert asker.folders.hung() == ()


def test_a_folder_that_hangs_is_named_by_its_mount_and_comes_back(
    asker: Asker, hanging: Hanging, tmp_path: Path
) -> None:
    """The loop and other mounts go on, threads do not pile up, what waited is done, and what was too late is refused."""
    folder = hanging.folder / "run"
    folder.mkdir()
    (folder / "rank0.err").write_text("last words\n")
    hanging.hang()
    asker.run("stats", folder, partial(os.listdir, folder))
    named = f"{hanging.folder} (fuse of stoker-test)"
    (hung,) = wait_until(asker.folders.hung, "the finding")
    assert (hung.mount, hung.file_system) == (str(hanging.folder), "fuse")
    assert (hung.source, hung.folder) == ("stoker-test", str(folder))
    assert hung.seconds >= 0.5
    assert asker.on_loop(lambda: asker.folders.is_hung(str(folder)))
    asker.run("other", tmp_path, lambda: "answers")
    assert asker.answer("other") == ("answers", None)
    asker.run("late", folder, partial(os.listdir, folder), wait_seconds=0.2)
    late = asker.answer("late")[1]
    assert isinstance(late, FolderHangs)
    assert named in str(late)
    tail = partial(output_files.tail, folder / "rank0.err")
    with pytest.raises(FolderHangs, match="stoker-test"):
        asker.on_loop(lambda: asker.folders.ask(str(folder), tail))
    for _ in range(50):
        asker.on_loop(lambda: asker.folders.poll(str(folder), lambda: 1 / 0, print))
    asker.run("waits", folder, tail)
    assert num_threads() == 2
    assert asker.num_back == 0
    hanging.answer()
    assert asker.answer("stats") == (["rank0.err"], None)
    assert asker.answer("waits") == ("last words", None)
    wait_until(lambda: asker.num_back == 1, "the end of the finding")
    assert asker.folders.hung() == ()
    assert asker.on_loop(lambda: asker.folders.ask(str(folder), tail)) == "last words"


def test_a_link_leads_to_the_mount_that_hangs(
    asker: Asker, hanging: Hanging, tmp_path: Path
) -> None:
    """The finding names the mount behind the link; a folder beside the link, on the link's own mount, still answers."""
    link = tmp_path / "link"
    link.symlink_to(hanging.folder)
    hanging.hang()
    asker.run("stats", link / "run", partial(os.listdir, link / "run"))
    asker.run("beside", tmp_path, lambda: "answers")
    (hung,) = wait_until(asker.folders.hung, "the finding")
    assert (hung.mount, hung.folder) == (str(hanging.folder), str(hanging.folder / "run"))
    assert asker.answer("beside") == ("answers", None)
    hanging.answer()
    assert isinstance(asker.answer("stats")[1], FileNotFoundError)


def test_the_number_of_threads_is_bounded(
    asker: Asker, hanging: Hanging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links that no thread has followed may all lead to the same mount: some threads hang there, and no more are made."""
    monkeypatch.setattr(folders, "MAX_LANES", 3)
    hanging.hang()
    for number in range(4):
        link = tmp_path / f"link{number}"
        link.symlink_to(hanging.folder)
        asker.run(f"stats{number}", link, partial(os.listdir, link))
        # Until the thread hangs, it may be of use to others.
        wait_until(lambda: not asker.is_waiting(), "each thread hangs")
    assert num_threads() == 3
    refused = asker.answer("stats3")[1]
    assert isinstance(refused, FolderHangs)
    assert "3 file systems hang" in str(refused)
    assert len(asker.folders.hung()) == 1
    hanging.answer()
    assert [asker.answer(f"stats{number}") for number in range(3)] == [([], None)] * 3


def test_a_mount_that_was_replaced_is_asked_again(
    asker: Asker, hanging: Hanging, tmp_path: Path
) -> None:
    """What hangs in the mount before does not count against the one that is there now."""
    folder = str(hanging.folder)
    hanging.hang()
    asker.run("stats", hanging.folder, partial(os.listdir, folder))
    wait_until(asker.folders.hung, "the finding")
    subprocess.run(["umount", "--lazy", folder], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "stoker-test", folder], check=True)
    assert asker.folders.hung() == ()
    asker.run("again", hanging.folder, partial(os.listdir, folder))
    assert asker.answer("again") == ([], None)
    hanging.answer()
    assert asker.answer("stats") == ([], None)


@pytest.mark.costly
def test_work_that_makes_progress_is_not_overdue(asker: Asker, tmp_path: Path) -> None:
    """A large output that is cut on a slow disk takes its time; each piece counts."""
    path = tmp_path / "rank0.out"
    path.write_bytes(b"x\n" * 50)
    pieces = list[float]()

    def progress() -> None:
        pieces.append(0.2)
        threading.Event().wait(0.2)
        asker.folders.note_progress()

    bound = partial(output_files.bound, str(tmp_path), range(3), 50, on_progress=progress)
    asker.run("bound", tmp_path, bound, busy_seconds=0.0)
    while not asker.answers:
        assert asker.folders.hung() == ()
    assert asker.answer("bound") == ([], None)
    # One for each file, and one for the piece that was copied; together longer than a call may take.
    assert sum(pieces) == pytest.approx(7 * 0.2)
    assert path.stat().st_size == 0


def test_a_process_exits_while_a_folder_hangs(hanging: Hanging) -> None:
    """A thread in a hung call keeps no agent from ending."""
    hanging.hang()
    done = subprocess.run(
        [sys.executable, "-c", EXITS, str(hanging.folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "exits\n"), done.stderr


def test_no_mount_is_known_by_its_name_alone() -> None:
    """Two mounts on one place are two."""
    first = Mount(number=1, point="/a", file_system="nfs", source="x")
    assert first != Mount(number=2, point="/a", file_system="nfs", source="x")
