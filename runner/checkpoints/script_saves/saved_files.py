"""What a script has saved: which files, whether they are whole, and of which step."""

import glob
import json
import os
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from runner.checkpoints.finite.layouts import MAX_HEADER_BYTES
from runner.checkpoints.finite.pickle_outline import (
    MAX_PICKLE_BYTES,
    NoOutline,
    OutlineNode,
    outline,
)

# What scripts call the number of updates in what they save.
STEP_NAMES = (
    *("iter_num", "global_step", "step", "steps", "num_steps", "train_steps"),
    *("iteration", "iterations", "iter", "current_step", "completed_steps"),
)
# Of a text that is parsed to see whether it is whole. Chosen: a Trainer's state of a long run has some megabytes.
MAX_JSON_BYTES = 256 * 1024 * 1024
_ARCHIVE = b"PK\x03\x04"
_LEAST_BYTES = 8
_NEVER_SHORT = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_DIGITS = re.compile(r"\d+")

Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Save:
    """One save: a file or a folder. `signature`: name, size, time of change and number of each file; other after any write."""

    path: Path
    signature: Signature

    @property
    def files(self) -> list[tuple[str, Path]]:
        """Each file by its name in a checkpoint's folder."""
        if self.path.is_dir():
            return [(name, self.path / name) for name, *_ in self.signature]
        return [(self.path.name, self.path)]

    def has(self, name: str) -> bool:
        """Whether a folder has this file; a file, and the name "", need none."""
        return not name or self.path.is_file() or any(each == name for each, *_ in self.signature)


def is_pattern(saved: str) -> bool:
    """Whether the name stands for saves of many steps; if not, the script overwrites the one and resumes from it."""
    return glob.has_magic(saved)


def list_saves(saved: str) -> list[Save]:
    """List what is there under a path or pattern, the last by its numbers last."""
    found = []
    for name in glob.glob(saved):
        try:
            signature = _signature(Path(name))
        except OSError:
            # It is being deleted, or renamed.
            continue
        if signature:
            found.append(Save(path=Path(name), signature=signature))
    return sorted(found, key=lambda save: ([int(n) for n in _DIGITS.findall(save.path.name)]))


def _signature(path: Path) -> Signature:
    if path.is_file():
        return ((path.name, *_stamp(path)),)
    names = (Path(folder, name) for folder, _, files in os.walk(path) for name in files)
    return tuple(sorted((str(name.relative_to(path)), *_stamp(name)) for name in names))


def read_signature(plain: Sequence[Sequence[Any]]) -> Signature:
    """Return a signature that came through JSON."""
    return tuple((str(name), *map(int, stamp)) for name, *stamp in plain)  # type: ignore[misc]


def _stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def is_finished(save: Save) -> bool:
    """Whether a save is one file whose form shows that its end was written. Raises OSError."""
    if save.path.is_dir() or _torn_file(save.path):
        return False
    return save.path.suffix == ".safetensors" or zipfile.is_zipfile(save.path)


def torn(save: Save) -> str:
    """Return which file of a save is not whole, and why; "" if none is known to be torn. Raises OSError."""
    for name, path in save.files:
        reason = _torn_file(path)
        if reason:
            return f"{name}: {reason}"
    return ""


def _torn_file(path: Path) -> str:
    """Look at the form of a file alone: what `torch.save` and safetensors write, and JSON, show that they were cut off."""
    size_bytes = path.stat().st_size
    if size_bytes < _LEAST_BYTES and path.suffix in _NEVER_SHORT:
        return f"{size_bytes} bytes"
    try:
        with path.open("rb") as file:
            if path.suffix == ".safetensors":
                return _torn_safetensors(file, size_bytes)
            begin = file.read(len(_ARCHIVE))
            if begin == _ARCHIVE:
                # The directory of an archive is at its end.
                zipfile.ZipFile(file).close()
            elif path.suffix == ".json" and size_bytes <= MAX_JSON_BYTES:
                json.loads(begin + file.read())
    except (zipfile.BadZipFile, *_MALFORMED) as error:
        return f"cut off, or malformed: {error!s:.80}"
    return ""


def _torn_safetensors(file: BinaryIO, size_bytes: int) -> str:
    """Compare the size with the header: https://github.com/huggingface/safetensors#format."""
    header_bytes = int.from_bytes(file.read(8), "little")
    if header_bytes > min(MAX_HEADER_BYTES, size_bytes):
        return f"{size_bytes} bytes, too few for its header"
    tensors = json.loads(file.read(header_bytes))
    tensors.pop("__metadata__", None)
    due = 8 + header_bytes + max((each["data_offsets"][1] for each in tensors.values()), default=0)
    return "" if due == size_bytes else f"{size_bytes} bytes, its header says {due}"


def step_of(save: Save, names: Sequence[str] = STEP_NAMES) -> int | None:
    """Return how many updates a save has: the last number in its name, else what the file itself holds under one of `names`.

    None: neither. Raises OSError.
    """
    digits = _DIGITS.findall(save.path.name)
    if digits:
        return int(digits[-1])
    for _, path in save.files:
        step = _step_inside(path, names)
        if step is not None:
            return step
    return None


def _step_inside(path: Path, names: Sequence[str]) -> int | None:
    """Return the step in a dictionary that `torch.save` wrote; its opcodes are read, nothing is built."""
    if not zipfile.is_zipfile(path):
        return None
    with zipfile.ZipFile(path) as archive:
        pickled = next((name for name in archive.namelist() if name.endswith("/data.pkl")), None)
        if pickled is None or archive.getinfo(pickled).file_size > MAX_PICKLE_BYTES:
            return None
        try:
            root = outline(archive.read(pickled)).root
        except NoOutline:
            return None
    pairs = root.items if isinstance(root, OutlineNode) else []
    values = {key: value for key, value in pairs if isinstance(key, str)}
    steps = (values.get(name) for name in names)
    return next((step for step in steps if type(step) is int and step >= 0), None)
