"""Adapters on folders that the libraries themselves wrote: which checkpoints are whole, of which step, and what is none."""

import os
import pickle
import shutil
import socket
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from runner.checkpoints.formats.adapter import Adapter
from runner.checkpoints.formats.folder_scan import FolderScan, read_saves
from runner.checkpoints.formats.saves import Incomplete, Save, read_save
from runner.checkpoints.formats.table import ADAPTERS, BY_NAME, adapters_for
from runner.checkpoints.script_saves.adoption import seal_copy
from runner.checkpoints.script_saves.resume import resume_arguments
from runner.checkpoints.script_saves.sources import unknown_remark
from runner.facts.specs.run import RunSpec
from tests.checkpoints.formats.resuming_programs import resume_all
from tests.checkpoints.formats.saving_programs import write_all
from tests.suite.share import current

pytestmark = [pytest.mark.trainer, pytest.mark.timeout(300)]

NUM_DAMAGES = 500
# Folder -> its adapter, and its checkpoints with their steps.
TWO = {"checkpoint-2": 2, "checkpoint-4": 4}
TAGS = {"global_step2": 2, "global_step4": 4}
CKPTS = {"epoch=0-step=2.ckpt": 2, "epoch=0-step=4.ckpt": 4, "last.ckpt": 4}
ITERATIONS = {"iter_0000010": 10, "iter_0000020": 20}
WRITTEN = {
    "trainer": ("hugging_face", TWO),
    "weights": ("hugging_face", TWO),
    "shards": ("hugging_face", TWO),
    "lightning": ("lightning", CKPTS),
    "lightning-sharded": ("lightning", CKPTS),
    **{f"zero{stage}": ("deepspeed", TAGS) for stage in range(4)},
    "titan": ("torchtitan", {"step-10": 10, "step-20": 20}),
    "dcp": ("torch_distributed", {"weights_10": 10, "weights_20": 20}),
    "megatron": ("megatron", ITERATIONS),
    "megatron-dist": ("megatron", ITERATIONS),
    # By `record_megatron.py`.
    "megatron_core-0.16.1": ("megatron", {"iter_0000010": 10}),
    # By `record_torchtitan.py`. It has pruned, and at its end saved the model alone, which it cannot resume from.
    "torchtitan-0.3.0": ("torchtitan", {"step-20": 20, "step-30": 30}),
    "torchtitan-0.3.0-async": ("torchtitan", {"step-20": 20, "step-30": 30}),
}
# Of these, the checkpoint of step 2 is resumed from by its library.
RESUMED = {
    "trainer": "checkpoint-2",
    "shards": "checkpoint-2",
    "lightning": "epoch=0-step=2.ckpt",
    "lightning-sharded": "epoch=0-step=2.ckpt",
    "zero1": "global_step2",
    "zero3": "global_step2",
}
# Settings for generating text, which no resume reads.
NOT_NEEDED = ("generation_config.json",)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give one folder for each kind of checkpoints."""
    folder = tmp_path_factory.mktemp("written")
    write_all(folder)
    shutil.copytree(Path(__file__).parent / "recorded", folder, dirs_exist_ok=True)
    return folder


def scanned(folder: Path) -> list[tuple[Save, Adapter]]:
    """Return what is found below a folder."""
    return list(read_saves(FolderScan(folder).scan().found))


def whole(folder: Path) -> dict[str, int]:
    """Return the checkpoints that count as whole, and their steps."""
    found = {}
    for save, adapter in scanned(folder):
        try:
            found[save.path.name] = adapter.judge(save, reads_all=True)
        except Incomplete:
            continue
    return found


def problem(path: Path, adapter: Adapter) -> str:
    """Return why a save is not whole; "" if it counts."""
    try:
        adapter.judge(read_save(path), reads_all=True)
    except Incomplete as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_library_wrote_is_whole_and_of_its_step(written: Path, name: str) -> None:
    """Each is found by its form, and nothing else there is taken for a checkpoint."""
    adapter, steps = WRITTEN[name]
    assert {each.name for _, each in scanned(written / name)} == {adapter}
    assert whole(written / name) == steps
    assert FolderScan(written / name).scan().unknown == []


def test_names_of_formats_are_those_of_run_yaml() -> None:
    """The loader accepts what the table has."""
    known = RunSpec.__annotations__["checkpoint_format"].__args__[0].__args__
    assert sorted(known) == sorted(["", "none", *BY_NAME])
    assert adapters_for("") == ADAPTERS
    assert adapters_for("none") == ()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_checkpoint_without_any_one_of_its_files_is_not_whole(
    written: Path, tmp_path: Path, name: str
) -> None:
    """The reason names a file."""
    for save, adapter in scanned(written / name):
        for missing in save.names if save.is_folder else ():
            if missing in NOT_NEEDED:
                continue
            copy = tmp_path / save.path.name
            shutil.copytree(save.path, copy)
            (copy / missing).unlink()
            assert problem(copy, adapter), f"{save.path} counts without {missing}"
            shutil.rmtree(copy)


def test_damaged_checkpoints_are_never_taken_for_whole(written: Path, tmp_path: Path) -> None:
    """Cut off anywhere, or some files away: each of 500 is refused; repeated with the seed that is printed."""
    dice = current().dice("damaged checkpoints")
    saves = [pair for name in WRITTEN for pair in scanned(written / name)]
    for number in range(NUM_DAMAGES):
        seed = dice.getrandbits(32)
        save, adapter = saves[number % len(saves)]
        copy = tmp_path / save.path.name
        (shutil.copytree if save.is_folder else shutil.copy)(save.path, copy)
        what = damage(copy, Random(seed))
        reason = problem(copy, adapter)
        assert reason, f"{save.path} counts as whole: {what}, seed {seed}"
        (shutil.rmtree if save.is_folder else os.unlink)(copy)


def damage(path: Path, dice: Random) -> str:
    """Cut off one file at any byte, or remove up to three; return what was done."""
    files = sorted(each for each in path.rglob("*") if each.is_file()) or [path]
    needed = [each for each in files if each.name not in NOT_NEEDED]
    if path.is_dir() and dice.random() < 0.3:
        gone = dice.sample(needed, dice.randint(1, min(3, len(needed))))
        for each in gone:
            each.unlink()
        return f"without {[each.name for each in gone]}"
    victim = dice.choice(files)
    content = victim.read_bytes()
    # A text without the line feed at its end is whole.
    cut = dice.randrange(len(content.rstrip(b"\n") if victim.suffix == ".json" else content))
    victim.write_bytes(content[:cut])
    return f"{victim.name} cut off at {cut} of {len(content)}"


@pytest.mark.parametrize("name", WRITTEN)
def test_an_incomplete_newest_is_passed_over_whatever_the_marker_says(
    written: Path, tmp_path: Path, name: str
) -> None:
    """`latest` and the trackers still name it."""
    _, steps = WRITTEN[name]
    folder = tmp_path / name
    shutil.copytree(written / name, folder)
    newest = max(steps.values())
    for each in (folder / save for save, step in steps.items() if step == newest):
        largest = max(
            [f for f in each.rglob("*") if f.is_file()] or [each], key=lambda f: f.stat().st_size
        )
        os.truncate(largest, largest.stat().st_size // 2)
    assert set(whole(folder).values()) == set(steps.values()) - {newest}


def test_a_last_save_of_torchtitan_is_not_whole(written: Path, tmp_path: Path) -> None:
    """By its default it is the model alone, or it is an export: torchtitan resumes from neither. A seed checkpoint is whole."""
    last = written / "torchtitan-0.3.0/step-35"
    assert "has no state of an optimizer" in problem(last, BY_NAME["torchtitan"])
    export = written / "torchtitan-0.3.0-async/step-35"
    assert "an export of the model for Hugging Face" in problem(export, BY_NAME["torchtitan"])
    shutil.copytree(last, tmp_path / "step-0")
    assert whole(tmp_path) == {"step-0": 0}


def test_a_record_that_changed_on_disk_is_found_by_its_checksum(
    written: Path, tmp_path: Path
) -> None:
    """Sizes and directory are right, one byte is not."""
    copy = tmp_path / "checkpoint-4"
    shutil.copytree(written / "trainer/checkpoint-4", copy)
    optimizer = copy / "optimizer.pt"
    with zipfile.ZipFile(optimizer) as archive:
        record = max(archive.infolist(), key=lambda info: info.file_size)
    content = bytearray(optimizer.read_bytes())
    content[record.header_offset + 2000] ^= 0xFF
    optimizer.write_bytes(content)
    assert "optimizer.pt: its record" in problem(copy, BY_NAME["hugging_face"])


def test_a_hostile_pickle_is_never_executed(written: Path, tmp_path: Path) -> None:
    """In `.metadata`, and in a file of torch.save: the checkpoint is refused, and nothing ran."""
    ran = tmp_path / "ran"
    hostile = pickle.dumps(_Hostile(ran))
    folder = tmp_path / "weights_20"
    shutil.copytree(written / "dcp/weights_20", folder)
    (folder / ".metadata").write_bytes(hostile)
    assert ".metadata" in problem(folder, BY_NAME["torch_distributed"])
    ckpt = tmp_path / "epoch=0-step=9.ckpt"
    with zipfile.ZipFile(ckpt, "w") as archive:
        archive.writestr("archive/data.pkl", hostile)
    assert "no pytorch-lightning_version" in problem(ckpt, BY_NAME["lightning"])
    assert not ran.exists()


class _Hostile:
    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._marker),)


def test_metadata_that_names_files_elsewhere_is_refused(tmp_path: Path, written: Path) -> None:
    """A path that leaves the folder is no file of the checkpoint."""
    folder = tmp_path / "weights_20"
    shutil.copytree(written / "dcp/weights_20", folder)
    content = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(content.replace(b"__0_0.distcp", b"../../../etc"))
    assert "names no bytes of a file in it" in problem(folder, BY_NAME["torch_distributed"])


def test_entries_that_are_no_files_are_named_or_passed_over(written: Path, tmp_path: Path) -> None:
    """A socket, a pipe, loops of links, hidden folders, odd names, a checkpoint that is being renamed, an unknown file."""
    out = tmp_path / "out"
    shutil.copytree(written / "trainer", out)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(out / "checkpoint-4/model.sock"))
    os.mkfifo(out / "pipe.pt")
    (out / "checkpoint-6").symlink_to(out)
    (out / "loop").symlink_to(out / "loop")
    (out / "inner").mkdir()
    (out / "inner/again").symlink_to(out)
    (out / ".checkpoint-8.part").mkdir()
    (out / "tmp-checkpoint-8").mkdir()
    (out / "checkpoint-8").mkdir()
    (out / "checkpoint-1\n0").mkdir()
    os.mkdir(os.fsencode(out) + b"/checkpoint-\xff")
    (out / "best.pt").write_bytes(b"weights")
    assert whole(out) == {"checkpoint-2": 2}
    scan = FolderScan(out).scan()
    found = {each.path.name: each.adapter for each in scan.found}
    assert set(found) == {"checkpoint-2", "checkpoint-4", "checkpoint-8"}
    assert problem(out / "checkpoint-4", found["checkpoint-4"]) == (
        "'model.sock' is neither a file nor a folder"
    )
    assert problem(out / "checkpoint-8", found["checkpoint-8"]) == "'checkpoint-8' has no file yet"
    assert scan.unknown == ["best.pt"]
    remark = unknown_remark(out, scan)
    assert "'best.pt'" in remark
    assert "checkpoint_format" in remark


def test_a_checkpoint_of_another_user_is_named_with_the_reason(
    written: Path, tmp_path: Path
) -> None:
    """What cannot be read is not whole, and the rest counts."""
    out = tmp_path / "out"
    shutil.copytree(written / "trainer", out)
    (out / "checkpoint-4/optimizer.pt").chmod(0)
    shutil.copytree(written / "trainer/checkpoint-2", out / "checkpoint-6")
    (out / "checkpoint-6").chmod(0)
    for parent in (out, *out.parents[:4]):
        if parent.stat().st_uid == os.geteuid() and parent != Path("/tmp"):
            parent.chmod(0o755)
    with another_user():
        (safe,) = [s for s, _ in scanned(out) if s.path.name == "checkpoint-6"]
        assert "Permission denied" in safe.irregular
        with pytest.raises(PermissionError):
            BY_NAME["hugging_face"].judge(read_save(out / "checkpoint-4"), reads_all=True)
    (out / "checkpoint-6").chmod(0o755)


@contextmanager
def another_user() -> Iterator[None]:
    """Be a user who may not read everything, for a moment, also where the tests run as root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_another_trainers_folders_are_reported_when_a_format_is_named(written: Path) -> None:
    """With `checkpoint_format: megatron` a Trainer's folders are not understood, and are named."""
    scan = FolderScan(written / "trainer", adapters_for("megatron")).scan()
    assert scan.found == []
    assert "checkpoint-2/model.safetensors" in scan.unknown


def test_ten_thousand_entries_are_looked_through(written: Path, tmp_path: Path) -> None:
    """Among them the two that count; a second look reads no folder again."""
    out = tmp_path / "out"
    shutil.copytree(written / "trainer", out)
    for number in range(5000):
        (out / f"events.{number}").touch()
        (out / f"sample-{number}").mkdir()
        os.utime(out / f"sample-{number}", (1, 1))
    scan = FolderScan(out)
    assert len(scan.scan().found) == 2
    listed = dict(scan._listed)
    assert len(listed) >= 5000
    assert str(out) not in listed, "it changed a moment ago, and may have again"
    scan.scan()
    assert all(scan._listed[name] is entries for name, entries in listed.items())


def test_trainers_resume_from_sealed_copies(written: Path, tmp_path: Path) -> None:
    """With the arguments that the adapters give: each library makes the two steps that are left, or says which step it loaded."""
    copies = {}
    for name, save in RESUMED.items():
        folder = seal_copy(written / name / save, tmp_path / name, "tiny")
        copies[name] = resume_arguments(folder, written / name)[1]
    assert resume_all(tmp_path, copies) == dict.fromkeys(RESUMED, 2)
