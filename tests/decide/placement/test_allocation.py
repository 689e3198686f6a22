"""Allocation: which run gets which node when several want it, without disturbing a running gang."""

import random

from msgspec.structs import replace

from runner.decide.placement.allocation import choose_nodes, holders_of_nodes, in_order
from runner.decide.placement.launch_plans import is_usable
from runner.decide.state.cluster_state import Attempt, Node, PendingDrain, Run, State
from runner.facts.ids import AttemptId
from runner.facts.specs.run import RunSpec


def fleet(*names: str) -> State:
    """Make spares."""
    nodes = {
        name: Node(node=name, index=index, state="spare", slots=2)
        for index, name in enumerate(names)
    }
    return State(nodes=nodes)


def run(
    state: State,
    nodes: int,
    *attempt: str,
    at: str = "ended",
    priority: int = 0,
    is_now: str = "active",
) -> Run:
    """Add a run; `attempt` names the nodes of its last one, which is in state `at`."""
    number = len(state.runs) + 1
    spec = RunSpec(
        name=f"r{number}", command=("x",), nodes=nodes, ranks_per_node=2, priority=priority
    )
    made = Run(run=number, spec=spec)
    if attempt:
        name = AttemptId(number, 1, 0)
        made.attempt = Attempt(attempt=name, generation=number, nodes=list(attempt), state=at)  # type: ignore[arg-type]
        for node in attempt if at in ("launching", "running", "stop_requested", "stopping") else ():
            state.nodes[node].state = "active"
            state.nodes[node].ranks_may_run = name
            state.nodes[node].attempt = None if at == "stopping" else name
    made.state = is_now  # type: ignore[assignment]
    state.runs[number] = made
    return made


def lose(state: State, *names: str) -> None:
    """Let nodes be gone and clear."""
    for name in names:
        state.nodes[name].state = "lost"
        state.nodes[name].attempt = state.nodes[name].ranks_may_run = None


def test_runs_are_ordered_by_priority_then_by_number() -> None:
    """Runs that have ended are left out."""
    state = fleet()
    for priority in (0, 5, 0, 5, -1):
        run(state, 1, priority=priority)
    run(state, 1, is_now="finished")
    assert [each.run for each in in_order(state.runs.values())] == [2, 4, 1, 3, 5]


def test_a_restart_keeps_nodes_in_their_places() -> None:
    """The allocation fills only the place of a node that left, with the first spare where no domain is known."""
    state = fleet("n1", "n2", "n3", "n4")
    mine = run(state, 3, "n3", "n1", "n2")
    lose(state, "n1")
    assert choose_nodes(state, mine, {}).nodes == ["n3", "n4", "n2"]


def test_the_spare_named_for_a_draining_node_takes_its_place() -> None:
    """The named spare wins over a nearer one, and other runs take it last; the draining node is not chosen."""
    state = fleet("n1", "n2", "n3", "n4", "n5")
    mine, other = run(state, 2, "n1", "n2"), run(state, 1, "n5")
    state.nodes["n2"].pending_drain = PendingDrain(to="maintenance", since=0.0, spare="n4")
    domains = {"rack": {"r1": ["n1", "n2", "n3"], "r2": ["n4"]}}
    assert choose_nodes(state, mine, domains).nodes == ["n1", "n4"]
    lose(state, "n5")
    assert choose_nodes(state, other, {}).nodes == ["n3"]
    state.nodes["n4"].state = "suspect"
    assert choose_nodes(state, mine, domains).nodes == ["n1", "n3"]


def test_a_waiting_run_does_not_take_nodes_of_a_run_between_two_attempts() -> None:
    """That holds for a run of equal or higher priority, and for any run whose gang is still being ended."""
    for priority, at, taken in (
        (0, "ended", None),
        (1, "ended", None),
        (-1, "ended", ["n1", "n2"]),
        (-1, "stopping", None),
        (0, "prepared", None),
    ):
        state = fleet("n1", "n2")
        run(state, 2, "n1", "n2", at=at, priority=priority)
        for node in state.nodes.values():
            node.ranks_may_run = None
        waiting = run(state, 2, is_now="waiting")
        assert choose_nodes(state, waiting, {}).nodes == taken, (priority, at)


def test_of_two_waiting_runs_of_equal_priority_the_later_yields() -> None:
    """Otherwise each would hold the nodes that the other lacks, for ever."""
    state = fleet("n1", "n2", "n3", "n4")
    first = run(state, 2, "n1", "n2", is_now="waiting")
    second = run(state, 2, "n3", "n4", is_now="waiting")
    lose(state, "n2", "n4")
    assert choose_nodes(state, first, {}).nodes == ["n1", "n3"]
    assert choose_nodes(state, second, {}).nodes is None


def test_the_supervisor_withdraws_a_plan_only_for_a_run_of_higher_priority() -> None:
    """It does so only if the planned attempt has the lacking nodes and has not launched."""
    for priority, at, withdrawn in (
        (0, "preparing", [1]),
        (0, "prepared", [1]),
        (0, "running", None),
        (5, "prepared", None),
    ):
        state = fleet("n1", "n2", "n3")
        run(state, 2, "n1", "n3", at=at, priority=priority)
        mine = run(state, 1, "n2", priority=5)
        lose(state, "n2")
        choice = choose_nodes(state, mine, {})
        found = [each.attempt.run for each in choice.withdraw] if choice.nodes else None
        assert found == withdrawn, (priority, at)


def test_a_run_yields_no_more_nodes_than_needed_and_the_last_run_yields_first() -> None:
    """A free node is taken before one of a run between two attempts; of those runs the last in order loses one."""
    state = fleet("n1", "n2", "n3", "n4", "n5")
    run(state, 1, "n1", at="prepared", priority=1)
    run(state, 2, "n2", "n3", at="prepared", priority=0)
    mine = run(state, 2, "n5", "n6", priority=5)
    state.nodes["n6"] = Node(node="n6", index=9, state="lost", slots=2)
    lose(state, "n5")
    choice = choose_nodes(state, mine, {})
    assert choice.nodes is not None
    assert "n4" in choice.nodes
    assert [each.attempt.run for each in choice.withdraw] == [2]


def test_a_spare_is_reserved_for_an_earlier_run_that_may_need_it() -> None:
    """That run's node is suspect, or has not confirmed that it is clear. In correlated silence no node counts as lost."""
    state = fleet("n1", "n2", "n3")
    first = run(state, 1, "n1", at="running", priority=5)
    mine = run(state, 1, "n2")
    lose(state, "n2")
    assert choose_nodes(state, mine, {}).nodes == ["n3"]
    state.nodes["n1"].state = "suspect"
    choice = choose_nodes(state, mine, {})
    assert (choice.nodes, list(choice.reserved)) == (None, ["n3"])
    state.correlated_silence = ["n1"]
    assert choose_nodes(state, mine, {}).nodes == ["n3"]
    state.correlated_silence = []
    # The spare would not be enough for it anyway.
    first.spec = replace(first.spec, nodes=3)
    assert choose_nodes(state, mine, {}).nodes == ["n3"]


def test_a_spare_is_reserved_for_a_run_with_one_lost_and_one_suspect_node() -> None:
    """The spare is too few if both nodes are lost, but enough if the suspect one returns."""
    state = fleet("n1", "n2", "n3", "n4")
    run(state, 2, "n1", "n2", at="stopping", priority=5)
    mine = run(state, 1, "n3")
    lose(state, "n1", "n3")
    assert state.nodes["n2"].ranks_may_run is not None
    choice = choose_nodes(state, mine, {})
    assert (choice.nodes, list(choice.reserved)) == (None, ["n4"])
    lose(state, "n2")
    assert choose_nodes(state, mine, {}).nodes == ["n4"]


def test_a_waiting_run_reports_which_runs_have_nodes_it_could_use() -> None:
    """The report leaves out nodes that are too small for the run."""
    state = fleet("n1", "n2", "n3")
    run(state, 2, "n1", "n2", at="running", priority=3)
    state.nodes["n1"].slots = 1
    mine = run(state, 2)
    assert holders_of_nodes(state, mine) == "run 1 r1 (priority 3) has n2"


def test_every_allocation_is_sound() -> None:
    """Random fleets and runs: chosen nodes are usable, whole, in place if they served, and taken from no run that keeps them.

    An allocation exists whenever the nodes that no other run has suffice.
    """
    for seed in range(500):
        draw = random.Random(seed)
        state = fleet(*(f"n{index}" for index in range(draw.randint(2, 12))))
        names = list(state.nodes)
        draw.shuffle(names)
        for _ in range(draw.randint(1, 4)):
            size = draw.randint(1, 4)
            had = [names.pop() for _ in range(size) if names]
            at = draw.choice(("prepared", "running", "stopping", "ended", "ended"))
            made = run(
                state, size, *(had if len(had) == size else ()), at=at, priority=draw.randint(0, 2)
            )
            made.state = draw.choice(("active", "waiting"))
            if at == "ended" or made.attempt is None:
                lose(state, *(name for name in had if draw.random() < 0.4))
        for mine in in_order(state.runs.values()):
            if mine.attempt is not None and mine.attempt.state != "ended":
                continue
            choice = choose_nodes(state, mine, {})
            taken = {
                name: other
                for other in state.runs.values()
                if other.run != mine.run and other.attempt is not None
                for name in other.attempt.nodes
            }
            before = mine.attempt.nodes if mine.attempt is not None else []
            free = [
                name
                for name, node in state.nodes.items()
                if name not in taken and is_usable(state, node, mine.spec)
            ]
            if choice.nodes is None:
                assert len(free) - len(choice.reserved) < mine.spec.nodes, seed
                continue
            assert len(set(choice.nodes)) == len(choice.nodes) == mine.spec.nodes, seed
            for place, name in enumerate(choice.nodes):
                assert is_usable(state, state.nodes[name], mine.spec), seed
                if name in before:
                    assert before[place] == name, seed
                if name in taken:
                    other = taken[name]
                    assert other.attempt is not None
                    lower = other.spec.priority < mine.spec.priority
                    later = other.state == "waiting" and other.run > mine.run
                    assert other.attempt.state in ("prepared", "ended"), seed
                    assert lower or (later and other.spec.priority == mine.spec.priority), seed
