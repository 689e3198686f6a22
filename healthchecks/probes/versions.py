"""versions: which torch the interpreter of the runs has, for which CUDA or ROCm it was built, and which NCCL lies beside it.

It reads files and imports nothing of them: importing torch takes longer than all passive checks together. A torch whose package
and files differ was half replaced. Each fault for the self test is a folder in PYTHONPATH with another torch, so none is planted.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import sys
from typing import Any

_SPEC = importlib.util.find_spec("torch")
_ORIGIN = _SPEC.origin if _SPEC is not None else None
if _ORIGIN is None:
    raise ModuleNotFoundError("No module named 'torch'")
FOLDER = os.path.dirname(_ORIGIN)

# As torch's build writes them to version.py: `cuda: Optional[str] = '12.9'`.
_LINE = r"^{name}\b[^=\n]*=\s*['\"]([^'\"]*)['\"]"
# Wheels of NCCL and RCCL carry the version of CUDA or ROCm in their names.
_NCCL = re.compile(r"(?:nvidia_nccl|rccl)\w*-([^-]+)\.dist-info$")


def probe(asked: dict[str, Any], faults: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the versions by name, and what torch's package and its files say of its own."""
    with open(os.path.join(FOLDER, "version.py"), errors="replace") as file:
        text = file.read()
    found = {name: _in(text, name) for name in ("__version__", "cuda", "hip")}
    return {
        "torch": found["__version__"],
        "cuda": found["cuda"],
        "rocm": found["hip"],
        "nccl": _nccl(),
        "package": _package(),
    }


def _in(text: str, name: str) -> str:
    line = re.search(_LINE.format(name=re.escape(name)), text, re.MULTILINE)
    return "" if line is None else line[1]


def _package() -> str:
    """Return the version of torch's package; "" for a torch that was built in place."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _nccl() -> str:
    """Return the version of the first wheel by the names of its folders: reading what they hold takes long on a shared disk."""
    for folder in sys.path:
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            if found := _NCCL.match(name):
                return found[1]
    return ""
