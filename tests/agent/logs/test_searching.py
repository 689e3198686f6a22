"""The agent searches the output of ranks that ended by themselves, and reports known lines."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.agent.node import REPORTER, WAIT_SECONDS, Node
from tests.control_groups import processor_limit

pytestmark = pytest.mark.e2e
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.25 GiB\n"


def test_the_agent_reports_known_lines_of_a_dead_rank_after_its_death(node: Node) -> None:
    """With the rank's number and the file, and no later than a search takes; the report of the exit waits for nothing."""
    node.start_agent()
    do = {"steps": 3, "pause": 0.01, "exit": 3, "last_words": OOM}
    node.launch(node.plan(REPORTER, do, ranks_per_node=1), generation=1)
    exited = node.wait_for("RankExited")
    found = node.wait_for("LinesMatched", lambda fact: not fact.ranks_alive)
    assert (found.attempt, found.generation) == (exited.attempt, 1)
    (match,) = [one for one in found.matches if one.signature == "cuda-oom"]
    assert (match.fault, match.rank, match.file) == ("cuda_oom", 0, "rank0.err")
    assert match.text == OOM.strip()


@pytest.mark.parametrize(
    "do",
    [
        pytest.param({"steps": 1, "last_words": OOM}, id="ended well"),
        pytest.param({"steps": 1, "exit": 3, "last_words": "bye\n"}, id="wrote nothing known"),
    ],
)
def test_the_agent_reports_no_lines_of_ranks_that_ended_well_or_wrote_nothing_known(
    make_node: Callable[..., Node], do: dict[str, Any]
) -> None:
    """A finished gang is not searched; of a rank that failed the agent says that all was read, and no line that means nothing."""
    node = make_node(heartbeat_timeout_seconds=WAIT_SECONDS)
    agent = node.start_agent()
    node.launch(node.plan(REPORTER, do, ranks_per_node=1), generation=1)
    node.wait_for("RankExited")
    # It leaves once all searches have ended.
    agent.terminate()
    assert agent.wait(WAIT_SECONDS) == 0
    found = [fact for fact in node.signals("LinesMatched") if not fact.ranks_alive]
    assert [match for fact in found for match in fact.matches] == []
    assert [fact.is_last for fact in found] == ([True] if "exit" in do else [])


@pytest.mark.parametrize("ratio", [1.0, 0.1], ids=["idle", "no processor"])
def test_an_agent_that_leaves_first_reports_what_its_ranks_died_of(
    make_node: Callable[..., Node], ratio: float
) -> None:
    """A run that cannot work is over in a second, and so is its cluster; on a busy machine the last lines take longer."""
    node = make_node(heartbeat_timeout_seconds=WAIT_SECONDS)
    agent = node.start_agent()
    node.launch(node.plan(REPORTER, {"steps": 1, "exit": 3, "last_words": OOM}), generation=1)
    node.wait_for("RankExited")
    with processor_limit(ratio) if ratio < 1.0 else nullcontext() as tasks:
        if tasks is not None:
            # The log reader is the agent's child.
            tasks.write_text(str(agent.pid))
        agent.terminate()
        assert agent.wait(WAIT_SECONDS) == 0
    kinds = [
        type(fact).__name__ for fact in node.signals("LinesMatched") + node.signals("NodeLeft")
    ]
    assert kinds == ["LinesMatched", "NodeLeft"]
    assert node.received.index(node.signals("LinesMatched")[0]) < node.received.index(
        node.signals("NodeLeft")[0]
    )
