"""torch.distributed.checkpoint: a folder of `__<rank>_<n>.distcp` files, and `.metadata`, which is renamed into place last.

`.metadata` lists which bytes of which file hold each tensor: a file that is missing or short shows. It is a pickle of torch's own
classes, of which the opcodes are read (torch/distributed/checkpoint/filesystem.py, `_StorageInfo`).
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

from runner.checkpoints.finite.distributed_names import METADATA, names_by_file
from runner.checkpoints.finite.pickle_outline import (
    MAX_PICKLE_BYTES,
    NoOutline,
    nodes,
    outline,
)
from runner.checkpoints.formats.adapter import Adapter, check_forms, check_regular, number_of
from runner.checkpoints.formats.file_forms import ARCHIVE
from runner.checkpoints.formats.saves import Incomplete, Save
from runner.checkpoints.formats.states import fields_of

_DISTCP = re.compile(r"__\d+_\d+\.distcp", re.ASCII)
_PLACE = "_StorageInfo"
# The end of an archive's directory, without a comment.
_END, _END_BYTES = b"PK\x05\x06", 22


class TorchDistributed(Adapter):
    """Folders that a script saves with `torch.distributed.checkpoint`, with the step in their names."""

    name = "torch_distributed"
    title = "torch.distributed.checkpoint"
    last_file = METADATA

    def claims(self, name: str, files: Collection[str] | None) -> bool:
        """Whether a folder has its files."""
        return files is not None and has_shards(files)

    def is_evident(self, save: Save) -> bool:
        """Whether a folder has `.metadata`."""
        return METADATA in save.names

    def judge(self, save: Save, *, reads_all: bool = False) -> int:
        """As the base class says; the step is that of the name."""
        step = number_of(save.path.name)
        check_shards(save, reads_all=reads_all)
        return step

    def resume_arguments(self, folder: Path, name: str, step: int) -> tuple[str, ...]:
        """Return the folder; a script of its own takes it by `{resume}`, too."""
        return ("--resume", str(folder))


def has_shards(files: Collection[str]) -> bool:
    """Whether names are those of such a folder, whole or not."""
    return METADATA in files or any(_DISTCP.fullmatch(name) for name in files)


def check_shards(save: Save, *, reads_all: bool = False) -> frozenset[str]:
    """Return the names of what is saved. Raise Incomplete unless every byte that `.metadata` lists is there; OSError.

    What `.metadata` does not list must be whole by its form.
    """
    check_regular(save)
    sizes = save.names
    if METADATA not in sizes:
        raise Incomplete(f"{METADATA} is missing: not all ranks have written their files")
    root = _read_metadata(save.path / METADATA)
    pieces = _pieces(root)
    for name, places in sorted(pieces.items()):
        due = max(offset + length for offset, length in places)
        if name not in sizes:
            raise Incomplete(f"{name} is missing")
        if sizes[name] != due:
            raise Incomplete(f"{name}: {sizes[name]} bytes, {METADATA} says {due}")
        with (save.path / name).open("rb") as file:
            for offset, length in places:
                _check_piece(file, name, offset=offset, length=length)
    check_forms(save, reads_all=reads_all, skip=[*pieces, METADATA])
    return frozenset(name for names in names_by_file(root).values() for name in names.values())


def _read_metadata(metadata: Path) -> Any:
    """Return the outline of `.metadata`. Raises Incomplete, OSError."""
    size_bytes = metadata.stat().st_size
    if size_bytes > MAX_PICKLE_BYTES:
        raise Incomplete(f"{METADATA}: {size_bytes} bytes; at most {MAX_PICKLE_BYTES} are read")
    try:
        return outline(metadata.read_bytes()).root
    except NoOutline as error:
        raise Incomplete(f"{METADATA}: cut off, or malformed: {error!s:.80}") from error


def _pieces(root: Any) -> dict[str, list[tuple[int, int]]]:
    """Return offsets and lengths in bytes of what each file holds. Raises Incomplete."""
    pieces: dict[str, list[tuple[int, int]]] = {}
    for node in nodes(root):
        if node.made_by.rpartition(" ")[2] == _PLACE:
            name, place = _place(fields_of(node))
            pieces.setdefault(name, []).append(place)
    if not pieces:
        raise Incomplete(f"{METADATA} lists no file")
    return pieces


def _place(fields: dict[str, Any]) -> tuple[str, tuple[int, int]]:
    name, offset, length = (fields.get(key) for key in ("relative_path", "offset", "length"))
    is_inside = isinstance(name, str) and not {"", ".", ".."} & set(name.split("/"))
    if not (is_inside and type(offset) is type(length) is int and min(offset, length) >= 0):
        raise Incomplete(f"{METADATA} names no bytes of a file in it: {str(name)[:80]!r}")
    return str(name), (offset, length)


def _check_piece(file: BinaryIO, name: str, *, offset: int, length: int) -> None:
    """A tensor is an archive of its own: where it begins as one, it ends as one. A crash may leave zeros behind a right size."""
    file.seek(offset)
    if length >= _END_BYTES and file.read(len(ARCHIVE)) == ARCHIVE:
        file.seek(offset + length - _END_BYTES)
        if file.read(len(_END)) != _END:
            raise Incomplete(f"{name}: what is at byte {offset} was not written to its end")
