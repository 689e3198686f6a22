"""Agreement of ranks on the step after which a request takes effect, by the store that torch.distributed has anyway.

A request reaches the ranks at different moments. Each notes in the store that it has it, and the step that it has done. Once all
have, the request takes effect after the furthest of these steps plus a margin. Ranks that step together are one step apart at
most, so none has gone on further by then. No collective, and no cost in steps without a request.
"""

import os
import sys
from typing import Any, Protocol

# Steps after the furthest that any rank had finished when it received the request. Ranks see that all have it one step later at
# most, and are one step apart.
MARGIN_STEPS = 3


class Store(Protocol):
    """What is used of torch.distributed's key-value store."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter and return its new value."""


def default_store() -> Store | None:
    """Return the store of the process group, if this process has joined one; torch is not imported for it."""
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if (
            distributed is None
            or not distributed.is_available()
            or not distributed.is_initialized()
        ):
            return None
        store: Store = distributed.distributed_c10d._get_default_store()
    except Exception:  # noqa: BLE001 - without a store each rank decides by itself
        return None
    return store


class Agreement:
    """Decides for one rank after which step a request takes effect."""

    def __init__(self, world_size: int, attempt: str) -> None:
        self._world_size = world_size
        self._prefix = f"stoker/{attempt}"
        # Requests that this rank has noted in the store.
        self._entered: dict[str, None] = {}

    def takes_effect(self, request: str, step: int) -> bool:
        """Whether a request takes effect after `step`, which this rank has just finished. To be asked after each step.

        Ranks that have no store in common act at once.
        """
        store = default_store() if self._world_size > 1 else None
        if store is None:
            return True
        try:
            return step >= self._agreed_step(store, f"{self._prefix}/{request}", step)
        except Exception:  # noqa: BLE001 - a store that is gone is no reason to end training
            return False

    def _agreed_step(self, store: Store, key: str, step: int) -> float:
        if key not in self._entered:
            self._entered[key] = None
            _raise_to(store, f"{key}/step", step)
            store.add(f"{key}/ranks", 1)
        if store.add(f"{key}/ranks", 0) < self._world_size:
            return float("inf")
        return store.add(f"{key}/step", 0) + MARGIN_STEPS


def _raise_to(store: Store, key: str, step: int) -> None:
    """Raise a counter to at least `step`. Two ranks that do so at once may raise it further, for both alike."""
    known = store.add(key, 0)
    if known < step:
        store.add(key, step - known)


def world_size() -> int:
    """Return the number of ranks by the launcher's variables; 1 without them."""
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() and int(text) > 0 else 1
