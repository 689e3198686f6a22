"""An observer of a cluster through its store: signals and assignments as they arrive, and which ranks run where."""

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

# In units of nice(2). Chosen, not measured.
OBSERVER_PRIORITY = -10


class StoreObserver:
    """Follows a cluster from outside. Records the pids of ranks, the state of warm processes, and why ranks were not forked."""

    def __init__(self, store: Store, nodes: Sequence[str], signer: Signer) -> None:
        self._store, self._signer = store, signer
        self._cursors = {"signals": 0, "heartbeats": store.last("heartbeats")}
        self._versions = {f"assignment/{node}": 0 for node in nodes}
        self.pids: dict[AttemptId, dict[int, int]] = {}
        # Node -> state of its warm process, from its last heartbeat.
        self.warm: dict[str, str] = {}
        # Attempts with ranks that were not forked as planned -> why.
        self.not_forked_reason: dict[AttemptId, str] = {}

    def read(self, timeout_seconds: float) -> list[Any]:
        """Return the new messages, once there are any."""
        batch = self._store.read(
            streams=self._cursors,
            registers=self._versions,
            timeout_seconds=timeout_seconds,
        )
        messages: list[Any] = []
        for stream, items in batch.items.items():
            for item in items:
                self._cursors[stream] = item.number
                messages.append(self._decode(stream, item.payload))
        for name, register in batch.registers.items():
            self._versions[name] = register.version
            messages.append(self._decode(name, register.payload))
        for message in messages:
            self._record(message)
        return messages

    def _decode(self, name: str, payload: bytes) -> Any:
        return wire.decode(self._signer.verify(name, payload), limit_bytes=MAX_LARGE_BYTES)

    def catch_up(self) -> None:
        """Read until nothing is left."""
        while self.read(0.0):
            pass

    def _record(self, fact: Any) -> None:
        if isinstance(fact, RanksStarted):
            pids = {int(rank): pid for rank, pid in fact.pids.items()}
            self.pids.setdefault(fact.attempt, {}).update(pids)
            if fact.not_forked_reason:
                self.not_forked_reason[fact.attempt] = f"{fact.node}: {fact.not_forked_reason}"
        elif isinstance(fact, Heartbeat):
            self.warm[fact.node] = fact.warm


@contextmanager
def high_priority() -> Iterator[None]:
    """Run this process, which only observes, before all others where that is allowed, so that its own delays are not measured."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, OBSERVER_PRIORITY)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
