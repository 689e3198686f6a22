"""What is in a folder: logs, curves, and everything that is none of them, named with the reason; hostile folders end nothing."""

import bz2
import gzip
import io
import lzma
import os
import socket
import sqlite3
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from runner.collect.log_folders import entries, packed_files
from runner.collect.log_folders.inputs import Inputs, find_inputs
from runner.collect.log_folders.packed_files import LogBytes
from runner.errors import UserError

LINE = b"step 1 loss 2.5\n"


def logs(inputs: Inputs, folder: Path) -> list[str]:
    """Return the paths of logs below a folder."""
    return [os.path.relpath(log.path, folder) for log in inputs.logs]


def reasons(inputs: Inputs, folder: Path) -> dict[str, str]:
    """Return why paths below a folder are left out."""
    return {os.path.relpath(one.path, folder): one.reason for one in inputs.left_out}


def test_logs_and_curves_are_found_and_the_rest_has_a_reason(tmp_path: Path) -> None:
    """Code, settings, checkpoints, archives, databases and binaries are no logs."""
    (tmp_path / "rank0.log").write_bytes(LINE)
    (tmp_path / "old.log.gz").write_bytes(gzip.compress(LINE))
    (tmp_path / "events.json").write_text(
        '{"apiVersion": "v1", "kind": "List", "items": [{"message": "Evicted"}]}'
    )
    (tmp_path / "pods.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2.5\n2,2.4\n3,2.3\n")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 2}\n')
    (tmp_path / "log.jsonl").write_text('{"step": 1, "loss": 2, "message": "x"}\n' * 3)
    (tmp_path / "structured.json").write_text('{"lvl": "E", "text": "x"}\n' * 3)
    (tmp_path / "tb").mkdir()
    (tmp_path / "tb" / "events.out.tfevents.1.n1").write_bytes(b"\0" * 40)
    (tmp_path / "train.py").write_text("raise RuntimeError('CUDA error')\n")
    (tmp_path / "config.json").write_text('{"hidden_size": 4096}')
    (tmp_path / "run.yaml").write_text("name: x\n")
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + bytes(50))
    (tmp_path / "core.123").write_bytes(b"\x7fELF" + bytes(100))
    (tmp_path / ".metadata").write_bytes(b"\x80\x04\x95" + b"torch" * 40)
    (tmp_path / "manifest.json").write_text('{"kind": "manifest", "files": []}')
    (tmp_path / "random").write_bytes(bytes(range(256)) * 50)
    (tmp_path / "empty").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.log", "x")
    sqlite3.connect(tmp_path / "store").execute("create table t (x)").connection.close()
    (tmp_path / "__pycache__").mkdir()
    inputs = find_inputs([str(tmp_path)])
    assert logs(inputs, tmp_path) == [
        "events.json",
        "log.jsonl",
        "old.log.gz",
        "pods.yaml",
        "rank0.log",
        "structured.json",
    ]
    assert [os.path.relpath(path, tmp_path) for path in inputs.curves] == [
        "metrics.csv",
        "metrics.jsonl",
        "tb",
    ]
    assert reasons(inputs, tmp_path) == {
        ".metadata": "a pickle, of a checkpoint as a rule",
        "__pycache__": "a folder of programs",
        "a.zip": "an archive: unpack it",
        "config.json": "settings",
        "core.123": "a program, a library or a core dump",
        "empty": "empty",
        "manifest.json": "settings",
        "model.pt": "an archive: unpack it",
        "random": "no text",
        "run.yaml": "settings",
        "store": "a database",
        "train.py": "code",
    }


def test_a_file_that_is_named_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    """A person knows what is in it."""
    script = tmp_path / "train.py"
    script.write_bytes(LINE)
    assert [log.path for log in find_inputs([str(script), str(script)]).logs] == [str(script)]


def test_special_files_and_loops_of_links_are_left_out(tmp_path: Path) -> None:
    """A socket, a pipe and a device are never opened; a link to what is there already is not followed again."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "rank0.log").write_bytes(LINE)
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "latest.log").symlink_to(tmp_path / "a" / "rank0.log")
    (tmp_path / "self").symlink_to("self")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    server = socket.socket(socket.AF_UNIX)
    cwd = Path.cwd()
    os.chdir(tmp_path)
    try:
        server.bind("socket")
    finally:
        os.chdir(cwd)
        server.close()
    inputs = find_inputs([str(tmp_path)])
    assert logs(inputs, tmp_path) == ["a/rank0.log"]
    assert reasons(inputs, tmp_path) == {
        "pipe": "a pipe",
        "socket": "a socket",
        "latest.log": "a link to what is read already",
        "self": "a link that leads nowhere (Too many levels of symbolic links)",
        "gone": "a link that leads nowhere (No such file or directory)",
        "zero": "a device",
        "a/up": "a link to what is read already",
    }


def test_a_folder_behind_a_link_is_read_once(tmp_path: Path) -> None:
    """Logs of pods are often links to where they are."""
    real = tmp_path / "real"
    real.mkdir()
    (real / "rank0.log").write_bytes(LINE)
    named = tmp_path / "named"
    named.mkdir()
    (named / "one").symlink_to(real)
    (named / "two").symlink_to(real)
    assert logs(find_inputs([str(named)]), named) == ["one/rank0.log"]


def test_numbers_in_names_are_ordered_by_value(tmp_path: Path) -> None:
    """The order of files is that of ranks, whatever order the file system has."""
    for rank in (10, 2, 0, 1):
        (tmp_path / f"rank{rank}.log").write_bytes(LINE)
    found = logs(find_inputs([str(tmp_path)]), tmp_path)
    assert found == ["rank0.log", "rank1.log", "rank2.log", "rank10.log"]


def test_too_many_files_or_folders_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond the limit counts as unread: no verdict may call it healthy."""
    monkeypatch.setattr(entries, "MAX_FILES", 3)
    monkeypatch.setattr(entries, "MAX_DEPTH", 2)
    for rank in range(5):
        (tmp_path / f"rank{rank}.log").write_bytes(LINE)
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    inputs = find_inputs([str(tmp_path)])
    assert logs(inputs, tmp_path) == ["rank0.log", "rank1.log", "rank2.log"]
    unread = {os.path.relpath(one.path, tmp_path) for one in inputs.left_out if one.is_unread}
    assert unread == {"rank3.log", "rank4.log", "a/b"}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_logs_are_unpacked_and_broken_ones_named(tmp_path: Path, pack: object) -> None:
    """What was read before the break counts; the error names the file."""
    assert callable(pack)
    log = tmp_path / "train.log.1"
    log.write_bytes(pack(LINE * 1000))
    assert b"".join(LogBytes(str(log)).blocks()) == LINE * 1000
    log.write_bytes(pack(os.urandom(9000))[:6000])
    with pytest.raises(UserError, match=r"train\.log\.1: cannot be read"):
        list(LogBytes(str(log)).blocks())


def test_an_archive_within_a_packed_file_is_named(tmp_path: Path) -> None:
    """Neither a packed tar nor a file that was packed twice is read as a log."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("x.log"), None)
    for name, data in (("tar", held.getvalue()), ("twice", gzip.compress(LINE))):
        log = tmp_path / name
        log.write_bytes(gzip.compress(data))
        with pytest.raises(UserError, match="it holds an archive: unpack it"):
            list(LogBytes(str(log)).blocks())


def test_a_packed_file_that_unpacks_to_too_much_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note says so."""
    monkeypatch.setattr(packed_files, "MIN_UNPACKED_BYTES", 1 << 20)
    log = tmp_path / "bomb"
    log.write_bytes(gzip.compress(bytes(64 << 20)))
    stream = LogBytes(str(log))
    assert sum(map(len, stream.blocks())) < 32 << 20
    assert stream.notes == ["it unpacks to more than 200 times its size: the rest was not read"]


def test_a_log_that_grows_is_read_as_far_as_it_was(tmp_path: Path) -> None:
    """Its writer may be faster than the reader: a note says how far."""
    log = tmp_path / "rank0.log"
    log.write_bytes(LINE * 100_000)
    stream, size = LogBytes(str(log)), 0
    with log.open("ab") as writer:
        for block in stream.blocks():
            size += len(block)
            writer.write(LINE * 1000)
            writer.flush()
    assert size == len(LINE) * 100_000
    assert stream.notes == [f"it grows: its first {size:,} bytes were read"]


def test_a_pipe_that_is_named_is_read(tmp_path: Path) -> None:
    """A shell makes one for the output of a command."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(LINE * 3))
    writer.start()
    (log,) = find_inputs([str(pipe)]).logs
    assert b"".join(LogBytes(log.path).blocks()) == LINE * 3
    writer.join()
