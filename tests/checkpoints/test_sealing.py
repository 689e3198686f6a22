"""Sealing: a checkpoint counts by its manifest alone, is trusted by its bytes alone, and an old generation never seals."""

import fcntl
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.checkpoints import FileSeal, Manifest, generation_file, seal, verification, verify
from runner.errors import CheckpointRefused, Fenced, PermanentError, TemporaryError
from runner.facts.ids import AttemptId

ATTEMPT = AttemptId(run=3, configuration=1, restart=0)
SHARDS = ("__0_0.distcp", "__1_0.distcp", "deep/er/__2_0.distcp", ".metadata")


def write(
    root: Path, step: int, *, attempt: AttemptId = ATTEMPT, generation: int = 0
) -> tuple[Path, Manifest]:
    """Write the files of a checkpoint and its manifest's content, unsealed."""
    folder = checkpoints.checkpoint_folder(root, attempt, step)
    values = random.Random(f"{attempt}/{step}")
    for name in SHARDS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(values.randbytes(values.randrange(50, 400)))
    manifest = Manifest(
        run="tiny",
        attempt=attempt,
        generation=generation,
        step=step,
        files={name: checkpoints.flush_and_hash(folder / name) for name in SHARDS},
        data={"fingerprint": "sha256:00", "position": step},
        metrics=[{"step": step, "loss": 2.5e-7, "grad_norm": float("nan"), "text": "ü"}],
        settings={"optimizer": {"lr": 1e-3, "betas": [0.9, 0.95]}},
    )
    return folder, manifest


def sealed(root: Path, step: int, *, attempt: AttemptId = ATTEMPT, generation: int = 0) -> Path:
    """Write a checkpoint and seal it."""
    folder, manifest = write(root, step, attempt=attempt, generation=generation)
    seal(folder, manifest, generation=generation)
    return folder


def newest_intact(root: Path) -> Path:
    """Take the newest checkpoint that verifies, as a resuming attempt does."""
    for folder in checkpoints.list_sealed(root):
        try:
            verify(folder)
        except CheckpointRefused:
            continue
        return folder
    raise AssertionError("no checkpoint verifies")


def test_names() -> None:
    """A folder's name carries attempt and step both ways; what looks alike is none."""
    folder = checkpoints.checkpoint_folder("/ckpt", "12.45.2", 800)
    assert folder == Path("/ckpt/12.45.2-00000800")
    assert checkpoints.read_folder_name(folder.name) == (AttemptId.parse("12.45.2"), 800)
    large = checkpoints.checkpoint_folder("/ckpt", AttemptId(1, 0, 0), 10**9)
    assert checkpoints.read_folder_name(large.name) == (AttemptId(1, 0, 0), 10**9)
    for name in (
        "12.45.2-800",
        "12.45-00000800",
        "12.45.2-00000800.tmp",
        "1.02.3-00000800",
        "GENERATION",
    ):
        assert checkpoints.read_folder_name(name) is None
    for attempt, step in (("12.45", 1), ("12.45.2", -1)):
        with pytest.raises(ValueError, match=r"attempt id|negative"):
            checkpoints.checkpoint_folder("/ckpt", attempt, step)


def rewrite_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and give it the right hash again, by another way than the code under test."""

    def compact(body: dict[str, Any]) -> bytes:
        return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()

    body = json.loads((folder / "manifest.json").read_bytes())
    del body["sha256"]
    change(body)
    body["sha256"] = hashlib.sha256(compact(body)).hexdigest()
    (folder / "manifest.json").write_bytes(compact(body))


def test_round_trip(tmp_path: Path) -> None:
    """What is sealed verifies, and comes back as it was, NaN as the string the wire uses."""
    folder, manifest = write(tmp_path, 5)
    assert seal(folder, manifest, generation=0) == folder / "manifest.json"
    found = verify(folder)
    assert (found.run, found.attempt, found.generation, found.step) == ("tiny", ATTEMPT, 0, 5)
    assert (found.files, found.data, found.settings) == (
        manifest.files,
        manifest.data,
        manifest.settings,
    )
    assert found.metrics == ({"step": 5, "loss": 2.5e-7, "grad_norm": "NaN", "text": "ü"},)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        ["manifest.json", "deep", ".metadata", "__0_0.distcp", "__1_0.distcp"]
    )


def test_manifest_form(tmp_path: Path) -> None:
    """The manifest is as in the contract: its fields, and its own hash over all others as compact sorted JSON."""
    folder = sealed(tmp_path, 5)
    body = json.loads((folder / "manifest.json").read_bytes())
    own_hash = body.pop("sha256")
    assert sorted(body) == sorted(
        [
            "v",
            "kind",
            "run",
            "attempt",
            "generation",
            "step",
            "files",
            "data",
            "metrics",
            "settings",
        ]
    )
    assert (body["v"], body["kind"], body["attempt"]) == (1, "checkpoint_manifest", "3.1.0")
    assert body["files"][".metadata"].keys() == {"bytes", "sha256"}
    compact = json.dumps(body, separators=(",", ":"), sort_keys=True).encode()
    assert own_hash == hashlib.sha256(compact).hexdigest()


def test_later_fields_are_ignored(tmp_path: Path) -> None:
    """A manifest of a later release, with a field more, still verifies."""
    folder = sealed(tmp_path, 5)
    rewrite_manifest(folder, lambda body: body.update(signed_by="a later release"))
    assert verify(folder).step == 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body: body.update(v=2), "version 2"),
        (lambda body: body.update(kind="step"), "kind 'step'"),
        (lambda body: body.update(step=-5), "-5 is not a count"),
        (lambda body: body.update(step=True), "True is not a count"),
        (lambda body: body.update(attempt="3.1"), "'3.1' is no attempt id"),
        (lambda body: body.pop("files"), "files"),
        (lambda body: body["files"].update(x=3), "manifest.json is damaged"),
        (lambda body: body["files"].update(x={"bytes": 1}), "sha256"),
    ],
)
def test_manifests_of_another_form(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    """A manifest whose hash is right but whose content is wrong is refused, without a crash."""
    folder = sealed(tmp_path, 5)
    rewrite_manifest(folder, change)
    with pytest.raises(CheckpointRefused, match=re.escape(words)):
        verify(folder)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 10**5, b"9" * 5000]
)
def test_manifests_that_are_none(tmp_path: Path, content: bytes) -> None:
    """Any other object in the manifest's place is refused."""
    folder = sealed(tmp_path, 5)
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(CheckpointRefused, match=r"manifest\.json is damaged"):
        verify(folder)


def test_sealed_once(tmp_path: Path) -> None:
    """A sealed checkpoint is never sealed again, and stays as it was."""
    folder, manifest = write(tmp_path, 5)
    seal(folder, manifest, generation=0)
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(CheckpointRefused, match="is sealed already"):
        seal(folder, manifest, generation=0)
    assert (folder / "manifest.json").read_bytes() == before


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "__0_0.distcp").unlink(), "__0_0.distcp cannot be read: No such"),
        (
            lambda folder: (folder / "__0_0.distcp").write_bytes(b""),
            "__0_0.distcp is damaged: bytes 0",
        ),
        (lambda folder: shutil.rmtree(folder), "cannot be read: No such file"),
    ],
)
def test_sealing_what_is_not_there(
    tmp_path: Path, spoil: Callable[[Path], Any], words: str
) -> None:
    """A missing or short file is found before the checkpoint counts."""
    folder, manifest = write(tmp_path, 5)
    spoil(folder)
    with pytest.raises(CheckpointRefused, match=words):
        seal(folder, manifest, generation=0)
    assert checkpoints.list_sealed(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["../out", "/etc/passwd", "a/../b", "", ".", "a//b", "manifest.json", "a\nb"]
)
def test_names_that_lead_outside(tmp_path: Path, name: str) -> None:
    """A manifest that names a file outside its folder is neither sealed nor believed."""
    folder, manifest = write(tmp_path, 5)
    files = {name: FileSeal(size_bytes=0, sha256="")}
    strange = Manifest(run="", attempt=ATTEMPT, generation=0, step=5, files=files)
    with pytest.raises(ValueError, match="cannot name a file"):
        seal(folder, strange, generation=0)
    seal(folder, manifest, generation=0)
    rewrite_manifest(folder, lambda body: body["files"].update({name: {"bytes": 0, "sha256": ""}}))
    with pytest.raises(CheckpointRefused, match="cannot name a file"):
        verify(folder)


def test_manifest_of_another_folder(tmp_path: Path) -> None:
    """A checkpoint copied over another's name is refused: its step would be a lie."""
    folder = sealed(tmp_path, 5)
    other = checkpoints.checkpoint_folder(tmp_path, ATTEMPT, 6)
    shutil.copytree(folder, other)
    with pytest.raises(CheckpointRefused, match=r"holds step 5 .* renamed or copied"):
        verify(other)
    _, manifest = write(tmp_path, 8)
    with pytest.raises(ValueError, match="does not match its manifest"):
        seal(other, manifest, generation=0)


def test_order(tmp_path: Path) -> None:
    """The newest comes first: by step, then by attempt, both as numbers; unsealed folders and others are left out."""
    for attempt, step in (("3.9.0", 20), ("3.10.0", 20), ("3.2.0", 100), ("3.10.1", 3)):
        sealed(tmp_path, step, attempt=AttemptId.parse(attempt))
    write(tmp_path, 999)
    (tmp_path / "notes").mkdir()
    (tmp_path / "3.1.0-00009999").write_text("a file")
    assert [folder.name for folder in checkpoints.list_sealed(tmp_path)] == [
        "3.2.0-00000100",
        "3.10.0-00000020",
        "3.9.0-00000020",
        "3.10.1-00000003",
    ]
    assert checkpoints.list_sealed(tmp_path / "nowhere") == []


def test_extra_files_are_ignored(tmp_path: Path) -> None:
    """An unlisted file does not cost a good checkpoint."""
    folder = sealed(tmp_path, 5)
    (folder / ".nfs0001").write_bytes(b"left by a file system")
    assert verify(folder).step == 5


def test_only_regular_files_count(tmp_path: Path) -> None:
    """A link or a pipe in a shard's place is refused, and sealing does not block on the pipe."""
    folder = sealed(tmp_path, 5)
    shard = folder / "__0_0.distcp"
    shard.rename(tmp_path / "elsewhere")
    shard.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointRefused, match=r"__0_0\.distcp cannot be read"):
        verify(folder)
    shard.unlink()
    os.mkfifo(shard)
    with pytest.raises(
        CheckpointRefused, match=r"__0_0\.distcp cannot be read: not a regular file"
    ):
        verify(folder)


def mutate(folder: Path, values: random.Random) -> str:
    """Damage one checkpoint in one way; return how."""
    files = [folder / name for name in (*SHARDS, "manifest.json")]
    # The manifest gets as many of the mutations as all shards together.
    victim = values.choice([*files, *[files[-1]] * (len(SHARDS) - 1)])
    content = bytearray(victim.read_bytes())
    how = values.choice(("flip", "truncate", "delete", "swap", "append", "zero"))
    if how == "delete":
        victim.unlink()
    elif how == "swap":
        other = values.choice([file for file in files if file != victim])
        theirs = other.read_bytes()
        other.write_bytes(content)
        victim.write_bytes(theirs)
    else:
        place = values.randrange(len(content))
        if how == "flip":
            content[place] ^= 1 << values.randrange(8)
        elif how == "truncate":
            del content[place:]
        elif how == "append":
            content += values.choice(
                (b"\n", b" ", b"\0", values.randbytes(values.randrange(1, 50)))
            )
        else:
            # A block that was never written to disk reads as zeros; random content is never all zeros.
            content[place:] = bytes(len(content) - place)
            if bytes(content) == victim.read_bytes():
                content[-1] ^= 1
        victim.write_bytes(content)
    return f"{how} {victim.name}"


@pytest.mark.costly
def test_thousand_mutations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the newest checkpoint is damaged, the one before it is taken, every time."""
    good, older = sealed(tmp_path, 20), sealed(tmp_path, 10)
    newest = sealed(tmp_path, 30)
    whole = {name: (newest / name).read_bytes() for name in (*SHARDS, "manifest.json")}
    assert newest_intact(tmp_path) == newest
    values = random.Random(20261120)
    seen: set[str] = set()
    for number in range(1000):
        # Every tenth is hashed by several threads, as large checkpoints are.
        monkeypatch.setattr(verification, "THREADED_BYTES", 0 if number % 10 == 0 else 2**20)
        how = mutate(newest, values)
        seen.add(how)
        assert newest_intact(tmp_path) == good, f"mutation {number}: {how}"
        for name, content in whole.items():
            (newest / name).write_bytes(content)
    assert newest_intact(tmp_path) == newest
    assert len(seen) == 6 * (len(SHARDS) + 1), "each kind of damage met each file"
    mutate(newest, values)
    mutate(good, values)
    assert newest_intact(tmp_path) == older


def test_generations_only_rise(tmp_path: Path) -> None:
    """The generation never falls, is 0 before it is first set, and its folder is made when it is missing."""
    root = tmp_path / "a" / "b"
    assert checkpoints.current_generation(root) == 0
    assert checkpoints.raise_generation(root, 7) == 7
    assert checkpoints.raise_generation(root, 3) == 7
    assert checkpoints.current_generation(root) == 7
    assert int((root / "GENERATION").read_text()) == 7
    with pytest.raises(ValueError, match="generation -1 is out of range"):
        checkpoints.raise_generation(root, -1)


def test_old_generation_is_fenced(tmp_path: Path) -> None:
    """A writer of an older generation than the folder's cannot seal; one of the same or a newer generation can."""
    folder, manifest = write(tmp_path, 5, generation=3)
    checkpoints.raise_generation(tmp_path, 4)
    with pytest.raises(Fenced, match="generation 3, but generation 4 has begun"):
        seal(folder, manifest, generation=3)
    assert checkpoints.list_sealed(tmp_path) == []
    sealed(tmp_path, 6, generation=4)
    sealed(tmp_path, 7, generation=5)
    assert len(checkpoints.list_sealed(tmp_path)) == 2


def test_damaged_generation_refuses(tmp_path: Path) -> None:
    """A GENERATION file that holds no number stops sealing rather than letting every generation pass."""
    folder, manifest = write(tmp_path, 5)
    (tmp_path / "GENERATION").write_text("seven")
    for act in (
        lambda: seal(folder, manifest, generation=0),
        lambda: checkpoints.raise_generation(tmp_path, 1),
        lambda: checkpoints.current_generation(tmp_path),
    ):
        with pytest.raises(PermanentError, match="GENERATION holds b'seven', not a number"):
            act()


SEALERS = """
import sys, pathlib
sys.path[:0] = [{tests!r}]
from runner.errors import Fenced
from test_sealing import ATTEMPT, write
from runner import checkpoints as sealing
root, first = pathlib.Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
for step in range(first, first + 1000):
    folder, manifest = write(root, step, generation=1)
    try:
        sealing.seal(folder, manifest, generation=1)
    except Fenced:
        print("fenced", flush=True)
        break
"""


@pytest.mark.costly
def test_race_of_sealing_and_raising(tmp_path: Path) -> None:
    """Once a new generation is raised, no process of the old one seals any more, at any point of its work."""
    program = SEALERS.format(tests=str(Path(__file__).parent))
    for attempt in range(5):
        root = tmp_path / str(attempt)
        checkpoints.raise_generation(root, 1)
        old = [
            subprocess.Popen(
                [sys.executable, "-c", program, str(root), str(first)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for first in (1000, 2000, 3000)
        ]
        for process in old:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        while len(checkpoints.list_sealed(root)) < 3 + attempt:
            time.sleep(0.001)
        checkpoints.raise_generation(root, 2)
        at_once = checkpoints.list_sealed(root)
        assert [process.communicate(timeout=30)[0] for process in old] == ["fenced\n"] * 3
        assert checkpoints.list_sealed(root) == at_once
        assert all(verify(folder).generation == 1 for folder in at_once)


def test_raising_the_generation_blocks_during_a_sealing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Raising the generation blocks on the lock, and names the holder when it does not come free."""
    monkeypatch.setattr(generation_file, "LOCK_SECONDS", 0.05)
    folder, manifest = write(tmp_path, 5)
    refusals = []

    def in_the_middle(name: str) -> None:
        if name == "manifest flushed":
            with pytest.raises(TemporaryError, match="GENERATION has been locked") as caught:
                checkpoints.raise_generation(tmp_path, 1)
            refusals.append(caught.value)

    seal(folder, manifest, generation=0, boundary=in_the_middle)
    assert len(refusals) == 1
    assert checkpoints.raise_generation(tmp_path, 1) == 1


def boundaries(root: Path) -> list[str]:
    """List what a sealing goes through, with repeated names numbered."""
    names: list[str] = []
    folder, manifest = write(root, 1)
    seal(folder, manifest, generation=0, boundary=names.append)
    return names


KILLED = """
import os, pathlib, signal, sys
sys.path[:0] = [{tests!r}]
from test_sealing import write
from runner import checkpoints as sealing
root, last = pathlib.Path(sys.argv[1]), int(sys.argv[2])
folder, manifest = write(root, 5)
passed = 0
def die(name):
    global passed
    if passed == last:
        os.kill(os.getpid(), signal.SIGKILL)
    passed += 1
sealing.seal(folder, manifest, generation=0, boundary=die)
"""


@pytest.mark.costly
def test_killed_at_every_boundary(tmp_path: Path) -> None:
    """A process killed -9 anywhere in a sealing leaves a checkpoint that does not count, or one that verifies."""
    names = boundaries(tmp_path / "whole")
    assert len(names) >= 9
    program = KILLED.format(tests=str(Path(__file__).parent))
    counted = []
    for number, name in enumerate(names):
        root = tmp_path / str(number)
        sealed(root, 4)
        done = subprocess.run([sys.executable, "-c", program, str(root), str(number)], timeout=30)
        assert done.returncode == -signal.SIGKILL, name
        found = checkpoints.list_sealed(root)
        assert newest_intact(root) == found[0], f"killed at {name!r}"
        counted.append(len(found) == 2)
        # Nothing is locked or in the way: the next attempt seals the same step, and raising works at once.
        checkpoints.raise_generation(root, 1)
        sealed(root, 5, attempt=ATTEMPT.restarted(), generation=1)
        assert newest_intact(root).name == "3.1.1-00000005"
    # It counts from the rename on, and from nowhere else.
    assert counted == [number >= names.index("manifest renamed") for number in range(len(names))]


@pytest.mark.costly
def test_killed_by_the_clock(tmp_path: Path) -> None:
    """Kills at random moments, between any two system calls, leave nothing in between either."""
    program = SEALERS.format(tests=str(Path(__file__).parent))
    values = random.Random(7)
    for number in range(8):
        root = tmp_path / str(number)
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(root), "1"], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(values.uniform(0, 0.2))
        process.kill()
        process.communicate(timeout=30)
        for folder in checkpoints.list_sealed(root):
            verify(folder)


def test_removal(tmp_path: Path) -> None:
    """A removed checkpoint is gone, its neighbours stay; what is no checkpoint is not touched."""
    folder, other = sealed(tmp_path, 5), sealed(tmp_path, 6)
    checkpoints.remove(folder)
    checkpoints.remove(folder)
    assert not folder.exists()
    assert checkpoints.list_sealed(tmp_path) == [other]
    (tmp_path / "precious").mkdir()
    (tmp_path / "3.1.0-00000009").symlink_to(other)
    for path in (tmp_path / "precious", tmp_path / "3.1.0-00000009", tmp_path):
        with pytest.raises(ValueError, match="is not a checkpoint folder"):
            checkpoints.remove(path)
    assert verify(other).step == 6


def test_removal_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removal that dies midway leaves a folder that does not count, and can be finished later."""
    folder = sealed(tmp_path, 5)

    def cut(path: Path) -> None:
        raise OSError("the machine stopped here")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        with pytest.raises(OSError, match="stopped here"):
            checkpoints.remove(folder)
    assert checkpoints.list_sealed(tmp_path) == []
    checkpoints.remove(folder)
    assert not folder.exists()


def test_standard_library_alone() -> None:
    """Sealing imports in an isolated interpreter that has no third-party package."""
    program = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p] + [sys.argv[1]]; "
        "import runner.checkpoints; "
        "bad = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names) - {'runner', '__main__'}; "
        "sys.exit(str(bad) if bad else 0)"
    )
    root = str(Path(checkpoints.__file__).parents[2])
    subprocess.run([sys.executable, "-S", "-c", program, root], check=True, timeout=30)


def test_an_generation_in_force_is_not_locked_again(tmp_path: Path) -> None:
    """Nodes of a gang that all raise the same generation only read it, even while a sealing holds the lock."""
    checkpoints.raise_generation(tmp_path, 5)
    with (tmp_path / checkpoints.GENERATION).open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert checkpoints.raise_generation(tmp_path, 5) == 5
        assert checkpoints.raise_generation(tmp_path, 4) == 5


def test_who_may_only_read_the_folder_cannot_hold_its_lock(tmp_path: Path) -> None:
    """The lock is on a file that is open to those who may write there, also one that an earlier release made."""
    lock = tmp_path / checkpoints.GENERATION
    for folder_mode, expected in ((0o755, 0o600), (0o775, 0o660), (0o777, 0o666)):
        tmp_path.chmod(folder_mode)
        lock.unlink(missing_ok=True)
        checkpoints.raise_generation(tmp_path, folder_mode)
        assert lock.stat().st_mode & 0o777 == expected
        lock.chmod(0o644)
        checkpoints.verify(sealed(tmp_path, folder_mode, generation=folder_mode))
        assert lock.stat().st_mode & 0o777 == expected
