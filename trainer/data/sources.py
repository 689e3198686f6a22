"""Sources of training text: which files, in which order, how much, and the fingerprint.

Standard library only, so that `--check` can refuse a source without numpy or torch. Every refusal is a SpecError.
"""

import hashlib
import mmap
import os
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, NoReturn

from runner.errors import SpecError
from trainer.config.settings import DataSource, Settings

TOKEN_BYTES = {"uint16": 2, "uint32": 4}
# Folders of the standard library that distributions leave out, or into which packages are installed.
LEFT_OUT = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}
)
# The files of a folder are joined in the memory of every rank. Chosen, not measured.
MAX_JOINED_BYTES = 2 * 1024**3
# Up to here a fingerprint covers every byte, which takes about 0.2 s; above, samples. Chosen, not measured.
WHOLE_BYTES = 256 * 1024**2
SAMPLES = 1024
SAMPLE_BYTES = 64 * 1024


class SourceFile(NamedTuple):
    """One file of a source; `name` is relative to the source and orders it."""

    name: str
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files that make one long text. Several files are joined, each ended by a newline."""

    kind: str
    files: tuple[SourceFile, ...]
    token_bytes: int = 1

    @property
    def size_bytes(self) -> int:
        """Length of the text."""
        newlines = len(self.files) if len(self.files) > 1 else 0
        return sum(file.size_bytes for file in self.files) + newlines

    @property
    def num_tokens(self) -> int:
        """Length of the text in tokens."""
        return self.size_bytes // self.token_bytes


class Split(NamedTuple):
    """Windows of a source, counted from 0: training ones first, a gap of one, then the held-out ones.

    Window i covers tokens [i x sequence, (i + 1) x sequence] and shares its last token, only ever a target, with the next
    one. The gap keeps that token apart too.
    """

    training: int
    validation_first: int
    validation: int


def find_source(data: DataSource) -> Source:
    """Find the files of a source and their sizes, without reading them."""
    if data.source == "stdlib":
        return Source(kind="stdlib", files=tuple(_standard_library()))
    path = Path(data.path).expanduser()
    if data.source == "text" and path.is_dir():
        return Source(kind="text", files=tuple(_folder(path)))
    try:
        with path.open("rb") as file:
            size_bytes = file.seek(0, os.SEEK_END)
    except OSError as error:
        raise SpecError(
            f"data.path = {data.path!r} cannot be read: {error.strerror or error} "
            f"(working folder {Path.cwd()}); name a file that every rank can open"
        ) from error
    only = SourceFile(path.name, path, size_bytes)
    if data.source == "text":
        return Source(kind="text", files=(only,))
    token_bytes = TOKEN_BYTES[data.token_dtype]
    if size_bytes % token_bytes:
        raise SpecError(
            f"data.path = {data.path!r} has {size_bytes} bytes, not a whole number of {data.token_dtype} "
            "tokens: it is torn, or data.token_dtype is another"
        )
    return Source(kind=data.token_dtype, files=(only,), token_bytes=token_bytes)


def split(source: Source, settings: Settings) -> Split:
    """Divide a source into training and held-out windows; raises SpecError for one too short for a single step."""
    windows = max(0, (source.num_tokens - 1) // settings.model.sequence)
    ratio = settings.data.validation_ratio
    validation = max(1, round(windows * ratio)) if ratio else 0
    training = windows - validation - (1 if validation else 0)
    if training < settings.batch.global_batch:
        raise SpecError(
            f"data.source = {settings.data.source} holds {source.num_tokens} tokens: {max(0, training)} windows of "
            f"model.sequence = {settings.model.sequence} to train on, fewer than batch.global_batch = "
            f"{settings.batch.global_batch}; give more text, or shorten the sequence or the batch"
        )
    return Split(training, windows - validation, validation)


def read_source(source: Source) -> memoryview:
    """Return the whole text. A single file is mapped, not read: ranks of one node share it in memory."""
    if len(source.files) == 1:
        return memoryview(_map(source.files[0]))
    if source.size_bytes > MAX_JOINED_BYTES:
        raise SpecError(
            f"the {len(source.files)} files hold {source.size_bytes} bytes, more than {MAX_JOINED_BYTES} that are "
            "joined in memory: write them into one file"
        )
    joined = bytearray(source.size_bytes)
    end = 0
    for file in source.files:
        end += _read_into(memoryview(joined)[end : end + file.size_bytes], file) + 1
        joined[end - 1] = 0x0A
    return memoryview(joined).toreadonly()


def fingerprint(source: Source, text: memoryview) -> str:
    """Return a text's fingerprint: sha256 of its kind and all of it, or, where it is huge, of its size and samples.

    The samples are 1,024 blocks of 64 KiB at even distances, the first and the last bytes among them. They distinguish
    two texts, not a text from a copy with one byte changed in between.
    """
    size_bytes = len(text)
    digest = hashlib.sha256(f"{source.kind}/{size_bytes}/".encode())
    if size_bytes <= WHOLE_BYTES:
        digest.update(text)
        return f"sha256:{digest.hexdigest()}"
    for number in range(SAMPLES):
        start = (size_bytes - SAMPLE_BYTES) * number // (SAMPLES - 1)
        digest.update(text[start : start + SAMPLE_BYTES])
    return f"sampled-sha256:{digest.hexdigest()}"


def _standard_library() -> Iterator[SourceFile]:
    """Yield the Python sources of the running interpreter's standard library, tests left out."""
    root = Path(sysconfig.get_path("stdlib"))
    files = [file for file in _walk(root, LEFT_OUT) if file.name.endswith(".py")]
    if not files:
        raise SpecError(
            f"data.source = stdlib finds no Python source in {root}: this interpreter's library is in another place; "
            "choose data.source = text and name a folder"
        )
    yield from files


def _folder(root: Path) -> Iterator[SourceFile]:
    files = [file for file in _walk(root, frozenset()) if file.size_bytes]
    if not files:
        raise SpecError(f"data.path = {str(root)!r} is a folder without text: it holds no file")
    yield from files


def _walk(root: Path, left_out: frozenset[str]) -> list[SourceFile]:
    """List regular files below a folder, ordered by name. Hidden ones and links are skipped.

    By scandir, at a tenth of the cost of pathlib: every rank does this at every start.
    """
    files, folders = [], [(str(root), "")]
    while folders:
        folder, before = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            _refuse(error)
        for entry in entries:
            name = entry.name
            if name[0] == ".":
                continue
            if entry.is_dir(follow_symlinks=False):
                if name not in left_out:
                    folders.append((entry.path, f"{before}{name}/"))
            elif entry.is_file(follow_symlinks=False):
                size_bytes = entry.stat(follow_symlinks=False).st_size
                files.append(SourceFile(before + name, Path(entry.path), size_bytes))
    return sorted(files)


def _refuse(error: OSError) -> NoReturn:
    raise SpecError(f"the data folder {error.filename!r} cannot be read: {error.strerror}")


def _map(file: SourceFile) -> mmap.mmap | bytes:
    try:
        with file.path.open("rb") as opened:
            size_bytes = os.fstat(opened.fileno()).st_size
            # An empty file cannot be mapped.
            text = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) if size_bytes else b""
    except OSError as error:
        raise _unreadable(file, error) from error
    if len(text) != file.size_bytes:
        raise _changing(file, len(text))
    return text


def _read_into(buffer: memoryview, file: SourceFile) -> int:
    """Read a file into `buffer` of just its size; return the size."""
    try:
        with file.path.open("rb", buffering=0) as opened:
            done = opened.readinto(buffer) or 0
            while 0 < done < len(buffer) and (more := opened.readinto(buffer[done:])):
                done += more
            size_bytes = os.fstat(opened.fileno()).st_size
    except OSError as error:
        raise _unreadable(file, error) from error
    if not done == size_bytes == len(buffer):
        raise _changing(file, size_bytes)
    return done


def _unreadable(file: SourceFile, error: OSError) -> SpecError:
    return SpecError(f"data file {str(file.path)!r} cannot be read: {error.strerror}")


def _changing(file: SourceFile, size_bytes: int) -> SpecError:
    return SpecError(
        f"data file {str(file.path)!r} had {file.size_bytes} bytes and now has {size_bytes}: "
        "it is being written; train on it when it is whole"
    )
