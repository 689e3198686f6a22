"""Plain values in a dictionary that `torch.save` wrote, read from the opcodes of its pickle. Nothing is built."""

import zipfile
from pathlib import Path
from typing import Any

from runner.checkpoints.finite.pickle_outline import (
    MAX_PICKLE_BYTES,
    NoOutline,
    OutlineNode,
    nodes,
    outline,
)


def state_of(path: Path) -> dict[str, Any]:
    """Return the values of the dictionary in a file of `torch.save`, by their keys; what is no plain value is an OutlineNode.

    Empty for what is none, or is too large to follow. Raises OSError.
    """
    root = _root_of(path)
    return fields_of(root) if isinstance(root, OutlineNode) else {}


def fields_of(node: Any) -> dict[str, Any]:
    """Return the pairs of a dictionary, or the attributes of an object, whose keys are text."""
    if not isinstance(node, OutlineNode):
        return {}
    found = {key: value for key, value in node.items if isinstance(key, str)}
    for key, value in node.items:
        if key is None and isinstance(value, OutlineNode):
            # The state of an object that was built.
            found |= {name: each for name, each in value.items if isinstance(name, str)}
    return found


def values_named(path: Path, *names: str) -> dict[str, Any]:
    """Return plain values under these names anywhere in a file of `torch.save`; the first of each counts. Raises OSError."""
    found: dict[str, Any] = {}
    for node in nodes(_root_of(path)):
        for key, value in node.items:
            if isinstance(key, str) and key in names and not isinstance(value, OutlineNode):
                found.setdefault(key, value)
    return found


def count_of(state: dict[str, Any], name: str, otherwise: int = 1) -> int:
    """Return a whole number from 0 under a name; `otherwise` where there is none."""
    value = state.get(name)
    return value if type(value) is int and value >= 0 else otherwise


def _root_of(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            pickled = next((n for n in archive.namelist() if n.endswith("/data.pkl")), None)
            if pickled is None or archive.getinfo(pickled).file_size > MAX_PICKLE_BYTES:
                return None
            return outline(archive.read(pickled)).root
    except (NoOutline, zipfile.BadZipFile, NotImplementedError, ValueError, EOFError):
        return None
