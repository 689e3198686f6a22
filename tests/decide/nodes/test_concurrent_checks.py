"""The supervisor checks a fleet that joins at once a few nodes at a time."""

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.nodes.checks.admission_checks import MAX_AT_ONCE
from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import State
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages.requests import ShutDown
from runner.facts.messages.signals import NodeJoined, NodeLeft
from runner.facts.specs.cluster import ClusterSpec

NODES = 3 * MAX_AT_ONCE + 5


def take(controller: Controller, fact: object, now: float) -> None:
    """Handle an input and settle, as the decision log does."""
    while True:
        records = controller.decide(fact, now)
        entry = r.JournalEntry(
            sequence=controller.state.sequence + 1, now=now, input=fact, records=records
        )
        controller.apply(entry)
        if not records:
            return
        fact = r.Settle()


def checks(state: State) -> list[str]:
    """Name the actions that check nodes."""
    return [action.id for action in state.open_actions("node_task", task="check")]


def test_the_supervisor_limits_concurrent_checks_and_checks_every_node() -> None:
    """Each finished check starts the next one, until every node is checked."""
    controller = Controller(Policy(cluster=ClusterSpec(name="c")))
    for number in range(NODES):
        joined = NodeJoined(
            node=f"n{number}",
            incarnation=1,
            sequence=1,
            hardware=f"board:{number}",
            slots=1,
            address="a",
            pid=1,
        )
        take(controller, joined, 1.0)
    most, answered = 0, 0
    while open_checks := checks(controller.state):
        most = max(most, len(open_checks))
        done = ActionResult(id=open_checks[0], outcome="done", detail={"outcome": "PASS"})
        take(controller, done, 2.0)
        answered += 1
    assert most == MAX_AT_ONCE
    assert answered == NODES
    assert all(node.state == "spare" for node in controller.state.nodes.values())


def test_a_recovered_supervisor_starts_the_checks_that_were_waiting() -> None:
    """The open checks follow from the state alone."""
    controller = Controller(Policy(cluster=ClusterSpec(name="c")))
    state = controller.state
    nodes = tuple(f"n{number}" for number in range(NODES))
    expected = tuple(r.NodeExpected(node=name) for name in nodes)
    changed = tuple(r.NodeChanged(node=name, state="checking", reason="") for name in nodes)
    entry = r.JournalEntry(sequence=1, now=1.0, input=r.Settle(), records=(*expected, *changed))
    apply_entry(state, entry)
    take(controller, r.Settle(), 1.0)
    assert len(checks(state)) == MAX_AT_ONCE


def state_of(controller: Controller, node: str) -> str:
    """Return the state of a node now."""
    return controller.state.nodes[node].state


def joined_node(*, incarnation: int) -> NodeJoined:
    """A start of the agent of `n0`."""
    return NodeJoined(
        node="n0",
        incarnation=incarnation,
        instance_id=f"i{incarnation}",
        sequence=1,
        hardware="board:0",
        slots=1,
        address="a",
        pid=incarnation,
    )


def test_a_node_whose_agent_died_in_its_check_is_checked_again_as_soon_as_it_is_back() -> None:
    """The check that the first agent had is ended at once, not at its deadline, and a late answer to it admits nothing."""
    controller = Controller(Policy(cluster=ClusterSpec(name="c")))
    take(controller, joined_node(incarnation=1), 1.0)
    (first,) = checks(controller.state)
    take(controller, joined_node(incarnation=2), 2.0)
    (second,) = checks(controller.state)
    assert second != first
    passed = {"outcome": "PASS"}
    take(controller, ActionResult(id=first, outcome="done", detail=passed), 3.0)
    assert state_of(controller, "n0") == "checking"
    take(controller, ActionResult(id=second, outcome="done", detail=passed), 4.0)
    assert state_of(controller, "n0") == "spare"


def test_a_join_that_comes_twice_ends_no_check() -> None:
    """The agent that is checking its node goes on."""
    controller = Controller(Policy(cluster=ClusterSpec(name="c")))
    take(controller, joined_node(incarnation=1), 1.0)
    before = checks(controller.state)
    take(controller, joined_node(incarnation=1), 2.0)
    assert checks(controller.state) == before


def test_a_cluster_closes_though_a_node_was_being_checked() -> None:
    """An agent that leaves in the middle of a check holds the shutdown up no longer than it takes to end."""
    controller = Controller(Policy(cluster=ClusterSpec(name="c")))
    take(controller, joined_node(incarnation=1), 1.0)
    assert checks(controller.state)
    take(controller, ShutDown(id="q1", by="ann", sent_at=1.0), 1.0)
    left = NodeLeft(node="n0", incarnation=1, sequence=2)
    take(controller, left, 1.5)
    (stop,) = controller.state.open_actions("stop_agent")
    take(controller, ActionResult(id=stop.id, outcome="done"), 2.0)
    assert controller.has_closed
