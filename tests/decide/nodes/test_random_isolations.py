"""Whatever happens to nodes and the supervisor meanwhile, an isolation ends, and no sound node is found bad by it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.decide.state.cluster_state import OUT
from runner.simulate.world import World
from tests.decide.scenario import parse_text

NODES = [f"n{number}" for number in range(1, 11)]
# Real faults of nodes: at most three of the ten have one, and the supervisor may refuse the hardware of two.
FAULTS = ("slow-link {} 0", "slow-link {} 3", "measure {} 30", "spoil-compute {}")
# What may happen while they are measured, at a time.
TROUBLES = (
    "kill-agent {}",
    "boot-node {}",
    "hang-agent {}",
    "free-agent {}",
    "kill-supervisor",
    "hang-action node_task 1",
)

node = st.sampled_from(NODES)
faults = st.dictionaries(node, st.sampled_from(FAULTS), max_size=3)
troubles = st.lists(st.tuples(st.floats(2.1, 12), st.sampled_from(TROUBLES), node), max_size=5)


def played(broken: dict[str, str], troubled: list[tuple[float, str, str]]) -> World:
    """Play an isolation of ten nodes that a person asks for after 2 s."""
    lines = ["cluster nodes=10 slots=1", "at 2 isolate", "until 900"]
    lines += [f"at 1 {fault.format(name)}" for name, fault in broken.items()]
    lines += [f"at {at:.2f} {trouble.format(name)}" for at, trouble, name in troubled]
    scenario = parse_text("isolation", "\n".join(lines))
    return scenario.play(scenario.build())


@pytest.mark.costly
@settings(max_examples=25, deadline=None)
@given(broken=faults, troubled=troubles)
def test_an_isolation_ends_and_finds_no_sound_node_bad(
    broken: dict[str, str], troubled: list[tuple[float, str, str]]
) -> None:
    """It has a verdict or says why not; nodes serve again, and only those that are broken or in trouble are out or found bad."""
    state = played(broken, troubled).state
    judged = next(iter(state.isolations.values())).judged
    assert judged is not None
    in_trouble = {name for _, _, name in troubled}
    bad = {each.node for each in judged.nodes if each.verdict == "bad"}
    assert bad <= set(broken) | in_trouble
    if not troubled:
        assert bad == set(broken)
    out = {each.node for each in state.nodes.values() if each.state in OUT}
    assert out <= set(broken) | in_trouble
    assert sum(bool(known.verdict) for known in state.hardware.values()) <= 2
    assert all(each.state != "checking" for each in state.nodes.values())
