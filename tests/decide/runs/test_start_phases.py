"""The slowest rank of each start phase in a large gang: known exactly, for one journal entry."""

from runner.decide.decision import Policy
from runner.facts.faults import GangStartTimed
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.requests import StartRun
from runner.facts.messages.signals import RanksStarted, StartPhase
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.history.timeline import story
from runner.simulate.gangs import phase_seconds
from runner.simulate.training import Training
from runner.simulate.world import World
from runner.store.memory.store import MemoryStore
from tests.decide.scenario import runbooks

NODES, SLOTS = 64, 8
PHASES = ("import", "connect", "build", "load", "first_step")


def gang_of_64() -> World:
    """Start 512 ranks on 64 nodes and let them step for a while; one is lost and all start again."""
    local = LocalNodes(nodes=NODES, slots=SLOTS)
    cluster = ClusterSpec(name="sim", state="state", local=local)
    spec = RunSpec(name="a", nodes=NODES, ranks_per_node=SLOTS, command=("train",))
    world = World(
        Policy(cluster=cluster, runbooks=runbooks()),
        trainings={"a": Training(phases=PHASES, goal=1000)},
    )
    world.at(1.0, lambda: world.submit_request(StartRun(id="q1", by="ann", spec=spec)))
    world.at(20.0, lambda: world.kill_rank(77, "a"))
    world.run_until(40.0)
    return world


def test_the_slowest_of_512_ranks_is_recorded_once_per_launch() -> None:
    """Each of two launches on 64 nodes adds one entry about its phases, which names the slowest rank of all and its node."""
    world = gang_of_64()
    about = [entry for entry in world.entries if isinstance(entry.input, GangStartTimed)]
    assert [
        str(entry.input.attempt) for entry in about if isinstance(entry.input, GangStartTimed)
    ] == [
        "1.1.0",
        "1.1.1",
    ]
    assert [len(entry.records) for entry in about] == [1, 1]
    attempt = world.state.runs[1].attempt
    assert attempt is not None
    assert list(attempt.start) == list(PHASES)
    for index, name in enumerate(PHASES):
        longest = max(phase_seconds(index, rank) for rank in range(NODES * SLOTS))
        found = attempt.start[name]
        assert found.seconds == longest == phase_seconds(index, found.rank)
        assert attempt.nodes[found.rank // SLOTS] == found.node


def test_a_launch_costs_a_node_two_entries() -> None:
    """What a node adds to the journal per launch is its ranks' start and its ranks' end, however many ranks it has."""
    world = gang_of_64()
    launched_at = [
        entry.sequence
        for entry in world.entries
        for record in entry.records
        if isinstance(record, r.AttemptChanged) and record.state == "launching"
    ]
    first = [e for e in world.entries if launched_at[0] < e.sequence < launched_at[1]]
    started = [entry for entry in first if isinstance(entry.input, RanksStarted)]
    assert len(started) == NODES
    per_node = [entry for entry in first if getattr(entry.input, "node", None) == "n40"]
    assert [type(entry.input).__name__ for entry in per_node] == ["RanksStarted", "RanksTerminated"]


def test_the_timeline_names_the_slowest_rank_of_each_phase() -> None:
    """One line per launch, phases in the order in which ranks go through them, short ones in milliseconds."""
    script = r.JournalEntry(
        sequence=1,
        now=1.0,
        input=GangStartTimed(attempt=(one := gang_attempt())),
        records=(
            r.StartTimed(
                attempt=one,
                slowest={
                    "start": StartPhase(seconds=0.0213, rank=1, node="n1"),
                    "import": StartPhase(seconds=2.94, rank=5, node="n2"),
                },
            ),
        ),
    )
    (line,) = story([script])
    assert line.decided == (
        "12.1.0 up, slowest rank in each phase: start 21 ms (rank 1 on n1), import 2.9 s (rank 5 on n2)",
    )


def gang_attempt() -> AttemptId:
    """Return the attempt of the timeline's sample."""
    return AttemptId(12, 1, 0)


def test_the_supervisor_assigns_a_gang_of_64_nodes_in_one_store_change() -> None:
    """A launch, and its end, each change the store once for all assignments together."""
    world = gang_of_64()
    store = world.supervisor.store
    assert isinstance(store, MemoryStore)
    written = [name.split(",") for method, name in store.faults.operations if method == "put_many"]
    gangs = [names for names in written if len(names) > 1]
    registers = [f"assignment/n{index}" for index in range(1, NODES + 1)]
    # Begin, go, idle, go.
    assert [sorted(names) for names in gangs] == [sorted(registers)] * 4
