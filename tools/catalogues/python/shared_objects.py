"""Catalogues of libraries whose texts are in machine code: known phrases, looked up in the shared objects of a wheel.

A phrase that the version at hand does not contain is left out, so that no row outlives its text.
"""

import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tools.catalogues.python.classes import Class
from tools.catalogues.python.packages import MADE, installed, version_of
from tools.catalogues.python.texts import FIELD
from tools.catalogues.rows import Header, Row, write
from tools.catalogues.sources import wheel

PROGRAM = "tools/catalogues/python/shared_objects.py"
_DATA, _CHECKPOINT, _CONFIG = "data_error", "checkpoint_io", "config_error"


class Phrases(NamedTuple):
    """A package, its shared objects (a pattern), and its phrases by fault; "" where the text behind them says which."""

    requirement: str
    pattern: str
    by_fault: Mapping[str, tuple[str, ...]]
    requires: tuple[str, ...] = ()
    # Rows of names that Rust derives from an enumeration, in versions before their texts.
    names: tuple[str, ...] = ()


LIBRARIES: Mapping[str, Phrases] = {
    "safetensors": Phrases(
        "safetensors",
        "safetensors/*.so",
        {
            _CHECKPOINT: (
                "Error while deserializing header: {}",
                "Error while deserializing: {}",
                "header too small",
                "header too large",
                "invalid JSON in header: {}",
                "invalid UTF-8 in header: {}",
                "invalid header length",
                "invalid offset for tensor `{}`",
                "invalid shape, data type, or offset for tensor",
                "incomplete metadata, file not fully covered",
                "overflow computing buffer size from shape and/or element type",
                "File does not contain tensor {}",
                "Could not read tensor {}",
                "pread failed for tensor {}",
            ),
        },
        requires=("SafetensorError", "safetensors"),
        names=(
            *("InvalidHeaderDeserialization", "InvalidHeaderLength", "InvalidHeaderStart"),
            *("HeaderTooLarge", "HeaderTooSmall", "MetadataIncompleteBuffer", "TensorInvalidInfo"),
            *("ValidationOverflow", "InvalidTensorView"),
        ),
    ),
    "hdf5": Phrases(
        "h5py",
        "h5py.libs/libhdf5-*.so*",
        {
            _DATA: (
                "truncated file: eof = {}, sblock->base_addr = {}, stored_eof = {}",
                "file signature not found",
                "unable to lock file, errno = {}, error message = '{}'",
                "inflate() failed",
                "incorrect metadata checksum after all read attempts",
                "data error detected by Fletcher32 checksum",
                "invalid dataset size, likely file corruption",
                "checksum mismatch between buffer and stored",
                "file is already open for write (may use <h5clear file> to clear file consistency flags)",
                "file is already open for read-only",
                "corrupt object header - too few messages",
                "required filter '{}' is not registered",
                "can't open directory ({}). Please verify its existence",
            ),
            "filesystem": (
                "file read failed: time = {}, filename = '{}'",
                "file write failed: time = {}, filename = '{}'",
            ),
        },
    ),
    "arrow": Phrases(
        "pyarrow",
        "pyarrow/lib*.so*",
        {
            _DATA: (
                "Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.",
                "Couldn't deserialize thrift: {}",
                "Unexpected end of stream{}",
                "Corrupt snappy compressed data.",
                "Corrupt ZSTD compressed data.",
                "Corrupt Lz4 compressed data.",
                "Corrupted message, only {} bytes available",
                "Corrupted metadata length, only {} bytes available",
                "Not an Arrow file",
                "Not a Feather V1 or Arrow IPC file",
                "Feather file footer incomplete",
                "Data page too small for levels (corrupt header?)",
                "Data corruption detected",
                "Could not open Parquet input source '{}': {}",
                "JSON parse error: {}",
                "CSV parse error: {}",
                "could not verify page integrity, CRC checksum verification failed for page_ordinal {}",
            ),
            # The service, or the right to use it: the text behind says which.
            "": (
                "When reading information for key '{}' in bucket '{}': ",
                "When uploading part for key '{}' in bucket '{}': ",
            ),
        },
    ),
    "torch_core": Phrases(
        "torch",
        "torch/lib/lib*.so",
        {
            _CONFIG: (
                "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x{})",
                "mat1 and mat2 must have the same dtype, but got {} and {}",
                "The size of tensor a ({}) must match the size of tensor b ({}) at non-singleton dimension {}",
                "Expected all tensors to be on the same device, but found at least two devices, {} and {}!",
                "shape '{}' is invalid for input of size {}",
                (
                    "view size is not compatible with input tensor's size and stride (at least one "
                    "dimension spans across two contiguous subspaces)"
                ),
                (
                    "Sizes of tensors must match except in dimension {}. Expected size {} but got "
                    "size {} for tensor number {} in the list."
                ),
                "expected scalar type {} but found {}",
                "element {} of tensors does not require grad and does not have a grad_fn",
                "grad can be implicitly created only for scalar outputs",
                (
                    "Trying to backward through the graph a second time (or directly access saved "
                    "tensors after they have already been freed)"
                ),
                "one of the variables needed for gradient computation has been modified by an inplace operation: {}",
                "a leaf Variable that requires grad is being used in an in-place operation.",
                "Expected to have finished reduction in the prior iteration before starting a new one.",
                "Expected to mark a variable ready only once.",
                "Input type ({}) and weight type ({}) should be the same",
                "Given groups={}, weight of size {}, expected input{} to have {} channels, but got {} channels instead",
                "The expanded size of the tensor ({}) must match the existing size ({}) at non-singleton dimension {}.",
                "Tensors must have same number of dimensions: got {} and {}",
                "Found no NVIDIA driver on your system.",
                "No CUDA GPUs are available",
                "Cannot re-initialize CUDA in forked subprocess.",
                "Inference tensors cannot be saved for backward.",
                "Cannot access data pointer of Tensor that doesn't have storage",
            ),
            _CHECKPOINT: (
                "PytorchStreamReader failed {}",
                "PytorchStreamWriter failed {}",
                "failed finding central directory",
                "unexpected pos {} vs {}",
                "constants.pkl is not found",
            ),
            _DATA: (
                "stack expects each tensor to be equal size, but got {} at entry {} and {} at entry {}",
                "index out of range in self",
                "Target {} is out of bounds.",
            ),
            "host_oom": (
                "DefaultCPUAllocator: can't allocate memory: you tried to allocate {} bytes.",
                "DefaultCPUAllocator: not enough memory: you tried to allocate {} bytes.",
                "unable to mmap {} bytes from file <{}>: Cannot allocate memory",
            ),
            "nan_loss": ("Function '{}' returned nan values in its {}th output.",),
            "": (
                "unable to open file <{}> in read-only mode: {}",
                "unable to open shared memory object <{}> in read-write mode: {}",
                "unable to resize file <{}> to the right size: {}",
                "unable to mmap {} bytes from file <{}>: {}",
            ),
        },
    ),
}
NAMES = tuple(LIBRARIES)


def make(name: str) -> Counter[str]:
    """Write the catalogue of a library; return its rows by level. Raises SourceMissing."""
    phrases = LIBRARIES[name]
    folder = installed(phrases.requirement)
    if folder is not None:
        return _write(name, phrases, folder)
    with wheel(phrases.requirement) as unpacked:
        return _write(name, phrases, unpacked)


def _write(name: str, phrases: Phrases, folder: Path) -> Counter[str]:
    version = version_of(phrases.requirement, folder)
    header = Header(
        name,
        version,
        made=MADE,
        program=PROGRAM,
        source=f"phrases found in {phrases.pattern} of the package {phrases.requirement} {version}",
        style="braces",
        layer="program",
        scope="user",
        requires=phrases.requires,
    )
    return write(name, header, rows(phrases, sorted(folder.glob(phrases.pattern))))


def rows(phrases: Phrases, paths: Iterable[Path]) -> Iterator[Row]:
    """Yield the rows of the phrases whose words are in one of the files, and of the names."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        maps = [
            (Path(file.name).name, stack.enter_context(_mapped(file.fileno()))) for file in files
        ]
        for fault, texts in phrases.by_fault.items():
            for text in texts:
                words = max(text.split(FIELD), key=len).encode()
                at = next((name for name, content in maps if content.find(words) >= 0), "")
                if at:
                    yield _row(at, text, fault)
    for name in phrases.names:
        yield _row("names of the errors", name, _CHECKPOINT)


def _mapped(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)


def _row(at: str, text: str, fault: str) -> Row:
    found = Class(fault)
    scope = None if found.scope == "user" else found.scope
    return Row(at, text, "error", fault, layer=found.layer, scope=scope)
