"""Isolations in virtual time: how many nodes leave at most, who is refused one, and what another release's agents leave of it."""

from runner.decide.nodes.isolation.driver import _fitting, _Wanted
from runner.decide.state.cluster_state import State
from runner.simulate.world import World
from tests.decide.scenario import parse_text

HEAD = "cluster nodes=12 slots=1\n"


def played(deeds: str, until: float = 20.0) -> World:
    """Play twelve idle nodes through these deeds."""
    scenario = parse_text("isolation", f"{HEAD}{deeds}\nuntil {until}\n---\n")
    return scenario.play(scenario.build())


def states(state: State) -> dict[str, list[str]]:
    """Return the nodes in each state."""
    found: dict[str, list[str]] = {}
    for node in state.nodes.values():
        found.setdefault(node.state, []).append(node.node)
    return found


def test_no_more_hardware_is_refused_than_a_person_need_not_confirm() -> None:
    """Of four bad nodes all leave, but the hardware of two alone is refused: so many at once may have something in common."""
    state = played(
        "\n".join(f"at 1 spoil-compute n{n}" for n in (2, 4, 6, 8)) + "\nat 2 isolate"
    ).state
    assert states(state)["quarantined"] == ["n2", "n4", "n6", "n8"]
    refused = [known.hardware for known in state.hardware.values() if known.verdict]
    assert refused == ["board:n2", "board:n4"]
    assert states(state)["spare"] == [f"n{n}" for n in (1, 3, 5, 7, 9, 10, 11, 12)]


def test_a_slow_link_is_told_from_slow_compute() -> None:
    """Both nodes leave, each for its own part."""
    state = played("at 1 slow-link n3 2\nat 1 measure n9 40\nat 2 isolate").state
    judged = next(iter(state.isolations.values())).judged
    assert judged is not None
    bad = {each.node: each.part for each in judged.nodes if each.verdict == "bad"}
    assert bad == {"n3": "link", "n9": "compute"}
    assert "measured" not in (state.requests["q3"].message)
    assert state.requests["q3"].state == "done"


def test_what_cannot_be_isolated_is_refused() -> None:
    """Too few machines, a node that is none, and one that is not idle: each is named with the way out."""
    state = played(
        "at 1 isolate n1 n2\nat 1 isolate n77\nat 1 drain n5\nat 1.5 isolate n1 n2 n3 n4 n5 n6"
    ).state
    messages = {name: asked.message for name, asked in state.requests.items()}
    assert "at least 6" in messages["q1"]
    assert "no node 'n77'" in messages["q2"]
    assert "stoker readmit n5" in messages["q4"]
    assert not state.isolations


def test_nodes_serve_again_when_the_cluster_loses_interest() -> None:
    """An isolation ends without a verdict when the cluster shuts down; nothing waits for it."""
    state = played("at 1 isolate\nat 1.1 shut-down").state
    judged = next(iter(state.isolations.values())).judged
    assert judged is not None
    assert judged.notes == ("the cluster shuts down",)
    assert states(state) == {"left": [f"n{n}" for n in range(1, 13)]}


def test_an_agent_that_cannot_measure_is_not_found_bad() -> None:
    """A node whose agent is another one in the middle of an isolation has to pass its checks, and is not found bad."""
    state = played("at 1 isolate\nat 1.2 kill-agent n4\nat 1.3 boot-node n4", until=90).state
    judged = next(iter(state.isolations.values())).judged
    assert judged is not None
    verdicts = {each.node: each.verdict for each in judged.nodes}
    assert set(verdicts.values()) <= {"good", "undecided"}
    assert states(state) == {"spare": [f"n{n}" for n in range(1, 13)]}


def test_ends_of_a_pair_are_measured_at_the_same_time() -> None:
    """Where not all fit, no end is issued without the other; measurements of a node alone fill what is left."""
    alone = [_Wanted(node=name, round=1) for name in ("n1", "n2")]
    pair = [_Wanted(node=name, round=1, pair=("n3", "n4")) for name in ("n3", "n4")]
    assert _fitting([*alone, *pair], 3) == alone
    assert _fitting([*alone, *pair], 4) == [*alone, *pair]
    assert _fitting(pair[1:], 1) == pair[1:]
    assert _fitting([*pair, *alone], 3) == [*pair, alone[0]]
    assert _fitting(pair, 0) == _fitting(pair, -1) == []
