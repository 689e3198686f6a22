"""Put back: before a script starts, the checkpoint that the supervisor chose takes the place of what the script saved last."""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from runner.checkpoints.formats.pattern import is_pattern, list_saves, torn
from runner.checkpoints.verification import check_equal, hash_file, read_manifest, refuse_on_error
from runner.errors import PermanentError, TemporaryError

# For the rank that puts back; as long as run.yaml's start_seconds are by default. Chosen, not measured.
WAIT_SECONDS = 600.0
POLL_SECONDS = 0.05
COPY_BYTES = 1 << 20
# What a save that had to give way is called from then on.
REPLACED = ".replaced"


def prepare(saved: str, *, resume: str, is_first: bool) -> bool:
    """Have the script find what it is to go on from; return whether there is anything.

    `resume`: the checkpoint's folder, "" to start from nothing. `is_first`: of the ranks of this node it does the work, and the
    others wait for it. Raises CheckpointRefused for a checkpoint that is not what was sealed, TemporaryError, PermanentError.
    """
    if is_pattern(saved):
        # The script gets the folder as an argument.
        return bool(resume)
    path = Path(saved)
    if path.is_dir():
        raise PermanentError(
            f"{saved} is a folder: give the pattern of the folders that the script makes, such as {path.parent}/checkpoint-*"
        )
    if not resume:
        return _keep_whole(path, is_first=is_first)
    sealed = _sealed_file(Path(resume), path.name)
    if is_first:
        _put(sealed, path)
    else:
        _wait_for(sealed, path)
    return True


def _keep_whole(path: Path, *, is_first: bool) -> bool:
    """Return whether the script's own save is whole; one that is torn gives way, as nothing was sealed before it."""
    found = list_saves(str(path))
    if not found:
        return False
    reason = torn(found[0])
    if reason and is_first:
        sys.stderr.write(f"script_saves: {path} is torn ({reason}); it is now {path}{REPLACED}\n")
        path.replace(f"{path}{REPLACED}")
    return not reason


def _sealed_file(folder: Path, name: str) -> Path:
    files = read_manifest(folder).files
    if list(files) != [name]:
        raise PermanentError(
            f"{folder} holds {', '.join(files)[:200]} and not just {name}; "
            f"it was sealed for another command, whose run needs a folder of its own"
        )
    return folder / name


def _put(sealed: Path, path: Path) -> None:
    """Copy a sealed file to its place, unless it is there; what it replaces stays beside it. Raises CheckpointRefused."""
    if _is_there(sealed, path):
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with refuse_on_error(sealed), sealed.open("rb") as reader, part.open("wb") as writer:
        while piece := reader.read(COPY_BYTES):
            writer.write(piece)
        writer.flush()
        os.fsync(writer.fileno())
        status = os.fstat(reader.fileno())
    try:
        expected = read_manifest(sealed.parent).files[sealed.name]
        check_equal(sealed, "sha256", actual=hash_file(part).sha256, expected=expected.sha256)
        os.utime(part, ns=(status.st_atime_ns, status.st_mtime_ns))
        if path.exists():
            path.replace(f"{path}{REPLACED}")
            what = f"what was there is now {path}{REPLACED}"
            sys.stderr.write(f"script_saves: {path} is put back from {sealed.parent}; {what}\n")
        part.replace(path)
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


def _wait_for(sealed: Path, path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not _is_there(sealed, path):
        if time.monotonic() > deadline:
            raise TemporaryError(
                f"{path} is not yet the checkpoint {sealed.parent} after {WAIT_SECONDS:g} s; "
                "rank 0 of this node was to put it back"
            )
        time.sleep(POLL_SECONDS)


def _is_there(sealed: Path, path: Path) -> bool:
    """Whether the file in place is the sealed one, by size and time: a copy has the time of what it was made of."""
    try:
        here, there = path.stat(), sealed.stat()
    except FileNotFoundError:
        return False
    return (here.st_size, here.st_mtime_ns) == (there.st_size, there.st_mtime_ns)
