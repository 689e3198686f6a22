"""Leading a cluster: what one process does from its start to its end. It stands by or takes the lease at once, leads, and gives up.

The exit code says how it ended: 0 the cluster was shut down, or nobody had to lead it any more; 1 somebody else leads; 5 the
store is not what it was (`runner.supervisor.store_rollback`).
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

from runner.atomic_files import write_durably
from runner.errors import Fenced, StoreCorrupt, UserError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.archive import archive_of
from runner.journal.journal import Journal
from runner.providers.joined import CompositeProvider, SelfJoinedProvider
from runner.providers.local import LocalProvider, NodeProvider, check_local_nodes, claim_local_nodes
from runner.signer import Signer, signer_of
from runner.store.protocol import Lease, Store
from runner.store.registry import open_store
from runner.supervisor.decisions import DecisionLog
from runner.supervisor.lease import LeaseKeeper, holder_name
from runner.supervisor.loop import Supervisor, policy_of
from runner.supervisor.standby import Standby
from runner.supervisor.store_rollback import EXIT_CODE, stop_all_action

# Allocations until young objects are looked through, and rounds until older ones are. A fleet's heartbeats are thousands of objects
# a second that live for one second, and form no cycles: looked through so seldom, they are gone before. Chosen; bench/fleet.
GC_THRESHOLDS = (50_000, 20, 50)
# For which a thread keeps the interpreter to itself while others wait: each answer of the store would wait for as long while a View
# is encoded (Python's own 5 ms, several times a decision). Chosen; bench/fleet.
SWITCH_SECONDS = 0.0005

_LOG = logging.getLogger("stoker")


class _Ending:
    """Ctrl-C and SIGTERM, from the start of this process to its end: whoever is at work is told, and whoever comes after."""

    def __init__(self) -> None:
        self._was_told = False
        self._tell: Callable[[], None] = lambda: None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, lambda *_: self._told())
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def tell(self, stop: Callable[[], None]) -> None:
        """Call `stop` when told to end from now on; at once, if that has happened."""
        self._tell = stop
        if self._was_told:
            stop()

    def _told(self) -> None:
        self._was_told = True
        self._tell()


def lead(
    cluster: ClusterSpec,
    *,
    standby: bool = False,
    serving: Callable[[], AbstractContextManager[object]] = contextlib.nullcontext,
) -> int:
    """Lead this cluster until it is shut down (0) or somebody else leads (1); `standby`: once nobody else does.

    `serving` is entered while it leads. Raises UserError when somebody leads already, or when the cluster cannot be led from here.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    Path(cluster.state).mkdir(parents=True, exist_ok=True)
    signer = needed_signer(cluster)
    with contextlib.closing(open_store(cluster)) as store, _Ending() as ending:
        check_local_nodes(cluster, store)
        if not standby:
            return _lead(cluster, store, ending, signer=signer, serving=serving)
        journal = Journal(store, archive=archive_of(cluster))
        waiting = Standby(cluster, store, journal, policy_of(cluster))
        ending.tell(waiting.stop)
        try:
            lease = waiting.wait()
        except StoreCorrupt as error:
            state = waiting.turns.controller.state
            known = {"acknowledged": state.sequence, "epoch": state.next_epoch - 1}
            stop_all_action(store, error, holder=holder_name(), **known)
            return EXIT_CODE
        if lease is None:
            return 0
        return _lead(
            cluster,
            store,
            ending,
            signer=signer,
            serving=partial(_serving_if_possible, serving),
            taken=(lease, waiting.turns),
        )


def _lead(
    cluster: ClusterSpec,
    store: Store,
    ending: _Ending,
    *,
    signer: Signer,
    serving: Callable[[], AbstractContextManager[object]],
    taken: tuple[Lease, DecisionLog] | None = None,
) -> int:
    lease, followed = taken or (None, None)
    with serving(), LeaseKeeper(cluster, store, lease) as lead:
        claim_local_nodes(cluster, store, lead.lease)
        # What agents of this machine go by.
        write_durably(Path(cluster.state) / "cluster.json", wire.encode(cluster).decode())
        place = place_of(cluster, store, lead.lease, signer)
        supervisor = Supervisor(cluster, store, lead.lease, place, signer=signer, followed=followed)
        lead.keep(on_loss=supervisor.stop)
        ending.tell(supervisor.stop)
        gc.set_threshold(*GC_THRESHOLDS)
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            supervisor.run()
        except StoreCorrupt as error:
            return supervisor.give_up(error)
        except Fenced as error:
            _LOG.error("another supervisor leads: %s", error)
            return 1
        if lead.forgot is not None:
            return supervisor.give_up(lead.forgot)
        if lead.is_lost:
            _LOG.warning("the lease was lost: another supervisor leads")
            return 1
    return 0


def needed_signer(cluster: ClusterSpec) -> Signer:
    """Return the cluster's signer; raise UserError without a token where strangers may reach the store."""
    signer = signer_of(cluster)
    if cluster.store.address and not signer.is_active:
        raise UserError(
            "token_file: a cluster whose store other machines reach needs a token; make one with `stoker token`, and copy it "
            "to every machine"
        )
    return signer


def place_of(cluster: ClusterSpec, store: Store, lease: Lease, signer: Signer) -> NodeProvider:
    """Return how the cluster's nodes are reached: all of them are on this machine, unless the store is for several."""
    if not cluster.store.address:
        return LocalProvider(cluster)
    return CompositeProvider(
        LocalProvider(cluster), SelfJoinedProvider(cluster, store, lease, signer)
    )


@contextlib.contextmanager
def _serving_if_possible(serving: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """Serve; but lead in any case: whoever was served metrics before may still have the port."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(serving())
        except UserError as error:
            _LOG.warning("%s; leading without", error)
        yield
