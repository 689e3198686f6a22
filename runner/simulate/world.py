"""The world: a cluster in virtual time, and everything that can be done to it.

supervisor (`lead`) -> actions -> `places` ─┐
     │  ^                                   v
     v  └── signals, heartbeats ──────── `machine`s <─> `gangs`
   store ──── registers, tasks ────────────>
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from runner.decide.decision import Policy
from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.actions import Action, ActionResult
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.messages.requests import Request
from runner.facts.messages.signals import Heartbeat
from runner.facts.store_names import REQUESTS, SIGNALS, assignment_register, task_stream
from runner.simulate.action_outcomes import SimActions
from runner.simulate.gangs import SimGangs
from runner.simulate.node import LATENCY, NoticeKind, SimNode, Verdict
from runner.simulate.supervisor import SimSupervisor
from runner.simulate.training import SimCheckpoints, Training
from runner.simulate.virtual_time import Agenda
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store

SEND_RETRY_SECONDS = 1.0


class WorldObserver(Protocol):
    """An observer that sees everything in the world."""

    def on_entry(self, world: World, entry: r.JournalEntry) -> None:
        """An entry became durable and was applied, for the first time."""

    def on_event(self, world: World) -> None:
        """An event happened."""

    def on_recovered(self, world: World, before: State | None, after: State) -> None:
        """A supervisor has applied the journal and leads."""


class World:
    """A cluster in virtual time. Faults are put in by methods; `run_until` lets time pass.

    `open_store(start)` gives each start of the supervisor, from 0, its handle on `store`.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        trainings: Mapping[str, Training] | None = None,
        store: MemoryStore | None = None,
        open_store: Callable[[int], Store] | None = None,
        watcher: WorldObserver | None = None,
        snapshot_entries: int = 25,
    ) -> None:
        """`trainings`: run name -> how its ranks behave; others train as `Training()` says."""
        self.cluster = policy.cluster
        self.agenda = Agenda(self._on_event)
        self.entries: list[r.JournalEntry] = []
        self.launches: list[tuple[float, str, AttemptId]] = []
        self._trainings = dict(trainings or {})
        self._contents = store or MemoryStore()
        self._net = self._contents.another()
        self._is_store_up = True
        self._watcher = watcher
        self._folders: dict[str, SimCheckpoints] = {}
        local = policy.cluster.local
        names = [f"n{index}" for index in range(1, local.nodes + local.spares + 1)]
        self._local = tuple(names)
        self.machines = {name: SimNode(name, self) for name in names}
        self.gangs = SimGangs(self.agenda, self.machines, self._training_of, self.folder)
        self.actions = SimActions(self.agenda, self.machines, self.folder)
        opened = open_store or (lambda _id: self._contents.another())
        self.supervisor = SimSupervisor(
            policy, partial(self._open, opened), self, snapshot_entries=snapshot_entries
        )
        for machine in self.machines.values():
            self.agenda.every(self.cluster.heartbeat_seconds, machine.heartbeat)
        self.agenda.after(0.0, self.supervisor.start)

    # ---- observations ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.agenda.now

    @property
    def state(self) -> State:
        """The controller's state."""
        return self.supervisor.controller.state

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes whose agents can be started."""
        return self._local

    def folder(self, run: int) -> SimCheckpoints:
        """Return the checkpoints of a run: those of its name, because a run started again continues from them."""
        return self._folders.setdefault(self.state.runs[run].spec.name, SimCheckpoints())

    def run_until(self, time: float) -> None:
        """Let time pass."""
        self.agenda.run_until(time)

    def at(self, time: float, event: Callable[[], object]) -> None:
        """Plan an event."""
        self.agenda.at(time, event)

    def _on_event(self) -> None:
        if self._watcher is not None:
            self._watcher.on_event(self)

    def _training_of(self, run: str) -> Training:
        return self._trainings.get(run, Training())

    # ---- people -----------------------------------------------------------------------------------------------------

    def submit_request(self, request: Request) -> None:
        """Append a person's request to the store; while it is down, they try again."""
        if not self._is_store_up:
            self.agenda.after(SEND_RETRY_SECONDS, lambda: self.submit_request(request))
            return
        self._net.append(REQUESTS, wire.encode(request))
        self.agenda.after(LATENCY, self.supervisor.notify)

    # ---- the store --------------------------------------------------------------------------------------------------

    def _open(self, open_store: Callable[[int], Store], instance_id: int) -> Store:
        store = open_store(instance_id)
        if not self._is_store_up:
            raise StoreUnavailable("the store does not answer")
        return store

    def lose_store(self, seconds: float) -> None:
        """Make the store unreachable for a while."""
        handle = self.supervisor.store
        assert isinstance(handle, MemoryStore)
        self._is_store_up = False
        handle.go_down()

        def come_back() -> None:
            self._is_store_up = True
            handle.come_back()
            self.supervisor.on_store_back(seconds)
            self.supervisor.notify()
            for machine in self.machines.values():
                machine.resume()

        self.agenda.after(seconds, come_back)

    def store_answers(self) -> bool:
        """Whether the store is up."""
        return self._is_store_up

    def read_register(self, node: str) -> Assignment | None:
        """Read a node's assignment."""
        register = self._net.get(assignment_register(node))
        assignment: Assignment | None = wire.decode(register.payload) if register else None
        return assignment

    def read_tasks(self, node: str, after: int) -> list[tuple[int, Task]]:
        """Read a node's tasks."""
        stream = task_stream(node)
        batch = self._net.read(streams={stream: after}, registers={}, timeout_seconds=0)
        return [(item.number, wire.decode(item.payload)) for item in batch.items.get(stream, ())]

    def append_signal(self, fact: object) -> None:
        """Append a durable signal."""
        self._net.append(SIGNALS, wire.encode(fact))
        self.supervisor.notify()

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Deliver a heartbeat; without a supervisor it is lost."""
        self.supervisor.on_heartbeat(heartbeat)

    # ---- the environment of the supervisor --------------------------------------------------------------------------------------

    def on_written(self, node: str) -> None:
        """Let the node read its register and tasks."""
        for machine in list(self.machines.values()):
            if machine.name == node:
                self.agenda.after(LATENCY, machine.read)

    def perform(self, action: Action, report: Callable[[ActionResult], None]) -> None:
        """Start an action."""
        self.actions.perform(action, report)

    def on_recovered(self, before: State | None, after: State) -> None:
        """Notify the observer."""
        if self._watcher is not None:
            self._watcher.on_recovered(self, before, after)

    def on_entry(self, entry: r.JournalEntry) -> None:
        """Keep the entry, and notify the observer."""
        self.entries.append(entry)
        if self._watcher is not None:
            self._watcher.on_entry(self, entry)

    # ---- the environment of nodes -------------------------------------------------------------------------------------

    def on_ranks_started(self, plan: LaunchPlan, generation: int) -> None:
        """Record the launch."""
        node = next(
            name
            for name, machine in self.machines.items()
            if machine.share is not None and machine.share.plan is plan
        )
        self.launches.append((self.now, node, plan.attempt))
        self.gangs.on_ranks_started(plan, generation)

    def inject_fault(self, fault: str, node: str, rank: int | None) -> None:
        """Carry out a drill."""
        if fault == "kill-node":
            self.kill_node(node)
        elif fault == "kill-agent":
            self.kill_agent(node)
        elif rank is not None:
            share = self.machines[node].share
            if share is not None and fault == "kill-rank":
                self.machines[node].end_rank(rank, -9)
            else:
                self.machines[node].stop_rank(rank)

    # ---- faults -----------------------------------------------------------------------------------------------------

    def _machine_of(self, rank: int, run: str) -> SimNode | None:
        for machine in self.machines.values():
            share = machine.share
            if share is not None and rank in share.ranks and share.plan.run == run:
                return machine
        return None

    def kill_rank(self, rank: int, run: str, *, code: int = -9) -> None:
        """End a rank."""
        machine = self._machine_of(rank, run)
        if machine is not None:
            machine.end_rank(rank, code)

    def stop_rank(self, rank: int, run: str) -> None:
        """SIGSTOP a rank: it is alive and does not move."""
        machine = self._machine_of(rank, run)
        if machine is not None:
            machine.stop_rank(rank)

    def kill_agent(self, node: str) -> None:
        """Kill the agent alone."""
        self.machines[node].agent = False

    def kill_node(self, node: str) -> None:
        """Kill agent, keeper and ranks at once."""
        self.machines[node].die()

    def boot_node(self, node: str) -> None:
        """Start an agent there by hand."""
        self.machines[node].boot()

    def add_machine(self, node: str, like: str = "") -> None:
        """Start a new machine that claims this node name; `like`: it has that node's hardware."""
        hardware = self.machines[like].hardware if like else f"board:new{len(self.machines)}"
        machine = SimNode(node, self, hardware=hardware)
        # Its folder was copied.
        if like == node:
            machine.incarnation = self.machines[node].incarnation
        self.machines[f"{node}#{len(self.machines)}"] = machine
        self.agenda.every(self.cluster.heartbeat_seconds, machine.heartbeat)
        machine.boot()

    def kill_machine(self, node: str) -> None:
        """Kill every machine that claims this node name."""
        for machine in self.machines.values():
            if machine.name == node:
                machine.die()

    def set_check_outcome(self, node: str, verdict: Verdict = "FAIL") -> None:
        """Set how its checks end from now on; hang: never."""
        self.machines[node].verdict = verdict

    def announce(self, node: str, notice: NoticeKind, seconds: float | None = None) -> None:
        """Announce that the node will be taken away."""
        self.machines[node].on_notice(notice, seconds)

    def kill_keeper(self, node: str) -> None:
        """Kill the keeper and its ranks."""
        self.machines[node].kill_keeper_and_ranks()

    def partition_node(self, node: str) -> None:
        """Cut the node off from store and probes; it keeps running."""
        self.machines[node].partitioned = True

    def isolate_node(self, node: str) -> None:
        """Cut the node off from everything, the peers of its ranks included; it keeps running."""
        self.machines[node].isolate()

    def reconnect_node(self, node: str) -> None:
        """Reconnect the node."""
        self.machines[node].reconnect()

    def hang_agent(self, node: str) -> None:
        """Hang the agent: alive, and doing nothing."""
        self.machines[node].agent_hung = True

    def resume_agent(self, node: str) -> None:
        """Resume the agent."""
        self.machines[node].agent_hung = False
        self.machines[node].resume()

    def remove_program(self, node: str) -> None:
        """Make the start of ranks fail there."""
        self.machines[node].program_missing = True

    def disable_forking(self, node: str, *words: str) -> None:
        """Make forking of ranks fail there; the words say why."""
        self.machines[node].not_forked_reason = " ".join(words)

    def stall_launches(self, node: str) -> None:
        """Make launches there never finish, without a report."""
        self.machines[node].is_stuck = True

    def hold_devices(self, node: str, devices: int = 1) -> None:
        """Let another process use memory of so many of its devices."""
        self.machines[node].devices_busy = devices

    def free_devices(self, node: str) -> None:
        """Release that memory."""
        self.machines[node].free_devices()

    def wedge_rank(self, node: str, rank: int) -> None:
        """Let a rank survive SIGKILL (state D)."""
        self.machines[node].unkillable = (rank,)

    def corrupt_checkpoint(self, step: int, run: int = 1) -> None:
        """Flip a bit in every checkpoint of that step."""
        for sealed in self.folder(run).sealed:
            if sealed.step == step:
                sealed.corrupt = True

    def crash_supervisor(self) -> None:
        """Kill the supervisor."""
        self.supervisor.crash()

    def pause_supervisor(self, seconds: float) -> None:
        """SIGSTOP the supervisor, and SIGCONT it later."""
        self.supervisor.pause(seconds)
