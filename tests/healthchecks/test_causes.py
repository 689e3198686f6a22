"""The targeted level: each cause names checks that exist, and only these run; a cause that hardware cannot have has none."""

import pytest

from healthchecks.causes import CHECKS_OF_CAUSE, checks_of_cause
from healthchecks.check import NodeFacts
from healthchecks.registry import all_checks
from runner.facts.faults import FAULTS

# Of faults that a swap answers, or that may lie in a node's computing: what no check can tell, with the reason.
NOT_CHECKED = {
    "node_silent": "the node does not answer",
    "node_unfit": "its checks found it",
    "host_memory_growth": "the ranks' own memory",
}


def test_causes_and_checks_are_those_of_the_project() -> None:
    """No row names a fault or a check that does not exist, and every fault of a GPU or answered by a swap has a row or a reason."""
    assert set(CHECKS_OF_CAUSE) <= set(FAULTS)
    assert {name for names in CHECKS_OF_CAUSE.values() for name in names} <= set(all_checks())
    of_hardware = {
        name for name, kind in FAULTS.items() if kind.scope == "gpu" or kind.action == "swap"
    }
    assert of_hardware <= set(CHECKS_OF_CAUSE) | set(NOT_CHECKED)


@pytest.mark.parametrize("cause", sorted(CHECKS_OF_CAUSE))
def test_a_cause_has_checks_on_a_node_with_gpus(cause: str) -> None:
    """On NVIDIA's GPUs and on AMD's, something can confirm or clear it; without GPUs nothing about GPUs runs."""
    for vendor in ("nvidia", "amd"):
        node = NodeFacts(num_gpus=8, gpu_vendor=vendor)
        assert checks_of_cause(cause, node)
    alone = checks_of_cause(cause, NodeFacts())
    assert not {"gpu", "amd_gpu", "gpu_links"} & set(alone)


def test_a_cause_of_no_hardware_has_no_checks() -> None:
    """A fault of the user's code is UNKNOWN here: nothing is checked, and nothing is called healthy."""
    assert checks_of_cause("data_error", NodeFacts(num_gpus=8)) == ()
