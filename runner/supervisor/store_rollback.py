"""A store that came back with less than it acknowledged: how it is detected, how all action stops, and the way out.

Two supervisors that act on different journals would launch a gang twice. On evidence of a rollback the supervisor decides and
writes nothing more, except one register for the next supervisor; it pages a person and ends with an exit code on which no service
manager restarts it. Ranks go on training. A person then restores a newer copy, or accepts the store as it is.
"""

import contextlib
import logging
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runner.act.pages import page_at_once
from runner.decide.controller import Controller
from runner.decide.placement.launch_plans import command_of
from runner.decide.state.cluster_state import LAUNCHED, State
from runner.errors import PermanentError, StokerError, StoreRolledBack, StoreUnavailable, WireError
from runner.facts import wire
from runner.facts.messages.records import Assigned, AttemptChanged, JournalEntry
from runner.facts.messages.signals import Heartbeat
from runner.facts.messages.store_rollback import CountersRaised, StoreAccepted, StoreStopped
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.pages import PagesSpec
from runner.facts.store_names import HEARTBEATS, STOPPED
from runner.journal.archive import archive_of
from runner.journal.high_water_mark import MARK_FILE, HighWaterFile, read_high_water
from runner.journal.journal import Journal
from runner.journal.snapshots import Snapshots
from runner.signer import Signer
from runner.store.protocol import Lease, Store
from runner.supervisor.decisions import DecisionLog, policy_of

_LOG = logging.getLogger("stoker")

# Of a supervisor that must not be restarted automatically.
EXIT_CODE = 5
# Added to the newest known generation: agents that are cut off may have obeyed a later one. Far more than a cluster uses up while
# a copy of the store ages (780 failures in 60 days at 2,000 nodes take 1,560). Both are chosen.
GENERATION_LEAP = 100_000
MAX_HEARTBEATS_SEARCHED = 5000


def mark_path(cluster: ClusterSpec) -> Path:
    """Return the file in which this machine keeps how far the cluster's store got."""
    return Path(cluster.state) / MARK_FILE


def read_stop_notice(store: Store) -> StoreStopped | None:
    """Return why no supervisor may act on this store; None if it may."""
    register = store.get(STOPPED)
    if register is None:
        return None
    try:
        found = wire.decode(register.payload)
    except WireError as error:
        reason = f"register {STOPPED!r}: {error}"
    else:
        if isinstance(found, StoreStopped):
            return found
        reason = f"register {STOPPED!r} holds no reason"
    return StoreStopped(reason=reason, holder="", wall=0.0)


def check_not_rolled_back(store: Store, journal: Journal) -> None:
    """Raise StoreRolledBack if a supervisor recorded a rollback before, or if this machine's high-water mark shows one."""
    found = read_stop_notice(store)
    if found is not None:
        raise StoreRolledBack(
            f"{found.reason} (detected by {found.holder or 'an unknown process'})"
        )
    journal.check_high_water()


def stop_all_action(
    store: Store,
    error: StokerError,
    *,
    holder: str,
    acknowledged: int,
    generation: int,
    cluster: ClusterSpec | None = None,
) -> None:
    """Record a rollback for the next supervisor, if the store accepts the write, and page a person once: by `cluster`, if given.

    A store that is damaged, or written by a later release, is only logged: a process that can read it may act on it.
    """
    _LOG.critical("%s", error)
    if not isinstance(error, StoreRolledBack):
        return
    with contextlib.suppress(StokerError):
        if read_stop_notice(store) is not None:
            return
    note = StoreStopped(
        reason=str(error)[:1000],
        holder=holder,
        wall=time.time(),
        acknowledged=acknowledged,
        generation=generation,
    )
    with contextlib.suppress(StokerError):
        store.put(STOPPED, wire.encode(note))
    text = (
        f"{error}. ALL ACTION HAS STOPPED; ranks train on unattended. See `stoker runbook store-rolled-back`: restore a newer copy "
        "of the store, or run `stoker store accept`"
    )
    pages, name = (cluster.pages, cluster.name) if cluster is not None else (PagesSpec(), "")
    page_at_once(text, pages, name, command="stoker runbook store-rolled-back")


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackLoss:
    """What accepting the store's present end gives up. Numbers of entries and generations; 0: none is known.

    `reason`: why action stopped; "": it did not. The journal `ends_at` an entry and has `next_generation`; `acknowledged` is
    the last entry, and `seen_generation` and `seen_run` are the newest, that an agent or a supervisor reported. `ahead`: nodes
    whose agents obey assignments that the journal lacks. `unsigned_through`: entries up to this one carry no code, so that only a
    person can say whose they are; `commands`: what the runs that go on would execute.
    """

    reason: str
    ends_at: int
    acknowledged: int
    next_generation: int
    seen_generation: int
    seen_run: int
    ahead: tuple[str, ...] = ()
    unsigned_through: int = 0
    commands: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Return how many entries are known to be missing."""
        return max(0, self.acknowledged - self.ends_at)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to accept."""
        is_ahead = self.seen_generation >= self.next_generation
        return bool(self.reason or self.lost or self.unsigned_through or is_ahead)


def assess_loss(cluster: ClusterSpec, store: Store, signer: Signer) -> RollbackLoss:
    """Compare the store with what agents and this machine know of it. Raises StoreCorrupt if it cannot be read."""
    journal = Journal(store, signer=signer, archive=archive_of(cluster))
    unsigned_through = journal.last() if journal.is_without_codes() else 0
    state = _read_all(cluster, journal, unsigned_through).controller.state
    notice = read_stop_notice(store) or StoreStopped(reason="", holder="", wall=0.0)
    mark = read_high_water(mark_path(cluster))
    generations, runs = [mark.next_generation - 1, notice.generation], [0]
    ahead: dict[str, None] = {}
    for heartbeat in _heartbeats(store, signer):
        generations.append(heartbeat.generation)
        runs.append(heartbeat.attempt.run if heartbeat.attempt is not None else 0)
        if heartbeat.generation >= state.next_generation:
            ahead[heartbeat.node] = None
    return RollbackLoss(
        reason=notice.reason or _shown_by_mark(cluster, store, signer),
        ends_at=state.sequence,
        acknowledged=max(mark.sequence, notice.acknowledged),
        next_generation=state.next_generation,
        seen_generation=max(generations),
        seen_run=max(runs),
        ahead=tuple(ahead),
        unsigned_through=unsigned_through,
        commands=tuple(
            f"run {run.run} {run.spec.name}: {shlex.join(command_of(run.spec))}"
            for run in state.runs.values()
            if run.is_alive
        )
        if unsigned_through
        else (),
    )


def accept_rollback(
    cluster: ClusterSpec,
    store: Store,
    lease: Lease,
    known: RollbackLoss,
    *,
    by: str,
    signer: Signer,
) -> int:
    """Accept the store's present end, under the supervisor's lease; return the number of the entry that says so.

    If this process dies before the end, supervisors still refuse the store: run it again.
    """
    mark = HighWaterFile(mark_path(cluster))
    journal = Journal(store, lease, signer=signer, archive=archive_of(cluster), mark=mark)
    snapshots = Snapshots(store, signer)
    for kept in snapshots.good()[0]:
        # A snapshot of entries that are lost.
        if kept.seal.through > journal.last():
            snapshots.delete(kept.register, lease)
    archive_of(cluster).put_aside(journal.index().last)
    log = _read_all(cluster, journal, known.unsigned_through)
    state = log.controller.state
    cursors = {name: min(number, store.last(name)) for name, number in state.cursors.items()}
    numbers = CountersRaised(
        next_generation=max(state.next_generation, known.seen_generation + 1) + GENERATION_LEAP,
        next_run=max(state.next_run, known.seen_run + 1),
        cursors=cursors,
    )
    entry = JournalEntry(
        sequence=state.sequence + 1,
        now=max(state.now, time.time()),
        input=StoreAccepted(by=by, reason=known.reason, lost=known.lost),
        records=(numbers, *_ended(state, known.ahead, numbers.next_generation)),
    )
    journal.accept(
        entry, next_generation=numbers.next_generation, unsigned_through=known.unsigned_through
    )
    if known.unsigned_through:
        # Supervisors start from here: no entry without a code is acted on again.
        log.recover()
        log.snapshot()
    mark.close()
    store.delete(STOPPED, fence=lease)
    return entry.sequence


def _ended(state: State, ahead: tuple[str, ...], generation: int) -> list[object]:
    """End what the journal does not know: all that runs on idle nodes, and gangs with a node that is ahead."""
    idle = [name for name, node in state.nodes.items() if node.attempt is None]
    records: list[object] = []
    for run in state.runs.values():
        attempt = run.attempt
        if attempt is None or attempt.state not in LAUNCHED or not set(ahead) & {*attempt.nodes}:
            continue
        reason = "the store lost the launches after its last entry"
        records.append(
            AttemptChanged(attempt=attempt.attempt, state="stopping", outcome="lost", reason=reason)
        )
        idle += attempt.nodes
    return [*records, *(Assigned(node=name, generation=generation) for name in idle)]


def _read_all(cluster: ClusterSpec, journal: Journal, unsigned_through: int) -> DecisionLog:
    """Read the newest snapshot that the journal reaches, and the entries after it."""
    log = DecisionLog(Controller(policy_of(cluster)), journal)
    log.recover(at_most=journal.last(), unsigned_through=unsigned_through)
    if log.controller.state.sequence < journal.index().last:
        raise PermanentError(
            f"the journal ends at entry {log.controller.state.sequence}, but its files reach entry {journal.index().last}: "
            "the store is a mixture of two states; restore a copy of all of it"
        )
    return log


def _shown_by_mark(cluster: ClusterSpec, store: Store, signer: Signer) -> str:
    """Return the rollback that this machine's high-water mark shows; "": none, or there is no mark."""
    path = mark_path(cluster)
    with contextlib.suppress(StoreUnavailable):
        if path.exists():
            with contextlib.closing(HighWaterFile(path)) as mark:
                try:
                    journal = Journal(store, signer=signer, archive=archive_of(cluster), mark=mark)
                    journal.check_high_water()
                except StoreRolledBack as error:
                    return str(error)
    return ""


def _heartbeats(store: Store, signer: Signer) -> Iterator[Heartbeat]:
    limit = MAX_HEARTBEATS_SEARCHED
    after = max(0, store.last(HEARTBEATS) - limit)
    batch = store.read(streams={HEARTBEATS: after}, registers={}, timeout_seconds=0, limit=limit)
    for item in batch.items.get(HEARTBEATS, ()):
        with contextlib.suppress(WireError):
            heartbeat = wire.decode(signer.verify(HEARTBEATS, item.payload))
            if isinstance(heartbeat, Heartbeat):
                yield heartbeat
