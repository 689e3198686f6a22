"""The lead: a supervisor in virtual time, life after life. It can be killed around each persist, act and outcome.

A model of `runner.supervisor.loop`'s loop and edges; controller, turns, journal and detectors are the real ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from runner.act.registers import Registers
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import State
from runner.detect.registry import DetectorRegistry
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.actions import Action, ActionResult
from runner.facts.messages import records as r
from runner.facts.messages.assignments import task_of
from runner.facts.messages.signals import Heartbeat
from runner.journal.journal import Journal
from runner.simulate.virtual_time import Agenda
from runner.store.memory.faults import Crash
from runner.store.protocol import Store
from runner.supervisor.decisions import DecisionLog

# a supervisor's absence after a crash
RESTART_SECONDS = 0.5
# until a register that could not be written is tried again
RETRY_SECONDS = 0.2
STREAMS = ("signals", "requests")
NEVER = float("inf")


class Edges(Protocol):
    """What the lead acts on, and who watches it."""

    agenda: Agenda

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes whose agents can be started."""
        ...

    def perform(self, action: Action, report: Callable[[ActionResult], None]) -> None:
        """Start an action; `report` is called when it ends."""
        ...

    def written_for(self, node: str) -> None:
        """A node's assignment or a task of its was written."""
        ...

    def recovered(self, before: State | None, after: State) -> None:
        """A supervisor has taken over: `before` is what the life before it knew when it ended."""
        ...

    def entry_applied(self, entry: r.JournalEntry) -> None:
        """An entry is durable and applied, for the first time."""
        ...


class SimSupervisor:
    """The supervisor of a simulated cluster. `dies_at` says of each point, by its number, whether it dies there."""

    def __init__(
        self,
        policy: Policy,
        open_store: Callable[[int], Store],
        edges: Edges,
        *,
        snapshot_entries: int,
    ) -> None:
        self.policy = policy
        self.dies_at: Callable[[int], bool] = lambda point: False
        self.points = 0
        self.life = 0
        self.is_up = False
        self.controller = Controller(policy)
        self._open_store = open_store
        self._edges = edges
        self._snapshot_entries = snapshot_entries
        # entries that somebody was told of
        self._seen = 0
        self._before: State | None = None
        self._reset()

    def _reset(self) -> None:
        self._inbox: deque[Callable[[], None]] = deque()
        self._registers = Registers(self.policy.cluster)
        self._is_busy = self._is_doomed = False
        self._paused_until = 0.0
        # sat out and not told to the controller yet
        self._outage_seconds = 0.0
        self._look_at = NEVER
        self._asked_at, self._wanted_at = (
            -1,
            NEVER,
            # at which entry the controller was asked, its answer
        )
        # at which entry the detectors were last asked
        self._looked_at = -1
        self._snapshot_at = 0

    # ---- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over, as a new process."""
        self._reset()
        self.is_up = True
        self._post(self._take_over)

    def crash(self) -> None:
        """Kill the supervisor now; another one comes a little later."""
        if not self.is_up:
            return
        if self._is_busy:
            self._is_doomed = True
            return
        self._die()

    def _die(self) -> None:
        self.is_up = False
        self._before = self.controller.state
        self.life += 1
        self._inbox.clear()
        self._edges.agenda.after(RESTART_SECONDS, self.start)

    def pause(self, seconds: float) -> None:
        """SIGSTOP and, later, SIGCONT."""
        self._paused_until = until = self._edges.agenda.now + seconds
        life = self.life

        def resume() -> None:
            if life == self.life and until == self._paused_until:
                paused = r.SupervisorPaused(seconds=seconds, reason="the supervisor stood still")
                self._inbox.appendleft(lambda: self._take_paused(paused))
                self._pump()

        self._edges.agenda.after(seconds, resume)

    def point(self) -> None:
        """A moment at which the supervisor can be killed."""
        self.points += 1
        if self.dies_at(self.points):
            raise Crash(f"at point {self.points}")

    def _take_over(self) -> None:
        self._store = self._open_store(self.life)
        holder = f"host:{100 + self.life}"
        current = self._store.lease_holder("supervisor")
        if current is not None:
            self._store.break_lease("supervisor", current.holder)
        self._lease = self._store.acquire_lease("supervisor", holder, ttl_seconds=1e9)
        self._recover()
        state = self.controller.state
        open_before = [item.action for item in state.actions.values()]
        started = r.SupervisorStarted(
            holder=holder, token=self._lease.token, version="sim", nodes=self._edges.nodes
        )
        self._act(self.turns.take(started, self._edges.agenda.now))
        self._registers.want_all(state)
        self._publish()
        for action in open_before:
            if action.id in state.actions:
                self._perform(action)
        self.ring()

    def _recover(self) -> None:
        self.controller = Controller(self.policy)
        journal = Journal(self._store, self._lease)
        self.turns = DecisionLog(
            self.controller, journal, on_entry=self._note, on_outage=self._sit_out
        )
        self.turns.recover()
        self._edges.recovered(self._before, self.controller.state)
        self._snapshot_at = self.controller.state.sequence
        self.detectors = DetectorRegistry(self.policy.cluster.silence_seconds)

    def _note(self, entry: r.JournalEntry) -> None:
        if entry.sequence > self._seen:
            self._seen = entry.sequence
            self._edges.entry_applied(entry)

    def _sit_out(self, error: StoreUnavailable) -> None:
        """Wait for the store in the middle of a turn, while the world goes on."""
        agenda = self._edges.agenda
        agenda.run_until(agenda.now + error.delay_seconds)
        self._outage_seconds += error.delay_seconds
        self.detectors.shift(error.delay_seconds)
        if self._is_doomed:
            raise Crash("killed while it waited for the store")

    # ---- in ---------------------------------------------------------------------------------------------------------

    def ring(self) -> None:
        """Say that there may be something new in the streams."""
        self._post(self._read)

    def hear(self, beat: Heartbeat) -> None:
        """Take a heartbeat in."""
        self._post(lambda: self._take_beat(beat))

    def take(self, fact: object) -> None:
        """Take in what an edge has to say."""
        if isinstance(fact, r.SupervisorPaused):
            paused = fact
            self._post(lambda: self._take_paused(paused))
        else:
            self._post(lambda: self._take(fact))

    def _post(self, what: Callable[[], None]) -> None:
        if self.is_up:
            self._inbox.append(what)
            self._pump()

    def _pump(self) -> None:
        """Do what waits, unless stopped or in the middle of something."""
        if self._is_busy or not self.is_up or self._edges.agenda.now < self._paused_until:
            return
        self._is_busy = True
        try:
            while self._inbox and self.is_up:
                self._inbox.popleft()()
                self._look()
                self.is_up = not self.controller.has_closed
        except Crash:
            self._die()
        except StoreUnavailable:
            # at the take-over: it ends, and is started again
            self._die()
        finally:
            self._is_busy = False

    def _read(self) -> None:
        state = self.controller.state
        cursors = {name: state.cursors.get(name, 0) for name in STREAMS}
        try:
            batch = self._store.read(streams=cursors, registers={}, timeout_seconds=0)
        except StoreUnavailable:
            # whoever brings it back rings
            return
        for stream, items in batch.items.items():
            records: list[object] = []
            with self.turns.together():
                for item in items:
                    records += self._taken(wire.decode(item.payload), stream, item.number)
            self._act(records)

    def _take(self, fact: object) -> None:
        self._act(self._taken(fact, "", 0))

    def _taken(self, fact: object, stream: str, cursor: int) -> list[object]:
        is_outcome = isinstance(fact, ActionResult)
        if is_outcome:
            self.point()
        records = self.turns.take(fact, self._edges.agenda.now, stream=stream, cursor=cursor)
        if is_outcome:
            self.point()
        return records

    def _take_beat(self, beat: Heartbeat) -> None:
        self._wake_at()
        for finding in self.detectors.on_heartbeat(beat, self._edges.agenda.now):
            self._take(finding)

    def _take_paused(self, paused: r.SupervisorPaused) -> None:
        self.detectors.shift(paused.seconds)
        self._take(paused)

    def _look(self) -> None:
        """Do what the loop does after each item: detectors, deadlines, and when to look again."""
        self._own_up_to_outage()
        sequence, due = self.controller.state.sequence, self._due_at()
        if due <= self._edges.agenda.now or sequence != self._looked_at:
            self._looked_at = sequence
            if due <= self._edges.agenda.now:
                self._doubt_silence()
            now = self._edges.agenda.now
            for finding in self.detectors.tick(now):
                self._take(finding)
            if self._wake_at() <= now:
                self._take(r.Tick())
            due = self._due_at()
        if due < self._look_at:
            self._look_at = due
            self._edges.agenda.at(due, lambda: self._wake(due))

    def _doubt_silence(self) -> None:
        """Before silence is held against anybody, see whether the store takes a word of ours."""
        try:
            self._store.renew(self._lease)
        except StoreUnavailable as error:
            self._sit_out(error)
            self._own_up_to_outage()

    def _own_up_to_outage(self) -> None:
        while self._outage_seconds > 0:
            seconds, self._outage_seconds = self._outage_seconds, 0.0
            self._take_paused(
                r.SupervisorPaused(seconds=seconds, reason="the store was out of reach")
            )

    def _due_at(self) -> float:
        wake_at, due_at = self._wake_at(), self.detectors.due_at()
        return wake_at if due_at is None else min(wake_at, due_at)

    def _wake_at(self) -> float:
        """Say when the controller wants to be woken; asked anew, like what is to be watched, when its state has moved."""
        sequence = self.controller.state.sequence
        if sequence != self._asked_at:
            self._asked_at = sequence
            self.detectors.watch(self.controller.watch())
            wake_at = self.controller.wake_at()
            self._wanted_at = NEVER if wake_at is None else wake_at
        return self._wanted_at

    def _wake(self, due: float) -> None:
        if due == self._look_at:
            self._look_at = NEVER
            self._post(lambda: None)

    # ---- out --------------------------------------------------------------------------------------------------------

    def _act(self, records: list[object]) -> None:
        for record in records:
            if isinstance(record, r.ActionIssued):
                self._perform(record.action)
        self._registers.follow(records, self.controller.state)
        self._publish()
        sequence = self.controller.state.sequence
        if sequence - self._snapshot_at >= self._snapshot_entries:
            try:
                self.turns.snapshot()
                self._snapshot_at = sequence
            except StoreUnavailable:
                # the next turn tries again
                pass

    def _publish(self) -> None:
        try:
            self._registers.write(self._put_many)
        except StoreUnavailable:
            self._later(RETRY_SECONDS, self._publish)

    def _put_many(self, values: Mapping[str, bytes]) -> None:
        self._store.put_many(values, fence=self._lease)
        for name in values:
            if name.startswith("assignment/"):
                self._edges.written_for(name.partition("/")[2])

    def _perform(self, action: Action) -> None:
        """Perform an action; its outcome reaches only this life, a later one performs it again."""
        self.point()
        if action.action == "node_task":
            self._send_task(action, self._edges.agenda.now + action.deadline_seconds)
            self.point()
            return
        life = self.life

        def report(result: ActionResult) -> None:
            if life == self.life:
                self.take(result)

        self._edges.perform(action, report)
        self.point()

    def _send_task(self, action: Action, until: float) -> None:
        """Put a task into its node's stream, again until the deadline; the agent answers."""
        task, agenda = task_of(action), self._edges.agenda
        try:
            self._store.append(f"tasks/{task.node}", wire.encode(task), fence=self._lease)
        except StoreUnavailable:
            if agenda.now + RETRY_SECONDS < until:
                self._later(RETRY_SECONDS, lambda: self._send_task(action, until))
            return
        self._edges.written_for(task.node)

    @property
    def has_published(self) -> bool:
        """Whether it leads and has written all registers that its state wants written."""
        return self.is_up and not self._inbox and not self._registers.is_due

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something later, if this life lasts."""
        life = self.life
        self._edges.agenda.after(seconds, lambda: self._post(what) if life == self.life else None)

    @property
    def store(self) -> Store:
        """The handle of this life."""
        return self._store
