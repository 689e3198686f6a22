"""The supervisor: the loop around the controller. One thread owns controller and journal; other threads reach it by one queue.

One thread blocks in reads of the store, one renews the lease, and each action runs in its own. Whatever they report is processed
as an input; the records that come out are acted on: registers written, actions started, requests answered. When the supervisor
dies, agents and ranks go on; the next supervisor applies the journal and continues.
"""

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from functools import partial

from runner.act.action_handlers import action_handlers
from runner.act.executor import ActionExecutor
from runner.act.pages import Pager
from runner.act.registers import Registers
from runner.decide.controller import Controller
from runner.decide.incidents.page_contents import asks_for_a_person, page_content
from runner.errors import StoreRolledBack, StoreUnavailable
from runner.facts.actions import Action, PageOperator, ProbeNode
from runner.facts.messages import records as r
from runner.facts.messages.requests import Request
from runner.facts.messages.signals import Heartbeat, NodeJoined, NodeLeft
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import ANSWERS, DURABLE_STREAMS, HEARTBEATS, PROBE, answer_register
from runner.facts.watch import StepsWanted
from runner.journal.archive import archive_of
from runner.journal.high_water_mark import HighWaterFile
from runner.journal.journal import Journal
from runner.journal.learned import LearnedRegisters
from runner.providers.protocol import NodeProvider
from runner.signer import UNSIGNED, Signer
from runner.steps import folder_beside
from runner.store.protocol import Lease, Store
from runner.supervisor.compactor import JournalCompactor
from runner.supervisor.decision_loop import STORE_OUTAGE, SUPERVISOR_STALL, DecisionLoop, LoopEnv
from runner.supervisor.decisions import DecisionLog, policy_of
from runner.supervisor.inbound_queue import ROOM_POLL_SECONDS, InboundQueue
from runner.supervisor.last_steps import LastSteps
from runner.supervisor.learned import LearnedSummaries
from runner.supervisor.lease import version
from runner.supervisor.message_validator import (
    JOURNALLED,
    MessageRefused,
    MessageValidator,
    TimedMessage,
)
from runner.supervisor.status_publisher import StatusPublisher, StatusWriter
from runner.supervisor.step_history import RecalledSteps, StepHistory
from runner.supervisor.store_rollback import check_not_rolled_back, mark_path

_LOG = logging.getLogger("stoker")

# Numbers without a source are chosen, not measured.
THREAD_JOIN_SECONDS = 5.0
# For pages that are new when a supervisor ends; the others are the next one's.
LAST_PAGES_SECONDS = 10.0
# It only bounds how long a lost wake-up can last.
READ_SECONDS = 60.0
# A loop that is this late was stopped itself: at most this long, or this share of the heartbeat timeout.
STALL_SECONDS = 2.0
STALL_SHARE = 0.25
OUTAGE_POLL_SECONDS = 0.2
REGISTER_RETRY_SECONDS = 0.2
# Between two journal entries about messages refused for one reason; and how many that are not fresh are answered in that time.
REFUSAL_SECONDS = 60.0
MAX_STALE_ANSWERED = 20
PRESENCE = (Heartbeat, NodeJoined, NodeLeft)


class Supervisor(LoopEnv):
    """Runs one cluster until it is shut down, the lease is lost, or `stop` is called."""

    def __init__(
        self,
        cluster: ClusterSpec,
        store: Store,
        lease: Lease,
        provider: NodeProvider,
        *,
        signer: Signer = UNSIGNED,
        standby_log: DecisionLog | None = None,
    ) -> None:
        """`lease` is ours; `provider` starts agents on the cluster's nodes; `standby_log` has read the journal so far."""
        self._store, self._lease, self._provider = store, lease, provider
        # The only queue into which a signal handler may put something while this thread is inside of it.
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._mark = HighWaterFile(mark_path(cluster))
        archive = archive_of(cluster)
        self._journal = Journal(store, lease, signer=signer, archive=archive, mark=self._mark)
        self._pager = Pager.of_cluster(cluster, store, lease, signer, report=self._inbox.put)
        handlers = action_handlers(
            provider, store, lease, signer, cluster=cluster.name, pager=self._pager
        )
        self._executor = ActionExecutor(handlers, self._inbox.put)
        self._status_writer = StatusWriter(store, lease, self._inbox.put, signer)
        policy = policy_of(cluster)
        self._publisher = StatusPublisher(
            cluster,
            self._status_writer,
            self._own_status,
            rungs_per_day={
                book.name: book.limits.per_day for book in policy.runbooks if book.limits.per_day
            },
            page_notes=lambda: self._pager.incident_notes,
        )
        self._loop = DecisionLoop(
            Controller(policy), self._journal, Registers(cluster, signer), self
        )
        self.log, self._detectors = self._loop.log, self._loop.detectors
        if standby_log is not None:
            self.log.adopt(standby_log)
        self._compactor = JournalCompactor(self._journal, self._inbox.put)
        self._learned = LearnedSummaries(self._detectors, LearnedRegisters(store, signer), lease)
        self._steps = StepHistory(
            folder_beside(archive.folder),
            lease.token,
            prepare=archive.prepare,
            on_recalled=self._inbox.put,
        )
        self._signer, self._validator = signer, MessageValidator(signer)
        self._signing = signer.number
        self._inbound = InboundQueue()
        self._last_steps = LastSteps()
        self._stall_seconds = min(STALL_SECONDS, STALL_SHARE * cluster.heartbeat_timeout_seconds)
        self._ran_at = time.monotonic()
        # Until the reader reports for how long it had lost the store.
        self._is_reader_cut_off = False
        self._refusal_due: dict[str, float] = {}
        self._stale_answered: deque[float] = deque(maxlen=MAX_STALE_ANSWERED)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Take over, then loop until the cluster has closed. Raises Fenced when another supervisor took over.

        Raises StoreCorrupt when the store lost or damaged entries: then nothing may be decided or written any more.
        """
        check_not_rolled_back(self._store, self._journal)
        self.log.recover()
        state = self.log.controller.state
        self._compactor.start()
        self._clock_base = max(state.now, time.time()) - time.monotonic()
        started = r.SupervisorStarted(
            holder=self._lease.holder,
            token=self._lease.token,
            version=version(),
            nodes=self._provider.nodes,
            down=self._provider.find_down(),
            learned_runs=self._learned.load(state, self.now()),
        )
        self._loop.take_over(started)
        reader = threading.Thread(target=self._read, name="reader", daemon=True)
        reader.start()
        self._status_writer.start()
        self._steps.start()
        self._pager.start()
        self._ran_at = time.monotonic()
        try:
            while not self._stopping.is_set() and not self.log.controller.has_closed:
                self._run_once()
            self._status_writer.stop(THREAD_JOIN_SECONDS)
            with contextlib.suppress(StoreUnavailable):
                self._publisher.publish_final(state, self.log.ledger, self.now())
            if not self._stopping.is_set() or state.closing:
                self._compactor.close(THREAD_JOIN_SECONDS)
                with contextlib.suppress(StoreUnavailable):
                    self.log.snapshot()
            if not state.closing:
                self._compactor.close(THREAD_JOIN_SECONDS)
                self._learned.write_all(state, self.now())
        except StoreUnavailable as error:
            if not self._stopping.is_set():
                raise
            _LOG.warning("stopped while the store was out of reach: %s", error)
        finally:
            self._stopping.set()
            self._store.wake()
            self._compactor.close(THREAD_JOIN_SECONDS)
            self._steps.close(state, THREAD_JOIN_SECONDS)
            self._pager.close(LAST_PAGES_SECONDS)
            self._mark.close()
            self._status_writer.stop(THREAD_JOIN_SECONDS)
            reader.join(timeout=THREAD_JOIN_SECONDS)

    def stop(self) -> None:
        """Ask the loop to end; agents and ranks go on. Safe to call from a signal handler."""
        self._stopping.set()
        self._inbox.put(None)

    def _run_once(self) -> None:
        self._check_stall(self._ran_at)
        self._loop.report_outage()
        self._loop.refresh()
        if self._signer.number != self._signing:
            # Assignments outlive the earlier token; after this entry it can make none that is believed.
            self._signing = self._signer.number
            self._loop.registers.queue_all(self.log.controller.state)
            self._loop.process(r.Tick())
        timeout_seconds = self._next_due() - self.now()
        planned = time.monotonic() + max(timeout_seconds, 0.0)
        report = None
        with contextlib.suppress(queue.Empty):
            report = self._inbox.get(block=timeout_seconds > 0, timeout=max(timeout_seconds, 0.0))
        self._check_stall(max(planned, self._ran_at))
        self._loop.execute(self._process_report(report))
        self._process_messages()
        self._check_stall(self._ran_at)
        if seconds := self._inbound.queued_seconds():
            # The awaited answers may be among the messages that wait.
            reason = "messages of nodes waited in a queue"
            self._loop.process(r.SupervisorPaused(seconds=seconds, reason=reason))
        self._loop.judge(self._observed_until, may_tick=lambda: not self._is_reader_cut_off)
        self._loop.write_registers()
        state = self.log.controller.state
        self._publisher.advance(state, self.log.ledger, self.now())
        self._steps.advance(state, self.now())
        self._pager.settle_incidents(partial(asks_for_a_person, state), state.sequence)
        is_quiet = not self._inbound and not state.actions
        if self._compactor.is_idle and self.log.is_snapshot_due(is_quiet=is_quiet):
            self._compactor.submit(self.log.state_image())
        elif self._compactor.is_idle:
            summary = self._learned.next(state, self.now())
            if summary is not None:
                self._compactor.submit_write(partial(self._learned.write, summary))

    def _next_due(self) -> float:
        """Return until when to wait for a report, on the controller's clock."""
        now = self.now()
        others_due = min(self._publisher.due_at(), self._steps.due_at())
        due = now if self._inbound else min(self._loop.next_due(), others_due)
        if self._loop.registers.is_due:
            due = min(due, now + REGISTER_RETRY_SECONDS)
        due = min(due, now + READ_SECONDS)
        if self._inbound.lag_seconds() is None and not self._inbound:
            # Nodes are not judged before the heartbeats that the store still holds are read.
            due = max(due, now + ROOM_POLL_SECONDS)
        if self._is_reader_cut_off:
            return max(due, now + OUTAGE_POLL_SECONDS)
        return min(due, now + OUTAGE_POLL_SECONDS) if self._loop.is_store_suspect else due

    def _process_messages(self) -> None:
        with self.log.batch() as commit:
            for group in self._inbound.batches():
                now = self.now()
                records = [made for item in group for made in self._process_message(*item, now)]
                # Outcomes of actions do not wait for heartbeats.
                while not self._inbox.empty():
                    records += self._process_report(self._inbox.get_nowait())
                if any(type(record) is not r.StepsAdvanced for record in records):
                    commit()
                    self._loop.execute(records)
                elif records:
                    # Progress alone has no effect: it is appended with what comes next.
                    self._publisher.mark_changed()

    def _check_stall(self, expected_at: float) -> None:
        """Extend deadlines by the time that this process itself was stopped."""
        late_seconds = time.monotonic() - expected_at
        if late_seconds >= self._stall_seconds:
            self._loop.execute(self._loop.pause(late_seconds, SUPERVISOR_STALL))
        self._ran_at = time.monotonic()

    def _observed_until(self) -> float | None:
        """Return until when everything that nodes sent was processed, on our clock; None while that is unknown."""
        lag_seconds = self._inbound.lag_seconds()
        if lag_seconds is None or self._is_reader_cut_off:
            return None
        return self.now() - lag_seconds

    def now(self) -> float:
        """Return the controller's time: seconds since the epoch that never run back, whatever the wall clock does."""
        return self._clock_base + time.monotonic()

    def submit(self, action: Action) -> None:
        """Execute an action in a thread of its own; its outcome comes through the inbox."""
        if action.action == PageOperator.kind:
            controller = self.log.controller
            content = page_content(controller.state, controller.policy, action)
            self._pager.announce(action.id, content)
        if action.action == ProbeNode.kind:
            seen = self._last_steps.of(action.read(ProbeNode).node)
            if seen is not None:
                # Before the outcome: what ends the attempt is then decided with this step.
                self._inbox.put(seen)
        self._executor.submit(action)

    def recall_steps(self, wanted: StepsWanted) -> None:
        """Ask for steps of a run's history; they come through the inbox."""
        self._steps.recall(wanted, self.log.controller.state)

    def put_many(self, values: Mapping[str, bytes]) -> None:
        """Write registers in one step of the store."""
        self._store.put_many(values, fence=self._lease)
        if any(name.startswith(ANSWERS) for name in values):
            self._publisher.mark_answered()

    def on_executed(self) -> None:
        """Publish the status soon."""
        self._publisher.mark_changed()

    def on_unwritten(self, error: StoreUnavailable) -> None:
        """Log it; the next round tries again."""
        _LOG.warning("store: %s; retrying registers", error)

    def probe_store(self) -> None:
        """Renew the lease and write a register; raise StoreUnavailable unless the store accepts both."""
        self._store.renew(self._lease)
        # Volatile, as heartbeats are.
        self._store.put(PROBE, b"", fence=self._lease)

    def wait_for_store(self, error: StoreUnavailable) -> float:
        """Wait before a retry; return how long the loop was held up (seconds). Raises `error` once the supervisor is stopped."""
        _LOG.warning("store: %s; waiting", error)
        time.sleep(min(error.delay_seconds, 1.0))
        if self._stopping.is_set():
            # The next supervisor reads what the store accepted, and continues from there.
            raise error
        # The call that failed took time, too.
        before, self._ran_at = self._ran_at, time.monotonic()
        return self._ran_at - before

    def _read(self) -> None:
        """Block in reads of the store and queue what arrives; runs in a thread of its own."""
        state = self.log.controller.state
        cursors = {name: state.cursors.get(name, 0) for name in DURABLE_STREAMS}
        cursors[HEARTBEATS] = 0
        with contextlib.suppress(StoreUnavailable):
            cursors[HEARTBEATS] = self._store.last(HEARTBEATS)
        lost_since: float | None = None
        while not self._stopping.is_set():
            # Nodes that fell silent in an outage are judged once an answer shows that it is over.
            longest = READ_SECONDS if lost_since is None else OUTAGE_POLL_SECONDS
            wanted, wait_seconds = self._inbound.next_read(cursors, longest)
            if not wanted:
                time.sleep(wait_seconds)
                continue
            try:
                batch = self._store.read(streams=wanted, registers={}, timeout_seconds=wait_seconds)
            except StoreUnavailable as error:
                self._is_reader_cut_off = True
                lost_since = lost_since or time.monotonic()
                time.sleep(min(error.delay_seconds, 1.0))
                continue
            except Exception as error:  # noqa: BLE001 - bulkhead: ends the supervisor, loudly
                self._inbox.put(error)
                return
            if lost_since is not None:
                seconds, lost_since = time.monotonic() - lost_since, None
                self._inbox.put(r.SupervisorPaused(seconds=seconds, reason=STORE_OUTAGE))
            self._inbound.add(batch, len(state.nodes))
            if batch:
                # Any report in the inbox wakes the loop; this one does nothing else.
                if self._inbox.empty():
                    self._inbox.put(None)
                for name, items in batch.items.items():
                    cursors[name] = items[-1].number

    def _process_report(self, report: object) -> list[object]:
        """Process what a thread of this process reports; return the records."""
        if isinstance(report, Exception):
            raise report
        if report is None:
            return []
        if isinstance(report, RecalledSteps):
            now = self.now()
            findings = self._detectors.recall(*report)
            return [record for one in findings for record in self.log.process(one, now)]
        if isinstance(report, r.SupervisorPaused):
            # The reader sets it again if it loses the store again.
            self._is_reader_cut_off = False
            return self._loop.pause(report.seconds, report.reason)
        return self.log.process(report, self.now())

    def _process_message(
        self, stream: str, number: int, payload: bytes, now: float
    ) -> list[object]:
        try:
            fact = self._validator.validate(stream, payload, self.log.controller.state)
        except StoreRolledBack:
            # Raises Fenced if it is this process that is behind, because another supervisor leads.
            self._store.renew(self._lease)
            raise
        except MessageRefused as refused:
            return self._skip(stream, number, refused, now)
        if isinstance(fact, PRESENCE):
            self._provider.on_signal(fact)
        if not isinstance(fact, Heartbeat):
            return self.log.process(fact, now, stream=stream, cursor=number)
        self._publisher.on_heartbeat(fact, now)
        self._last_steps.on_heartbeat(fact, now)
        self._steps.on_heartbeat(fact, self.log.controller.state, now)
        findings = self._detectors.on_heartbeat(fact, now)
        if findings:
            self._learned.on_findings(findings, now)
        return [record for finding in findings for record in self.log.process(finding, now)]

    def _skip(self, stream: str, number: int, refused: MessageRefused, now: float) -> list[object]:
        """Go on without a message; journal the reason once in a while, so that a flood of them does not fill the journal."""
        self._publisher.mark_changed()
        if refused.stale is not None and self._is_answer_due(refused.stale, now):
            stale = r.StaleMessage(reason=str(refused), message=refused.stale)
            return self.log.process(stale, now, stream=stream, cursor=number)
        if refused.reason not in JOURNALLED or now < self._refusal_due.get(refused.reason, 0.0):
            return []
        self._refusal_due[refused.reason] = now + REFUSAL_SECONDS
        unreadable = r.MessageUnreadable(stream=stream, reason=str(refused)[:300])
        if stream == HEARTBEATS:
            # Heartbeats are volatile: the journal has no cursor for their stream.
            return self.log.process(unreadable, now)
        return self.log.process(unreadable, now, stream=stream, cursor=number)

    def _is_answer_due(self, stale: TimedMessage, now: float) -> bool:
        """Whether to answer a message that is not fresh: a few of a flood, and none over an answer that the store has."""
        answered = self._stale_answered
        if len(answered) == MAX_STALE_ANSWERED and now - answered[0] < REFUSAL_SECONDS:
            return False
        answered.append(now)
        with contextlib.suppress(StoreUnavailable):
            id_ = stale.id if isinstance(stale, Request) else stale.instance_id
            return self._store.get(answer_register(id_)) is None
        return False

    def _own_status(self) -> dict[str, object]:
        return {
            "holder": self._lease.holder,
            "unsigned": not self._signer.is_active,
            "refused_messages": dict(self._validator.refused),
            "num_journal_appends": self.log.num_appends,
            "journal_append_seconds": self.log.append_seconds,
            "pages": self._pager.status,
        }
