"""The world: nodes that run gangs, break, and answer, driven by one event queue in virtual seconds."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runner.decide.controller import Controller
from runner.decide.draft import Policy
from runner.decide.placement import assignment_of
from runner.detect.detectors import Detectors
from runner.errors import StoreUnavailable
from runner.facts import records as r
from runner.facts import signals as s
from runner.facts import wire
from runner.facts.actions import Action, ActionResult
from runner.facts.assignments import Assignment, LaunchPlan
from runner.facts.ids import AttemptId
from runner.store.faults import Crash
from runner.store.journal import Journal
from runner.store.store import Store
from runner.turns import Turns

HEARTBEAT = 1.0
STEP = 1.0  # seconds a gang needs for a step
CHECKPOINT_EVERY = 10  # steps
LATENCY = 0.01  # a message's way through the store
BOOT = 0.3  # an agent's start
SPAWN = 0.2  # ranks' start
FIRST_STEP = 2.0  # from the ranks' start to the first step
FAR = 1e12  # no look planned
RESTART = 0.5  # a supervisor's absence after a crash


@dataclass(slots=True, kw_only=True)
class Machine:
    """A node's real condition, which the controller can only learn of by signals and probes."""

    name: str
    agent: bool = False
    keeper: bool = False
    cut: bool = False  # its link: it neither hears nor is heard
    incarnation: int = 0
    epoch: int = 0
    plan: LaunchPlan | None = None
    ranks: dict[int, str] = field(default_factory=dict)  # rank -> running | stopped
    exits: list[tuple[int, int | None, AttemptId, int]] = field(default_factory=list)  # not told yet
    last_step: int | None = None
    assignment: Assignment | None = None  # newest in its register


@dataclass(slots=True, kw_only=True)
class Gang:
    """An attempt as it really runs."""

    plan: LaunchPlan
    step: int
    nodes: tuple[str, ...]


class World:
    """A cluster in virtual time. Faults are put in by the methods `kill_rank`, `kill_node`, ...; `run_until` lets time pass."""

    def __init__(self, policy: Policy, open_store: Callable[[int], Store], *, goal: int = 30) -> None:
        """`open_store(life)` gives each life of the supervisor its handle, and the nodes theirs (life -1).

        `goal` is the step at which a gang's ranks end with 0.
        """
        self.policy, self.goal = policy, goal
        self._open_store = open_store
        self._net = open_store(-1)
        self.now = 0.0
        self.entries: list[r.JournalEntry] = []
        self.checkpoints: dict[int, list[int]] = {}  # run -> sealed steps
        self.launches: list[tuple[float, str, AttemptId]] = []
        self.crash_at: int | None = None  # number of the crash point at which the supervisor dies, once
        self.points = 0
        self.num_crashes = 0
        self._machines = {name: Machine(name=name) for name in self._names()}
        self._gangs: dict[AttemptId, Gang] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._ticket = 0
        self._beat_due: dict[str, float] = {}
        self._epoch_of: dict[AttemptId, int] = {}
        self._supervisor_up = False
        self._paused_until = 0.0
        self._look_at = FAR
        self._start_supervisor()
        for name in self._machines:
            self.after(HEARTBEAT, lambda name=name: self._heartbeat(name))  # type: ignore[misc]

    def _names(self) -> list[str]:
        local = self.policy.cluster.local
        return [f"n{index}" for index in range(1, local.nodes + local.spares + 1)]

    # ---- time -------------------------------------------------------------------------------------------------------

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Let something happen later; same times happen in the order they were asked for."""
        self._ticket += 1
        heapq.heappush(self._queue, (self.now + seconds, self._ticket, what))

    def at(self, time: float, what: Callable[[], None]) -> None:
        """Let something happen at a time."""
        self.after(max(0.0, time - self.now), what)

    def run_until(self, time: float) -> None:
        """Let time pass."""
        while self._queue and self._queue[0][0] <= time:
            self.now, _, what = heapq.heappop(self._queue)
            what()
        self.now = max(self.now, time)

    # ---- the supervisor ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> Any:
        """The controller's state."""
        return self.controller.state

    def _start_supervisor(self) -> None:
        self._supervisor_up = True
        self._guarded(self._take_over)

    def _take_over(self) -> None:
        self.store = self._open_store(self.num_crashes)
        holder = f"sim:{self.num_crashes}"
        current = self.store.lease_holder("supervisor")
        if current is not None:
            self.store.break_lease("supervisor", current.holder)
        self.lease = self.store.acquire_lease("supervisor", holder, ttl_seconds=1e9)
        self.controller = Controller(self.policy)
        self.turns = Turns(
            self.controller,
            Journal(self.store, self.lease),
            on_entry=self._note,
            on_outage=self._on_outage,
        )
        self.turns.recover()
        self.detectors = Detectors(self.policy.cluster.silence_seconds)
        open_before = [item.action for item in self.state.actions.values()]
        started = r.SupervisorStarted(
            holder=holder, token=self.lease.token, version="sim", nodes=tuple(self._machines)
        )
        self._act(self.turns.take(started, self.now))
        for name in self.state.nodes:
            self._publish(name)
        for action in open_before:
            if action.id in self.state.actions:
                self._perform(action)
        self._deliver()

    def _note(self, entry: r.JournalEntry) -> None:
        """Keep each entry once, whichever life wrote it."""
        if entry.sequence > len(self.entries):
            self.entries.append(entry)

    def _on_outage(self, error: StoreUnavailable) -> None:
        self.now += error.delay_seconds  # a turn waits for the store while time passes

    def _guarded(self, what: Callable[[], object]) -> None:
        """Run a piece of the supervisor; when it is killed in the middle, start another one a little later."""
        if not self._supervisor_up:
            return
        try:
            what()
        except Crash:
            self._supervisor_up = False
            self.num_crashes += 1
            self.after(RESTART, self._start_supervisor)

    def crash_supervisor(self) -> None:
        """Kill the supervisor now."""
        self._guarded(self._die)

    def _die(self) -> None:
        raise Crash("killed by the scenario")

    def point(self) -> None:
        """A moment at which the supervisor can be killed: around each persist, act and outcome."""
        self.points += 1
        if self.points == self.crash_at:
            raise Crash(f"at point {self.points}")

    def tell(self, fact: object, *, delay: float = LATENCY) -> None:
        """Send a durable signal or request: it waits in its stream while no supervisor reads."""
        self.after(delay, lambda: self._arrive(fact))

    def _arrive(self, fact: object) -> None:
        self._net.append("signals", wire.encode(fact))
        self._guarded(self._deliver)

    def _deliver(self) -> None:
        """Read on from the inbox cursor, as the supervisor's reader does."""
        if self.now < self._paused_until:
            return
        cursor = self.state.cursors.get("signals", 0)
        batch = self.store.read(streams={"signals": cursor}, registers={}, timeout_seconds=0)
        for item in batch.items.get("signals", ()):
            self.point()
            fact = wire.decode(item.payload)
            self._act(self.turns.take(fact, self.now, stream="signals", cursor=item.number))
        self._wake()

    def _take(self, fact: object) -> None:
        """Take in what does not come through a stream: findings, deadlines, outcomes of actions."""
        self.point()
        records = self.turns.take(fact, self.now)
        self.point()
        self._act(records)

    def _wake(self) -> None:
        """Do what the supervisor's loop does between inputs: plan the next look at detectors and deadlines."""
        self.detectors.watch(self.controller.watch())
        times = [due for due in (self.controller.wake_at(), self.detectors.due_at()) if due is not None]
        due = max(min(times, default=self._look_at), self.now)
        if due < self._look_at:
            self._look_at = due
            self.at(due, self._look)

    def _look(self) -> None:
        self._look_at = FAR
        if not self._supervisor_up or self.now < self._paused_until:
            return
        self.detectors.watch(self.controller.watch())
        for finding in self.detectors.tick(self.now):
            self._guarded(lambda finding=finding: self._take(finding))  # type: ignore[misc]
        self._guarded(lambda: self._take(r.Tick()))
        self._guarded(self._wake)

    def pause_supervisor(self, seconds: float) -> None:
        """SIGSTOP and, later, SIGCONT."""
        self._paused_until = self.now + seconds
        self.after(seconds, lambda: self._resumed(seconds))

    def _resumed(self, seconds: float) -> None:
        self.detectors.shift(seconds)
        self._guarded(lambda: self._take(r.Paused(seconds=seconds, reason="stood still")))
        self._guarded(self._deliver)

    def _act(self, records: list[object]) -> None:
        for record in records:
            if isinstance(record, r.Assigned):
                self.point()
                self._publish(record.node)
            elif isinstance(record, r.ActionIssued):
                self.point()
                self._perform(record.action)
                self.point()
        self._wake()

    def _publish(self, name: str) -> None:
        assignment = assignment_of(self.state, self.policy.cluster, self.state.nodes[name])
        self.store.put(f"assignment/{name}", wire.encode(assignment), fence=self.lease)
        self._machines[name].assignment = assignment
        self.after(LATENCY, lambda: self._obey(name))

    def _perform(self, action: Action) -> None:
        delay, outcome, detail = self._outcome(action)
        if outcome is not None:
            result = ActionResult(id=action.id, outcome=outcome, detail=detail)
            life = self.num_crashes
            self.after(delay, lambda: self._ended(result, life))

    def _ended(self, result: ActionResult, life: int) -> None:
        """An outcome reaches only the life that performed the action; a later one performs it again."""
        if life == self.num_crashes:
            self._guarded(lambda: self._take(result))

    def _outcome(self, action: Action) -> tuple[float, Any, dict[str, Any]]:
        args = action.args
        machine = self._machines.get(str(args.get("node")))
        if action.action == "prepare_attempt":
            run = AttemptId.parse(str(args["attempt"])).run
            steps = self.checkpoints.get(run, [])
            item = {"path": f"ck/{steps[-1]}", "step": steps[-1], "attempt": f"{run}.1.0"} if steps else None
            return 0.05, "done", {"chosen": item, "refused": [], "address": "sim", "port": 1}
        if action.action == "start_agent" and machine is not None:
            if not machine.cut:
                self.after(BOOT, lambda: self._boot(machine))
            return BOOT, "failed" if machine.cut else "done", {}
        if action.action == "stop_agent" and machine is not None:
            self._end_ranks(machine)
            machine.agent = machine.keeper = False
            return 0.1, "done", {}
        if action.action == "probe_node" and machine is not None:
            return 0.05, "done", self._probe(machine)
        if action.action == "node_task":
            return 0.02, "done", {}
        return 0.02, "done", {}

    def _probe(self, machine: Machine) -> dict[str, Any]:
        if machine.cut:
            return {"reachable": False}
        alive = ("dead", "alive")
        return {
            "reachable": True,
            "agent": alive[machine.agent],
            "keeper": alive[machine.keeper],
            "ranks_alive": sorted(machine.ranks),
        }

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def _boot(self, machine: Machine) -> None:
        if machine.agent or machine.cut:
            return
        machine.agent, machine.keeper = True, True
        machine.incarnation += 1
        plan = machine.plan if machine.ranks else None
        self.tell(
            s.NodeJoined(
                **self._source(machine),
                hardware=f"hw-{machine.name}",
                slots=self.policy.cluster.local.slots,
                address="sim",
                pid=1,
                epoch=machine.epoch,
                attempt=plan.attempt if plan else None,
                ranks_alive=tuple(machine.ranks),
            )
        )
        exits, machine.exits = machine.exits, []
        for rank, code, attempt, epoch in exits:
            self._tell_exit(machine, rank, code, attempt, epoch)
        self._obey(machine.name)
        self._heartbeat(machine.name)

    def _source(self, machine: Machine) -> dict[str, Any]:
        return {"node": machine.name, "incarnation": machine.incarnation}

    def _heartbeat(self, name: str) -> None:
        machine = self._machines[name]
        if self._beat_due.get(name, 0.0) <= self.now:
            self._beat_due[name] = self.now + HEARTBEAT
            self.after(HEARTBEAT, lambda: self._heartbeat(name))
        if not machine.agent or machine.cut or not self._supervisor_up or self.now < self._paused_until:
            return
        stopped = tuple(rank for rank, how in machine.ranks.items() if how == "stopped")
        beat = s.Heartbeat(
            **self._source(machine),
            epoch=machine.epoch,
            attempt=machine.plan.attempt if machine.plan else None,
            ranks_alive=tuple(machine.ranks),
            ranks_stopped=stopped,
            last_step=machine.last_step,
            phases={str(rank): "step" for rank in machine.ranks},
        )
        self.detectors.watch(self.controller.watch())
        for finding in self.detectors.heard(beat, self.now):
            self._guarded(lambda finding=finding: self._take(finding))  # type: ignore[misc]
        self._wake()

    def _obey(self, name: str) -> None:
        """Make the register true, as an agent does."""
        machine = self._machines[name]
        assignment = machine.assignment
        if not machine.agent or machine.cut or assignment is None or assignment.epoch <= machine.epoch:
            return
        machine.epoch = assignment.epoch
        old = machine.plan
        self._end_ranks(machine)
        machine.plan = assignment.plan
        if old is not None:
            epoch = self._epoch_of.get(old.attempt, 0)
            gone = s.RanksGone(**self._source(machine), epoch=epoch, attempt=old.attempt, last_step=machine.last_step)
            self.tell(gone, delay=0.03)
        machine.last_step = None
        if assignment.plan is not None:
            self._epoch_of[assignment.plan.attempt] = assignment.epoch
            self.after(SPAWN, lambda: self._spawn(machine, assignment))

    def _spawn(self, machine: Machine, assignment: Assignment) -> None:
        plan = assignment.plan
        if plan is None or machine.epoch != assignment.epoch or not machine.keeper:
            return
        machine.ranks = dict.fromkeys(plan.ranks, "running")
        self.launches.append((self.now, machine.name, plan.attempt))
        if machine.agent:
            self.tell(s.RanksStarted(**self._source(machine), epoch=assignment.epoch, attempt=plan.attempt))
        if len(self._running_ranks(plan.attempt)) == plan.world_size:
            nodes = tuple(m.name for m in self._machines.values() if m.plan and m.plan.attempt == plan.attempt)
            base = int(plan.resume.rpartition("/")[2]) if plan.resume else 0
            self._gangs[plan.attempt] = Gang(plan=plan, step=base, nodes=nodes)
            self.after(FIRST_STEP, lambda: self._step(plan.attempt))

    def _running_ranks(self, attempt: AttemptId) -> list[int]:
        machines = [m for m in self._machines.values() if m.plan is not None and m.plan.attempt == attempt]
        return [rank for machine in machines for rank, how in machine.ranks.items() if how == "running"]

    def live_gangs(self) -> list[AttemptId]:
        """Return the attempts all of whose ranks run: never more than one of a run."""
        return [
            name for name, gang in self._gangs.items() if len(self._running_ranks(name)) == gang.plan.world_size
        ]

    def _step(self, attempt: AttemptId) -> None:
        gang = self._gangs.get(attempt)
        if gang is None or len(self._running_ranks(attempt)) < gang.plan.world_size:
            return  # a synchronous gang stands still when one rank does
        gang.step += 1
        first = self._machines[gang.nodes[0]]
        for name in gang.nodes:
            started = self._machines[name].last_step is None
            self._machines[name].last_step = gang.step
        if started or gang.step % 5 == 0:
            self._say(first, s.Progress(**self._source(first), attempt=attempt, step=gang.step))
        if gang.step % CHECKPOINT_EVERY == 0:
            self.checkpoints.setdefault(attempt.run, []).append(gang.step)
            path = f"ck/{gang.step}"
            self._say(first, s.CheckpointSealed(**self._source(first), attempt=attempt, step=gang.step, path=path))
        if gang.step >= self.goal:
            self._finish(gang)
            return
        self.after(STEP, lambda: self._step(attempt))

    def _say(self, machine: Machine, fact: object) -> None:
        if machine.agent and not machine.cut:
            self.tell(fact)

    def _finish(self, gang: Gang) -> None:
        for name in gang.nodes:
            machine = self._machines[name]
            for rank in list(machine.ranks):
                self._exit(machine, rank, 0)

    def _exit(self, machine: Machine, rank: int, code: int | None) -> None:
        plan = machine.plan
        if rank not in machine.ranks or plan is None:
            return
        del machine.ranks[rank]
        epoch = self._epoch_of[plan.attempt]
        if machine.agent and not machine.cut:
            self._tell_exit(machine, rank, code, plan.attempt, epoch)
        else:
            machine.exits.append((rank, code, plan.attempt, epoch))

    def _tell_exit(self, machine: Machine, rank: int, code: int | None, attempt: AttemptId, epoch: int) -> None:
        exited = s.RankExited(
            **self._source(machine),
            epoch=epoch,
            attempt=attempt,
            rank=rank,
            exit_code=code,
            last_step=machine.last_step,
        )
        self.tell(exited)

    def _end_ranks(self, machine: Machine) -> None:
        machine.ranks = {}

    # ---- faults -----------------------------------------------------------------------------------------------------

    def _machine_of(self, rank: int) -> Machine | None:
        return next((m for m in self._machines.values() if rank in m.ranks), None)

    def kill_rank(self, rank: int, *, code: int = -9) -> None:
        """End a rank; its peers on other nodes follow with an error, as gloo's do."""
        machine = self._machine_of(rank)
        if machine is None or machine.plan is None:
            return
        attempt = machine.plan.attempt
        self._exit(machine, rank, code)
        self._break_peers(attempt, delay=0.5)

    def _break_peers(self, attempt: AttemptId, *, delay: float) -> None:
        def echo() -> None:
            for machine in self._machines.values():
                if machine.plan is not None and machine.plan.attempt == attempt:
                    for rank in [rank for rank, how in machine.ranks.items() if how == "running"]:
                        self._exit(machine, rank, 1)

        self.after(delay, echo)

    def stop_rank(self, rank: int) -> None:
        """SIGSTOP: nobody dies, nothing moves."""
        machine = self._machine_of(rank)
        if machine is not None:
            machine.ranks[rank] = "stopped"

    def kill_agent(self, name: str) -> None:
        """Only the agent dies."""
        self._machines[name].agent = False

    def kill_node(self, name: str, *, echo: bool = True) -> None:
        """Agent, keeper and ranks at once; with `echo`, peers elsewhere see their connections closed."""
        machine = self._machines[name]
        attempt = machine.plan.attempt if machine.plan else None
        machine.agent = machine.keeper = False
        machine.ranks, machine.exits, machine.last_step = {}, [], None
        if attempt is not None and echo:
            self._break_peers(attempt, delay=0.2)

    def cut_link(self, name: str) -> None:
        """The node lives on and can neither hear nor be heard."""
        self._machines[name].cut = True

    def mend_link(self, name: str) -> None:
        """The node hears and is heard again."""
        self._machines[name].cut = False
        self._obey(name)
        self._heartbeat(name)
