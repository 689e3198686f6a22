"""Who may have a node's name: never two at once, and never an agent whose word is not the node's."""

from __future__ import annotations

from runner.facts.messages import signals as s
from tests.decide.controller_harness import ControllerHarness, kinds
from tests.decide.scenario import parse_text


def test_a_join_that_was_answered_may_be_repeated() -> None:
    """An agent asks until it reads its name; what comes too late leads to nothing."""
    harness = ControllerHarness()
    assert "NodeRegistered" in kinds(harness.join("n1", "a"))
    assert harness.join("n1", "a") == []


def test_other_hardware_is_refused_once_and_said_once() -> None:
    """The name stays with whoever is heard; the newcomer asks again and again, and a person is told once."""
    harness = ControllerHarness()
    harness.join("n1", "a")
    assert kinds(harness.join("n1", "b", hardware="board:x")) == ["JoinRefused", "ActionIssued"]
    assert harness.join("n1", "b", hardware="board:x") == []
    assert harness.state.nodes["n1"].instance_id == "a"
    assert kinds(harness.join("n1", "c", hardware="board:x")) == ["JoinRefused", "ActionIssued"]


def test_one_machine_is_one_node() -> None:
    """The hardware of a node that is heard gets no second name, known or new; it does once the first is gone."""
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


def test_a_folder_that_was_wiped_may_count_its_lives_from_one_again() -> None:
    """The same board with a lower incarnation is refused while the life before is heard, and taken once it is silent."""
    harness = ControllerHarness()
    harness.join("n1", "a", incarnation=7)
    assert kinds(harness.join("n1", "b", incarnation=1)) == ["JoinRefused"]
    harness.take(s.NodeLeft(node="n1", incarnation=7, instance_id="a"))
    assert "NodeRegistered" in kinds(harness.join("n1", "b", incarnation=1))


def test_what_an_agent_says_that_is_not_the_nodes_leads_to_nothing() -> None:
    """Only a wish to join is heard from it, and it does not make the node's own words look old."""
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


def test_agents_that_say_no_life_join_as_ever() -> None:
    """An agent of an earlier release is taken by its incarnation alone."""
    harness = ControllerHarness()
    harness.join("n1", "", incarnation=1)
    assert harness.join("n1", "", incarnation=1) == []
    assert "NodeRegistered" in kinds(harness.join("n1", "", incarnation=2))
    assert "NodeRegistered" in kinds(harness.join("n1", "new", incarnation=3))


def test_the_agent_that_lost_its_name_ends() -> None:
    """Of two agents of one spare the later one has the name; the first sees it in its register, and is gone."""
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


def test_an_agent_that_names_no_hardware_takes_nothing_back() -> None:
    """The node keeps the hardware it was known by, so that hardware faults and a person's pardon find it."""
    harness = ControllerHarness()
    harness.join("n1", "a", hardware="board:x")
    harness.join("n1", "b", incarnation=2, hardware="")
    assert harness.state.nodes["n1"].hardware == "board:x"
