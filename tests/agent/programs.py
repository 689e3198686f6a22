"""Programs that are run as fresh and as forked ranks, and what they have seen."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import LaunchPlan
from tests.agent.node import Node, is_in

SNAPSHOT_PROGRAM = Path(__file__).with_name("process_snapshot.py")
# a module to preload
BALLAST = "import os\n__version__ = '7'\nLOADED_IN = os.getpid()\n"


def write_program(folder: Path) -> None:
    """Put the snapshot program there as program.py, and a module to preload."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(SNAPSHOT_PROGRAM.read_text())
    (folder / "ballast.py").write_text(BALLAST)


def both(
    node: Node, plan: LaunchPlan, *, preload: tuple[str, ...] = ("ballast",)
) -> list[LaunchPlan]:
    """Run a plan twice to its end, fresh and forked, in the node's next two generations; return the two plans."""
    plans = []
    for modules in ((), preload):
        node.generation += 1
        generation = node.generation
        attempt = AttemptId(1, 1, generation)
        folder = str(node.state / "attempts" / str(attempt))
        plans.append(replace(plan, attempt=attempt, output_folder=folder))
        node.launch(plans[-1], generation, preload=modules)
        for rank in plan.ranks:
            node.wait_for("RankExited", partial(is_in, generation, rank=rank))
        node.assign(None, generation)
        node.wait_for("RanksTerminated", partial(is_in, generation))
    return plans


def exit_code_of(node: Node, plan: LaunchPlan) -> int:
    """Return the exit code of a plan's rank 0 that has ended."""
    exited = node.wait_for("RankExited", lambda fact: fact.attempt == plan.attempt)
    return int(exited.exit_code)


def not_forked_reason(node: Node, generation: int) -> str:
    """Return why the ranks of a generation were not forked."""
    return str(
        node.wait_for("RanksStarted", lambda fact: fact.generation == generation).not_forked_reason
    )


def program_plan(node: Node, *command: str, **fields: Any) -> LaunchPlan:
    """Return a plan for a command that finds the snapshot program in its working directory."""
    folder = node.state / "program"
    write_program(folder)
    environment = {"SEEN": str(node.state), "OUTER": "yes", **fields.pop("environment", {})}
    return replace(
        node.plan("pass"),
        command=command,
        working_directory=str(folder),
        environment=environment,
        **fields,
    )


def seen_by(node: Node, attempt: AttemptId, rank: int) -> dict[str, Any]:
    """Return what a rank has written down."""
    found: dict[str, Any] = json.loads((node.state / f"seen-{attempt}-{rank}").read_text())
    return found


def must_have_seen_the_same(node: Node, fresh: LaunchPlan, forked: LaunchPlan) -> None:
    """Compare each property; the attempt's id aside, which is in some."""
    for rank in fresh.ranks:
        first, second = (seen_by(node, plan.attempt, rank) for plan in (fresh, forked))
        assert (first["forked"], second["forked"]) == (False, True)
        assert len(first["seen"]) >= 20
        for name, value in first["seen"].items():
            text = json.dumps(second["seen"][name]).replace(str(forked.attempt), str(fresh.attempt))
            assert json.loads(text) == value, name
