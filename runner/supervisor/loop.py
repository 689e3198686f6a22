"""The supervisor: the loop around the controller. One thread owns controller and journal; every edge talks through one inbox.

Edges are threads: one blocks in reads of the store, one renews the lease, one per action performs it. What they find comes in
through the inbox, is taken as a turn, and the records that come out are acted on: registers published, actions performed,
requests answered. When the supervisor dies, nothing else does; the next one applies the journal and goes on.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from functools import partial

from runner.act.action_handlers import performances
from runner.act.executor import ActionExecutor
from runner.act.registers import Registers
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.detect.registry import DetectorRegistry
from runner.errors import StoreCorrupt, StoreRolledBack, StoreUnavailable
from runner.facts.messages import records as r
from runner.facts.messages.signals import Heartbeat, NodeJoined, NodeLeft
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.archive import archive_of
from runner.journal.high_water_mark import Mark
from runner.journal.journal import Journal
from runner.load import load_runbooks
from runner.providers.local import NodeProvider
from runner.signer import UNSIGNED, Signer
from runner.store.protocol import Lease, Store
from runner.supervisor.clock import Clock
from runner.supervisor.compactor import JournalCompactor
from runner.supervisor.decisions import DecisionLog
from runner.supervisor.inbound_queue import LOOK_SECONDS, Arrival, InboundQueue
from runner.supervisor.lease import version
from runner.supervisor.message_validator import BEATS, SAID, MessageValidator, Refused
from runner.supervisor.status_publisher import StatusPublisher
from runner.supervisor.status_writer import StatusWriter
from runner.supervisor.store_rollback import EXIT_CODE, check_remembers, mark_of, stop_all_action

_LOG = logging.getLogger("stoker")

# Facts waiting for a turn; a full inbox makes the edges wait; chosen, not measured.
INBOX_SIZE = 10_000
# for a thread to end; chosen, not measured
EDGE_SECONDS = 5.0
# one blocking read of the store; only bounds how long a lost wake-up can last
READ_SECONDS = 60.0
# The loop being this late means that we stood still: at most this long, or this share of the silence limit; chosen.
PAUSE_SECONDS = 2.0
PAUSE_SHARE = 0.25
# between two turns of the loop while the reader has lost the store; chosen
DEAF_SECONDS = 0.2
# Between two words about messages that are none; chosen, not measured.
JUNK_SECONDS = 60.0
STREAMS = ("signals", "requests")
# or of its end
SIGNS_OF_LIFE = (Heartbeat, NodeJoined, NodeLeft)
# in the inbox: the arrivals are to be looked at
ARRIVED = object()
# a register nobody reads, written to see whether the store takes anything
WORD = "view.word"


class Supervisor:
    """Runs one cluster until it is shut down, the lease is lost, or `stop` is called."""

    def __init__(
        self,
        cluster: ClusterSpec,
        store: Store,
        lease: Lease,
        place: NodeProvider,
        *,
        signer: Signer = UNSIGNED,
        followed: DecisionLog | None = None,
    ) -> None:
        """`lease` is held already; `place` can start agents on the cluster's nodes; `followed` has read the journal so far."""
        self._cluster, self._store, self._lease, self._place = cluster, store, lease, place
        self._inbox: queue.Queue[object] = queue.Queue(INBOX_SIZE)
        controller = Controller(policy_of(cluster))
        self._mark = Mark(mark_of(cluster))
        self._journal = Journal(store, lease, archive=archive_of(cluster), mark=self._mark)
        self._turns = DecisionLog(controller, self._journal, on_outage=self._sit_out)
        self._archivist = JournalCompactor(self._journal, self._inbox.put)
        if followed is not None:
            self._turns.go_on_from(followed)
        self._signer, self._intake = signer, MessageValidator(signer)
        self._detectors = DetectorRegistry(cluster.silence_seconds)
        self._performer = ActionExecutor(performances(place, store, lease, signer), self._inbox.put)
        self._arrivals = InboundQueue()
        self._views = StatusWriter(store, lease, self._inbox.put)
        self._showing = StatusPublisher(cluster, self._views, self._about)
        self._registers = Registers(cluster, signer)
        self._pause_seconds = min(PAUSE_SECONDS, PAUSE_SHARE * cluster.silence_seconds)
        # when the loop was last seen to run
        self._awake_at = time.monotonic()
        # the store did not take a word of ours when last asked
        self._is_doubtful = False
        # the reader lost the store, and has not told yet for how long
        self._is_deaf = False
        # Sat out in the middle of a turn, not told to the controller yet.
        self._outage_seconds = 0.0
        self._junk_due = 0.0
        self._stopping = threading.Event()

    # ---- life -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Take over, then loop until the cluster has closed. Raises Fenced when another supervisor took over.

        Raises StoreCorrupt when the store is not what it was: then nothing may be decided or written any more.
        """
        check_remembers(self._store, self._journal)
        self._turns.recover()
        state = self._turns.controller.state
        self._archivist.start()
        self._clock = Clock(state.now)
        started = r.SupervisorStarted(
            holder=self._lease.holder,
            token=self._lease.token,
            version=version(),
            nodes=self._place.nodes,
        )
        open_before = [item.action for item in state.actions.values()]
        self._act(self._turns.take(started, self._clock.now()))
        self._registers.want_all(state)
        # without an outcome: perform again; every kind bears it
        for action in open_before:
            if action.id in state.actions:
                self._performer.submit(action)
        reader = threading.Thread(target=self._read, name="reader", daemon=True)
        reader.start()
        self._views.start()
        self._awake_at = time.monotonic()
        try:
            while not self._stopping.is_set() and not self._turns.controller.has_closed:
                self._turn_of_loop()
            self._views.stop(EDGE_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                self._showing.show_the_last(state, self._turns.ledger, self._clock.now())
            if not self._stopping.is_set() or state.closing:
                self._archivist.close(EDGE_SECONDS)
                with contextlib.suppress(StoreUnavailable):
                    self._turns.snapshot()
        except StoreUnavailable as error:
            if not self._stopping.is_set():
                raise
            _LOG.warning("told to end while the store is away: %s", error)
        finally:
            self._stopping.set()
            self._store.wake()
            self._archivist.close(EDGE_SECONDS)
            self._mark.close()
            self._views.stop(EDGE_SECONDS)
            reader.join(timeout=EDGE_SECONDS)

    def give_up(self, error: StoreCorrupt) -> int:
        """Say that the store is not what it was, so that nobody acts on it; return the code to exit with."""
        state = self._turns.controller.state
        stop_all_action(
            self._store,
            error,
            holder=self._lease.holder,
            acknowledged=self._turns.durable_sequence,
            epoch=state.next_epoch - 1,
        )
        return EXIT_CODE

    def stop(self) -> None:
        """End the loop soon; runs and agents go on without a supervisor until the next one comes."""
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(None)

    def _turn_of_loop(self) -> None:
        self._notice_pause(self._awake_at)
        self._own_up_to_outage()
        now = self._clock.now()
        self._detectors.watch(self._turns.controller.watch())
        timeout = 0.0 if self._arrivals else self._next_due() - now
        if self._arrivals.lag_seconds() is None and not self._arrivals:
            # what is due may have to wait for what is read
            timeout = max(timeout, LOOK_SECONDS)
        if self._is_deaf:
            timeout = max(timeout, DEAF_SECONDS)
        elif self._is_doubtful:
            timeout = min(timeout, DEAF_SECONDS)
        planned = time.monotonic() + max(timeout, 0.0)
        fact = None
        with contextlib.suppress(queue.Empty):
            if timeout > 0:
                fact = self._inbox.get(timeout=timeout)
            else:
                fact = self._inbox.get_nowait()
        self._notice_pause(max(planned, self._awake_at))
        self._act(self._take_in(fact))
        with self._turns.together() as commit:
            for group in self._arrivals.portion():
                records = self._take_group(group)
                # outcomes wait for no heartbeat either
                while not self._inbox.empty():
                    records += self._take_in(self._inbox.get_nowait())
                if any(type(record) is not r.StepsAdvanced for record in records):
                    commit()
                    self._act(records)
                elif (
                    records
                    # a mark of progress has no effect: it is written with what comes next
                ):
                    self._showing.touch()
        self._notice_pause(self._awake_at)
        self._allow_for_queue()
        self._detectors.watch(self._turns.controller.watch())
        self._doubt_silence()
        heard_until = self._heard_until()
        for finding in () if heard_until is None else self._detectors.tick(heard_until):
            self._act(self._turns.take(finding, self._clock.now()))
        now = self._clock.now()
        wake_at = self._turns.controller.wake_at()
        if wake_at is not None and now >= wake_at and not self._is_deaf:
            self._act(self._turns.take(r.Tick(), now))
        self._publish()
        self._showing.go_on(self._turns.controller.state, self._turns.ledger, self._clock.now())
        is_quiet = not self._arrivals and not self._turns.controller.state.actions
        if self._archivist.is_idle and self._turns.is_snapshot_due(is_quiet=is_quiet):
            self._archivist.take(self._turns.picture())

    def _next_due(self) -> float:
        times = [self._clock.now() + READ_SECONDS]
        times += [
            due
            for due in (
                self._turns.controller.wake_at(),
                self._detectors.due_at(),
                self._showing.due_at(),
            )
            if due is not None
        ]
        if self._registers.is_due:
            times.append(self._clock.now() + 0.2)
        return min(times)

    def _notice_pause(self, expected_at: float) -> None:
        """Silence proves nothing about others while we ourselves stood still. `expected_at`: monotonic seconds."""
        late_seconds = time.monotonic() - expected_at
        if late_seconds >= self._pause_seconds:
            self._shift(late_seconds, "the supervisor stood still")
        self._awake_at = time.monotonic()

    def _allow_for_queue(self) -> None:
        """Put deadlines off while words wait for their turn: the answers may be among them."""
        if seconds := self._arrivals.queued_seconds():
            paused = r.SupervisorPaused(
                seconds=seconds, reason="what nodes had said waited in a queue"
            )
            self._act(self._turns.take(paused, self._clock.now()))

    def _doubt_silence(self) -> None:
        """Before silence is held against anybody, see whether the store takes a word of ours: if not, nor does it take theirs.

        Then it is asked again and again until it does, and everybody has the whole limit from there: a store that takes words
        again just as silence is judged took none while it grew.
        """
        heard_until = self._heard_until()
        if heard_until is None:
            # nothing is held against anybody now
            return
        due, wake_at = self._detectors.due_at(), self._turns.controller.wake_at()
        is_due = due is not None and heard_until >= due
        is_due = is_due or (wake_at is not None and self._clock.now() >= wake_at)
        if not is_due and not self._is_doubtful:
            return
        try:
            self._store.renew(self._lease)
            # volatile, as heartbeats are
            self._store.put(WORD, b"", fence=self._lease)
        except StoreUnavailable as error:
            self._is_doubtful = True
            self._sit_out(error)
            self._own_up_to_outage()
            return
        if self._is_doubtful:
            self._is_doubtful = False
            self._detectors.shift(0.0)

    def _heard_until(self) -> float | None:
        """Return until when we have heard all that nodes said, on our clock; None while nobody can tell."""
        lag_seconds = self._arrivals.lag_seconds()
        return None if lag_seconds is None or self._is_deaf else self._clock.now() - lag_seconds

    def _own_up_to_outage(self) -> None:
        """Tell the controller of the time sat out, so that no deadline runs out in it."""
        while self._outage_seconds > 0:
            seconds, self._outage_seconds = self._outage_seconds, 0.0
            self._shift(seconds, "the store was out of reach")

    def _shift(self, seconds: float, reason: str) -> None:
        self._act(self._take_pause(r.SupervisorPaused(seconds=seconds, reason=reason)))

    def _take_pause(self, paused: r.SupervisorPaused) -> list[object]:
        self._detectors.shift(paused.seconds)
        return self._turns.take(paused, self._clock.now())

    def _sit_out(self, error: StoreUnavailable) -> None:
        """Wait for the store in the middle of a turn; whatever is silent meanwhile is not to blame."""
        _LOG.warning("store: %s; waiting", error)
        time.sleep(min(error.delay_seconds, 1.0))
        before, self._awake_at = self._awake_at, time.monotonic()
        # the call that failed took its time too
        seconds = self._awake_at - before
        self._outage_seconds += seconds
        self._detectors.shift(seconds)
        if self._stopping.is_set():
            # whoever comes next reads what the store took, and goes on from there
            raise error

    # ---- in ---------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Edge: block in the store, hand on what comes."""
        state = self._turns.controller.state
        cursors = {name: state.cursors.get(name, 0) for name in STREAMS}
        cursors["beats"] = self._last_beat()
        lost_since: float | None = None
        while not self._stopping.is_set():
            wanted, wait_seconds = self._arrivals.wanted(cursors, READ_SECONDS)
            # we are behind with both words and heartbeats
            if not wanted:
                time.sleep(wait_seconds)
                continue
            try:
                batch = self._store.read(streams=wanted, registers={}, timeout_seconds=wait_seconds)
            except StoreUnavailable as error:
                self._is_deaf = True
                lost_since = lost_since or time.monotonic()
                time.sleep(min(error.delay_seconds, 1.0))
                continue
            except Exception as error:  # noqa: BLE001 - bulkhead: ends the supervisor, loudly
                self._inbox.put(error)
                return
            if lost_since is not None:
                seconds, lost_since = time.monotonic() - lost_since, None
                self._inbox.put(
                    r.SupervisorPaused(seconds=seconds, reason="the store was out of reach")
                )
            self._arrivals.add(batch, len(state.nodes))
            if batch:
                # whatever is in it wakes the loop as well
                if self._inbox.empty():
                    self._inbox.put(ARRIVED)
                for name, items in batch.items.items():
                    cursors[name] = items[-1].number

    def _last_beat(self) -> int:
        with contextlib.suppress(StoreUnavailable):
            return self._store.last("beats")
        return 0

    def _take_in(self, fact: object) -> list[object]:
        """Take in what a thread of ours has to say; return the records that it led to."""
        if isinstance(fact, Exception):
            raise fact
        if fact is None or fact is ARRIVED:
            return []
        if isinstance(fact, r.SupervisorPaused):
            # the reader sets it anew if it has lost the store again
            self._is_deaf = False
            return self._take_pause(fact)
        return self._turns.take(fact, self._clock.now())

    def _take_group(self, group: list[Arrival]) -> list[object]:
        """Take in what items are; return the records that they led to."""
        now = self._clock.now()
        records: list[object] = []
        for item in group:
            records += self._take_item(*item, now)
        return records

    def _take_item(self, stream: str, number: int, payload: bytes, now: float) -> list[object]:
        """Take in what an item is; return the records that it led to."""
        try:
            fact = self._intake.take(stream, payload, self._turns.controller.state)
        except StoreRolledBack:
            self._store.renew(
                self._lease
                # Fenced: it is we who are behind, for somebody else leads
            )
            raise
        except Refused as refused:
            return self._pass_over(stream, number, refused, now)
        if isinstance(fact, SIGNS_OF_LIFE):
            self._place.hear(fact)
        if not isinstance(fact, Heartbeat):
            return self._turns.take(fact, now, stream=stream, cursor=number)
        self._showing.hear(fact, now)
        records: list[object] = []
        for finding in self._detectors.on_heartbeat(fact, now):
            records += self._turns.take(finding, now)
        return records

    def _pass_over(self, stream: str, number: int, refused: Refused, now: float) -> list[object]:
        """Go on without a message that is none; say so once in a while, however much of it comes: it must not fill the journal."""
        self._showing.touch()
        if refused.reason not in SAID or now < self._junk_due:
            return []
        self._junk_due = now + JUNK_SECONDS
        unreadable = r.MessageUnreadable(stream=stream, reason=str(refused)[:300])
        # volatile: nothing of it is remembered
        if stream == BEATS:
            return self._turns.take(unreadable, now)
        return self._turns.take(unreadable, now, stream=stream, cursor=number)

    # ---- out --------------------------------------------------------------------------------------------------------

    def _act(self, records: list[object]) -> None:
        """Perform the effects of records that are durable and applied."""
        if records:
            self._showing.touch()
        for record in records:
            if isinstance(record, r.ActionIssued):
                self._performer.submit(record.action)
            elif isinstance(record, r.DecisionFailed):
                _LOG.error("DECISION FAILED, input passed over: %s", record.error)
        self._registers.follow(records, self._turns.controller.state)
        self._publish()

    def _publish(self) -> None:
        """Write the registers that are due; what fails is tried again with the next turn."""
        try:
            self._registers.write(partial(self._store.put_many, fence=self._lease))
        except StoreUnavailable as error:
            _LOG.warning("store: %s; registers are still to be written", error)

    def _about(self) -> dict[str, object]:
        """Return what a View says of this supervisor."""
        return {
            "holder": self._lease.holder,
            "unsigned": not self._signer.is_active,
            "refused_messages": dict(self._intake.refused),
        }


def policy_of(cluster: ClusterSpec) -> Policy:
    """Return what decisions about a cluster go by."""
    return Policy(cluster=cluster, runbooks=tuple(load_runbooks().values()))
