"""The signal emitter: what the parts of an agent send signals with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalEmitter:
    """`next_header` returns a signal's source fields, `emit` sends a durable signal, `heartbeat` sends a heartbeat now."""

    next_header: Callable[[], Mapping[str, Any]]
    emit: Callable[[object], None]
    heartbeat: Callable[[], None]
