"""Preloaded modules that seed random generators, or draw from them: forked ranks have what fresh ones have."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.facts.messages.assignments import LaunchPlan
from tests.agent.node import Node
from tests.agent.programs import both, not_forked_reason, program_plan

pytestmark = pytest.mark.e2e

PROGRAM = """
import json
import os
import random
import sys

import seeding
import {module}

drawn = [random.random(), random.gauss(0, 1)]
if "numpy" in sys.modules:
    import numpy
    drawn.append(numpy.random.random())
if "torch" in sys.modules:
    import torch
    drawn += torch.rand(2).tolist()
name = f"drawn-{{os.environ['STOKER_ATTEMPT']}}-{{os.environ['RANK']}}"
with open(os.path.join(os.environ["SEEN"], name), "w") as file:
    json.dump(drawn, file)
"""


def drawn(node: Node, source: str, *, module: str = "seeding") -> list[list[list[Any]]]:
    """Run two ranks fresh and forked with a module `seeding` of this source; return what each rank of both drew."""
    plan = program_plan(node, "{python}", "draws.py", ranks_per_node=2)
    folder = Path(plan.working_directory)
    (folder / "seeding.py").write_text(source)
    (folder / "draws.py").write_text(PROGRAM.format(module=module))
    plans = both(node, plan, preload=tuple(dict.fromkeys(("seeding", module))))
    assert not_forked_reason(node, node.generation) == ""
    return [[_drawn_by(node, one, rank) for rank in one.ranks] for one in plans]


def _drawn_by(node: Node, plan: LaunchPlan, rank: int) -> list[Any]:
    found: list[Any] = json.loads((node.state / f"drawn-{plan.attempt}-{rank}").read_text())
    return found


@pytest.mark.parametrize("more", ["", "random.random()\n"])
def test_a_seed_that_is_always_the_same_holds_in_forked_ranks(node: Node, more: str) -> None:
    """Each rank draws the very numbers that it would draw as a fresh process."""
    node.start_agent()
    fresh, forked = drawn(node, f"import random\nrandom.seed(7)\n{more}")
    assert fresh[0] == fresh[1]
    assert forked == fresh


@pytest.mark.parametrize(
    "source", ["import random\nrandom.random()\n", "import random\nrandom.seed()\n"]
)
def test_a_module_that_only_draws_leaves_each_rank_a_seed_of_its_own(
    node: Node, source: str
) -> None:
    """Neither two forked ranks nor a forked and a fresh one draw the same numbers."""
    node.start_agent()
    fresh, forked = drawn(node, source)
    first = [numbers[0] for ranks in (fresh, forked) for numbers in ranks]
    assert len({*first}) == 4


@pytest.mark.trainer
@pytest.mark.slow
def test_transformers_is_preloaded_beside_a_module_that_seeds(make_node: Any) -> None:
    """The real library, with seeds of Python and torch that hold; numpy, which is not seeded, differs."""
    node = make_node(preload_seconds=120.0)
    node.start_agent()
    source = "import random, torch\nrandom.seed(7)\n"
    again = "import torch\ntorch.manual_seed(3)\n"
    plan = program_plan(node, "{python}", "draws.py", ranks_per_node=2)
    (Path(plan.working_directory) / "later.py").write_text(again)
    environment = {**plan.environment, "HF_HUB_OFFLINE": "1"}
    plan = replace(plan, environment=environment)
    folder = Path(plan.working_directory)
    (folder / "seeding.py").write_text(source)
    program = PROGRAM.format(module="later").replace(
        "import later", "import transformers\nimport later"
    )
    (folder / "draws.py").write_text(program)
    plans = both(node, plan, preload=("seeding", "transformers", "later"))
    assert not_forked_reason(node, node.generation) == ""
    fresh, forked = ([_drawn_by(node, one, rank) for rank in one.ranks] for one in plans)
    assert fresh[0][:2] == fresh[1][:2] == forked[0][:2] == forked[1][:2]
    assert fresh[0][-2:] == fresh[1][-2:] == forked[0][-2:] == forked[1][-2:]
