"""What a node finds out beside a launch, with a real agent and a real working folder."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.facts.launch_conditions import LEFT_OUT, LaunchConditions, differences
from tests.agent.node import SILENT, Node

pytestmark = pytest.mark.e2e

MakeNode = Callable[..., Node]


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, with a name and without the machine's settings."""
    identity = ("-c", "user.name=ann", "-c", "user.email=ann@example.org")
    command = ["git", *identity, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def repository(folder: Path) -> str:
    """Make a repository with one file; return its commit."""
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "train.py").write_text("lr = 1\n")
    git(folder, "add", "train.py")
    git(folder, "commit", "-q", "-m", "first")
    return git(folder, "rev-parse", "HEAD")


def conditions(node: Node, generation: int, folder: Path, **fields: Any) -> LaunchConditions:
    """Launch silent ranks in a folder; return what the node finds out."""
    plan = node.plan(SILENT, working_directory=str(folder), **fields)
    node.assign(plan, generation)
    found = node.wait_for("ConditionsFound", lambda fact: fact.generation == generation)
    node.assign(None, generation + 1)
    node.wait_for("RanksTerminated", lambda fact: fact.generation >= generation)
    conditions: LaunchConditions = found.conditions
    return conditions


def test_code_packages_and_variables_of_a_launch_are_found_out(
    make_node: MakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit, changes with their text in the attempt's folder, packages, and no secret; untracked files differ in nothing."""
    packages, code = tmp_path / "packages", tmp_path / "code"
    commit = repository(code)
    (packages / "stoker_made_up-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("NCCL_SECRET", "hidden")
    node = make_node()
    node.start_agent()
    given = {"environment": {"HF_TOKEN": "hidden", "MODE": "fast"}}
    first = conditions(node, 1, code, **given)
    assert (first.git_commit, first.source_diff, first.unknown) == (commit, "", {})
    assert first.packages["stoker-made-up"] == "1.0"
    assert first.python.count(".") == 2
    assert first.environment["PYTHONPATH"] == str(packages)
    assert first.given == {"HF_TOKEN": LEFT_OUT, "MODE": "fast"}
    assert "hidden" not in repr(first)

    (code / "checkpoint.bin").write_text("written by the run")
    (code / "train.py").write_text("lr = 2\n")
    (packages / "stoker_made_up-1.0.dist-info").rename(packages / "stoker_made_up-1.1.dist-info")
    second = conditions(node, 3, code, **given)
    diff = Path(node.state / "attempts" / "1.1.0" / "source.diff").read_bytes()
    assert b"+lr = 2" in diff
    assert second.source_diff == hashlib.sha256(diff).hexdigest()
    assert differences(first, second) == (
        f"changes that are not committed: none -> {second.source_diff[:12]}",
        "package stoker-made-up 1.0 -> 1.1",
    )


def test_what_cannot_be_found_out_is_not_known(make_node: MakeNode, tmp_path: Path) -> None:
    """A folder without a repository, and a command that is no Python, are no difference from anything, and stop no launch."""
    node = make_node()
    node.start_agent()
    node.assign(
        node.plan(SILENT, working_directory=str(tmp_path), command=("sleep", "1000")), generation=1
    )
    found = node.wait_for("ConditionsFound").conditions
    assert (found.git_commit, found.packages) == ("", {})
    assert set(found.unknown) == {"code", "packages"}
    assert found.argv == ("sleep", "1000")
    known = replace(found, git_commit="a1", packages={"x": "1"}, unknown={})
    assert differences(known, found) == differences(found, known) == ()
    assert len(node.wait_for("RanksStarted").pids) == 2
