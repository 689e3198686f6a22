"""The supervisor in virtual time, process after process. It can be killed around each append, action and outcome.

A model of `runner.supervisor.loop`'s threads; its decision loop, controller, journal and detectors are the real ones.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from runner.act.registers import Registers
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.actions import Action, ActionResult
from runner.facts.messages import records as r
from runner.facts.messages.assignments import task_of
from runner.facts.messages.signals import Heartbeat
from runner.facts.store_names import DURABLE_STREAMS, LEASE, assignment_register, task_stream
from runner.facts.watch import StepsWanted
from runner.journal.journal import Journal
from runner.steps import StepMerger, StepRow
from runner.store.memory.faults import Crash
from runner.store.protocol import Store
from runner.supervisor.decision_loop import STORE_OUTAGE, SUPERVISOR_STALL, DecisionLoop
from runner.supervisor.step_history import steps_around

if TYPE_CHECKING:
    from runner.simulate.world import World

RESTART_SECONDS = 0.5
STORE_RETRY_SECONDS = 0.2
NEVER = float("inf")


class SimSupervisor:
    """The supervisor of a simulated cluster. `dies_at` says of each point, by its number, whether it dies there."""

    def __init__(
        self,
        policy: Policy,
        open_store: Callable[[int], Store],
        world: "World",
        *,
        snapshot_entries: int,
    ) -> None:
        """`open_store` gets the number of this process, from 0."""
        self.policy = policy
        self.dies_at: Callable[[int], bool] = lambda point: False
        self.points = 0
        self.instance_id = 0
        self.is_up = False
        self.controller = Controller(policy)
        self._open_store = open_store
        self._world = world
        self._snapshot_entries = snapshot_entries
        # The newest entry that the world got.
        self._reported_sequence = 0
        self._before: State | None = None
        # The step histories: by run.
        self._merger, self._steps = StepMerger(), dict[int, list[StepRow]]()
        self._reset()

    def _reset(self) -> None:
        self._inbox: deque[Callable[[], None]] = deque()
        self._is_busy = self._is_doomed = False
        self._paused_until = 0.0
        self._wake_planned_at = NEVER
        # The entry after which the detectors ran last.
        self._judged_at = -1
        self._snapshot_at = 0

    def start(self) -> None:
        """Take over, as a new process."""
        self._reset()
        self.is_up = True
        self._enqueue(self._take_over)

    def crash(self) -> None:
        """Kill the supervisor now; another one starts a little later."""
        if not self.is_up:
            return
        if self._is_busy:
            self._is_doomed = True
            return
        self._die()

    def _die(self) -> None:
        self.is_up = False
        self._before = self.controller.state
        self.instance_id += 1
        self._inbox.clear()
        self._world.agenda.after(RESTART_SECONDS, self.start)

    def pause(self, seconds: float) -> None:
        """SIGSTOP and, later, SIGCONT."""
        self._paused_until = until = self._world.agenda.now + seconds
        instance_id = self.instance_id

        def resume() -> None:
            if instance_id == self.instance_id and until == self._paused_until:
                self._inbox.appendleft(lambda: self._pause(seconds, SUPERVISOR_STALL))
                self._run_inbox()

        self._world.agenda.after(seconds, resume)

    def point(self) -> None:
        """A moment at which the supervisor can be killed."""
        self.points += 1
        if self.dies_at(self.points):
            raise Crash(f"at point {self.points}")

    def _take_over(self) -> None:
        self.store = self._open_store(self.instance_id)
        holder = f"host:{100 + self.instance_id}"
        current = self.store.lease_holder("supervisor")
        if current is not None:
            self.store.break_lease("supervisor", current.holder)
        self._lease = self.store.acquire_lease(LEASE, holder, ttl_seconds=1e9)
        self.controller = Controller(self.policy)
        self.loop = DecisionLoop(
            self.controller, Journal(self.store, self._lease), Registers(self.policy.cluster), self
        )
        self.loop.log.recover()
        self._world.watcher.on_recovered(self._world, self._before, self.controller.state)
        self._snapshot_at = self.controller.state.sequence
        machines, nodes = self._world.machines, self._world.nodes
        down = tuple(name for name in nodes if name in machines and machines[name].is_down)
        started = r.SupervisorStarted(
            holder=holder, token=self._lease.token, version="sim", nodes=nodes, down=down
        )
        self.loop.take_over(started)
        self.notify()

    def now(self) -> float:
        return self._world.agenda.now

    def probe_store(self) -> None:
        self.store.renew(self._lease)

    def recall_steps(self, wanted: StepsWanted) -> None:
        """Hand over what its step history has: that outlives each process of this supervisor."""
        steps = steps_around(wanted, self._steps.get(wanted.attempt.run, ()))

        def recall() -> None:
            for finding in self.loop.detectors.recall(wanted, steps):
                self.loop.process(finding)

        # After the task that brought the new list to the detectors.
        self._inbox.append(recall)

    def on_unwritten(self, error: StoreUnavailable) -> None:
        """Try again a little later."""
        self._later(STORE_RETRY_SECONDS, self.loop.write_registers)

    def on_entry(self, entry: r.JournalEntry) -> None:
        """Pass an entry on to the world, the first time only."""
        if entry.sequence > self._reported_sequence:
            self._reported_sequence = entry.sequence
            self._world.on_entry(entry)

    def wait_for_store(self, error: StoreUnavailable) -> float:
        """Wait in the middle of a decision, while the world goes on."""
        agenda = self._world.agenda
        agenda.run_until(agenda.now + error.delay_seconds)
        if self._is_doomed:
            raise Crash("killed while it waited for the store")
        return error.delay_seconds

    def notify(self) -> None:
        """Note that the streams may hold new items."""
        self._enqueue(self._read)

    def on_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._enqueue(lambda: self._detect(heartbeat))

    def on_store_back(self, seconds: float) -> None:
        """Enqueue the end of an outage of the store that the reader saw."""
        self._enqueue(lambda: self._pause(seconds, STORE_OUTAGE))

    def _enqueue(self, task: Callable[[], None]) -> None:
        if self.is_up:
            self._inbox.append(task)
            self._run_inbox()

    def _run_inbox(self) -> None:
        """Run the tasks that wait, unless stopped or in the middle of one."""
        if self._is_busy or not self.is_up or self._world.agenda.now < self._paused_until:
            return
        self._is_busy = True
        try:
            while self._inbox and self.is_up:
                self._inbox.popleft()()
                self._judge()
                self.is_up = not self.controller.has_closed
        except (Crash, StoreUnavailable):
            # A store that is down at the take-over ends the process, too.
            self._die()
        finally:
            self._is_busy = False

    def _read(self) -> None:
        state = self.controller.state
        cursors = {name: state.cursors.get(name, 0) for name in DURABLE_STREAMS}
        try:
            batch = self.store.read(streams=cursors, registers={}, timeout_seconds=0)
        except StoreUnavailable:
            # The world notifies this supervisor when the store is back.
            return
        for stream, items in batch.items.items():
            records: list[object] = []
            with self.loop.log.batch():
                for item in items:
                    records += self._process(wire.decode(item.payload), stream, item.number)
            self.loop.execute(records)

    def _process(self, fact: object, stream: str = "", cursor: int = 0) -> list[object]:
        if isinstance(fact, ActionResult):
            self.point()
        records = self.loop.log.process(fact, self.now(), stream=stream, cursor=cursor)
        if isinstance(fact, ActionResult):
            self.point()
        return records

    def _detect(self, heartbeat: Heartbeat) -> None:
        self.loop.refresh()
        self._merger.add(heartbeat, self._world.agenda.now)
        for run, rows in self._merger.take().items():
            self._steps.setdefault(run, []).extend(rows)
        for finding in self.loop.detectors.on_heartbeat(heartbeat, self._world.agenda.now):
            self.loop.process(finding)

    def _pause(self, seconds: float, reason: str) -> None:
        self.loop.execute(self.loop.pause(seconds, reason))

    def _judge(self) -> None:
        """Do what the real loop does in each round: detectors, deadlines, and when to run again."""
        self.loop.report_outage()
        agenda, sequence = self._world.agenda, self.controller.state.sequence
        due = self.loop.next_due()
        if due <= agenda.now or sequence != self._judged_at or self.loop.is_store_suspect:
            self._judged_at = sequence
            self.loop.judge(lambda: agenda.now, may_tick=lambda: True)
            due = self.loop.next_due()
        if due < self._wake_planned_at:
            self._wake_planned_at = due
            agenda.at(due, lambda: self._wake(due))

    def _wake(self, due: float) -> None:
        if due == self._wake_planned_at:
            self._wake_planned_at = NEVER
            self._enqueue(lambda: None)

    def on_executed(self) -> None:
        """Write a snapshot if one is due."""
        sequence = self.controller.state.sequence
        if sequence - self._snapshot_at >= self._snapshot_entries:
            # The next execution tries again.
            with contextlib.suppress(StoreUnavailable):
                self.loop.log.snapshot()
                self._snapshot_at = sequence

    def put_many(self, values: Mapping[str, bytes]) -> None:
        self.store.put_many(values, fence=self._lease)
        for name in values:
            if name.startswith(assignment_register("")):
                self._world.on_written(name.partition("/")[2])

    def submit(self, action: Action) -> None:
        """Execute an action; its outcome reaches only this process, a later one executes it again."""
        self.point()
        if action.action == "node_task":
            self._send_task(action, self._world.agenda.now + action.deadline_seconds)
            self.point()
            return
        instance_id = self.instance_id

        def report(result: ActionResult) -> None:
            if instance_id == self.instance_id:
                self._enqueue(lambda: self.loop.execute(self._process(result)))

        self._world.actions.perform(action, report)
        self.point()

    def _send_task(self, action: Action, until: float) -> None:
        """Append a task to its node's stream, retrying until the deadline; the agent answers."""
        task, agenda = task_of(action), self._world.agenda
        try:
            self.store.append(task_stream(task.node), wire.encode(task), fence=self._lease)
        except StoreUnavailable:
            if agenda.now + STORE_RETRY_SECONDS < until:
                self._later(STORE_RETRY_SECONDS, lambda: self._send_task(action, until))
            return
        self._world.on_written(task.node)

    @property
    def has_published(self) -> bool:
        """Whether it leads and has written all registers that its state wants written."""
        return self.is_up and not self._inbox and not self.loop.registers.is_due

    def _later(self, seconds: float, task: Callable[[], None]) -> None:
        """Enqueue a task later, unless this process has ended by then."""
        instance_id = self.instance_id
        self._world.agenda.after(
            seconds, lambda: self._enqueue(task) if instance_id == self.instance_id else None
        )
