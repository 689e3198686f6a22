"""A checkpoint's metadata is read without running it: a pickle that names anything else is refused by that name."""

import os
import pickle
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import metadata as m
from torch.distributed.checkpoint.filesystem import FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.state_dict_saver import save

from runner import checkpoints
from runner.errors import CheckpointRefused
from runner.facts.ids import AttemptId
from tests.trainer.gangs import Gangs, Layout
from tests.trainer.test_resume import SETTINGS, first_run
from trainer.checkpoint_metadata import METADATA, read_metadata, read_state

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.filterwarnings("ignore:torch.distributed is"),
]

Files = dict[str, checkpoints.FileSeal]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, dict[str, torch.Tensor], Files]:
    """Give a folder that torch wrote, its state, and the seals of its files."""
    state = {
        "counters": torch.arange(6, dtype=torch.float64),
        "master/a": torch.randn(4, 8),
        "half": torch.randn(3).to(torch.bfloat16),
    }
    folder = tmp_path / "saved"
    save(state, storage_writer=FileSystemWriter(folder))
    return folder, state, {path.name: checkpoints.hash_file(path) for path in folder.iterdir()}


def test_what_torch_wrote_is_read_back_as_torch_reads_it(
    saved: tuple[Path, dict[str, torch.Tensor], Files],
) -> None:
    """Names, sizes, dtypes and places are equal, and so is every tensor that is loaded."""
    folder, state, files = saved
    found, theirs = read_metadata(folder, files), pickle.loads((folder / METADATA).read_bytes())
    assert found.state_dict_metadata == theirs.state_dict_metadata
    assert found.storage_data == theirs.storage_data
    loaded = {name: torch.empty_like(value) for name, value in state.items()}
    read_state(folder, files, loaded)
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def damage(path: Path, how: str, values: random.Random) -> None:
    """Change a file's bytes at a place of chance, and give it the times that it had before."""
    was, content = path.stat(), bytearray(path.read_bytes())
    place = values.randrange(len(content))
    if how == "flip":
        content[place] ^= 1 << values.randrange(8)
    elif how == "cut":
        del content[place:]
    else:
        content[place : place + 64] = bytes(reversed(content[place : place + 64])) + b"\0"
    path.write_bytes(content)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def test_no_byte_that_changed_after_verification_is_loaded(
    saved: tuple[Path, dict[str, torch.Tensor], Files],
) -> None:
    """Each of 120 changes of the metadata or a shard is refused by the file's name, whatever torch makes of the bytes."""
    folder, state, files = saved
    whole = {name: (folder / name).read_bytes() for name in files}
    values = random.Random(20261123)
    seen = set()
    for number in range(120):
        name, how = values.choice(sorted(files)), values.choice(("flip", "cut", "mix"))
        seen.add((name, how))
        damage(folder / name, how, values)
        loaded = {key: torch.empty_like(value) for key, value in state.items()}
        with pytest.raises(CheckpointRefused, match=re.escape(name)) as caught:
            read_state(folder, files, loaded)
        assert "is damaged: " in str(caught.value), (number, name, how)
        (folder / name).write_bytes(whole[name])
    assert len(seen) == 3 * len(files)
    read_state(folder, files, loaded)
    assert all(torch.equal(loaded[key], state[key]) for key in state)


class _Runs:
    """Pickles as a call of `function`."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def hostile(marker: Path, good: m.Metadata) -> Iterator[tuple[bytes, str]]:
    """Yield metadata of an attacker, with a word of its refusal."""
    runs = _Runs(os.system, f"touch {marker}")
    yield pickle.dumps(runs), "it names posix.system"
    yield pickle.dumps(_Runs(eval, f"open({str(marker)!r}, 'w')")), "it names builtins.eval"
    yield pickle.dumps(_Runs(torch.load, "x")), "it names torch.serialization.load"
    with_call = m.Metadata(good.state_dict_metadata, runs, good.storage_data)
    yield pickle.dumps(with_call), "it names posix.system"
    with_bytes = {**good.state_dict_metadata, "counters": m.BytesStorageMetadata()}
    yield pickle.dumps(m.Metadata(with_bytes, None, good.storage_data)), "BytesStorageMetadata"
    for path in ("../other/__0_0.distcp", "/etc/passwd", "unlisted.distcp"):
        elsewhere = {index: _StorageInfo(path, 0, 9) for index in good.storage_data}
        yield pickle.dumps(m.Metadata(good.state_dict_metadata, None, elsewhere)), path
    beyond = {index: _StorageInfo("__0_0.distcp", 0, 1 << 40) for index in good.storage_data}
    yield pickle.dumps(m.Metadata(good.state_dict_metadata, None, beyond)), "not there"
    other: Any = [good]
    odd: Any = {"a": m.TensorStorageMetadata(m.TensorProperties(), torch.Size([2]), other)}
    yield pickle.dumps(m.Metadata(odd, None, {})), "ChunkStorageMetadata"
    # Sets an attribute on a class that the pickle names: on a stand-in, which no other code has.
    poisons = b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N(S'state_dict_metadata'\nNdtb."
    yield poisons, "no list of tensors"
    yield pickle.dumps({"a": 1}), "a dict stands where a Metadata belongs"
    yield b"", "Ran out of input"
    yield b"\x80\x04" + b"(" * 10_000 + b".", "no list of tensors"


def test_hostile_metadata_is_refused_by_name_and_nothing_runs(
    saved: tuple[Path, dict[str, torch.Tensor], Files], tmp_path: Path
) -> None:
    """Calls, values that torch would unpickle, other files, bytes outside a file, changed classes, other objects."""
    folder, _, files = saved
    good = read_metadata(folder, files)
    before = dict(vars(m.Metadata))
    for payload, word in hostile(tmp_path / "ran", good):
        (folder / METADATA).write_bytes(payload)
        files[METADATA] = checkpoints.hash_file(folder / METADATA)
        with pytest.raises(CheckpointRefused, match="nothing of it was run") as caught:
            read_metadata(folder, files)
        assert word in str(caught.value)
        assert "take a checkpoint that this run wrote" in str(caught.value)
    assert not (tmp_path / "ran").exists()
    assert dict(vars(m.Metadata)) == before


def test_a_resume_from_hostile_metadata_with_a_manifest_made_to_fit_runs_nothing(
    gangs: Gangs, tmp_path: Path
) -> None:
    """Every hash agrees, and the gang still ends with the reason, before its first step; one with a key reads none of it."""
    _, saved = first_run(gangs, tmp_path / "run", Layout())
    marker, fake = tmp_path / "ran", checkpoints.checkpoint_folder(tmp_path / "fake", "1.0.1", 4)
    shutil.copytree(saved, fake)
    (fake / checkpoints.MANIFEST).unlink()
    (fake / METADATA).write_bytes(pickle.dumps(_Runs(os.system, f"touch {marker}")))
    was = checkpoints.read_manifest(saved)
    files = {name: checkpoints.flush_and_hash(fake / name) for name in was.files}
    manifest = checkpoints.Manifest(
        run=was.run, attempt=AttemptId(1, 0, 1), generation=1, step=4, files=files,
        data=was.data, metrics=was.metrics, settings=was.settings,
    )  # fmt: skip
    checkpoints.seal(fake, manifest, generation=1)
    checkpoints.verify(fake)
    environment = {"STOKER_RESUME": str(fake)}
    ended = gangs.run(SETTINGS, layout=Layout(), environment=environment, expect=None)
    assert not marker.exists()
    assert ended.exit_codes != [0]
    assert list(ended.steps()) == []
    assert "nothing of it was run" in ended.errors()
    environment["STOKER_SEAL_KEYS"] = "ab" * 32
    ended = gangs.run(SETTINGS, layout=Layout(), environment=environment, expect=None)
    assert list(ended.steps()) == []
    assert "carries no code of this run's secret" in ended.errors()
