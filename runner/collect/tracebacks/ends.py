"""Ends: the first and the last items of a sequence of any length."""

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Ends(Generic[T]):
    """Stores the first `num_first` items and the last `num_last` ones."""

    def __init__(self, num_first: int, num_last: int) -> None:
        self._num_first = num_first
        self._first: list[T] = []
        self._last: deque[T] = deque(maxlen=num_last)
        self.num_items = 0

    def append(self, item: T) -> None:
        """Add an item, and drop the oldest of the last ones."""
        self.num_items += 1
        if len(self._first) < self._num_first:
            self._first.append(item)
        else:
            self._last.append(item)

    def replace_last(self, item: T) -> None:
        """Replace the newest item; there is one."""
        newest = self._last or self._first
        newest[-1] = item

    @property
    def newest(self) -> T | None:
        """The item that was added last."""
        newest = self._last or self._first
        return newest[-1] if newest else None

    def items(self) -> tuple[T, ...]:
        """Return the stored items in their order."""
        return (*self._first, *self._last)
