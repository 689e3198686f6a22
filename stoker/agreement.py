"""Agreement of ranks on the step after which a request takes effect, by the store that torch.distributed has anyway.

A request reaches the ranks at different moments. Each counts itself in the store when it has it. Once all have, rank 0 writes
down the step that it has done plus a margin: the request takes effect after that step. Ranks that step together are one step
apart at most, so none has gone on further before it reads this. No collective, and no cost in steps without a request.
"""

import os
import sys
from typing import Any, Protocol

# Steps after the one at whose end rank 0 decides. The others read the decision two steps later at most.
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

    def __init__(self, world_size: int, attempt: str, *, rank: int) -> None:
        self._world_size, self._rank = world_size, rank
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
            store.add(f"{key}/ranks", 1)
        # Rank 0 alone adds to it, and once.
        agreed = store.add(f"{key}/step", 0)
        if agreed == 0 and self._rank == 0 and store.add(f"{key}/ranks", 0) >= self._world_size:
            agreed = store.add(f"{key}/step", step + MARGIN_STEPS)
        return agreed or float("inf")


def world_size() -> int:
    """Return the number of ranks by the launcher's variables; 1 without them."""
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() and int(text) > 0 else 1
