"""The process beside an agent that seals what an unchanged script saves: real ranks, agents that are killed, folders on disk."""

import os
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from runner.facts.messages.assignments import LaunchPlan
from tests.agent.node import REPORTER, Node, wait_until
from tests.checkpoints.formats.made_saves import titan_folder

pytestmark = pytest.mark.e2e

# Saves a checkpoint of Lightning's form whenever the test asks for one, and ends on request.
SAVING = """
import os, pickle, time, zipfile
done = set()
while not os.path.exists("end"):
    time.sleep(0.02)
    for name in os.listdir("."):
        if name.startswith("save-") and name not in done and os.environ["RANK"] == "0":
            done.add(name)
            step = int(name.partition("-")[2])
            state = {"global_step": step, "pytorch-lightning_version": "2.6.6"}
            with zipfile.ZipFile(f"out/step={step}.ckpt", "w") as archive:
                archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
"""


def plan_of(node: Node, script: str, do: dict[str, Any] | None = None, **fields: Any) -> LaunchPlan:
    """Return a plan whose script saves in `out`, with copies in `sealed`."""
    (node.state / "out").mkdir()
    folders = {"checkpoints": str(node.state / "sealed"), "saves": str(node.state / "out")}
    return node.plan(script, do, **folders, **fields)


def sealed_steps(root: Path) -> list[int]:
    """Verify what is sealed; return the steps."""
    return sorted(checkpoints.verify(each, ()).step for each in checkpoints.list_sealed(root))


def test_saves_are_sealed_and_reported_also_by_the_next_agent(node: Node) -> None:
    """One while the first agent lives, one after its death, and one that was written just before the ranks ended."""
    node.start_agent()
    node.launch(plan_of(node, SAVING), generation=1)
    root = node.state / "sealed"
    (node.state / "save-10").touch()
    first = node.wait_for("CheckpointSealed")
    assert (first.step, first.path) == (10, str(root / "1.1.0-00000010"))
    node.kill_agent()
    (node.state / "save-20").touch()
    node.start_agent()
    node.wait_for("CheckpointSealed", lambda fact: fact.step == 20)
    (node.state / "save-30").touch()
    wait_until(lambda: (node.state / "out/step=30.ckpt").exists(), "the last save")
    (node.state / "end").touch()
    node.wait_for("CheckpointSealed", lambda fact: fact.step == 30)
    assert sealed_steps(root) == [10, 20, 30]
    assert "names neither {resume_arguments} nor {resume}" in node.log()


def test_saves_that_outrank_those_of_an_attempt_that_went_back_are_named(node: Node) -> None:
    """The process knows the step from which the ranks went on."""
    node.start_agent()
    plan = plan_of(node, SAVING, resume=str(node.state / "sealed/1.0.0-00000010"))
    titan_folder(node.state / "out/step-30")
    for path in [node.state / "out/step-30", *(node.state / "out/step-30").iterdir()]:
        os.utime(path, (1, 1))
    node.launch(plan, generation=1)
    wait_until(lambda: "step-30 are of later steps than 10" in node.log(), "the warning")


def test_nothing_is_copied_of_a_script_that_seals_its_own(node: Node) -> None:
    """Its ranks take requests for checkpoints: a copy under the same name would be in their way."""
    node.start_agent()
    node.launch(plan_of(node, REPORTER, {"steps": 100}), generation=1)
    wait_until(lambda: "the script seals its own" in node.log(), "the end of the process")
    assert checkpoints.list_sealed(node.state / "sealed") == []
