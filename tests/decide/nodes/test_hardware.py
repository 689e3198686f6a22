"""Hardware: how the supervisor recognises it, which faults count against it, and for how long."""

import pytest

from runner.decide.decision import Decision, Policy
from runner.decide.nodes.hardware import (
    DAY_SECONDS,
    identify,
    is_same,
    record_hardware_fault,
    record_seen,
)
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import Hardware, Node, State
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec
from tests.decide.scenario import runbooks

POLICY = Policy(cluster=ClusterSpec(name="c", state="s"), runbooks=runbooks())


def known(*hardware: Hardware) -> State:
    """A state that knows this hardware."""
    return State(hardware={each.hardware: each for each in hardware})


def machine(name: str, *parts: str, refused: bool = False) -> Hardware:
    """Hardware of these parts."""
    verdict = "quarantined" if refused else ""
    return Hardware(hardware=name, parts=list(parts), node_names=["n1"], verdict=verdict)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        (("board:1", "gpu:a"), ("board:1", "gpu:b"), True),
        (("file:1",), ("file:1", "mac:x"), True),
        # A folder copied to another machine.
        (("board:1", "file:f"), ("board:2", "file:f"), False),
        # Whose board could not be read before.
        (("file:f", "mac:x"), ("board:2", "file:f"), True),
        (("board:1", "gpu:a", "gpu:b"), ("board:2", "gpu:b"), True),
        (("mac:x", "mac:y"), ("mac:y",), True),
        # A card may be moved.
        (("board:1", "mac:x"), ("mac:x",), False),
        (("board:1",), ("board:2",), False),
        ((), (), False),
    ],
)
def test_hardware_is_recognised_by_its_parts(
    before: tuple[str, ...], now: tuple[str, ...], same: bool
) -> None:
    """An equal board or file makes it the same machine, else an equal GPU, else a network card where there is no board."""
    state = known(machine("first", *before))
    assert identify(state, "second", now) == ("first" if same else "second")


def test_the_id_comes_first_and_refused_hardware_before_other() -> None:
    """A known id settles it; of two that share a GPU with the newcomer, the refused one is meant."""
    state = known(machine("a", "gpu:1"), machine("b", "gpu:2", refused=True))
    assert identify(state, "a", ("gpu:2",)) == "a"
    assert identify(state, "c", ("gpu:1", "gpu:2")) == "b"
    assert identify(state, "", ("gpu:2",)) == ""


def test_a_bare_serial_of_an_earlier_release_is_the_part_with_its_kind_before_it() -> None:
    """A journal written before hardware had parts names it by a bare serial: the node is not taken for another."""
    node = Node(node="n1", index=0, hardware="abc")
    assert is_same(State(), node, hardware="file:abc", parts=("file:abc",))
    assert not is_same(State(), node, hardware="file:abd", parts=("file:abd",))
    assert is_same(State(), Node(node="n1", index=0), hardware="file:abc", parts=())


def with_node(*, size: int = 4) -> tuple[State, Node]:
    """A fleet whose first node is hardware h1."""
    state = State()
    for index in range(1, size + 1):
        name = f"n{index}"
        apply_record(state, r.NodeExpected(node=name))
        apply_record(state, r.HardwareSeen(hardware=f"h{index}", node=name))
        apply_record(
            state,
            r.NodeRegistered(
                node=name, incarnation=1, hardware=f"h{index}", slots=1, address="", pid=1
            ),
        )
        apply_record(state, r.NodeChanged(node=name, state="spare"))
    return state, state.nodes["n1"]


def report_failure(state: State, node: Node, at: float) -> list[object]:
    """Let a node's hardware have one fault; return the applied records."""
    state.now = at
    decision = Decision(state=state, policy=POLICY, now=at)
    record_hardware_fault(decision, node, fault="node_silent", evidence="dead")
    for record in decision.records:
        apply_record(state, record)
    return decision.records


def state_of(state: State, name: str) -> str:
    """Return a node's state as it is now."""
    return state.nodes[name].state


def test_hardware_faults_count_for_four_weeks() -> None:
    """Three within 28 days make a lemon; an older one does not count, and is still recorded."""
    state, node = with_node()
    report_failure(state, node, DAY_SECONDS)
    report_failure(state, node, 20 * DAY_SECONDS)
    assert state_of(state, "n1") == "spare"
    report_failure(state, node, 30 * DAY_SECONDS)
    assert state_of(state, "n1") == "spare"
    assert len(state.hardware["h1"].faults) == 3
    report_failure(state, node, 31 * DAY_SECONDS)
    assert state_of(state, "n1") == "quarantined"
    assert state.hardware["h1"].verdict == "quarantined"
    assert "lemon" in state.hardware["h1"].reason


def test_correlated_silence_is_no_hardware_fault() -> None:
    """A node that is lost with its failure domain, or in correlated silence, has no hardware fault."""
    state, node = with_node()
    node.domain_down = "rack r1"
    assert report_failure(state, node, 1.0) == []
    node.domain_down = ""
    state.correlated_silence = ["n1", "n2", "n3"]
    assert report_failure(state, node, 1.0) == []


def test_the_supervisor_quarantines_no_more_than_two_nodes_of_a_small_fleet_by_itself() -> None:
    """The third lemon stays and a page names the command that removes it; one that an operator judged does not count."""
    state, _ = with_node(size=5)
    for name in ("n1", "n2", "n3"):
        for at in (1.0, 2.0, 3.0):
            last = report_failure(state, state.nodes[name], at)
    assert [state.nodes[f"n{n}"].state for n in (1, 2, 3)] == [
        "quarantined",
        "quarantined",
        "spare",
    ]
    pages = [x.action.args["message"] for x in last if isinstance(x, r.ActionIssued)]
    assert len(pages) == 1
    assert "`stoker quarantine n3`" in pages[0]
    judged = r.HardwareJudged(hardware="h1", verdict="quarantined", by="ann")
    apply_record(state, judged)
    report_failure(state, state.nodes["n3"], 4.0)
    assert state.nodes["n3"].state == "quarantined"


def test_a_large_fleet_may_lose_two_in_a_hundred() -> None:
    """2 % of 200 nodes are four."""
    state, _ = with_node(size=200)
    for index in range(1, 6):
        for at in (1.0, 2.0, 3.0):
            report_failure(state, state.nodes[f"n{index}"], at)
    assert sum(node.state == "quarantined" for node in state.nodes.values()) == 4


def test_refused_hardware_is_recognised_by_former_parts() -> None:
    """A bad machine that returns with another board, and then with other GPUs, keeps its identity."""
    state = known(machine("bad", "board:1", "gpu:a", refused=True))
    for parts in (("board:2", "gpu:a"), ("board:2", "gpu:b"), ("board:1", "gpu:c")):
        decision = Decision(state=state, policy=POLICY, now=1.0)
        assert identify(state, parts[0], parts) == "bad"
        record_seen(decision, hardware="bad", node="n9", parts=parts)
        for record in decision.records:
            apply_record(state, record)
