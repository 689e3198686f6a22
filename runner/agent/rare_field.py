"""A field of heartbeats that rarely changes: sent when it changes, in an agent's first heartbeat, and now and then."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

# After a take-over, or a lost heartbeat, a supervisor lacks the field for so long and one heartbeat more: less than the grace of
# `detect/start_times`. Chosen, not measured.
REPEAT_SECONDS = 10.0

T = TypeVar("T")


@dataclass(slots=True)
class RareField(Generic[T]):
    """The value that was sent last, and when it is due again."""

    _sent: Mapping[str, T] = field(default_factory=dict)
    _due: float = 0.0

    def pop_due(self, value: Mapping[str, T], now: float) -> Mapping[str, T]:
        """Return `value` if it is to be sent now, and an empty one otherwise; `now`: monotonic seconds."""
        if value == self._sent and now < self._due:
            return {}
        self._sent, self._due = value, now + REPEAT_SECONDS
        return value
