"""Read the `.metadata` of a checkpoint, which torch pickles, without running what a hostile pickle would run.

A pickle names classes and calls them. Here every name that torch writes stands for a plain part that only keeps what it is
given, any other name is refused, and torch's objects are built again from the numbers and names in those parts: dtypes, sizes,
offsets, and files that the manifest lists. Values other than tensors are refused, since torch unpickles those when it loads.
"""

import dataclasses
import io
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.futures import Future

from runner.checkpoints import FileSeal, PartFile, open_checked
from runner.errors import CheckpointRefused, StokerError

METADATA = ".metadata"
_TORCH = "torch.distributed.checkpoint"
# What torch 2.6 to 2.13 writes for a state of tensors; found by reading such files.
_PARTS = {
    (f"{_TORCH}.filesystem", "_StorageInfo"),
    (f"{_TORCH}.metadata", "ChunkStorageMetadata"),
    (f"{_TORCH}.metadata", "Metadata"),
    (f"{_TORCH}.metadata", "MetadataIndex"),
    (f"{_TORCH}.metadata", "StorageMeta"),
    (f"{_TORCH}.metadata", "TensorProperties"),
    (f"{_TORCH}.metadata", "TensorStorageMetadata"),
    (f"{_TORCH}.metadata", "_MEM_FORMAT_ENCODING"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
    ("torch.serialization", "_get_layout"),
}


def read_state(folder: Path, files: Mapping[str, FileSeal], state: dict[str, Any]) -> None:
    """Fill a state of tensors from a folder whose manifest lists `files`; each file is compared with it while it is read.

    Raises CheckpointRefused, TemporaryError; the state is of no use then.
    """
    reader = MetadataReader(folder, files)
    try:
        # Each rank plans its own reads: there is nothing to agree on, and agreeing takes longer than reading.
        load(state, storage_reader=reader, no_dist=True)
    except CheckpointException as wrapped:
        for error, _ in wrapped.failures.values():
            if isinstance(error, StokerError):
                raise error from None
        raise


class MetadataReader(FileSystemReader):
    """Reads the tensors of a folder whose manifest lists `files`, and checks each file that it reads while it reads it.

    Raises CheckpointRefused for metadata that is not theirs and for a file that is not as the manifest says, TemporaryError; while
    torch loads, within its CheckpointException. What was loaded may be used only after `load` has returned.
    """

    def __init__(self, folder: Path, files: Mapping[str, FileSeal]) -> None:
        super().__init__(folder)
        # Here and not in torch's hands, which log and replace what this raises.
        self._metadata = read_metadata(folder, files)
        self.fs = _CheckedFiles(folder, files)

    def read_metadata(self, *_args: Any, **_more: Any) -> Metadata:
        """Return the metadata, built from plain values only."""
        self._metadata.storage_meta = StorageMeta(load_id=self.load_id)
        return self._metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the tensors of a plan, each file from front to back."""
        in_order = sorted(plan.items, key=lambda item: self._place(item.storage_index))
        return super().read_data(dataclasses.replace(plan, items=in_order), planner)

    def _place(self, index: MetadataIndex) -> tuple[str, int]:
        info = self.storage_data[index]
        return info.relative_path, info.offset

    def _slice_file(self, file: Any, sinfo: _StorageInfo) -> Any:
        part: PartFile = file.part(sinfo.offset, sinfo.length)
        return part


class _CheckedFiles(FileSystem):
    """Opens the files of a manifest so that they are compared with it."""

    def __init__(self, folder: Path, files: Mapping[str, FileSeal]) -> None:
        self._folder = folder
        self._files = files

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """Open a file of the checkpoint for reading: a CheckedFile, which is all that this reader knows."""
        name = Path(path).relative_to(self._folder).as_posix()
        with open_checked(self._folder, name, self._files) as file:
            yield cast("io.IOBase", file)


def read_metadata(folder: Path, files: Mapping[str, FileSeal]) -> Metadata:
    """Return a checkpoint's metadata, once its bytes are those of the manifest, which lists `files`.

    Raises CheckpointRefused that names its fault, or what it holds beside tensors in `files`; TemporaryError.
    """
    path = folder / METADATA
    with open_checked(folder, METADATA, files) as file:
        content = file.part()
    try:
        found = _parts_of(_PartsUnpickler(content).load(), "Metadata")
        tensors: dict[str, STORAGE_TYPES] = {
            _text(name): _tensor(part) for name, part in found["state_dict_metadata"].items()
        }
        storage = dict(_storage(found["storage_data"], files))
    except Exception as error:
        # A hostile pickle may raise anything.
        raise CheckpointRefused(
            f"{path} is no list of tensors in this checkpoint's files, and nothing of it was run: {error!s:.200}; "
            "take a checkpoint that this run wrote"
        ) from error
    return Metadata(
        state_dict_metadata=tensors,
        planner_data={name: (name,) for name in tensors},
        storage_data=storage,
    )


class _Part:
    """What a pickle says of one object: `values` are its fields, or what its class was called with."""

    def __init__(self, *arguments: Any) -> None:
        self.values: Any = arguments

    def __setstate__(self, state: Any) -> None:
        self.values = state


class _PartsUnpickler(pickle.Unpickler):
    def __init__(self, file: Any) -> None:
        super().__init__(file)
        # Made for this file: whatever a pickle does to a class, it does to one that no other code has.
        self._classes = {name: type(name[1], (_Part,), {}) for name in _PARTS}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._classes:
            return self._classes[module, name]
        if (module, name) == ("torch", "Size"):
            return tuple
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"it names {module[:60]}.{name[:60]}")


def _parts_of(part: Any, name: str) -> Any:
    """Return the values of a part. Raises ValueError unless it is of that class."""
    if not isinstance(part, _Part) or type(part).__name__ != name:
        raise ValueError(f"a {type(part).__name__:.60} stands where a {name} belongs")
    return part.values


def _tensor(part: Any) -> TensorStorageMetadata:
    values = _parts_of(part, "TensorStorageMetadata")
    dtype = _parts_of(values["properties"], "TensorProperties")[0]
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"a dtype is {dtype!r:.60}")
    chunks = (_parts_of(chunk, "ChunkStorageMetadata") for chunk in values["chunks"])
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype),
        size=_sizes(values["size"]),
        chunks=[
            ChunkStorageMetadata(offsets=_sizes(chunk["offsets"]), sizes=_sizes(chunk["sizes"]))
            for chunk in chunks
        ],
    )


def _storage(
    found: Mapping[Any, Any], files: Mapping[str, FileSeal]
) -> Iterator[tuple[MetadataIndex, _StorageInfo]]:
    """Yield where each chunk lies: a span of bytes within a file of the manifest."""
    for key, part in found.items():
        index, info = _parts_of(key, "MetadataIndex"), _parts_of(part, "_StorageInfo")
        name, (offset, length) = info["relative_path"], _sizes((info["offset"], info["length"]))
        if not isinstance(name, str) or name not in files:
            raise ValueError(f"it names the file {name!r:.100}, which the manifest does not list")
        if offset + length > files[name].size_bytes or info.get("transform_descriptors"):
            raise ValueError(
                f"it names bytes {offset} to {offset + length} of {name}, transformed or not there"
            )
        where = index["offset"]
        yield (
            MetadataIndex(_text(index["fqn"]), None if where is None else _sizes(where)),
            _StorageInfo(relative_path=name, offset=offset, length=length),
        )


def _sizes(values: Any) -> torch.Size:
    """Return counts. Raises ValueError for anything else."""
    if not isinstance(values, tuple) or not all(type(each) is int and each >= 0 for each in values):
        raise ValueError(f"sizes are {values!r:.60}")
    return torch.Size(values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a name is {value!r:.60}")
    return value
