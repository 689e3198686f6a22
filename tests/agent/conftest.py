"""A node per test, and the proof that nothing of it is left."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.node import Node


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Callable[..., Node]]:
    """Give a maker of a node with limits of one's own; afterwards all is ended, and nothing may be left."""
    yield from maker(tmp_path)


@pytest.fixture(scope="module")
def node_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Give a node whose agent runs, to all tests of a module that leave it idle."""
    for make in maker(tmp_path_factory.mktemp("node")):
        node = make()
        node.start_agent()
        yield node


def maker(folder: Path) -> Iterator[Callable[..., Node]]:
    """Give a maker of nodes in a folder, once; then end them all, and check that nothing is left."""
    nodes: list[Node] = []

    def make(**limits: Any) -> Node:
        nodes.append(Node(folder, **limits))
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
