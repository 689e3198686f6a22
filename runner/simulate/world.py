"""The world: a cluster in virtual time, and everything that can be done to it.

supervisor -> `actions` ────────────────┐
   │  ^                                 v
   v  └── signals, heartbeats ─── `machines` <─> `gangs`
 store ──── registers, tasks ──────────>
"""

from collections.abc import Callable, Mapping
from functools import partial

from runner.decide.decision import Policy
from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.messages.requests import Request
from runner.facts.store_names import REQUESTS, SIGNALS, assignment_register, task_stream
from runner.simulate.action_outcomes import SimActions
from runner.simulate.gangs import SimGangs
from runner.simulate.node import LATENCY, SimNode
from runner.simulate.supervisor import SimSupervisor
from runner.simulate.training import SimCheckpoint, SimCheckpoints, Training
from runner.simulate.virtual_time import Agenda
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store

SEND_RETRY_SECONDS = 1.0


class WorldObserver:
    """Sees everything in the world; a subclass says what it does about it."""

    def on_entry(self, world: "World", entry: r.JournalEntry) -> None:
        """An entry became durable and was applied, for the first time."""

    def on_event(self, world: "World") -> None:
        """An event happened."""

    def on_recovered(self, world: "World", before: State | None, after: State) -> None:
        """A supervisor has applied the journal and leads; `before`: the state of the previous one when it ended."""


class World:
    """A cluster in virtual time. Faults are put in by its methods and its machines'; `run_until` lets time pass.

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
        self.watcher = watcher or WorldObserver()
        self.agenda = Agenda(lambda: self.watcher.on_event(self))
        self.run_until, self.at = self.agenda.run_until, self.agenda.at
        self.entries: list[r.JournalEntry] = []
        self.launches: list[tuple[float, str, AttemptId]] = []
        self.is_store_up = True
        self._trainings = dict(trainings or {})
        contents = store or MemoryStore()
        self._net = contents.another()
        self._folders: dict[str, SimCheckpoints] = {}
        local = policy.cluster.local
        # Those whose agents can be started.
        self.nodes = tuple(f"n{index}" for index in range(1, local.nodes + local.spares + 1))
        self.machines = {name: SimNode(name, self) for name in self.nodes}
        self.gangs = SimGangs(self.agenda, self.machines, self._training_of, self.folder)
        self.actions = SimActions(self.agenda, self.machines, self.folder)
        opened = open_store or (lambda _id: contents.another())
        self.supervisor = SimSupervisor(
            policy, partial(self._open, opened), self, snapshot_entries=snapshot_entries
        )
        for machine in self.machines.values():
            self.agenda.every(self.cluster.heartbeat_seconds, machine.heartbeat)
        self.agenda.after(0.0, self.supervisor.start)

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self.agenda.now

    @property
    def state(self) -> State:
        """The controller's state."""
        return self.supervisor.controller.state

    def folder(self, run: int) -> SimCheckpoints:
        """Return the checkpoints of a run: those of its name, because a run started again continues from them."""
        return self._folders.setdefault(self.state.runs[run].spec.name, SimCheckpoints())

    def _training_of(self, run: str) -> Training:
        return self._trainings.get(run, Training())

    def submit_request(self, request: Request) -> None:
        """Append a person's request to the store; while it is down, they try again."""
        if not self.is_store_up:
            self.agenda.after(SEND_RETRY_SECONDS, lambda: self.submit_request(request))
            return
        self._net.append(REQUESTS, wire.encode(request))
        self.agenda.after(LATENCY, self.supervisor.notify)

    def _open(self, open_store: Callable[[int], Store], instance_id: int) -> Store:
        store = open_store(instance_id)
        if not self.is_store_up:
            raise StoreUnavailable("the store does not answer")
        return store

    def lose_store(self, seconds: float) -> None:
        """Make the store unreachable for a while."""
        handle = self.supervisor.store
        assert isinstance(handle, MemoryStore)
        self.is_store_up = False
        handle.go_down()

        def come_back() -> None:
            self.is_store_up = True
            handle.come_back()
            self.supervisor.on_store_back(seconds)
            self.supervisor.notify()
            for machine in self.machines.values():
                machine.resume()

        self.agenda.after(seconds, come_back)

    def read_register(self, node: str) -> Assignment | None:
        """Read a node's assignment."""
        register = self._net.get(assignment_register(node))
        assignment: Assignment | None = wire.decode(register.payload) if register else None
        return assignment

    def read_tasks(self, node: str, after: int) -> list[tuple[int, Task]]:
        """Read a node's tasks past a number."""
        stream = task_stream(node)
        batch = self._net.read(streams={stream: after}, registers={}, timeout_seconds=0)
        return [(item.number, wire.decode(item.payload)) for item in batch.items.get(stream, ())]

    def append_signal(self, fact: object) -> None:
        """Append a durable signal."""
        self._net.append(SIGNALS, wire.encode(fact))
        self.supervisor.notify()

    def on_written(self, node: str) -> None:
        """Let the node read its register and tasks."""
        for machine in self._machines_called(node):
            self.agenda.after(LATENCY, machine.read)

    def on_entry(self, entry: r.JournalEntry) -> None:
        """Keep an entry that is durable and applied, for the first time, and notify the observer."""
        self.entries.append(entry)
        self.watcher.on_entry(self, entry)

    def on_ranks_started(self, node: SimNode, plan: LaunchPlan, generation: int) -> None:
        """Record the launch of a node's share of a gang."""
        name = next(name for name, machine in self.machines.items() if machine is node)
        self.launches.append((self.now, name, plan.attempt))
        self.gangs.on_ranks_started(plan, generation)

    def inject_fault(self, fault: str, node: str, rank: int | None) -> None:
        """Carry out a drill."""
        machine = self.machines[node]
        if fault == "kill-node":
            machine.die()
        elif fault == "kill-agent":
            machine.agent = False
        elif rank is not None and machine.share is not None and fault == "kill-rank":
            machine.end_rank(rank, -9)
        elif rank is not None:
            machine.stop_rank(rank)

    def _machines_called(self, node: str) -> list[SimNode]:
        return [machine for machine in self.machines.values() if machine.name == node]

    def _machine_of(self, rank: int, run: str) -> SimNode | None:
        for machine in self.machines.values():
            share = machine.share
            if share is not None and rank in share.ranks and share.plan.run == run:
                return machine
        return None

    def kill_rank(self, rank: int, run: str) -> None:
        """SIGKILL a rank."""
        if (machine := self._machine_of(rank, run)) is not None:
            machine.end_rank(rank, -9)

    def stop_rank(self, rank: int, run: str) -> None:
        """SIGSTOP a rank: it is alive and does not move."""
        if (machine := self._machine_of(rank, run)) is not None:
            machine.stop_rank(rank)

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
        for machine in self._machines_called(node):
            machine.die()

    def find_checkpoint(self, path: str) -> SimCheckpoint | None:
        """Return the checkpoint at a path, of whichever run."""
        found = (folder.find(path) for folder in self._folders.values())
        return next((checkpoint for checkpoint in found if checkpoint is not None), None)

    def poison_checkpoint(self, step: int, run: int = 1) -> None:
        """Have every checkpoint of that step sealed so far hold a NaN, as if it had been sealed so."""
        for checkpoint in self.folder(run).sealed:
            checkpoint.is_sick = checkpoint.is_sick or checkpoint.step == step

    def corrupt_checkpoint(self, step: int, run: int = 1) -> None:
        """Flip a bit in every checkpoint of that step."""
        for sealed in self.folder(run).sealed:
            if sealed.step == step:
                sealed.corrupt = True
