"""A cluster as another reader of its store sees it: signals and assignments as they come, and who runs where."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records  # noqa: F401 - readers of signals must know all kinds
from runner.facts.messages.signals import Heartbeat, RanksStarted
from runner.signer import Signer
from runner.store.protocol import MAX_LARGE_BYTES, Store

# the unit of nice(2); chosen, not measured
OBSERVER_PRIORITY = -10


class Reader:
    """Follows a cluster from outside. Remembers pids and nodes of ranks, who has a warm process, and who started without."""

    def __init__(self, store: Store, nodes: Sequence[str], signer: Signer) -> None:
        self._store, self._signer = store, signer
        self._cursors = {"signals": 0, "beats": store.last("beats")}
        self._versions = {f"assignment/{node}": 0 for node in nodes}
        self.pids: dict[AttemptId, dict[int, int]] = {}
        # node -> what its last heartbeat said of its warm process
        self.warm: dict[str, str] = {}
        self.cold: dict[
            AttemptId, str
            # attempts with ranks that were to be forked and were not -> why
        ] = {}

    def read(self, timeout_seconds: float) -> list[Any]:
        """Return the facts that are new, once there are any."""
        batch = self._store.read(
            streams=self._cursors,
            registers=self._versions,
            timeout_seconds=timeout_seconds,
        )
        facts: list[Any] = []
        for stream, items in batch.items.items():
            for item in items:
                self._cursors[stream] = item.number
                facts.append(self._fact(stream, item.payload))
        for name, register in batch.registers.items():
            self._versions[name] = register.version
            facts.append(self._fact(name, register.payload))
        for fact in facts:
            self._remember(fact)
        return facts

    def _fact(self, place: str, payload: bytes) -> Any:
        return wire.decode(self._signer.verify(place, payload), limit_bytes=MAX_LARGE_BYTES)

    def catch_up(self) -> None:
        """Read all there is."""
        while self.read(0.0):
            pass

    def _remember(self, fact: Any) -> None:
        if isinstance(fact, RanksStarted):
            pids = {int(rank): pid for rank, pid in fact.pids.items()}
            self.pids.setdefault(fact.attempt, {}).update(pids)
            if fact.cold:
                self.cold[fact.attempt] = f"{fact.node}: {fact.cold}"
        elif isinstance(fact, Heartbeat):
            self.warm[fact.node] = fact.warm


@contextmanager
def first_in_line() -> Iterator[None]:
    """Let this process, which only looks, run before all others where that is allowed: its own waiting is not measured then."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, OBSERVER_PRIORITY)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
