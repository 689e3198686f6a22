"""What changed between two statuses, encoded once. An item is made and encoded when its key changed, and kept as bytes."""

from collections.abc import Iterable, Mapping

import msgspec

from runner.facts.messages.cluster_status import ClusterStatus
from runner.serve.web.page_item import PageSection
from runner.serve.web.page_state import head, sections

_encode = msgspec.json.Encoder().encode


class PageContent:
    """All that the page shows of a cluster now, as bytes by section and name."""

    def __init__(self) -> None:
        self._head = b"{}"
        self._keys: dict[str, Mapping[str, object]] = {}
        self._encoded: dict[str, dict[str, bytes]] = {}

    def update(self, status: ClusterStatus) -> bytes:
        """Become what this status shows; return the members of the JSON object that describes what changed."""
        found_head = _encode(head(status))
        changed: dict[str, dict[str, bytes]] = {}
        gone: dict[str, list[str]] = {}
        for name, section in sections(status).items():
            changed[name], gone[name] = self._update(name, section)
        parts = [b'"head":' + found_head] if found_head != self._head else []
        self._head = found_head
        if any(gone.values()):
            parts.append(b'"drop":' + _encode({name: each for name, each in gone.items() if each}))
        if any(changed.values()):
            parts.append(b'"set":' + _joined(changed))
        return b",".join(parts)

    def whole(self) -> bytes:
        """Return the members of the JSON object that describes everything."""
        return b'"head":' + self._head + b',"set":' + _joined(self._encoded)

    def _update(self, name: str, section: PageSection) -> tuple[dict[str, bytes], list[str]]:
        before, keys = self._keys.get(name, {}), section.keys
        encoded = self._encoded.setdefault(name, {})
        # No key is None.
        differing = [item for item, key in keys.items() if before.get(item) != key]
        changed = {item: _encode(section.make(item)) for item in differing}
        gone = [item for item in before if item not in keys]
        self._keys[name] = keys
        encoded.update(changed)
        for item in gone:
            del encoded[item]
        return changed, gone


def _joined(sections: Mapping[str, Mapping[str, bytes]]) -> bytes:
    return _object((name, _object(found.items())) for name, found in sections.items() if found)


def _object(members: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(_encode(name) + b":" + value for name, value in members) + b"}"
