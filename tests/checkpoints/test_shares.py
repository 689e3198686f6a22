"""Shares of a checkpoint: how its files are shared out, what is damage and what is not, and what is read only once."""

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.checkpoints import FileSeal, Manifest, files_of_share
from runner.checkpoints.finite.file_scan import ScanResult
from runner.checkpoints.share_verification import ShareReader
from runner.checkpoints.verified_files import VerifiedFiles
from runner.errors import TemporaryError
from tests.checkpoints.samples import ATTEMPT, sealed_checkpoint
from tests.healthchecks.slow_folder import slow_folder

SIZES = {"a.bin": 30_000, "deep/er/b.bin": 20_000, "c.bin": 10_000, "empty": 0}


def manifest_of(sizes: dict[str, int]) -> Manifest:
    """Return a manifest of files with these sizes."""
    files = {name: FileSeal(size_bytes=size, sha256="") for name, size in sizes.items()}
    return Manifest(run="tiny", attempt=ATTEMPT, generation=0, step=5, files=files)


def reader_of(folder: Path, manifest: str, record: Path, **fields: Any) -> ShareReader:
    """Return a reader of the whole checkpoint that waits for nothing."""
    given_fields = {"share": 0, "shares": 1, "wait_seconds": 0.0, "confirm_seconds": 0.0}
    return ShareReader(
        folder=folder, manifest_sha256=manifest, record=record, **(given_fields | fields)
    )


def start_reader(folder: Path, manifest: str, record: Path, **seconds: float) -> Any:
    """Start the program as a child of this process."""
    limits = {"wait": 0.0, "confirm": 0.0} | seconds
    command = [sys.executable, "-P", "-m", "runner.checkpoints.share_verification", str(folder)]
    command += [f"--manifest={manifest}", "--share=0", "--shares=1", f"--record={record}"]
    command += [f"--{name}-seconds={value}" for name, value in limits.items()]
    command += [f"--parent={os.getpid()}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def result_of(program: Any) -> Any:
    """Return the last line of the program's output."""
    output, _ = program.communicate(timeout=60)
    return json.loads(output.splitlines()[-1])


@given(
    sizes=st.dictionaries(st.text("abc/", min_size=1), st.integers(0, 1 << 40), max_size=40),
    shares=st.integers(1, 9),
)
def test_each_file_is_in_one_share(sizes: dict[str, int], shares: int) -> None:
    """Whatever the order of the manifest; no share has more bytes than its part and the largest file."""
    manifest, reversed_manifest = (
        manifest_of(dict(items)) for items in (sizes.items(), reversed(sizes.items()))
    )
    found = [files_of_share(manifest, share, shares) for share in range(shares)]
    assert sorted(name for names in found for name in names) == sorted(sizes)
    assert found == [files_of_share(reversed_manifest, share, shares) for share in range(shares)]
    part = sum(sizes.values()) / shares
    assert max(sum(sizes[name] for name in names) for names in found) <= part + max(
        sizes.values(), default=0
    )


def test_ten_thousand_files_of_one_size_are_shared_evenly() -> None:
    """Each of sixteen shares has 625 files; a share that does not exist is refused."""
    manifest = manifest_of({f"{number:05d}": 20_000_000 for number in range(10_000)})
    assert {len(files_of_share(manifest, share, 16)) for share in range(16)} == {625}
    for share, shares in ((16, 16), (-1, 16), (0, 0)):
        with pytest.raises(ValueError, match=f"no share {share} of {shares}"):
            files_of_share(manifest, share, shares)


def flip(path: Path) -> None:
    """Change one bit, and keep size and time."""
    status, data = path.stat(), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_link(path: Path) -> None:
    """Move the file elsewhere and put a link in its place."""
    path.symlink_to(path.rename(path.with_name("elsewhere")))


def replace_by_socket(path: Path) -> None:
    """Put a socket in the file's place."""
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def replace_by_folder(path: Path) -> None:
    """Put a folder in the file's place."""
    path.unlink()
    path.mkdir()


def replace_by_pipe(path: Path) -> None:
    """Put a pipe without a writer in the file's place."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (flip, "sha256"),
        (Path.unlink, "No such file"),
        (lambda path: os.truncate(path, 19_999), "bytes 19999, the manifest says 20000"),
        (lambda path: os.truncate(path, 20_001), "bytes 20001, the manifest says 20000"),
        (replace_by_link, "symbolic links"),
        (replace_by_socket, "No such device"),
        (replace_by_folder, "not a regular file"),
        (replace_by_pipe, "not a regular file"),
    ],
)
def test_damage_is_found_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], None], fault: str
) -> None:
    """A file that does not agree makes its share damaged, and no other share."""
    folder, manifest = sealed_checkpoint(tmp_path, SIZES)
    # A socket's path has at most 107 characters.
    monkeypatch.chdir(folder)
    spoil(Path("deep/er/b.bin"))
    result = reader_of(folder, manifest, tmp_path / "record").run()
    assert (result["outcome"], result["damaged"]) == ("failed", True)
    assert f"{folder}/deep/er/b.bin is damaged" in result["reason"]
    assert fault in result["reason"]
    results = [
        reader_of(folder, manifest, tmp_path / "record", share=share, shares=3).run()
        for share in range(3)
    ]
    assert sorted(result["outcome"] for result in results) == ["done", "done", "failed"]


def test_what_a_disk_has_lost_is_damage_and_what_a_server_lost_may_pass(tmp_path: Path) -> None:
    """EIO of a file of the share is damage, if the manifest can be read; another error of it is not, nor EIO of the manifest."""
    with slow_folder(tmp_path / "mount") as mounted:
        folder, manifest = sealed_checkpoint(mounted.folder, SIZES)
        reader = partial(reader_of, folder, manifest, tmp_path / "record")
        mounted.set(error=errno.EIO, error_in="c.bin")
        result = reader().run()
        assert (result["damaged"], "c.bin is damaged: Input/output" in result["reason"]) == (
            True,
            True,
        )
        mounted.set(error=errno.ESTALE, error_in="c.bin")
        with pytest.raises(TemporaryError, match=r"c\.bin cannot be read on this node: Stale"):
            reader().run()
        mounted.set(error=errno.EIO)
        with pytest.raises(TemporaryError, match=r"manifest\.json cannot be read on this node"):
            reader().run()
        mounted.set()
        assert reader().run()["outcome"] == "done"


def test_a_checkpoint_that_cannot_be_judged_is_not_damaged(tmp_path: Path) -> None:
    """Another manifest, none, or no folder: not verified, with the reason, whatever its files are like."""
    folder, manifest = sealed_checkpoint(tmp_path, SIZES)
    (folder / "a.bin").unlink()
    with pytest.raises(TemporaryError, match=f"not {'0' * 64}: it was sealed again"):
        reader_of(folder, "0" * 64, tmp_path / "record").run()
    (folder / "manifest.json").unlink()
    with pytest.raises(TemporaryError, match=r"manifest\.json cannot be read on this node"):
        reader_of(folder, manifest, tmp_path / "record").run()
    result = result_of(start_reader(tmp_path / "gone", manifest, tmp_path / "record"))
    assert (result["outcome"], result["damaged"]) == ("failed", False)
    assert "No such file" in result["reason"]


class BetweenLooks:
    """Stands for the standard error of a reader, which writes there between its two looks; then `change` is made."""

    def __init__(self, change: Callable[[], object]) -> None:
        self._change = change
        self.text = ""

    def write(self, text: str) -> None:
        """Take the text and make the change."""
        self.text += text
        self._change()


@pytest.mark.parametrize("is_deleted", [False, True])
def test_damage_is_looked_at_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """A file that is back at the second look was not damaged; nor is a checkpoint that is deleted meanwhile."""
    folder, manifest = sealed_checkpoint(tmp_path, SIZES)
    away = (folder / "a.bin").rename(tmp_path / "a.bin")
    removed = folder.with_name(f".removed-{folder.name}")
    change = (
        partial(folder.rename, removed) if is_deleted else partial(away.rename, folder / away.name)
    )
    errors = BetweenLooks(change)
    monkeypatch.setattr(sys, "stderr", errors)
    reader = reader_of(folder, manifest, tmp_path / "record")
    if is_deleted:
        with pytest.raises(TemporaryError, match=r"manifest\.json cannot be read"):
            reader.run()
    else:
        assert reader.run()["outcome"] == "done"
    assert "a.bin is damaged: No such file or directory; it is read again" in errors.text


def test_a_manifest_may_come_late(tmp_path: Path) -> None:
    """A folder that becomes visible while the reader waits is verified."""
    folder, manifest = sealed_checkpoint(tmp_path, SIZES)
    late = folder.rename(tmp_path / "late")
    program = start_reader(folder, manifest, tmp_path / "record", wait=60.0)
    with pytest.raises(subprocess.TimeoutExpired):
        program.wait(1.0)
    late.rename(folder)
    result = result_of(program)
    assert (result["outcome"], result["files"], result["size_bytes"]) == ("done", 4, 60_000)


def test_it_reads_from_storage_and_leaves_the_cache_as_it_is(tmp_path: Path) -> None:
    """Ranks that restart find what the cache held; on a file system without direct reads it is dropped before and after."""
    folder, manifest = sealed_checkpoint(tmp_path, {"large": 20_000_000})
    file = os.open(folder / "large", os.O_RDONLY)
    try:
        assert is_cached(file)
        before = bytes_from_storage()
        assert reader_of(folder, manifest, tmp_path / "record").run()["outcome"] == "done"
        assert bytes_from_storage() - before >= 20_000_000
        assert is_cached(file) is can_be_read_directly(folder / "large")
    finally:
        os.close(file)


def can_be_read_directly(path: Path) -> bool:
    """Whether the file system reads past the page cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


def is_cached(file: int) -> bool:
    """Whether one of the pages at the ends and in the middle of 20 MB lies in the page cache."""
    for offset in (0, 10_000_000, 19_990_000):
        try:
            os.preadv(file, [bytearray(100)], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            continue
        return True
    return False


def bytes_from_storage() -> int:
    """Return how many bytes this process had the kernel read from disks."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


# ---- the record of verified files -----------------------------------------------------------------------------------


def test_a_verified_file_is_not_read_again_until_it_changes(tmp_path: Path) -> None:
    """One replaced by another of equal size and time is a changed one."""
    folder, manifest = sealed_checkpoint(tmp_path, SIZES)
    record = tmp_path / "record"
    assert reader_of(folder, manifest, record).run()["outcome"] == "done"
    before = record.read_bytes()
    assert reader_of(folder, manifest, record).run()["outcome"] == "done"
    assert record.read_bytes() == before
    flip(folder / "c.bin")
    result = reader_of(folder, manifest, record).run()
    assert "c.bin is damaged: sha256" in result["reason"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-7],
        lambda data: data + b'["b",1,2',
        lambda data: b"",
        lambda data: b"\xff\xfe" * 100 + b"\n",
        lambda data: data + b"[]\n",
        lambda data: data + b'["b",1,2,3,"4",0,"",""]\n',
        lambda data: data + b'["b",1,2,3,4,true,"",""]\n',
        lambda data: data + b"[" * 100_000 + b"\n",
        lambda data: data.replace(b'"v":2', b'"v":1'),
        lambda data: data.replace(b'"share":0', b'"share":1'),
    ],
)
def test_a_torn_or_foreign_record_is_begun_again(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    """What was cut off is left out; anything else that is not a record of this share counts for nothing."""
    path, file = tmp_path / "record", tmp_path / "a"
    file.write_bytes(b"a")
    scanned = ScanResult(num_tensors=3, uncovered="why", not_finite="what")
    record = VerifiedFiles(path, {"share": 0})
    record.add("a", file.stat(), scanned)
    record.close()
    data = path.read_bytes()
    spoilt = spoil(data)
    path.write_bytes(spoilt)
    record = VerifiedFiles(path, {"share": 0})
    is_kept = spoilt == data + b'["b",1,2'
    assert record.find("a", file.stat()) == (scanned if is_kept else None)
    assert record.find("b", file.stat()) is None
    record.add("a", file.stat(), scanned)
    record.close()
    record = VerifiedFiles(path, {"share": 0})
    assert record.find("a", file.stat()) == scanned
    record.close()
