"""A neighbour's load is no fault of a node: what it slows is unknown, with that as its only reason."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.agent.node import Node

pytestmark = [pytest.mark.e2e, pytest.mark.trainer]


@pytest.fixture
def neighbours() -> Iterator[None]:
    """Keep every processor of this machine busy, twice."""
    count = "import os; print(len(os.sched_getaffinity(0)))"
    number = int(
        subprocess.run([sys.executable, "-c", count], capture_output=True, check=True).stdout
    )
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * number)]
    yield
    for process in busy:
        process.kill()
    for process in busy:
        process.wait()


@pytest.mark.usefixtures("neighbours")
def test_a_node_that_a_neighbour_slows_is_unknown_and_not_bad(node: Node) -> None:
    """Its rates are not measured, its products are right, and the answer says that nothing but the load keeps it from passing."""
    node.start_agent()
    answer = node.answer(node.check("compute_rate", deadline_seconds=40.0))
    assert answer.detail["outcome"] == "UNKNOWN"
    assert answer.detail["is_busy"]
    (verdict,) = answer.detail["checks"]
    assert "busy with something else" in verdict["reason"]
