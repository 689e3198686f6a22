"""Names of the tensors in the files of `torch.distributed.checkpoint`, which its file `.metadata` alone has."""

from typing import Any

from runner.checkpoints.finite.pickle_outline import NoOutline, OutlineNode, nodes, outline

METADATA = ".metadata"
_INDEX, _PLACE = "MetadataIndex", "_StorageInfo"


def distributed_names(metadata: bytes) -> dict[str, dict[int, str]]:
    """Return, for each file, the names of its tensors by the offsets of their archives; none for bytes that say nothing of it."""
    try:
        return names_by_file(outline(metadata).root)
    except NoOutline:
        return {}


def names_by_file(root: Any) -> dict[str, dict[int, str]]:
    """Return the same of the outline of `.metadata`."""
    found: dict[str, dict[int, str]] = {}
    for node in nodes(root):
        for key, value in node.items:
            if _is(key, _INDEX) and _is(value, _PLACE):
                tensor, place = _fields(key), _fields(value)
                name, offset = tensor.get("fqn"), place.get("offset")
                if isinstance(name, str) and isinstance(offset, int):
                    found.setdefault(str(place.get("relative_path")), {})[offset] = name[:200]
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, OutlineNode) and value.made_by.rpartition(" ")[2] == kind


def _fields(node: OutlineNode) -> dict[str, Any]:
    """Return the fields of an object, as its state in the pickle has them."""
    states = [value for key, value in node.items if key is None and isinstance(value, OutlineNode)]
    return {key: value for state in states for key, value in state.items if isinstance(key, str)}
