"""Voice: how the parts of an agent say what they see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalEmitter:
    """`stamp` gives a signal its source fields, `tell` sends a durable one, `beat` a heartbeat at once."""

    stamp: Callable[[], Mapping[str, Any]]
    tell: Callable[[object], None]
    beat: Callable[[], None]
