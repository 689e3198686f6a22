"""The newest status of a cluster, read in a thread of its own: a store that does not answer stops no key."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from runner.cli import clusters
from runner.cli.foreground.status_feed import StatusFeed
from runner.errors import StokerError
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.specs.cluster import ClusterSpec

# Supervisors publish twice a second at most; a person reads less often. Chosen, not measured.
READ_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """What is known now. `trouble`: why it may be older than it could be, "" for nothing."""

    status: ClusterStatus | None = None
    leader: clusters.Leader = field(default_factory=clusters.Leader)
    trouble: str = ""


class StatusReader:
    """Reads status and lease once a second, from `start` on, until the process ends; `on_read` is called after each time."""

    def __init__(self, cluster: ClusterSpec, on_read: Callable[[], None]) -> None:
        self.newest = Newest()
        self._cluster, self._on_read = cluster, on_read
        self._trouble = ""
        self._is_over = threading.Event()

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, name="status reader", daemon=True).start()

    def stop(self) -> None:
        """Read no more."""
        self._is_over.set()

    def _read(self) -> None:
        while not self._is_over.is_set():
            try:
                with clusters.store_of(self._cluster) as store:
                    feed = StatusFeed(store, self._cluster, self._note)
                    while not self._is_over.is_set():
                        self._read_once(feed, lambda: clusters.leader_of(store))
            except StokerError as error:
                self._show(replace(self.newest, trouble=str(error)))
            except Exception as error:  # noqa: BLE001 - bulkhead: shown, and tried again
                self._show(replace(self.newest, trouble=f"{type(error).__name__}: {error}"))
            self._is_over.wait(READ_SECONDS)

    def _read_once(self, feed: StatusFeed, find_leader: Callable[[], clusters.Leader]) -> None:
        began, self._trouble = time.monotonic(), ""
        status = feed.next(READ_SECONDS) or self.newest.status
        leader = self.newest.leader if self._trouble else find_leader()
        self._show(Newest(status=status, leader=leader, trouble=self._trouble))
        self._is_over.wait(max(0.0, began + READ_SECONDS - time.monotonic()))

    def _note(self, text: str) -> None:
        self._trouble = text

    def _show(self, newest: Newest) -> None:
        self.newest = newest
        self._on_read()
