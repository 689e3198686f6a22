"""A node per test, and the proof that nothing of it is left."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.node import Node


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Give a maker of a node with limits of one's own; afterwards all is ended, and nothing may be left."""
    nodes: list[Node] = []

    def make(**limits: Any) -> Node:
        nodes.append(Node(tmp_path, **limits))
        return nodes[-1]

    yield make
    left = []
    for node in nodes:
        node.end()
        left += node.marked()
    assert not left, f"processes left behind: {left}"


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    """Give a node with default limits."""
    return make_node()
