"""The supervisor process from start to end: it takes the lease, at once or as a standby, and leads the cluster.

Its exit code: 0 the cluster was shut down, or the process got SIGTERM; 1 another supervisor
leads; 5 the store was rolled back or damaged (`runner.supervisor.store_rollback`).
"""

import contextlib
import gc
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Self

from runner.atomic_files import write_atomically
from runner.errors import Fenced, StoreCorrupt, UserError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec
from runner.folder_modes import READABLE, close_folder, exposures
from runner.log_lines import start_log
from runner.providers import machine_slots
from runner.providers.registry import CompositeProvider
from runner.signer import CLUSTER_NAME, signer_of
from runner.store.protocol import Store
from runner.store.registry import open_store
from runner.supervisor.decisions import DecisionLog
from runner.supervisor.lease import LeaseKeeper, holder_name, require_no_leader
from runner.supervisor.loop import Supervisor
from runner.supervisor.standby import Standby
from runner.supervisor.store_rollback import EXIT_CODE, stop_all_action

# A fleet's heartbeats are thousands of objects a second that live for a second and form no cycles:
# they are gone before a collection. Chosen; bench/fleet.
GC_THRESHOLDS = (50_000, 20, 50)
# With Python's default of 5 ms, answers of the store wait that long for the interpreter, several
# times a decision, while the status is encoded. Chosen; bench/fleet.
SWITCH_SECONDS = 0.0005

_LOG = logging.getLogger("stoker")


class _StopSignals:
    """Handles Ctrl-C and SIGTERM from the start of this process to its end, whichever part of it runs."""

    def __init__(self) -> None:
        self._is_stopped = False
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self._previous = {
            number: signal.signal(number, self._on_signal)
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_stop(self, stop: Callable[[], None]) -> None:
        """Call `stop` on a signal from now on; at once, if one came before."""
        self._stop = stop
        if self._is_stopped:
            stop()

    def _on_signal(self, *_: object) -> None:
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
    gc.set_threshold(*GC_THRESHOLDS)
    start_log("%(asctime)s %(levelname)s %(message)s")
    for folder in (Path(cluster.state), Path(cluster.state) / "runs"):
        close_folder(folder, READABLE)
    for problem in exposures(cluster):
        _LOG.warning("%s", problem)
    signer = signer_of(cluster)
    if cluster.spans_machines and not signer.is_active:
        raise UserError(
            "token_file: a cluster whose store other machines reach needs a token; make one with `stoker token`, and copy it "
            "to every machine"
        )
    with contextlib.closing(open_store(cluster)) as store, _StopSignals() as signals:
        provider = CompositeProvider.of_cluster(cluster, store, signer)
        provider.check()
        lease = standby_log = None
        if standby:
            waiting = Standby(cluster, store, signer)
            signals.on_stop(waiting.stop)
            try:
                lease = waiting.wait_for_lease()
            except StoreCorrupt as error:
                return _give_up(store, error, waiting.log)
            if lease is None:
                return 0
            standby_log = waiting.log
            serving = partial(_serving_if_possible, serving)
        else:
            # Before the port of its metrics is found to be in use: by that other supervisor.
            require_no_leader(cluster, store)
        with (
            serving() as metrics,
            LeaseKeeper(cluster, store, lease) as keeper,
            machine_slots.registered(cluster),
        ):
            provider.claim(keeper.lease)
            # The agents of this machine read it.
            write_atomically(Path(cluster.state) / CLUSTER_NAME, wire.encode(cluster).decode())
            supervisor = Supervisor(
                cluster, store, keeper.lease, provider, signer=signer, standby_log=standby_log
            )
            _LOG.info(
                "leads cluster %s; %s; state %s; %s",
                *(cluster.name, store, cluster.state),
                "no metrics" if metrics is None else f"metrics on port {cluster.metrics_port}",
            )
            return _lead(store, supervisor, keeper, signals)


def _lead(store: Store, supervisor: Supervisor, keeper: LeaseKeeper, signals: _StopSignals) -> int:
    keeper.start_renewing(on_loss=supervisor.stop)
    signals.on_stop(supervisor.stop)
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        supervisor.run()
        if keeper.rollback is not None:
            raise keeper.rollback
    except StoreCorrupt as error:
        return _give_up(store, error, supervisor.log)
    except Fenced as error:
        _LOG.error("another supervisor leads: %s", error)
        return 1
    if keeper.is_lost:
        _LOG.warning("the lease was lost: another supervisor leads")
        return 1
    return 0


def _give_up(store: Store, error: StoreCorrupt, log: DecisionLog) -> int:
    """Record that the store is damaged or rolled back, so that no supervisor acts on it; return the exit code."""
    stop_all_action(
        store,
        error,
        holder=holder_name(),
        acknowledged=log.durable_sequence,
        generation=log.controller.state.next_generation - 1,
        cluster=log.controller.policy.cluster,
    )
    return EXIT_CODE


@contextlib.contextmanager
def _serving_if_possible(serving: Callable[[], AbstractContextManager[object]]) -> Iterator[object]:
    """Serve if possible, lead in any case: the previous supervisor may still hold the port."""
    with contextlib.ExitStack() as stack:
        server = None
        try:
            server = stack.enter_context(serving())
        except UserError as error:
            _LOG.warning("%s; leading without metrics", error)
        yield server
