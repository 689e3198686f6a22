"""The index of open actions finds the same ones as a scan of all of them."""

import random

from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import OpenActions, State
from runner.facts import wire
from runner.facts.actions import Action, ActionKind
from runner.facts.messages import records as r

KINDS: tuple[ActionKind, ...] = ("node_task", "probe_node", "page")


def scanned(state: State, kind: str, **args: object) -> list[Action]:
    """Find open actions by a scan."""
    return [
        item.action
        for item in state.actions.values()
        if item.action.action == kind
        and all(item.action.args.get(name) == value for name, value in args.items())
    ]


def test_the_index_finds_actions_by_kind_and_node() -> None:
    """It does so after any number of starts and ends, and after a snapshot is loaded."""
    dice, state, names = random.Random(7), State(), ("n1", "n2")
    for name in names:
        apply_record(state, r.NodeExpected(node=name))
    for number in range(400):
        if state.actions and dice.random() < 0.45:
            ended = dice.choice([*state.actions, "a-that-never-was"])
            apply_record(state, r.ActionEnded(id=ended, outcome="done"))
        else:
            kind = dice.choice(KINDS)
            args = {} if kind == "page" else {"node": dice.choice(names), "task": "check"}
            action = Action(id=f"a{number}", action=kind, reason="", args=args)
            apply_record(state, r.ActionIssued(action=action))
        again = wire.decode(wire.encode(state), limit_bytes=10**6)
        assert again == state
        for each in (state, again):
            for kind in KINDS:
                assert each.open_actions(kind) == scanned(state, kind)
                checks = scanned(state, kind, task="check")
                assert each.num_open(kind, "check") == len(checks)
                for name in names:
                    for more in ({}, {"task": "check"}, {"task": "drill"}):
                        found = each.open_actions(kind, node=name, **more)
                        assert found == scanned(state, kind, node=name, **more)
                        assert each.is_open(kind, name, more.get("task", "")) == bool(found)


def test_the_index_finds_one_nodes_actions_without_a_scan() -> None:
    """Of thousands of open actions only the node's own are read."""
    actions = OpenActions()
    state = State(actions=actions)
    for number in range(3000):
        args = {"node": f"n{number}", "task": "check"}
        action = Action(id=f"a{number}", action="node_task", reason="", args=args)
        apply_record(state, r.ActionIssued(action=action))
    assert [action.id for action in actions.about("node_task", "n7")] == ["a7"]
    assert len(actions.about("node_task")) == 3000
    assert list(actions.about("probe_node", "n7")) == []
