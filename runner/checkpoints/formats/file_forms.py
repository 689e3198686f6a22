"""The form of one file: whether what `torch.save`, safetensors and JSON write shows that it was cut off or damaged."""

import json
import zipfile
from pathlib import Path
from typing import BinaryIO

from runner.checkpoints.finite.layouts import MAX_HEADER_BYTES

# Of a text that is parsed to see whether it is whole. Chosen: a Trainer's state of a long run has some megabytes.
MAX_JSON_BYTES = 256 * 1024 * 1024
ARCHIVE = b"PK\x03\x04"
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
_LEAST_BYTES = 8
_NEVER_SHORT = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")


def torn_file(path: Path, *, reads_all: bool = False) -> str:
    """Return why a file is not whole, by its form; "" if nothing shows that it is torn. Raises OSError.

    `reads_all`: also compare each record of an archive with its checksum, which reads every byte.
    """
    size_bytes = path.stat().st_size
    if size_bytes < _LEAST_BYTES and path.suffix in _NEVER_SHORT:
        return f"{size_bytes} bytes"
    try:
        with path.open("rb") as file:
            if path.suffix == ".safetensors":
                return _torn_safetensors(file, size_bytes)
            begin = file.read(len(ARCHIVE))
            if begin == ARCHIVE:
                return _torn_archive(file, reads_all=reads_all)
            if path.suffix == ".json" and size_bytes <= MAX_JSON_BYTES:
                json.loads(begin + file.read())
    except (zipfile.BadZipFile, NotImplementedError, *MALFORMED) as error:
        return f"cut off, or malformed: {error!s:.80}"
    return ""


def has_end(path: Path) -> bool:
    """Whether a file is of a form that shows that its end was written. Raises OSError."""
    return path.suffix == ".safetensors" or zipfile.is_zipfile(path)


def _torn_archive(file: BinaryIO, *, reads_all: bool) -> str:
    """Read an archive's directory, which is at its end; with `reads_all` every record."""
    with zipfile.ZipFile(file) as archive:
        # `torch.serialization.set_crc32_options(False)` writes zeros instead of checksums.
        if reads_all and any(info.CRC for info in archive.infolist()):
            damaged = archive.testzip()
            if damaged is not None:
                return f"its record {damaged!r:.60} is not what was written"
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
