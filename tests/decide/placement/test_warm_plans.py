"""Warm plans of nodes: for which run, when the supervisor writes their registers, and what the status shows."""

from collections import Counter

import pytest

from runner.act.registers import Registers
from runner.cli.reports.tables import rank_start_notes
from runner.decide.placement.launch_plans import Preloads, assignment_of
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import Node, Run, State
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.assignments import Assignment, PreloadPlan
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.signals import Heartbeat
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.history.ledger import Ledger
from runner.simulate.world import World
from runner.store.memory.faults import Faults
from runner.store.memory.store import MemoryStore
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder
from tests.decide.scenario import Scenario, parse_text

CLUSTER = ClusterSpec(name="sim", state="state", local=LocalNodes(nodes=2, slots=2, spares=1))
ONE_RUN = """# One run on two nodes, and a spare.
cluster nodes=2 slots=2 spares=1
run a preload=torch
at 0 start a
"""
TWO_RUNS = """# Two runs that want different modules warm; b waiting until a has released nodes.
cluster nodes=2 slots=2 spares=1
run a preload=torch
run b preload=jax command=train.py
at 0 start a
at 5 start b
"""


class Story:
    """A scenario in virtual time that counts its writes of registers."""

    def __init__(self, text: str) -> None:
        self.scenario: Scenario = parse_text("story", text)
        self.faults = Faults()
        contents = MemoryStore()
        self.world: World = self.scenario.build(
            store=contents, open_store=lambda _id: contents.another(faults=self.faults)
        )
        self._num_counted = 0

    def until(self, time: float) -> dict[str, int]:
        """Let time pass; return how often each node's register was written meanwhile."""
        self.world.run_until(time)
        new = self.faults.operations[self._num_counted :]
        self._num_counted = len(self.faults.operations)
        written = [
            name for method, names in new if method == "put_many" for name in names.split(",")
        ]
        nodes = [name.partition("/")[2] for name in written if name.startswith("assignment/")]
        return dict(Counter(nodes))

    def register(self, node: str) -> Assignment:
        """Return the node's assignment."""
        assignment = self.world.read_register(node)
        assert assignment is not None
        return assignment

    def warm(self) -> dict[str, tuple[str, ...]]:
        """Return the modules that each node is to have imported."""
        plans = {name: self.register(name).warm for name in self.world.nodes}
        return {name: plan.preload for name, plan in plans.items() if plan is not None}


def test_a_run_warms_its_nodes_and_the_spare_until_it_ends() -> None:
    """Each change of a run writes one register for each node concerned, and none for the others."""
    story = Story(ONE_RUN)
    assert story.until(0.1) == {
        "n1": 1,
        "n2": 1,
        "n3": 1,
        # The take-over; their slots are unknown.
    }
    assert story.warm() == {}
    # They register.
    assert story.until(0.35) == {"n1": 1, "n2": 1, "n3": 1}
    assert story.warm() == {"n1": ("torch",), "n2": ("torch",), "n3": ("torch",)}
    # The launch.
    assert story.until(8.0) == {"n1": 1, "n2": 1}
    assert story.register("n1").plan is not None
    story.world.kill_rank(1, "a")
    # The end and the next launch; warm all along.
    assert story.until(15.0) == {"n1": 2, "n2": 2}
    assert story.warm() == {"n1": ("torch",), "n2": ("torch",), "n3": ("torch",)}
    # Finished.
    assert story.until(60.0) == {"n1": 1, "n2": 1, "n3": 1}
    assert story.warm() == {}
    assert (
        story.register("n3").generation == 0
        # A register written for its warm plan alone keeps the node's generation.
    )


def test_a_lost_node_loses_its_warm_plan_and_its_replacement_is_already_warm() -> None:
    """A spare becomes a node of the run without a new warm plan."""
    story = Story(ONE_RUN)
    story.until(8.0)
    story.world.machines["n2"].die()
    before = story.register("n3").warm
    story.until(30.0)
    assert story.warm() == {"n1": ("torch",), "n3": ("torch",)}
    assert story.register("n3").plan is not None
    assert story.register("n3").warm == before


def test_each_node_warms_for_one_run_and_a_waiting_run_gets_the_rest() -> None:
    """The spare belongs to the run of lower number; an admitted or waiting run disturbs no node of another."""
    story = Story(TWO_RUNS)
    story.until(4.0)
    assert story.until(8.0) == {}
    assert [run.state for run in story.world.state.runs.values()] == ["active", "waiting"]
    assert story.warm() == {"n1": ("torch",), "n2": ("torch",), "n3": ("torch",)}
    # A has finished, b was launched.
    story.until(40.0)
    assert story.world.state.runs[1].state == "finished"
    assert story.warm() == {"n1": ("jax",), "n2": ("jax",), "n3": ("jax",)}


def test_a_supervisor_that_takes_over_writes_every_register_once() -> None:
    """It does not know its predecessor's writes, so it writes all registers, and none twice."""
    story = Story(ONE_RUN)
    story.until(8.0)
    story.world.supervisor.crash()
    assert story.until(9.0) == {"n1": 1, "n2": 1, "n3": 1}
    assert story.until(12.0) == {}
    assert story.warm() == {"n1": ("torch",), "n2": ("torch",), "n3": ("torch",)}


def test_a_failed_write_is_repeated() -> None:
    """A store that was unreachable when a run ended has the right registers once it is back."""
    story = Story(ONE_RUN)
    story.until(20.0)
    story.world.lose_store(8.0)
    story.until(60.0)
    assert story.world.state.runs[1].state == "finished"
    assert story.warm() == {}


def test_without_preload_registers_are_written_only_for_assignments() -> None:
    """Runs without preload cost no extra writes; the register that names the agent answers a join."""
    story = Story(ONE_RUN.replace(" preload=torch", ""))
    story.until(0.1)
    assert story.until(0.35) == {"n1": 1, "n2": 1, "n3": 1}
    assert story.until(8.0) == {"n1": 1, "n2": 1}
    assert story.until(60.0) == {"n1": 1, "n2": 1}


def run(number: int, *, state: r.RunStateName = "active", **fields: object) -> Run:
    """A run that wants a module of its own warm."""
    spec = {"name": f"r{number}", "command": ("{python}", "t.py"), "preload": (f"m{number}",)}
    return Run(run=number, spec=RunSpec(**{**spec, **fields}), state=state)  # type: ignore[arg-type]


def state_of(*runs: Run, **slots: int) -> State:
    """A state with these runs, and spare nodes by name with their slots."""
    nodes = {
        name: Node(node=name, index=index, state="spare", slots=count)
        for index, (name, count) in enumerate(slots.items())
    }
    return State(nodes=nodes, runs={one.run: one for one in runs})


def wanted(state: State) -> dict[str, int]:
    """Return the run for which each node is to be warm."""
    preloads = Preloads(state)
    found = {name: preloads.run_for(node) for name, node in state.nodes.items()}
    return {name: one.run for name, one in found.items() if one is not None}


def test_a_spare_is_warm_for_the_first_live_run_that_fits_it() -> None:
    """Runs that are over, want nothing warm or are too large for the node are passed over."""
    over, plain = run(1, state="finished"), run(2, preload=())
    large, waiting = run(3, ranks_per_node=8), run(4, state="waiting")
    state = state_of(over, plain, large, waiting, run(5), small=2, big=8, unknown=0)
    assert wanted(state) == {"small": 4, "big": 3}
    state.nodes["small"].state, state.nodes["big"].state = "lost", "left"
    assert wanted(state) == {}


def test_between_two_attempts_a_node_stays_warm_for_its_last_run() -> None:
    """Otherwise it would import other modules just before its ranks restart; a run without preload counts too."""
    state = state_of(run(1), run(2), run(3, preload=()), n1=2, n2=2, n3=2, n4=2)
    for number, generation, nodes in ((2, 1, ("n1", "n2")), (1, 2, ("n2",)), (3, 3, ("n3",))):
        attempt = AttemptId(number, 1, 0)
        apply_record(
            state, r.AttemptPlanned(attempt=attempt, generation=generation, nodes=nodes, reason="")
        )
    assert wanted(state) == {"n1": 2, "n2": 1, "n4": 1}


def test_a_warm_plan_equals_the_launch_plan() -> None:
    """Command, environment, folder and interpreter are the same, or ranks could not use the imported modules."""
    story = Story(ONE_RUN)
    story.until(8.0)
    plan, warm = story.register("n1").plan, story.register("n3").warm
    assert plan is not None
    assert warm == PreloadPlan(
        command=plan.command,
        preload=("torch",),
        environment=plan.environment,
        working_directory=plan.working_directory,
        python=plan.python,
        ranks_per_node=plan.ranks_per_node,
    )
    assert story.register("n1").warm == warm


def test_the_status_shows_a_nodes_warm_process_while_it_exists() -> None:
    """The status has state and memory from the heartbeat, and for a run the reason why its ranks were not forked."""
    story = Story(ONE_RUN)
    for name, reason in (("n1", "no memory"), ("n2", "another reason")):
        story.world.machines[name].not_forked_reason = reason
    story.until(8.0)
    story.world.machines["n2"].die()
    story.until(14.0)
    last_heartbeats = LastHeartbeats()
    for name in ("n1", "n2"):
        last_heartbeats.record(
            Heartbeat(node=name, incarnation=1, warm="ready", warm_resident_bytes=5), now=1.0
        )
    state, ledger = story.world.state, story.world.supervisor.loop.log.ledger
    view = status_of(state, ledger, last_heartbeats)
    shown = {node.node: (node.state, node.warm, node.warm_resident_bytes) for node in view.nodes}
    assert shown == {"n1": ("active", "ready", 5), "n2": ("lost", "", 0), "n3": ("active", "", 0)}
    assert [(one.preload, one.not_forked_reason) for one in view.runs] == [
        (("torch",), "n1: no memory")
    ]
    assert wire.decode(wire.encode(view)) == view


def status_of(state: State, ledger: Ledger, last_heartbeats: LastHeartbeats) -> ClusterStatus:
    """Return the status of a state."""
    builder = StatusBuilder(state, CLUSTER, ledger, last_heartbeats, state.now)
    built = builder.status(state.now, {"wall": 1.0})
    view = wire.decode(wire.encode(built))
    assert isinstance(view, ClusterStatus)
    return view


def test_a_node_with_another_library_is_named() -> None:
    """The status names a node with another version than most, spares included, but no node that reports no versions."""
    story = Story(ONE_RUN)
    story.until(8.0)
    last_heartbeats = LastHeartbeats()
    for name, torch in (("n1", "2.13.0"), ("n2", "2.13.0"), ("n3", "2.12.1")):
        versions = {"python": "3.11.7", "torch": torch}
        last_heartbeats.record(Heartbeat(node=name, incarnation=1, warm_versions=versions), now=1.0)
    state, ledger = story.world.state, story.world.supervisor.loop.log.ledger
    view = status_of(state, ledger, last_heartbeats)
    assert view.runs[0].version_mismatches == ("n3: torch 2.12.1, most have 2.13.0",)
    assert "run a: n3: torch 2.12.1, most have 2.13.0" in rank_start_notes(view)
    del last_heartbeats.heartbeats["n3"]
    view = status_of(state, ledger, last_heartbeats)
    assert view.runs[0].version_mismatches == ()


def test_the_status_looks_up_the_run_of_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That holds for any number of runs, and the status compares the nodes of each run."""
    node_of, asked = Preloads.run_for, list[str]()
    state = state_of(run(1), run(2, ranks_per_node=4), n1=2, n2=2, n3=2)
    state.runs |= {
        number: Run(run=number, spec=run(1).spec, state="finished") for number in range(3, 50)
    }
    admitted = tuple(r.RunAdmitted(run=one.run, spec=one.spec) for one in state.runs.values())
    ledger = Ledger()
    ledger.apply(r.JournalEntry(sequence=1, now=0.0, input=r.Settle(), records=admitted))
    last_heartbeats = LastHeartbeats()
    for name, torch in (("n1", "2.13.0"), ("n2", "2.13.0"), ("n3", "2.12.1")):
        last_heartbeats.record(
            Heartbeat(node=name, incarnation=1, warm_versions={"torch": torch}), now=1.0
        )

    def run_for(preloads: Preloads, node: Node) -> Run | None:
        asked.append(node.node)
        return node_of(preloads, node)

    monkeypatch.setattr(Preloads, "run_for", run_for)
    view = status_of(state, ledger, last_heartbeats)
    assert asked == ["n1", "n2", "n3"]
    assert [one.run for one in view.runs if one.version_mismatches] == [1]


def test_the_latest_value_of_a_register_is_written() -> None:
    """A newer value replaces one not yet written; no value is lost or written twice."""
    state = state_of(run(1), n1=2)
    registers = Registers(CLUSTER)
    registers.queue_all(state)
    ended = r.RunChanged(run=1, state="finished")
    apply_record(state, ended)
    registers.queue_changes([ended], state)
    written: list[dict[str, bytes]] = []
    registers.write(lambda values: written.append(dict(values)))
    expected = assignment_of(state, CLUSTER, state.nodes["n1"], preloads=Preloads(state))
    assert written == [{"assignment/n1": wire.encode(expected)}]
    assert expected.warm is None
    assert not registers.is_due
