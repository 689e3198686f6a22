"""The world: a cluster in virtual time, and everything that can be done to it.

supervisor (`lead`) -> actions -> `places` ─┐
     │  ^                                   v
     v  └── signals, heartbeats ──────── `machine`s <─> `gangs`
   store ──── registers, tasks ────────────>
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from runner.decide.decision import Policy
from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.actions import Action, ActionResult
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.messages.requests import Request
from runner.facts.messages.signals import Heartbeat, StartPhase
from runner.simulate.action_outcomes import Places
from runner.simulate.gangs import Gangs
from runner.simulate.node import LATENCY, NoticeKind, SimNode, Verdict
from runner.simulate.supervisor import SimSupervisor
from runner.simulate.training import Folder, Training
from runner.simulate.virtual_time import Agenda
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store

SEND_RETRY_SECONDS = 1.0


class Watcher(Protocol):
    """Somebody who looks at the world and sees everything in it."""

    def entry(self, world: World, entry: r.JournalEntry) -> None:
        """An entry became durable and was applied, for the first time."""
        ...

    def event(self, world: World) -> None:
        """Something happened."""
        ...

    def recovered(self, world: World, before: State | None, after: State) -> None:
        """A supervisor has applied the journal and goes on."""
        ...


class World:
    """A cluster in virtual time. Faults are put in by methods; `run_until` lets time pass.

    `open_store(life)` gives each life of the supervisor, from 0, its handle on `store`.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        trainings: Mapping[str, Training] | None = None,
        store: MemoryStore | None = None,
        open_store: Callable[[int], Store] | None = None,
        watcher: Watcher | None = None,
        snapshot_entries: int = 25,
    ) -> None:
        """`trainings`: run name -> how its ranks behave; others train as `Training()` says."""
        self.cluster = policy.cluster
        self.agenda = Agenda(self._happened)
        self.entries: list[r.JournalEntry] = []
        self.launches: list[tuple[float, str, AttemptId]] = []
        self._trainings = dict(trainings or {})
        self._contents = store or MemoryStore()
        self._net = self._contents.another()
        self._is_store_up = True
        self._watcher = watcher
        self._folders: dict[str, Folder] = {}
        local = policy.cluster.local
        names = [f"n{index}" for index in range(1, local.nodes + local.spares + 1)]
        self._local = tuple(names)
        self.machines = {name: SimNode(name, self) for name in names}
        self.gangs = Gangs(self.agenda, self.machines, self._training_of, self.folder)
        self.places = Places(self.agenda, self.machines, self.folder)
        opened = open_store or (lambda _life: self._contents.another())
        self.supervisor = SimSupervisor(
            policy, partial(self._open, opened), self, snapshot_entries=snapshot_entries
        )
        for machine in self.machines.values():
            self.agenda.every(self.cluster.heartbeat_seconds, machine.heartbeat)
        self.agenda.after(0.0, self.supervisor.start)

    # ---- looking ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning."""
        return self.agenda.now

    @property
    def state(self) -> State:
        """What the controller knows."""
        return self.supervisor.controller.state

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes whose agents can be started."""
        return self._local

    def folder(self, run: int) -> Folder:
        """Return the checkpoints of a run: those of its name, as a run started again goes on from them."""
        return self._folders.setdefault(self.state.runs[run].spec.name, Folder())

    def run_until(self, time: float) -> None:
        """Let time pass."""
        self.agenda.run_until(time)

    def at(self, time: float, what: Callable[[], object]) -> None:
        """Let something happen at a time."""
        self.agenda.at(time, what)

    def _happened(self) -> None:
        if self._watcher is not None:
            self._watcher.event(self)

    def _training_of(self, run: str) -> Training:
        return self._trainings.get(run, Training())

    # ---- people -----------------------------------------------------------------------------------------------------

    def ask(self, request: Request) -> None:
        """Put a person's request into the store; while it is down, they try again."""
        if not self._is_store_up:
            self.agenda.after(SEND_RETRY_SECONDS, lambda: self.ask(request))
            return
        self._net.append("requests", wire.encode(request))
        self.agenda.after(LATENCY, self.supervisor.notify)

    # ---- the store --------------------------------------------------------------------------------------------------

    def _open(self, open_store: Callable[[int], Store], life: int) -> Store:
        store = open_store(life)
        if not self._is_store_up:
            raise StoreUnavailable("the store does not answer")
        return store

    def lose_store(self, seconds: float) -> None:
        """Take the store away from everybody for a while."""
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
        register = self._net.get(f"assignment/{node}")
        assignment: Assignment | None = wire.decode(register.payload) if register else None
        return assignment

    def read_tasks(self, node: str, after: int) -> list[tuple[int, Task]]:
        """Read a node's tasks."""
        stream = f"tasks/{node}"
        batch = self._net.read(streams={stream: after}, registers={}, timeout_seconds=0)
        return [(item.number, wire.decode(item.payload)) for item in batch.items.get(stream, ())]

    def post(self, fact: object) -> None:
        """Append a durable signal."""
        self._net.append("signals", wire.encode(fact))
        self.supervisor.notify()

    def beat(self, beat: Heartbeat) -> None:
        """Hand a heartbeat on; one that nobody listens to is lost."""
        self.supervisor.on_heartbeat(beat)

    # ---- what the lead acts on --------------------------------------------------------------------------------------

    def on_written(self, node: str) -> None:
        """Let the node read what there is."""
        for machine in list(self.machines.values()):
            if machine.name == node:
                self.agenda.after(LATENCY, machine.read)

    def perform(self, action: Action, report: Callable[[ActionResult], None]) -> None:
        """Start an action."""
        self.places.perform(action, report)

    def on_recovered(self, before: State | None, after: State) -> None:
        """Tell the watcher."""
        if self._watcher is not None:
            self._watcher.recovered(self, before, after)

    def on_entry(self, entry: r.JournalEntry) -> None:
        """Keep the entry and tell the watcher."""
        self.entries.append(entry)
        if self._watcher is not None:
            self._watcher.entry(self, entry)

    # ---- what machines stand in -------------------------------------------------------------------------------------

    def spawned(self, plan: LaunchPlan, epoch: int) -> None:
        """Note the launch."""
        node = next(
            name
            for name, machine in self.machines.items()
            if machine.share is not None and machine.share.plan is plan
        )
        self.launches.append((self.now, node, plan.attempt))
        self.gangs.spawned(plan, epoch)

    def rank_died(self, attempt: AttemptId) -> None:
        """Let its peers notice."""
        self.gangs.rank_died(attempt)

    def ask_gang(self, attempt: AttemptId, request_id: str, request: dict[str, Any]) -> bool:
        """Hand a request to the ranks."""
        return self.gangs.ask(attempt, request_id, request)

    def last_step(self, attempt: AttemptId) -> int | None:
        """Return the last step a gang has reported."""
        return self.gangs.last_step(attempt)

    def phase(self, attempt: AttemptId) -> str:
        """Return what a gang says it is doing."""
        return self.gangs.phase(attempt)

    def writes(self, attempt: AttemptId) -> tuple[int, float]:
        """Return how often a script's rank 0 has written to its output, and the seconds between two."""
        return self.gangs.writes(attempt)

    def start(self, attempt: AttemptId, ranks: tuple[int, ...]) -> dict[str, StartPhase]:
        """Return the slowest of some ranks in each phase of the start."""
        return self.gangs.start(attempt, ranks)

    def strike(self, fault: str, node: str, rank: int | None) -> None:
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

    def _machine_with(self, rank: int, run: str) -> SimNode | None:
        for machine in self.machines.values():
            share = machine.share
            if share is not None and rank in share.ranks and share.plan.run == run:
                return machine
        return None

    def kill_rank(self, rank: int, run: str, *, code: int = -9) -> None:
        """End a rank."""
        machine = self._machine_with(rank, run)
        if machine is not None:
            machine.end_rank(rank, code)

    def stop_rank(self, rank: int, run: str) -> None:
        """SIGSTOP: nobody dies, nothing moves."""
        machine = self._machine_with(rank, run)
        if machine is not None:
            machine.stop_rank(rank)

    def kill_agent(self, node: str) -> None:
        """Only the agent dies."""
        self.machines[node].agent = False

    def kill_node(self, node: str) -> None:
        """Agent, keeper and ranks at once."""
        self.machines[node].die()

    def boot_node(self, node: str) -> None:
        """Somebody starts an agent there by hand."""
        self.machines[node].boot()

    def bring_machine(self, node: str, like: str = "") -> None:
        """Switch on a machine of nobody's that calls itself so; `like`: it is the hardware of that node."""
        hardware = self.machines[like].hardware if like else f"board:new{len(self.machines)}"
        machine = SimNode(node, self, hardware=hardware)
        # its folder was copied
        if like == node:
            machine.incarnation = self.machines[node].incarnation
        self.machines[f"{node}#{len(self.machines)}"] = machine
        self.agenda.every(self.cluster.heartbeat_seconds, machine.heartbeat)
        machine.boot()

    def kill_machine(self, node: str) -> None:
        """Switch off whoever calls itself so."""
        for machine in self.machines.values():
            if machine.name == node:
                machine.die()

    def spoil_node(self, node: str, verdict: Verdict = "FAIL") -> None:
        """Let its checks end so from now on; PASS mends it, hang has them never end."""
        self.machines[node].verdict = verdict

    def announce(self, node: str, notice: NoticeKind, seconds: float | None = None) -> None:
        """Announce that the node will be taken away."""
        self.machines[node].take_notice(notice, seconds)

    def kill_keeper(self, node: str) -> None:
        """Only the keeper dies, and its ranks with it."""
        self.machines[node].lose_keeper()

    def cut_link(self, node: str) -> None:
        """The node lives on and can neither hear nor be heard."""
        self.machines[node].cut = True

    def isolate_node(self, node: str) -> None:
        """The node lives on and nobody reaches it, the peers of its ranks neither."""
        self.machines[node].isolate()

    def mend_link(self, node: str) -> None:
        """The node hears and is heard again."""
        self.machines[node].mend()

    def hang_agent(self, node: str) -> None:
        """The agent is alive, deaf and dumb."""
        self.machines[node].mute = True

    def free_agent(self, node: str) -> None:
        """The agent goes on."""
        self.machines[node].mute = False
        self.machines[node].resume()

    def remove_program(self, node: str) -> None:
        """Ranks cannot be started there any more."""
        self.machines[node].program_missing = True

    def cool_node(self, node: str, *words: str) -> None:
        """Ranks cannot be forked there any more; the words say why."""
        self.machines[node].cold = " ".join(words)

    def stick_launches(self, node: str) -> None:
        """Let launches on it never come to anything, without a word."""
        self.machines[node].is_stuck = True

    def hold_devices(self, node: str, devices: int = 1) -> None:
        """Something keeps memory of so many of its devices."""
        self.machines[node].devices_held = devices

    def free_devices(self, node: str) -> None:
        """The memory is released."""
        self.machines[node].free_devices()

    def wedge_rank(self, node: str, rank: int) -> None:
        """Let a rank outlive SIGKILL (state D)."""
        self.machines[node].undying = (rank,)

    def tear_checkpoint(self, step: int, run: int = 1) -> None:
        """Flip a bit in every checkpoint of that step."""
        for sealed in self.folder(run).sealed:
            if sealed.step == step:
                sealed.torn = True

    def crash_supervisor(self) -> None:
        """Kill the supervisor."""
        self.supervisor.crash()

    def pause_supervisor(self, seconds: float) -> None:
        """SIGSTOP the supervisor, and SIGCONT it later."""
        self.supervisor.pause(seconds)
