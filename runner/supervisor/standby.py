"""Standby: a supervisor that does not lead yet. It applies the journal to a controller of its own until it gets the lease.

A take-over therefore costs the rest of the leader's lease and the last few entries. A standby
decides nothing, and writes only one volatile register that announces it.
"""

import contextlib
import logging
import threading
import time

from runner.decide.controller import Controller
from runner.errors import StoreCorrupt, StoreRolledBack, StoreUnavailable
from runner.facts import wire
from runner.facts.messages.cluster_status import StandbyStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import JOURNAL, LEASE, STANDBY_PREFIX
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from runner.signer import Signer
from runner.store.protocol import Lease, LeaseHeld, LeaseHolder, Store
from runner.supervisor.decisions import DecisionLog, policy_of
from runner.supervisor.lease import acquire_lease, holder_name, is_known_dead, version

_LOG = logging.getLogger("stoker")

# All are chosen, not measured.
ANNOUNCE_SECONDS = 1.0
# Between two polls of the lease at most, as a share of its term too: its release notifies no one.
POLL_SHARE = 0.2
POLL_SECONDS = 1.0
# After new entries, so that a busy journal is read in batches.
REST_SECONDS = 0.1


class Standby:
    """Waits for the lease of one cluster. `stop` may be called from any thread and from signal handlers."""

    def __init__(self, cluster: ClusterSpec, store: Store, signer: Signer) -> None:
        """Nothing is read yet."""
        self._cluster, self._store = cluster, store
        self._journal = Journal(store, signer=signer, archive=archive_of(cluster))
        self._policy = policy_of(cluster)
        self._holder = holder_name()
        self._ended = threading.Event()
        self._announce_due = 0.0
        self._leader = ""
        self._is_cut_off = False
        self.log = self._new_log()

    def stop(self) -> None:
        """Ask `wait_for_lease` to end."""
        self._ended.set()
        self._store.wake()

    def wait_for_lease(self) -> Lease | None:
        """Follow the journal until the lease is ours and return it; None when stopped, or when the cluster was shut down.

        Raises StoreRolledBack when the journal ends before an entry that was applied already.
        """
        try:
            while not self._ended.is_set():
                try:
                    lease = self._poll()
                except StoreUnavailable as error:
                    if not self._is_cut_off:
                        _LOG.warning("standby: store: %s; waiting", error)
                    self._is_cut_off = True
                    self._ended.wait(min(error.delay_seconds, POLL_SECONDS))
                    continue
                if lease is not None:
                    return lease
                if self._leader and self.log.controller.has_closed and not self._is_led():
                    _LOG.info("standby: the cluster was shut down; ending")
                    return None
        finally:
            with contextlib.suppress(StoreUnavailable):
                self._store.delete(f"{STANDBY_PREFIX}{self._holder}")
        _LOG.info("standby: stopped before it led")
        return None

    def _poll(self) -> Lease | None:
        """Follow to the journal's end, and acquire the lease if it is free; otherwise wait for a new entry."""
        self._follow()
        current = self._store.lease_holder(LEASE)
        if current is None or not _is_alive(current):
            # The last entries of the previous leader.
            self._follow()
            if self._leader and self.log.controller.has_closed:
                return None
            try:
                lease = acquire_lease(self._cluster, self._store)
            except LeaseHeld:
                # Another standby was faster.
                return None
            who = f"{current.holder} lost the lease" if current else "no supervisor holds the lease"
            sequence = self.log.controller.state.sequence
            _LOG.info("standby: %s; taking over at journal entry %d", who, sequence)
            return lease
        if self._is_cut_off:
            _LOG.info("standby: the store answers again")
        self._is_cut_off = False
        sequence = self.log.controller.state.sequence
        if current.holder != self._leader:
            self._leader = current.holder
            _LOG.info("standby: %s leads; followed its journal to entry %d", self._leader, sequence)
        self._announce()
        poll_seconds = min(POLL_SECONDS, POLL_SHARE * self._cluster.lease_seconds)
        self._store.read(
            streams={JOURNAL: sequence},
            registers={},
            timeout_seconds=min(poll_seconds, current.expires_in_seconds + 0.01),
            limit=1,
        )
        return None

    def _follow(self) -> None:
        try:
            applied = self.log.recover()
        except StoreRolledBack:
            raise
        except (StoreUnavailable, StoreCorrupt):
            # The journal was trimmed past our last entry, and its files are not visible here.
            if self._journal.first_stored() <= self.log.controller.state.sequence + 1:
                raise
            _LOG.warning("standby: entries were moved to files; restarting from a snapshot")
            self.log = self._new_log()
            applied = self.log.recover()
        if applied and self._leader:
            self._ended.wait(REST_SECONDS)

    def _is_led(self) -> bool:
        current = self._store.lease_holder(LEASE)
        return current is not None and _is_alive(current)

    def _announce(self) -> None:
        if time.monotonic() < self._announce_due:
            return
        self._announce_due = time.monotonic() + ANNOUNCE_SECONDS
        shown = StandbyStatus(
            holder=self._holder,
            wall=time.time(),
            followed_through=self.log.controller.state.sequence,
            version=version(),
            takes_over_within_seconds=self._cluster.lease_seconds,
        )
        self._store.put(f"{STANDBY_PREFIX}{self._holder}", wire.encode(shown))

    def _new_log(self) -> DecisionLog:
        return DecisionLog(Controller(self._policy), self._journal)


def _is_alive(current: LeaseHolder) -> bool:
    return current.expires_in_seconds > 0 and not is_known_dead(current.holder)
