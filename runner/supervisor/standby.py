"""Standby: a supervisor that does not lead yet. It follows the journal into a controller of its own, and leads when no other does.

So a take-over costs no more than the rest of the leader's lease and the last few entries. It decides nothing and writes nothing
but one volatile register that says that it is there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.errors import StoreCorrupt, StoreRolledBack, StoreUnavailable
from runner.facts import wire
from runner.facts.messages.cluster_status import StandbyStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.journal import Journal
from runner.serve.status_reader import STANDBY
from runner.store.protocol import JOURNAL, Lease, LeaseHeld, LeaseHolder, Store
from runner.supervisor.decisions import DecisionLog
from runner.supervisor.lease import LEASE, holder_name, is_known_dead, take_lease, version

_LOG = logging.getLogger("stoker")

# between two words that we are there; chosen, not measured
SHOW_SECONDS = 1.0
# Between two looks at the lease at most, as a share of its life and in seconds: one given back is not announced; chosen.
LOOK_SHARE = 0.2
LOOK_SECONDS = 1.0
# after new entries, so that a busy journal is read in batches; chosen, not measured
REST_SECONDS = 0.1


class Standby:
    """Waits for its turn to lead one cluster. `stop` may be called from any thread and from signal handlers."""

    def __init__(
        self, cluster: ClusterSpec, store: Store, journal: Journal, policy: Policy
    ) -> None:
        """`journal` can be read; nothing is read yet."""
        self._cluster, self._store, self._journal, self._policy = cluster, store, journal, policy
        self._holder = holder_name()
        self._ended = threading.Event()
        self._show_due = 0.0
        # who led when we last looked
        self._leader = ""
        self._is_away = False
        self.turns = self._new_turns()

    def stop(self) -> None:
        """Stop waiting soon."""
        self._ended.set()
        self._store.wake()

    def wait(self) -> Lease | None:
        """Follow until the lease is ours and return it; None when told to stop, or when the cluster was shut down meanwhile.

        Raises StoreRolledBack when the journal ends before what was followed already.
        """
        try:
            while not self._ended.is_set():
                try:
                    lease = self._look()
                except StoreUnavailable as error:
                    self._sit_out(error)
                    continue
                if lease is not None:
                    return lease
                if self._leader and self.turns.controller.has_closed and not self._is_led():
                    _LOG.info("standby: the cluster was shut down; nothing is left to stand by for")
                    return None
        finally:
            with contextlib.suppress(StoreUnavailable):
                self._store.delete(f"{STANDBY}{self._holder}")
        _LOG.info("standby: told to end; it never led")
        return None

    def _look(self) -> Lease | None:
        """Follow to the end, and take the lease if nobody has it; otherwise wait for news."""
        self._follow()
        current = self._store.lease_holder(LEASE)
        if current is None or not _is_alive(current):
            # what it wrote last
            self._follow()
            if self._leader and self.turns.controller.has_closed:
                return None
            try:
                lease = take_lease(self._cluster, self._store)
            except LeaseHeld:
                # another standby was quicker
                return None
            self._say_taken(current)
            return lease
        self._back()
        if current.holder != self._leader:
            sequence = self.turns.controller.state.sequence
            _LOG.info(
                "standby: %s leads; followed its journal to entry %d", current.holder, sequence
            )
            self._leader = current.holder
        self._show()
        look_seconds = min(LOOK_SECONDS, LOOK_SHARE * self._cluster.lease_seconds)
        self._rest(min(look_seconds, current.expires_in_seconds + 0.01))
        return None

    def _follow(self) -> None:
        try:
            applied = self.turns.recover()
        except StoreRolledBack:
            raise
        except (StoreUnavailable, StoreCorrupt):
            # Slower than the journal was trimmed, and its files are not to be seen from here: begin at a snapshot again.
            if self._journal.first_stored() <= self.turns.controller.state.sequence + 1:
                raise
            _LOG.warning("standby: entries were moved to files meanwhile; beginning at a snapshot")
            self.turns = self._new_turns()
            applied = self.turns.recover()
        if applied and self._leader:
            self._ended.wait(REST_SECONDS)

    def _rest(self, seconds: float) -> None:
        """Wait for a new entry, or to be told to stop."""
        sequence = self.turns.controller.state.sequence
        self._store.read(
            streams={JOURNAL: sequence}, registers={}, timeout_seconds=seconds, limit=1
        )

    def _is_led(self) -> bool:
        current = self._store.lease_holder(LEASE)
        return current is not None and _is_alive(current)

    def _show(self) -> None:
        if time.monotonic() < self._show_due:
            return
        self._show_due = time.monotonic() + SHOW_SECONDS
        shown = StandbyStatus(
            holder=self._holder,
            wall=time.time(),
            through=self.turns.controller.state.sequence,
            version=version(),
            takes_over_within_seconds=self._cluster.lease_seconds,
        )
        self._store.put(f"{STANDBY}{self._holder}", wire.encode(shown))

    def _say_taken(self, before: LeaseHolder | None) -> None:
        who = "nobody leads" if before is None else f"{before.holder} leads no more"
        sequence = self.turns.controller.state.sequence
        _LOG.info("standby: %s; taking over at journal entry %d", who, sequence)

    def _sit_out(self, error: StoreUnavailable) -> None:
        if not self._is_away:
            _LOG.warning("standby: store: %s; waiting", error)
        self._is_away = True
        self._ended.wait(min(error.delay_seconds, LOOK_SECONDS))

    def _back(self) -> None:
        if self._is_away:
            _LOG.info("standby: the store answers again")
        self._is_away = False

    def _new_turns(self) -> DecisionLog:
        return DecisionLog(Controller(self._policy), self._journal, on_outage=_never)


def _is_alive(current: LeaseHolder) -> bool:
    return current.expires_in_seconds > 0 and not is_known_dead(current.holder)


def _never(error: StoreUnavailable) -> None:
    """A standby writes nothing, so it waits for no write."""
    raise error
