"""The highest numbers that a handle has seen. A store that comes back with lower ones was rolled back."""

from __future__ import annotations


class Watermarks:
    """Read them before a call begins: that call must find at least these numbers."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Accept whatever the store holds from now on."""
        self._ends: dict[str, int] = {}
        self._versions: dict[bool, int] = {}

    def end(self, stream: str) -> int:
        """Return the highest number seen in a stream."""
        return self._ends.get(stream, 0)

    def advance_end(self, stream: str, number: int) -> None:
        """Record a number that was committed."""
        self._ends[stream] = max(number, self._ends.get(stream, 0))

    def version(self, volatile: bool) -> int:
        """Return the highest version seen of any register, durable or volatile."""
        return self._versions.get(volatile, 0)

    def advance_version(self, volatile: bool, version: int) -> None:
        """Record a version that was committed."""
        self._versions[volatile] = max(version, self._versions.get(volatile, 0))
