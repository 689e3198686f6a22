"""The supervisor process from start to end: it takes the lease, at once or as a standby, and leads the cluster.

Its exit code: 0 the cluster was shut down, or the process got SIGTERM; 1 another supervisor
leads; 5 the store was rolled back or damaged (`runner.supervisor.store_rollback`).
"""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Self

from runner.atomic_files import write_atomically
from runner.errors import Fenced, StoreCorrupt, UserError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from runner.providers.registry import check_provider, provider_of
from runner.signer import Signer, signer_of
from runner.store.protocol import Lease, Store
from runner.store.registry import open_store
from runner.supervisor.decisions import DecisionLog
from runner.supervisor.lease import LeaseKeeper, holder_name
from runner.supervisor.loop import Supervisor, policy_of
from runner.supervisor.standby import Standby
from runner.supervisor.store_rollback import EXIT_CODE, stop_all_action

# Allocations until a collection of young objects, and collections until one of older objects. A
# fleet's heartbeats are thousands of objects a second that live for a second and form no cycles:
# they are gone before. Chosen; bench/fleet.
GC_THRESHOLDS = (50_000, 20, 50)
# For which a thread keeps the interpreter while others wait. With Python's default of 5 ms, answers
# of the store wait that long, several times a decision, while the status is encoded. Chosen;
# bench/fleet.
SWITCH_SECONDS = 0.0005

_LOG = logging.getLogger("stoker")


class _StopSignals:
    """Handles Ctrl-C and SIGTERM from the start of this process to its end, whichever part of it runs."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._stop: Callable[[], None] = lambda: None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._previous[number] = signal.signal(number, lambda *_: self._on_signal())
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call `stop` on a signal from now on; at once, if one came before."""
        self._stop = stop
        if self._is_stopped:
            stop()

    def _on_signal(self) -> None:
        self._is_stopped = True
        self._stop()


def run(
    cluster: ClusterSpec,
    *,
    standby: bool = False,
    serving: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> int:
    """Lead this cluster until it is shut down or another supervisor leads; return the exit code.

    `standby`: wait until no other supervisor leads. `serving` is entered while this one leads.
    Raises UserError when another supervisor leads already, or when the cluster cannot be led from
    this machine.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    Path(cluster.state).mkdir(parents=True, exist_ok=True)
    signer = require_signer(cluster)
    with contextlib.closing(open_store(cluster)) as store, _StopSignals() as signals:
        check_provider(cluster, store)
        if not standby:
            return _lead(cluster, store, signals, signer=signer, serving=serving)
        journal = Journal(store, archive=archive_of(cluster))
        waiting = Standby(cluster, store, journal, policy_of(cluster))
        signals.on_stop(waiting.stop)
        try:
            lease = waiting.wait_for_lease()
        except StoreCorrupt as error:
            state = waiting.log.controller.state
            known = {"acknowledged": state.sequence, "generation": state.next_generation - 1}
            stop_all_action(store, error, holder=holder_name(), **known)
            return EXIT_CODE
        if lease is None:
            return 0
        serving = partial(_serving_if_possible, serving)
        acquired = (lease, waiting.log)
        return _lead(cluster, store, signals, signer=signer, serving=serving, acquired=acquired)


def _lead(
    cluster: ClusterSpec,
    store: Store,
    signals: _StopSignals,
    *,
    signer: Signer,
    serving: Callable[[], AbstractContextManager[object]],
    acquired: tuple[Lease, DecisionLog] | None = None,
) -> int:
    lease, standby_log = acquired or (None, None)
    with serving(), LeaseKeeper(cluster, store, lease) as keeper:
        provider = provider_of(cluster, store, keeper.lease, signer)
        # The agents of this machine read it.
        write_atomically(Path(cluster.state) / "cluster.json", wire.encode(cluster).decode())
        supervisor = Supervisor(
            cluster, store, keeper.lease, provider, signer=signer, standby_log=standby_log
        )
        keeper.start_renewing(on_loss=supervisor.stop)
        signals.on_stop(supervisor.stop)
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            supervisor.run()
        except StoreCorrupt as error:
            return supervisor.give_up(error)
        except Fenced as error:
            _LOG.error("another supervisor leads: %s", error)
            return 1
        if keeper.rollback is not None:
            return supervisor.give_up(keeper.rollback)
        if keeper.is_lost:
            _LOG.warning("the lease was lost: another supervisor leads")
            return 1
    return 0


def require_signer(cluster: ClusterSpec) -> Signer:
    """Return the cluster's signer; raise UserError without a token where other machines reach the store."""
    signer = signer_of(cluster)
    if cluster.store.address and not signer.is_active:
        raise UserError(
            "token_file: a cluster whose store other machines reach needs a token; make one with `stoker token`, and copy it "
            "to every machine"
        )
    return signer


@contextlib.contextmanager
def _serving_if_possible(serving: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Serve if possible, lead in any case: the previous supervisor may still hold the port."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(serving())
        except UserError as error:
            _LOG.warning("%s; leading without metrics", error)
        yield
