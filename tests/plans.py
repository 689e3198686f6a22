"""Launch plans for tests: of one node with two ranks by default."""

from typing import Any

from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import LaunchPlan


def launch_plan(**fields: Any) -> LaunchPlan:
    """Make a plan; `fields` go over what is usual."""
    usual: dict[str, Any] = {
        "attempt": AttemptId(1, 1, 0),
        "run": "story",
        "command": ("true",),
        "working_directory": "/",
        "node_rank": 0,
        "num_nodes": 1,
        "ranks_per_node": 2,
        "master_address": "127.0.0.1",
        "master_port": 29500,
        "output_folder": "/",
        "output_limit_bytes": 0,
    }
    return LaunchPlan(**{**usual, **fields})
