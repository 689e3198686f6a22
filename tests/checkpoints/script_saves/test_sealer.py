"""The process beside rank 0: it seals what is whole and left alone, and nothing of a rank that died."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import checkpoints
from runner.checkpoints.formats.pattern import list_saves
from runner.checkpoints.script_saves.sealer import REST_SECONDS, Sealer, _RankGone, report_to
from runner.checkpoints.script_saves.sources import PatternSource
from runner.errors import Fenced
from tests.checkpoints.samples import ATTEMPT
from tests.checkpoints.script_saves.test_saved_files import FILES, saved


class Script:
    """A script that saves, and the sealer beside it."""

    def __init__(self, folder: Path, pattern: str = "out/ckpt.pt", last_file: str = "") -> None:
        self.root, self.out = folder / "checkpoints", folder / "out"
        self.root.mkdir()
        self.out.mkdir()
        self.rank, theirs = socket.socketpair()
        self.channel, self.to_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.now, self.saved = 0.0, str(folder / pattern)
        self.sealer = Sealer(
            source=PatternSource(self.saved, named_last_file=last_file),
            root=self.root,
            rank=theirs,
            run="tiny",
            attempt=ATTEMPT,
            generation=0,
            report=report_to(self.to_channel),
        )

    def save(self, step: int) -> None:
        """Overwrite the one file, as nanoGPT does."""
        (self.out / "ckpt.pt").write_bytes(saved({"iter_num": step}))

    def save_folder(self, step: int, *names: str) -> None:
        """Write files of a folder, as Trainer does."""
        folder = self.out / f"checkpoint-{step}"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_bytes(FILES[name])

    def look(self, seconds: float = REST_SECONDS) -> list[int]:
        """Poll after a while; return the steps that are sealed, and verify them."""
        self.now += seconds
        self.sealer.poll(self.now)
        found = [checkpoints.verify(folder) for folder in checkpoints.list_sealed(self.root)]
        return sorted(manifest.step for manifest in found)

    def reports(self) -> list[dict[str, object]]:
        """Return what came over the channel."""
        found = []
        self.channel.setblocking(False)
        while True:
            try:
                found.append(json.loads(self.channel.recv(65536)))
            except BlockingIOError:
                return found

    def close(self) -> None:
        """Close the sockets."""
        for one in (self.rank, self.sealer.rank, self.channel, self.to_channel):
            one.close()


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    """Give a script with one file that it overwrites."""
    script = Script(tmp_path)
    yield script
    script.close()


def test_each_save_is_sealed_once_its_end_is_written(script: Script) -> None:
    """With its step and its bytes, and reported as a rank does; what it replaces on disk stays sealed."""
    whole = saved({"iter_num": 40})
    for size in (10, 100, len(whole) - 1):
        (script.out / "ckpt.pt").write_bytes(whole[:size])
        assert script.look(REST_SECONDS / 10) == []
    (script.out / "ckpt.pt").write_bytes(whole)
    assert script.look(REST_SECONDS / 10) == [40]
    script.save(80)
    assert script.look(REST_SECONDS / 10) == [40, 80]
    copy = checkpoints.list_sealed(script.root)[0] / "ckpt.pt"
    assert copy.read_bytes() == (script.out / "ckpt.pt").read_bytes()
    assert copy.stat().st_mtime_ns == (script.out / "ckpt.pt").stat().st_mtime_ns
    assert [(r["kind"], r["step"]) for r in script.reports()] == [
        ("checkpoint", s) for s in (40, 80)
    ]
    assert sorted(path.name for path in script.root.iterdir()) == [
        "3.1.0-00000040",
        "3.1.0-00000080",
        "GENERATION",
    ]


def test_a_torn_save_is_not_sealed_and_the_next_one_is(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line says so."""
    whole = saved({"iter_num": 40})
    (script.out / "ckpt.pt").write_bytes(whole[: len(whole) // 2])
    script.look()
    assert script.look() == script.look() == []
    assert capsys.readouterr().err.count("is not sealed") == 1
    script.save(80)
    assert script.look() == [80]


def test_a_save_without_a_step_is_not_sealed(
    script: Script, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the way out."""
    (script.out / "ckpt.pt").write_bytes(saved({"weights": 1}))
    script.look()
    assert script.look() == []
    assert "--step-name" in capsys.readouterr().err


def test_a_save_that_is_overwritten_while_it_is_copied_is_sealed_later(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mixture of two saves counts."""
    script.save(40)
    original, saves = Sealer._check_rank, [80]

    def overwrite(sealer: Sealer) -> None:
        original(sealer)
        if saves:
            script.save(saves.pop())

    monkeypatch.setattr(Sealer, "_check_rank", overwrite)
    assert script.look() == []
    assert script.look() == [80]


def test_a_folder_counts_when_it_was_left_alone_for_a_second(tmp_path: Path) -> None:
    """Only its writer knows how many files it is to have."""
    script = Script(tmp_path, "out/checkpoint-*")
    script.save_folder(60, "model.safetensors")
    assert script.look(0.0) == []
    assert script.look(REST_SECONDS / 2) == []
    script.save_folder(60, "trainer_state.json")
    assert script.look(REST_SECONDS / 2) == []
    assert script.look() == [60]
    script.close()


def test_a_folder_counts_once_its_last_file_is_there(tmp_path: Path) -> None:
    """However long the files before it were left alone."""
    script = Script(tmp_path, "out/checkpoint-*", last_file="trainer_state.json")
    script.save_folder(60, "model.safetensors")
    script.look()
    assert script.look(100.0) == []
    script.save_folder(60, "trainer_state.json")
    script.look()
    assert script.look() == [60]
    (folder,) = checkpoints.list_sealed(script.root)
    files = sorted(checkpoints.read_manifest(folder).files)
    assert files == ["model.safetensors", "trainer_state.json"]
    script.close()


def test_nothing_is_sealed_after_the_death_of_the_rank(script: Script) -> None:
    """A save that its death may have torn stays as it is."""
    script.save(40)
    script.rank.close()
    with pytest.raises(_RankGone):
        script.look()
    assert checkpoints.list_sealed(script.root) == []


def test_nothing_is_sealed_once_a_newer_attempt_has_begun(script: Script) -> None:
    """The generation of the folder has risen."""
    checkpoints.raise_generation(script.root, 7)
    script.save(40)
    with pytest.raises(Fenced):
        script.look()
    assert checkpoints.list_sealed(script.root) == []


def test_the_program_seals_the_last_save_at_once_and_leaves_alone_what_was_there(
    tmp_path: Path,
) -> None:
    """What was there before the script is not its own; after an orderly end nothing is waited for."""
    script = Script(tmp_path, "out/step-*.pt")
    (script.out / "step-10.pt").write_bytes(saved({}))
    (script.root / ".script-save-3.0.9").mkdir()
    before = {str(save.path): save.signature for save in list_saves(script.saved)}
    program = [sys.executable, "-m", "runner.checkpoints.script_saves.sealer", script.saved]
    channel, reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours, theirs = socket.socketpair()
    environment = {
        "STOKER_CHECKPOINTS": str(script.root),
        "STOKER_RUN": "tiny",
        "STOKER_ATTEMPT": str(ATTEMPT),
        "STOKER_GENERATION": "0",
        "STOKER_CHANNEL": str(reports.fileno()),
    }
    process = subprocess.Popen(
        program,
        stdin=theirs.fileno(),
        pass_fds=(reports.fileno(),),
        env={**os.environ, **environment},
    )
    theirs.close()
    ours.sendall(json.dumps(before).encode() + b"\n")
    (script.out / "step-20.pt").write_bytes(saved({}))
    ours.sendall(b".")
    assert process.wait(30) == 0
    assert [checkpoints.verify(f).step for f in checkpoints.list_sealed(script.root)] == [20]
    assert json.loads(channel.recv(65536))["step"] == 20
    assert not list(script.root.glob(".script-save-*"))
    for one in (ours, channel, reports):
        one.close()
    script.close()
