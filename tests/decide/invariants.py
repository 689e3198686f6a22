"""Invariants that hold after every entry of every scenario, apart from the transcripts.

The watcher folds the journal with books of its own and looks at the real condition of the machines, so it does not believe
the controller's own state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.placement.launch_plans import Preloads, assignment_of
from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import State
from runner.facts import lifecycles, wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages.records_trials import TrialEnded
from runner.history.ledger import Ledger
from runner.simulate.world import World, WorldObserver


class Broken(AssertionError):
    """An invariant does not hold."""


def check(holds: bool, what: str) -> None:
    """Raise Broken unless it holds."""
    if not holds:
        raise Broken(what)


@dataclass(slots=True, kw_only=True)
class AttemptBook:
    """One attempt, as its records describe it."""

    generation: int
    nodes: tuple[str, ...]
    state: str = "preparing"
    # One of its ranks is confirmed dead.
    is_dead: bool = False
    stopping_at: float | None = None
    was_launched: bool = False


@dataclass(slots=True, kw_only=True)
class Books:
    """The records of a journal, folded without the controller."""

    policy: Policy
    nodes: dict[str, str] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, AttemptId | None] = field(default_factory=dict)
    ranks_may_run: dict[str, AttemptId | None] = field(default_factory=dict)
    attempts: dict[AttemptId, AttemptBook] = field(default_factory=dict)
    runs: dict[int, str] = field(default_factory=dict)
    last: dict[int, AttemptId] = field(default_factory=dict)
    incidents: dict[str, str] = field(default_factory=dict)
    actions: dict[str, str] = field(default_factory=dict)
    rungs: dict[tuple[str, str, int, str | None], int] = field(default_factory=dict)
    # Incident -> node.
    culprits: dict[str, str | None] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    # Node -> failure domain.
    down_with: dict[str, str] = field(default_factory=dict)
    # Node -> what its register holds.
    hardware: dict[str, str] = field(default_factory=dict)
    # Hardware -> who refused it.
    refused: dict[str, str] = field(default_factory=dict)
    # Runs that people hold, incident -> run.
    held: dict[int, str] = field(default_factory=dict)
    run_of: dict[str, int | None] = field(default_factory=dict)
    now: float = 0.0
    sequence: int = 0

    def take(self, entry: r.JournalEntry) -> None:
        """Fold one entry, and check every move in it."""
        check(entry.sequence == self.sequence + 1, f"entry {entry.sequence} after {self.sequence}")
        check(entry.now >= self.now, f"time ran back from {self.now} to {entry.now}")
        self.now, self.sequence = entry.now, entry.sequence
        for record in entry.records:
            check(not isinstance(record, r.DecisionFailed), f"decision failed: {record}")
            handler = _HANDLERS.get(type(record))
            if handler is not None:
                handler(self, record)

    def _move(self, table: Mapping[Any, tuple[Any, ...]], who: str, before: str, to: str) -> None:
        check(to in table[before], f"{who} moved from {before} to {to} at {self.now:.2f}")

    def _node_expected(self, record: r.NodeExpected) -> None:
        self.nodes.setdefault(record.node, "absent")

    def _node_changed(self, record: r.NodeChanged) -> None:
        before = self.nodes.setdefault(record.node, "absent")
        self._move(lifecycles.NODE, record.node, before, record.state)
        self.nodes[record.node] = record.state
        self.down_with[record.node] = record.domain

    def _hardware_fault_recorded(self, record: r.HardwareFaultRecorded) -> None:
        domain = self.down_with.get(record.node)
        check(not domain, f"{record.node} went down with {domain}, and is blamed: {record}")

    def _node_registered(self, record: r.NodeRegistered) -> None:
        self.nodes.setdefault(record.node, "absent")
        for name in [
            name for name, rank_stacks in self.hardware.items() if rank_stacks == record.hardware
        ]:
            # The register no longer holds it.
            del self.hardware[name]
        self.hardware[record.node] = record.hardware

    def _hardware_judged(self, record: r.HardwareJudged) -> None:
        self.refused.pop(record.hardware, None)
        if record.verdict:
            self.refused[record.hardware] = record.by
        alone = sum(not by for by in self.refused.values())
        limit = max(2, int(0.02 * len(self.nodes)))
        check(alone <= limit, f"{alone} pieces of hardware are quarantined without a person")

    def _assigned(self, record: r.Assigned) -> None:
        name = record.node
        before = self.generations.get(name, 0)
        check(record.generation > before, f"{name}: generation {record.generation} after {before}")
        self.generations[name] = record.generation
        if record.attempt is not None:
            check(self.assigned.get(name) is None, f"{name} gets a second attempt: {record}")
            check(self.ranks_may_run.get(name) is None, f"{name} is not clear: {record}")
            check(self.nodes[name] == "active", f"{name} is {self.nodes[name]}: {record}")
            rank_stacks = self.hardware.get(name, "")
            check(
                rank_stacks not in self.refused,
                f"{name} is refused hardware {rank_stacks}: {record}",
            )
            check(name in self.attempts[record.attempt].nodes, f"{name} is no part of it: {record}")
            self.ranks_may_run[name] = record.attempt
        self.assigned[name] = record.attempt

    def _node_cleared(self, record: r.NodeCleared) -> None:
        if self.ranks_may_run.get(record.node) == record.attempt:
            self.ranks_may_run[record.node] = None
        self.attempts[record.attempt].is_dead = True

    def _rank_ended(self, record: r.RankEnded) -> None:
        self.attempts[record.attempt].is_dead = True

    def _run_admitted(self, record: r.RunAdmitted) -> None:
        check(record.run not in self.runs, f"run {record.run} was admitted twice")
        self.runs[record.run] = "active"

    def _run_changed(self, record: r.RunChanged) -> None:
        who = f"run {record.run}"
        self._move(lifecycles.RUN, who, self.runs[record.run], record.state)
        self.runs[record.run] = record.state

    def _planned(self, record: r.AttemptPlanned) -> None:
        run = record.attempt.run
        check(self.runs[run] == "active", f"{record.attempt} planned in a run {self.runs[run]}")
        check(run not in self.held, f"{record.attempt} planned in a run that is held")
        before = self.last.get(run)
        if before is not None:
            known = self.attempts[before]
            check(known.state == "ended", f"{record.attempt} planned while {before} {known.state}")
            check(record.attempt > before, f"{record.attempt} after {before}")
            check(
                record.generation > known.generation,
                f"{record.attempt} has an older generation than {before}",
            )
        for name in record.nodes:
            usable = self.nodes[name] in ("spare", "active")
            check(usable, f"{record.attempt} planned on {name}, which is {self.nodes[name]}")
        self.attempts[record.attempt] = AttemptBook(
            generation=record.generation, nodes=record.nodes
        )
        self.last[run] = record.attempt

    def _prepared(self, record: r.AttemptPrepared) -> None:
        book = self.attempts[record.attempt]
        self._move(lifecycles.ATTEMPT, str(record.attempt), book.state, "prepared")
        book.state = "prepared"

    def _attempt_changed(self, record: r.AttemptChanged) -> None:
        book = self.attempts[record.attempt]
        self._move(lifecycles.ATTEMPT, str(record.attempt), book.state, record.state)
        book.state = record.state
        if record.state == "launching":
            book.was_launched = True
            self._check_alone(record.attempt)
        if record.state == "stopping":
            book.stopping_at = self.now

    def _check_alone(self, attempt: AttemptId) -> None:
        """A gang is launched only when each one before it has a dead rank, or its cap has passed."""
        cap = self.policy.cluster.hard_cap_seconds
        for name, book in self.attempts.items():
            if name.run == attempt.run and name != attempt and book.was_launched:
                waited = book.stopping_at is not None and self.now >= book.stopping_at + cap
                check(book.is_dead or waited, f"{attempt} launched while {name} may live")

    def _incident_opened(self, record: r.IncidentOpened) -> None:
        check(record.incident not in self.incidents, f"{record.incident} was opened twice")
        self.incidents[record.incident] = "open"
        self.run_of[record.incident] = record.run
        self.culprits[record.incident] = record.node

    def _incident_amended(self, record: r.IncidentAmended) -> None:
        self.culprits[record.incident] = record.node or self.culprits[record.incident]

    def _incident_changed(self, record: r.IncidentChanged) -> None:
        before = self.incidents[record.incident]
        self._move(lifecycles.INCIDENT, record.incident, before, record.state)
        self.incidents[record.incident] = record.state

    def _rung_taken(self, record: r.RungTaken) -> None:
        before = self.incidents[record.incident]
        self._move(lifecycles.INCIDENT, record.incident, before, "acting")
        self.incidents[record.incident] = "acting"
        book = next(book for book in self.policy.runbooks if book.name == record.runbook)
        # Each node that dies in one incident is answered by itself.
        key = (record.incident, record.runbook, record.rung, self.culprits[record.incident])
        self.rungs[key] = self.rungs.get(key, 0) + 1
        # What a person approves, a hold does not forbid.
        is_held = self.run_of.get(record.incident) in self.held and not record.by
        check(not (is_held and book.ladder[record.rung].ends_gang), f"a held run: {record}")
        limit = book.ladder[record.rung].tries
        check(self.rungs[key] <= limit, f"{key} taken {self.rungs[key]} times, budget {limit}")

    def _action_issued(self, record: r.ActionIssued) -> None:
        check(record.action.id not in self.actions, f"{record.action.id} was issued twice")
        self.actions[record.action.id] = "issued"

    def _action_ended(self, record: r.ActionEnded) -> None:
        self._move(lifecycles.ACTION, record.id, self.actions[record.id], record.outcome)
        self.actions[record.id] = record.outcome

    def _run_held(self, record: p.RunHeld) -> None:
        self.held[record.run] = record.hold

    def _hold_ended(self, record: p.HoldEnded) -> None:
        check(record.run in self.held, f"run {record.run} was not held: {record}")
        del self.held[record.run]

    def _request_recorded(self, record: r.RequestRecorded) -> None:
        before = self.requests.get(record.id, "open")
        check(before == "open", f"{record.id} answered again: {before}, then {record.state}")
        self.requests[record.id] = record.state


_HANDLERS: dict[type, Any] = {
    r.NodeExpected: Books._node_expected,
    r.NodeChanged: Books._node_changed,
    r.HardwareFaultRecorded: Books._hardware_fault_recorded,
    r.NodeRegistered: Books._node_registered,
    r.HardwareJudged: Books._hardware_judged,
    r.Assigned: Books._assigned,
    r.NodeCleared: Books._node_cleared,
    r.RankEnded: Books._rank_ended,
    r.RunAdmitted: Books._run_admitted,
    r.RunChanged: Books._run_changed,
    r.AttemptPlanned: Books._planned,
    r.AttemptPrepared: Books._prepared,
    r.AttemptChanged: Books._attempt_changed,
    r.IncidentOpened: Books._incident_opened,
    r.IncidentAmended: Books._incident_amended,
    r.IncidentChanged: Books._incident_changed,
    r.RungTaken: Books._rung_taken,
    r.ActionIssued: Books._action_issued,
    r.ActionEnded: Books._action_ended,
    r.RequestRecorded: Books._request_recorded,
    p.RunHeld: Books._run_held,
    p.HoldEnded: Books._hold_ended,
}


class Watching(WorldObserver):
    """Watches one world, and raises Broken at the first invariant that does not hold."""

    def __init__(self, policy: Policy) -> None:
        self.books = Books(policy=policy)
        self.num_recoveries = 0
        self._num_launches = 0
        # The journal, folded.
        self._state = State()

    def on_entry(self, world: World, entry: r.JournalEntry) -> None:
        """Check an entry."""
        self._follow(entry)
        self.books.take(entry)
        check_kept(world.supervisor.controller, entry)
        for record in entry.records:
            if isinstance(record, r.RunChanged) and record.state == "finished":
                check_goal(world, record.run)
            if isinstance(record, r.Assigned) and record.attempt is not None:
                share = world.machines[record.node].share
                ranks = share.ranks if share is not None else {}
                check(not ranks, f"{record.node} still runs {ranks}: {record}")

    def on_event(self, world: World) -> None:
        """Check the real condition of the cluster, whenever ranks were started: only then can a gang start."""
        if len(world.launches) == self._num_launches:
            return
        self._num_launches = len(world.launches)
        for run in world.state.runs:
            live = world.gangs.live(run)
            check(len(live) <= 1, f"two live gangs at {world.now:.2f}: {live}")

    def on_recovered(self, world: World, before: State | None, after: State) -> None:
        """Compare a new supervisor's state with the journal: anything else that the dead one knew is void."""
        if before is None:
            return
        self.num_recoveries += 1
        # The entry was durable, though the dead supervisor died before its acknowledgment.
        for entry in world.entries:
            self._follow(entry)
        check(wire.encode(self._state) == wire.encode(after), "state after recovery is another")

    def _follow(self, entry: r.JournalEntry) -> None:
        if entry.sequence == self._state.sequence + 1:
            apply_entry(self._state, entry)


def check_kept(controller: Controller, entry: r.JournalEntry) -> None:
    """What a controller kept over an entry equals what a fresh one derives from the state."""
    if not controller.is_settled:
        return
    follows = controller.decide(r.Settle(), entry.now)
    check(not follows, f"from {entry} follows {follows}")
    fresh = Controller(controller.policy, controller.state)
    check(controller.watch() == fresh.watch(), f"another watch after {entry}")
    check(controller.wake_at() == fresh.wake_at(), f"it wakes at another time after {entry}")


def check_goal(world: World, run: int) -> None:
    """A run counts as finished only when a gang of it has made the last step."""
    gangs = [gang for name, gang in world.gangs.all.items() if name.run == run]
    check(any(gang.step >= gang.training.goal for gang in gangs), f"run {run} is not at its goal")


def check_end(world: World) -> None:
    """Check what must hold once nothing more happens: contributing steps, and that everything came to rest."""
    ledger = Ledger()
    for entry in world.entries:
        ledger.apply(entry)
    for run in world.state.runs.values():
        gangs = [gang for name, gang in world.gangs.all.items() if name.run == run.run]
        if run.state == "finished" and gangs and gangs[-1].training.reports:
            steps = [
                step
                for first, last in ledger.summary(run.run, world.now).contributing_steps.values()
                for step in range(first, last + 1)
            ]
            goal = gangs[-1].training.goal
            # The steps of an earlier run of this name, whose checkpoint it went on from, are not its own.
            inherited = next(
                record.resume_step
                for entry in world.entries
                for record in entry.records
                if isinstance(record, r.AttemptPrepared) and record.attempt.run == run.run
            )
            own = list(range(inherited + 1, goal + 1))
            check(steps == own, f"run {run.run} is made of steps {steps}, not {own}")
    check_numbers(world)
    check_books(world, ledger)
    check_registers(world)


def check_numbers(world: World) -> None:
    """Check that of a run that has ended no incident about its numbers is forgotten, nor closed without a verdict."""
    helped = [
        record.incident
        for entry in world.entries
        for record in entry.records
        if isinstance(record, TrialEnded) and record.verdict == "helped"
    ]
    for incident in world.state.incidents.values():
        run = world.state.runs.get(incident.run or 0)
        if not incident.on_trial or run is None or run.is_alive:
            continue
        name, state = incident.incident, incident.state
        healed = name in helped or incident.reason.startswith("healed by itself")
        check(state in ("open", "gave_up", "resolved"), f"{name} of an ended run is {state}")
        check(state != "resolved" or healed, f"{name} is resolved without a verdict")
        paged = any(
            isinstance(record, r.ActionIssued)
            and (record.action.action, record.action.incident) == ("page", name)
            for entry in world.entries
            for record in entry.records
        )
        check(state != "open" or paged or run.state == "stopped", f"{name}: no person is paged")


def check_registers(world: World) -> None:
    """Check that each node reads what the controller believes that it is to run and have warm."""
    if not world.is_store_up or not world.supervisor.has_published:
        return
    state, preloads = world.state, Preloads(world.state)
    for node in state.nodes.values():
        wanted = assignment_of(state, world.cluster, node, preloads=preloads)
        found = world.read_register(node.node)
        check(found is not None, f"{node.node} has no register")
        assert found is not None
        # What is to be confirmed is as of the assignment.
        for what in ("generation", "plan", "warm"):
            published, kept = getattr(found, what), getattr(wanted, what)
            check(published == kept, f"{node.node}: {what} {published} is published, not {kept}")


def check_books(world: World, ledger: Ledger) -> None:
    """Check that the ledger's seconds add up, and that its dump is itself again."""
    for run in ledger.runs:
        summary = ledger.summary(run, world.now)
        total = summary.productive_seconds + sum(summary.lost_seconds.values())
        difference = abs(total - summary.wall_seconds)
        check(difference < 1e-6, f"run {run}: {total} s accounted for of {summary.wall_seconds}")
    check(Ledger.load(ledger.dump()).dump() == ledger.dump(), "the ledger does not load as dumped")
