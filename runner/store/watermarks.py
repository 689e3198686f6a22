"""What a handle saw of its store: numbers that only rise. A store that comes back with lower ones has forgotten something."""

from __future__ import annotations


class Watermarks:
    """The highest numbers a handle saw. Looked up before a call begins, they must all be found by it."""

    def __init__(self) -> None:
        self._streams: dict[str, int] = {}
        self._versions: dict[bool, int] = {}

    def forget(self) -> None:
        """Believe whatever the store says from now on."""
        self._streams, self._versions = {}, {}

    def end(self, stream: str) -> int:
        """Return the highest number seen of a stream."""
        return self._streams.get(stream, 0)

    def saw_end(self, stream: str, number: int) -> None:
        """Remember a number that was committed."""
        self._streams[stream] = max(number, self._streams.get(stream, 0))

    def version(self, volatile: bool) -> int:
        """Return the highest version seen of any register, durable or volatile."""
        return self._versions.get(volatile, 0)

    def saw_version(self, volatile: bool, version: int) -> None:
        """Remember a version that was committed."""
        self._versions[volatile] = max(version, self._versions.get(volatile, 0))
