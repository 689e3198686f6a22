"""The life-cycle tables are enforced: the controller refuses a decision with any other move, with the reason."""

import pytest

from runner.decide.controller import Controller
from runner.decide.decision import Decision, Policy
from runner.decide.nodes import lifecycle
from runner.decide.state.cluster_state import Node, State
from runner.decide.state.moves import check_moves
from runner.errors import IllegalMove
from runner.facts import lifecycles
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec


def state_with(node: str) -> State:
    """Return a state with one node, n1, in this state."""
    return State(nodes={"n1": Node(node="n1", index=0, state=node)})  # type: ignore[arg-type]


def test_an_illegal_move_names_its_subject_and_the_legal_moves() -> None:
    """The message leads an operator to the right table."""
    wrong = r.NodeChanged(node="n1", state="active", reason="")
    with pytest.raises(IllegalMove) as refused:
        check_moves(state_with("maintenance"), [wrong])
    assert str(refused.value) == (
        "node n1 cannot move from maintenance to active; allowed: checking, spare, quarantined, maintenance, retired"
    )


def test_moves_of_one_decision_are_checked_in_turn() -> None:
    """The second move starts from the state after the first."""
    first, second = (r.NodeChanged(node="n1", state=to, reason="") for to in ("lost", "left"))
    check_moves(state_with("active"), [first, second])
    with pytest.raises(IllegalMove, match="from left to lost"):
        check_moves(state_with("active"), [second, first])
    opened = r.IncidentOpened(incident="i1", fault="rank_crash", evidence="")
    closed = r.IncidentChanged(incident="i1", state="resolved")
    check_moves(State(), [opened, closed])
    with pytest.raises(IllegalMove, match="incident i1 cannot move from resolved to resolved"):
        check_moves(State(), [opened, closed, closed])


def test_a_controller_makes_no_decision_with_an_illegal_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller records the failure and continues."""

    def settle(decision: Decision) -> None:
        decision.add(r.NodeChanged(node="n1", state="joining", reason="wrong"))

    monkeypatch.setattr(lifecycle, "settle", settle)
    controller = Controller(Policy(cluster=ClusterSpec(name="c", state="/c")), state_with("active"))
    with pytest.raises(IllegalMove, match="node n1 cannot move from active to joining"):
        controller.decide(r.Settle(), 1.0)


def test_every_target_state_has_a_row() -> None:
    """No table leads to a state that it does not list."""
    for table in (
        lifecycles.NODE,
        lifecycles.RUN,
        lifecycles.ATTEMPT,
        lifecycles.INCIDENT,
        lifecycles.ACTION,
    ):
        assert {to for targets in table.values() for to in targets} <= set(table)
