"""What a node finds out beside a launch, with a real agent and a real working folder."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.facts.launch_conditions import (
    LEFT_OUT,
    PARTS,
    LaunchConditions,
    differences,
    digests,
    filled_up,
    of_data,
)
from tests.agent.node import REPORTER, SILENT, Node

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


def test_what_is_as_the_run_is_known_to_run_with_is_left_out(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """The plan names digests: the node with rank 0 reports the command, its data, and what has another digest."""
    code = tmp_path / "code"
    commit = repository(code)
    node = make_node()
    node.start_agent()
    first = conditions(node, 1, code)
    known = {part: ("other", digest) for part, digest in digests(first).items()}
    second = conditions(node, 3, code, conditions=known)
    assert (second.argv, second.left_out) == (first.argv, ("code", "packages", "variables"))
    assert (second.git_commit, second.packages, second.environment) == ("", {}, {})
    (code / "train.py").write_text("lr = 2\n")
    third = conditions(node, 5, code, conditions=known)
    assert (third.git_commit, third.left_out) == (commit, ("packages", "variables"))
    assert len(differences(filled_up(second, first), third)) == 1


def test_other_nodes_report_digests_and_the_rest_when_asked(
    make_node: MakeNode, tmp_path: Path
) -> None:
    """Nothing durable of a node without rank 0, until a task asks; the digests show its data, too, once a rank has reported it."""
    code = tmp_path / "code"
    commit = repository(code)
    node = make_node()
    node.start_agent()
    messages = [{"kind": "data", "fingerprint": "sha256:1"}, {"kind": "data", "fingerprint": "x"}]
    plan = node.plan(REPORTER, {"messages": messages}, working_directory=str(code), node_rank=1)
    node.launch(plan, 1)
    sent = next(one.conditions for one in node.heartbeats() if "data" in one.conditions)
    assert set(sent) == set(PARTS)
    assert not node.signals("ConditionsFound")
    answer = node.answer(node.ask("conditions"))
    assert answer.outcome == "done"
    (found,) = node.signals("ConditionsFound")
    assert (found.conditions.git_commit, found.conditions.data) == (commit, "sha256:1")
    assert digests(found.conditions) == sent
    node.kill_agent()
    node.start_agent()
    assert (
        node.answer_of_listening_agent("conditions").message == "this agent did not start the ranks"
    )
    node.assign(None, 2)
    node.wait_for("RanksTerminated")


def test_a_rank_reports_what_it_trains_on(make_node: MakeNode) -> None:
    """The node with rank 0 passes it on by itself, once."""
    node = make_node()
    node.start_agent()
    messages = [{"kind": "data", "fingerprint": "sha256:1"}] * 2
    node.launch(node.plan(REPORTER, {"messages": messages}), 1)
    node.wait_for("Progress")
    found = [one.conditions for one in node.signals("ConditionsFound") if one.conditions.data]
    assert found == [of_data("sha256:1")]


def test_what_looks_at_the_code_leaves_the_cores_to_ranks_that_start(
    make_node: MakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child has the lowest priority, and so has its session, among which the kernel shares the cores first."""
    code, programs, seen = tmp_path / "code", tmp_path / "programs", tmp_path / "seen"
    repository(code)
    programs.mkdir()
    git_program = shutil.which("git")
    (programs / "git").write_text(
        # Later than the agent needs to say it.
        f'#!/bin/sh\nsleep 0.3\nnice >> {seen}\ncat /proc/$$/autogroup >> {seen}\nexec {git_program} "$@"\n'
    )
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    node = make_node()
    node.start_agent()
    assert conditions(node, 1, code).unknown == {}
    priorities = [line.split()[-1] for line in seen.read_text().splitlines()]
    assert set(priorities) == {"19"}
