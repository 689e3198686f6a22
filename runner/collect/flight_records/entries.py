"""What the reading child extracts of one rank's flight record, checked as strictly as if the rank had sent it."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Entry(NamedTuple):
    """One collective, send or receive that a rank began, in the order in which it began them.

    `pg_id` numbers the groups of one rank, `group` is the name that all its ranks have. `sequence` counts the group's
    collectives, or the rank's sends and receives in it; `op_id` both. `num_parts`: ranks that gave a part of what all gather, 0
    if not known. `created_ns`: nanoseconds since 1970.
    """

    pg_id: int
    group: str
    description: str
    backend: str
    operation: str
    is_p2p: bool
    sequence: int
    op_id: int
    is_over: bool
    shape: str
    num_parts: int
    created_ns: int

    @property
    def signature(self) -> str:
        """Return what is the same on all ranks of a group that take part in one collective."""
        return f"{self.operation} {self.shape}".rstrip()


class Group(NamedTuple):
    """A process group as a rank knows it; no ranks: they are not listed."""

    name: str
    description: str
    ranks: tuple[int, ...]


class Status(NamedTuple):
    """The counters of one group: collectives, or sends and receives, whichever came last."""

    pg_id: int
    enqueued: int
    completed: int


class Content(NamedTuple):
    """A rank's flight record."""

    groups: tuple[Group, ...]
    status: tuple[Status, ...]
    entries: tuple[Entry, ...]


def content_of(plain: Any) -> Content:
    """Check the child's output; raises ValueError."""
    if not isinstance(plain, dict):
        raise ValueError("no record")
    return Content(
        _rows(plain.get("groups"), Group),
        _rows(plain.get("status"), Status),
        _rows(plain.get("entries"), Entry),
    )


def _rows(plain: Any, make: Callable[..., T]) -> tuple[T, ...]:
    if not isinstance(plain, list):
        raise ValueError("no record")
    kinds = list(make.__annotations__.values())
    return tuple(make(*_checked(row, kinds)) for row in plain)


def _checked(row: Any, kinds: list[Any]) -> list[Any]:
    if not isinstance(row, list) or len(row) != len(kinds):
        raise ValueError("no record")
    return [_value(value, kind) for value, kind in zip(row, kinds, strict=True)]


def _value(value: Any, kind: Any) -> Any:
    if kind in (int, str, bool):
        if type(value) is not kind:
            raise ValueError("no record")
        return value
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise ValueError("no record")
    return tuple(value)
