"""What is found below a folder: copied and sealed once it is whole, of this attempt alone, and resumed from as its trainer does."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import checkpoints
from runner.checkpoints.script_saves.folder_sealer import begin_of_attempt
from runner.checkpoints.script_saves.resume import resume_arguments
from runner.checkpoints.script_saves.sealer import REST_SECONDS, Sealer
from runner.checkpoints.script_saves.sources import FolderSource
from runner.errors import Fenced, PermanentError
from tests.checkpoints.formats.made_saves import lightning_file, megatron_folder, titan_folder
from tests.checkpoints.samples import ATTEMPT


class Trainer:
    """A folder in which a trainer saves, and the sealer that watches it."""

    def __init__(self, folder: Path, out: str = "out") -> None:
        self.root, self.out = folder / "checkpoints", folder / out
        self.out.mkdir(parents=True)
        checkpoints.raise_generation(self.root, 1)
        self.rank, theirs = socket.socketpair()
        self.now, self.logged = 0.0, list[str]()
        self.sealer = Sealer(
            source=FolderSource(self.out, since=begin_of_attempt(self.root)),
            root=self.root,
            rank=theirs,
            run="tiny",
            attempt=ATTEMPT,
            generation=1,
            log=self.logged.append,
        )

    def look(self, seconds: float = 0.0, *, is_last: bool = False) -> list[int]:
        """Poll after a while; return the steps that are sealed, and verify them."""
        self.now += seconds
        self.sealer.poll(self.now, is_last=is_last)
        return sorted(checkpoints.verify(each).step for each in checkpoints.list_sealed(self.root))

    def close(self) -> None:
        """Close the sockets."""
        self.rank.close()
        self.sealer.rank.close()


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    """Give a trainer that has saved nothing yet; what it saves is newer than the attempt's begin."""
    made = Trainer(tmp_path)
    time.sleep(0.02)
    yield made
    made.close()


def test_a_save_is_sealed_after_a_rest_and_keeps_its_name_where_the_trainer_needs_it(
    trainer: Trainer,
) -> None:
    """With the marker that the trainer reads; the trainer's folder stays as it was."""
    megatron_folder(trainer.out / "iter_0000020", 20)
    before = sorted(trainer.out.rglob("*"))
    assert trainer.look() == []
    assert trainer.look(REST_SECONDS) == [20]
    (folder,) = checkpoints.list_sealed(trainer.root)
    files = set(checkpoints.read_manifest(folder, ()).files)
    rank = "iter_0000020/mp_rank_00/model_optim_rng.pt"
    assert files == {rank, "latest_checkpointed_iteration.txt"}
    assert (folder / "latest_checkpointed_iteration.txt").read_text() == "20"
    assert sorted(trainer.out.rglob("*")) == before
    expected = ("--load", str(folder), "--ckpt-step", "20")
    assert resume_arguments(folder, trainer.out) == expected


def test_a_save_of_an_earlier_attempt_is_not_sealed(tmp_path: Path) -> None:
    """It may lie on a way that the run went back on; written again, it counts."""
    made = Trainer(tmp_path)
    lightning_file(made.out / "epoch=0-step=20.ckpt", 20)
    os.utime(made.out / "epoch=0-step=20.ckpt", (1, 1))
    made.look()
    assert made.look(60.0, is_last=True) == []
    time.sleep(0.02)
    lightning_file(made.out / "epoch=0-step=20.ckpt", 20)
    made.look()
    assert made.look(REST_SECONDS) == [20]
    made.close()


def test_later_steps_that_make_torchtitan_prune_its_new_saves_are_named(tmp_path: Path) -> None:
    """After a run went back to step 10, those of 20 and 30 outrank what it saves: torchtitan keeps the highest steps."""
    made = Trainer(tmp_path)
    for step in (10, 20, 30):
        titan_folder(made.out / f"step-{step}")
        for path in made.out.rglob("*"):
            os.utime(path, (1, 1))
    lightning_file(made.out / "epoch=0-step=40.ckpt", 40)
    made.look()
    assert made.logged == []
    source = FolderSource(made.out, since=begin_of_attempt(made.root), resumed_step=10)
    made.sealer.source = source
    made.look()
    made.look(60.0)
    (text,) = made.logged
    assert "step-20, step-30 are of later steps than 10" in text
    assert "--checkpoint.keep_latest_k 0" in text
    made.close()


def test_a_torn_save_is_named_although_the_next_attempt_has_begun(trainer: Trainer) -> None:
    """The last look seals nothing any more; which of the saves before are not whole is reported all the same."""
    lightning_file(trainer.out / "epoch=0-step=20.ckpt", 20)
    torn = trainer.out / "epoch=0-step=30.ckpt"
    lightning_file(torn, 30)
    os.truncate(torn, torn.stat().st_size // 2)
    time.sleep(0.02)
    checkpoints.raise_generation(trainer.root, 2)
    time.sleep(0.02)
    of_the_next = trainer.out / "epoch=0-step=25.ckpt"
    of_the_next.write_bytes(torn.read_bytes())
    trainer.rank.sendall(b"{}\n.")
    with pytest.raises(Fenced):
        trainer.sealer.serve()
    assert checkpoints.list_sealed(trainer.root) == []
    assert [text for text in trainer.logged if f"{torn} is not sealed: " in text]
    assert not [text for text in trainer.logged if str(of_the_next) in text]


def test_a_folder_that_is_written_again_waits_for_its_last_file(trainer: Trainer) -> None:
    """Sizes are right while half of the files are of the new save: what is written last decides."""
    titan_folder(trainer.out / "step-20")
    trainer.look()
    assert trainer.look(REST_SECONDS) == [20]
    time.sleep(0.02)
    shard = trainer.out / "step-20/__0_0.distcp"
    shard.write_bytes(shard.read_bytes())
    (sealed,) = checkpoints.list_sealed(trainer.root)
    checkpoints.remove(sealed)
    trainer.look()
    assert trainer.look(REST_SECONDS) == []
    trainer.look(60.0)
    assert [text for text in trainer.logged if ".metadata, which is written last" in text]
    time.sleep(0.02)
    titan_folder(trainer.out / "step-20")
    trainer.look()
    assert trainer.look(REST_SECONDS) == [20]


def test_a_torn_save_is_reported_once_and_only_when_it_has_rested(trainer: Trainer) -> None:
    """A pause between two files of a large checkpoint is worth no message."""
    path = trainer.out / "epoch=0-step=20.ckpt"
    lightning_file(path, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    trainer.look()
    assert trainer.look(REST_SECONDS) == []
    assert trainer.logged == []
    trainer.look(10.0)
    trainer.look(10.0)
    (text,) = trainer.logged
    assert f"{path} is not sealed: {path.name}: cut off" in text
    path.write_bytes(whole)
    trainer.look()
    assert trainer.look(REST_SECONDS) == [20]


def test_last_ckpt_of_a_step_that_is_sealed_is_passed_over_in_silence(trainer: Trainer) -> None:
    """Lightning writes it beside each save."""
    lightning_file(trainer.out / "epoch=0-step=20.ckpt", 20)
    lightning_file(trainer.out / "last.ckpt", 20)
    trainer.look()
    assert trainer.look(REST_SECONDS) == [20]
    trainer.look(60.0)
    assert trainer.logged == []
    (folder,) = checkpoints.list_sealed(trainer.root)
    path = folder / "epoch=0-step=20.ckpt"
    assert resume_arguments(folder, trainer.out) == ("--ckpt_path", str(path))


def test_a_trainer_may_save_in_the_folder_of_the_copies(tmp_path: Path) -> None:
    """Where run.yaml names one folder: no copy is taken for a save, and nothing of Stoker's is reported as unknown."""
    made = Trainer(tmp_path, out="checkpoints")
    time.sleep(0.02)
    lightning_file(made.root / "epoch=0-step=20.ckpt", 20)
    made.look()
    assert made.look(REST_SECONDS) == [20]
    lightning_file(made.root / "epoch=0-step=30.ckpt", 30)
    made.look(60.0)
    assert made.look(60.0) == [20, 30]
    assert made.logged == []
    assert len(checkpoints.list_sealed(made.root)) == 2
    made.close()


def test_what_is_not_understood_is_reported_once(trainer: Trainer) -> None:
    """With the way out."""
    (trainer.out / "weights.pt").write_bytes(b"weights")
    trainer.look()
    trainer.look(60.0)
    (text,) = trainer.logged
    assert "'weights.pt'" in text
    assert "checkpoint_format" in text


def test_a_trainer_that_loads_from_its_own_folder_alone_gets_its_checkpoint_back(
    trainer: Trainer,
) -> None:
    """torchtitan: what it has deleted is put back; another checkpoint in its place is refused with the way out."""
    original = trainer.out / "step-20"
    titan_folder(original)
    contents = {path.name: path.read_bytes() for path in original.iterdir()}
    trainer.look()
    assert trainer.look(REST_SECONDS) == [20]
    (folder,) = checkpoints.list_sealed(trainer.root)
    for path in original.iterdir():
        path.unlink()
    original.rmdir()
    expected = ("--checkpoint.load_step", "20")
    assert resume_arguments(folder, trainer.out) == expected
    assert not original.exists()
    assert resume_arguments(folder, trainer.out, may_restore=True) == expected
    assert {path.name: path.read_bytes() for path in original.iterdir()} == contents
    assert [path.name for path in trainer.out.iterdir()] == ["step-20"]
    os.truncate(original / "__0_0.distcp", 5)
    with pytest.raises(PermanentError, match=r"move .*step-20 away"):
        resume_arguments(folder, trainer.out)


def test_a_checkpoint_of_no_known_trainer_is_given_as_resume(tmp_path: Path) -> None:
    """One that a script sealed itself, and one whose manifest names a path outside."""
    for number, settings in enumerate([{}, {"save": {"format": "torchtitan", "name": "../x"}}]):
        folder = checkpoints.checkpoint_folder(tmp_path, ATTEMPT, number)
        folder.mkdir()
        (folder / "state").write_bytes(b"state")
        files = {"state": checkpoints.flush_and_hash(folder / "state")}
        manifest = checkpoints.Manifest(
            run="tiny", attempt=ATTEMPT, generation=0, step=number, files=files, settings=settings
        )
        checkpoints.seal(folder, manifest, generation=0)
        assert resume_arguments(folder, tmp_path) == ("--resume", str(folder))


def test_the_program_looks_once_more_when_the_ranks_have_ended(tmp_path: Path) -> None:
    """What they wrote before counts at once, if it is whole; each line of its output is an object."""
    root, out = tmp_path / "sealed", tmp_path / "out"
    out.mkdir()
    checkpoints.raise_generation(root, 1)
    time.sleep(0.02)
    ours, theirs = socket.socketpair()
    program = [sys.executable, "-m", "runner.checkpoints.script_saves.folder_sealer"]
    where = [f"--saves={out}", f"--checkpoints={root}", "--run=tiny", f"--attempt={ATTEMPT}"]
    process = subprocess.Popen(
        [*program, *where, "--generation=1"], stdin=theirs.fileno(), stdout=subprocess.PIPE
    )
    theirs.close()
    ours.sendall(b"{}\n")
    lightning_file(out / "epoch=0-step=20.ckpt", 20)
    (out / "epoch=0-step=30.ckpt").write_bytes(b"PK\x03\x04 torn")
    ours.sendall(b".")
    lines = [json.loads(line) for line in process.communicate(timeout=30)[0].splitlines()]
    ours.close()
    assert process.returncode == 0
    (folder,) = checkpoints.list_sealed(root)
    assert checkpoints.verify(folder).step == 20
    assert {"kind": "checkpoint", "step": 20, "path": str(folder)} in lines
    assert [line["text"] for line in lines if line["kind"] == "log"]
