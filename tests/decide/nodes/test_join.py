"""Which agent may have a node's name: never two at once, and never a displaced one."""

from runner.facts.messages import signals as s
from tests.decide.controller_harness import ControllerHarness, kinds
from tests.decide.scenario import parse_text


def test_a_join_that_was_answered_may_be_repeated() -> None:
    """An agent asks until it reads its name; a late request changes nothing."""
    harness = ControllerHarness()
    assert "NodeRegistered" in kinds(harness.join("n1", "a"))
    assert harness.join("n1", "a") == []


def test_other_hardware_is_refused_and_paged_once() -> None:
    """The agent with heartbeats keeps the name; the newcomer asks repeatedly, and the supervisor pages once."""
    harness = ControllerHarness()
    harness.join("n1", "a")
    assert kinds(harness.join("n1", "b", hardware="board:x")) == ["JoinRefused", "ActionIssued"]
    assert harness.join("n1", "b", hardware="board:x") == []
    assert harness.state.nodes["n1"].instance_id == "a"
    assert kinds(harness.join("n1", "c", hardware="board:x")) == ["JoinRefused", "ActionIssued"]


def test_one_machine_is_one_node() -> None:
    """Hardware of a node with heartbeats gets no second name, known or new, until the first node is gone."""
    harness = ControllerHarness()
    harness.join("n1", "a")
    assert kinds(harness.join("n9", "b", hardware="board:n1")) == ["JoinRefused", "ActionIssued"]
    assert harness.join("n9", "b", hardware="board:n1") == []
    assert "n9" not in harness.state.nodes
    harness.take(s.NodeLeft(node="n1", incarnation=1, instance_id="a"))
    assert "NodeRegistered" in kinds(harness.join("n9", "b", hardware="board:n1"))
    assert harness.state.hardware["board:n1"].node_names == ["n1", "n9"]
    assert harness.state.refused_agents == {}
    assert harness.state.nodes["n1"].hardware == ""


def test_an_agent_with_a_wiped_folder_may_count_incarnations_from_one() -> None:
    """The supervisor refuses the lower incarnation only while the earlier instance sends heartbeats."""
    harness = ControllerHarness()
    harness.join("n1", "a", incarnation=7)
    assert kinds(harness.join("n1", "b", incarnation=1)) == ["JoinRefused"]
    harness.take(s.NodeLeft(node="n1", incarnation=7, instance_id="a"))
    assert "NodeRegistered" in kinds(harness.join("n1", "b", incarnation=1))


def test_messages_of_a_displaced_agent_change_nothing() -> None:
    """Only its request to join counts, and it does not make the current agent's messages look stale."""
    harness = ControllerHarness()
    harness.join("n1", "a", sequence=1)
    assert harness.take(s.NodeLeft(node="n1", incarnation=99, sequence=50, instance_id="x")) == []
    assert (
        harness.take(s.Notice(node="n1", incarnation=1, instance_id="x", notice="preemption")) == []
    )
    source = harness.state.sources["n1"]
    assert (source.incarnation, source.sequence) == (1, 1)
    harness.join("n1", "x", hardware="board:x", incarnation=99, sequence=51)
    assert (source.incarnation, source.sequence) == (1, 1)
    assert kinds(harness.take(s.NodeLeft(node="n1", incarnation=1, sequence=2, instance_id="a")))


def test_agents_without_an_instance_id_join_by_incarnation() -> None:
    """The supervisor accepts an agent of an earlier release by its incarnation alone."""
    harness = ControllerHarness()
    harness.join("n1", "", incarnation=1)
    assert harness.join("n1", "", incarnation=1) == []
    assert "NodeRegistered" in kinds(harness.join("n1", "", incarnation=2))
    assert "NodeRegistered" in kinds(harness.join("n1", "new", incarnation=3))


def test_the_agent_that_lost_its_name_exits() -> None:
    """Of two agents of one spare the later one gets the name; the first reads that in its register, and exits."""
    story = parse_text(
        "s",
        "# A copy.\ncluster nodes=1 slots=2 spares=1\nrun a nodes=1\nat 0 start a\nat 6 bring-machine n2 n2\n",
    )
    world = story.build()

    def agents() -> list[bool]:
        return [machine.agent for machine in world.machines.values() if machine.name == "n2"]

    world.run_until(5.0)
    assert agents() == [True]
    world.run_until(8.0)
    assert agents() == [False, True]


def test_an_agent_without_hardware_parts_removes_none() -> None:
    """The node keeps its known hardware, so that hardware faults and an operator's readmission find it."""
    harness = ControllerHarness()
    harness.join("n1", "a", hardware="board:x")
    harness.join("n1", "b", incarnation=2, hardware="")
    assert harness.state.nodes["n1"].hardware == "board:x"
