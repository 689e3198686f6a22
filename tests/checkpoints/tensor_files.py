"""Small files of tensors made by hand, without torch: as `torch.save` and safetensors write them."""

import io
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

FORMATS = {"float32": "f", "float64": "d", "float16": "e"}
STORAGES = {"float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage"}
SAFE = {"float32": "F32", "float64": "F64", "float16": "F16"}


def packed(kind: str, numbers: Sequence[float]) -> bytes:
    """Return numbers as a storage has them; a bfloat16 is the upper half of a float32."""
    if kind == "bfloat16":
        halves = (struct.pack("<f", number)[2:] for number in numbers)
        return b"".join(halves)
    return struct.pack(f"<{len(numbers)}{FORMATS[kind]}", *numbers)


def torch_file(
    tensors: Mapping[str, tuple[str, Sequence[float]]], *, byteorder: bytes = b"little"
) -> bytes:
    """Return a file as `torch.save` writes it for a dictionary of tensors."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", _pickle_of(tensors))
        archive.writestr("archive/byteorder", byteorder)
        for key, (kind, numbers) in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{key}", packed(kind, numbers))
        archive.writestr("archive/version", b"3\n")
    return file.getvalue()


def _pickle_of(tensors: Mapping[str, tuple[str, Sequence[float]]]) -> bytes:
    parts = [b"\x80\x02}("]
    for key, (name, (kind, numbers)) in enumerate(tensors.items()):
        storage = STORAGES.get(kind, "BFloat16Storage").encode()
        parts += [_text(name), b"ctorch._utils\n_rebuild_tensor_v2\n((", _text("storage")]
        parts += [b"ctorch\n", storage, b"\n", _text(str(key)), _text("cpu")]
        count = b"J" + struct.pack("<i", len(numbers))
        parts += [count, b"tQK\x00", count, b"\x85K\x01\x85\x89}tR"]
    return b"".join([*parts, b"u."])


def _text(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text)) + text.encode()


def safetensors_file(tensors: Mapping[str, tuple[str, Sequence[float]]]) -> bytes:
    """Return a file of safetensors."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, (kind, numbers) in tensors.items():
        raw = packed(kind, numbers)
        offsets = [len(data), len(data) + len(raw)]
        dtype = SAFE.get(kind, "BF16")
        header[name] = {"dtype": dtype, "shape": [len(numbers)], "data_offsets": offsets}
        data += raw
    plain = json.dumps(header).encode()
    return struct.pack("<Q", len(plain)) + plain + data
