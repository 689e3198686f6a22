"""The task `measure`: this node's end of a measured pair, refused where it makes no sense, and gone when ranks are to start."""

import sys
from pathlib import Path
from typing import Any

import pytest

from runner.agent.tasks import refusal
from runner.facts.messages.assignments import Task
from tests.agent.node import Node, is_alive, wait_until
from tests.agent.programs import program_plan
from tests.healthchecks.probes.pair_harness import answer_of, free_port, start_end


def args_of(port: int, **given: Any) -> dict[str, Any]:
    """Return the arguments of end 0 on this machine."""
    return {
        "isolation": "i1",
        "round": 1,
        "end": 0,
        "nodes": ["n1", "n2"],
        "address": "127.0.0.1",
        "port": port,
        "seconds": 0.2,
        "python": sys.executable,
        **given,
    }


def reason_of(**given: Any) -> str:
    """Return why an idle node that reads its tasks refuses a measurement, if it does."""
    task = Task(id="a1", node="n1", task="measure", generation=given.pop("of", 0))
    facts = {"generation": 3, "gang_generation": None, "has_waited": False, **given}
    return refusal(task, node="n1", instance_id="i", **facts)


def test_a_measurement_that_is_out_of_date_is_refused() -> None:
    """Beside ranks, of an older generation, or once it has waited for an agent: the other end no longer waits."""
    assert reason_of() == reason_of(of=3) == ""
    assert "ranks run on node 'n1'" in reason_of(gang_generation=3)
    assert "older than what runs here" in reason_of(of=2)
    assert "waited while no agent was listening" in reason_of(has_waited=True)
    assert "waited while no agent was listening" in reason_of(has_waited=True, of=3)


def start(node: Node) -> Any:
    """Start the agent, and wait until it reads tasks: a measurement that has waited for that is refused."""
    agent = node.start_agent()
    assert node.answer(node.check("clock")).outcome == "done"
    return agent


@pytest.mark.e2e
@pytest.mark.trainer
def test_a_node_measures_with_another_one(node: Node) -> None:
    """Its answer is that of its end; meanwhile nothing else is measured or checked here."""
    start(node)
    port = free_port()
    task = node.ask("measure", **args_of(port))
    refused = node.answer(node.check("clock"))
    assert (refused.outcome, "measure task" in refused.message) == ("failed", True)
    there = answer_of(start_end(1, port))
    answer = node.answer(task)
    assert answer.outcome == "done"
    assert set(answer.detail) == set(there)
    assert answer.detail["trouble"] == there["trouble"] == ""
    assert min(answer.detail["rate"], there["rate"]) > 0.001
    assert answer.message == f"{answer.detail['rate']} GB/s"
    # The next task is taken.
    assert node.answer(node.check("clock")).detail["outcome"] == "PASS"


@pytest.mark.e2e
def test_what_cannot_be_measured_is_answered(node: Node, tmp_path: Path) -> None:
    """Malformed arguments are refused and named; an interpreter that is not there, and a foreign setting, measure nothing."""
    start(node)
    for name, value in (("end", 2), ("port", "x"), ("address", ""), ("seconds", 0)):
        answer = node.answer(node.ask("measure", **{**args_of(free_port()), name: value}))
        assert (answer.outcome, answer.message.partition(":")[0]) == ("failed", name)
    for given in ({"python": str(tmp_path / "none")}, {"environment": {"PATH": "/"}}):
        answer = node.answer(node.ask("measure", **args_of(free_port(), **given)))
        assert answer.outcome == "done"
        assert (answer.detail["rate"], answer.detail["not_measured"]) == (None, True)
        assert answer.message == answer.detail["trouble"] != ""


@pytest.mark.e2e
def test_a_measurement_gives_way_to_ranks(node: Node, tmp_path: Path) -> None:
    """An assignment with ranks ends it at once; none starts beside ranks."""
    start(node)
    started = tmp_path / "pid"
    waiting = tmp_path / "python"
    waiting.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 1000\n")
    waiting.chmod(0o755)
    task = node.ask("measure", **args_of(free_port(), python=str(waiting)))
    program = int(wait_until(lambda: started.exists() and started.read_text(), "a rank"))
    plan = program_plan(node, "{python}", "-c", "import time; time.sleep(1000)", ranks_per_node=1)
    node.launch(plan, 1)
    answer = node.answer(task)
    assert (answer.outcome, answer.message) == (
        "failed",
        "the measurement gave way: ranks are to start",
    )
    wait_until(lambda: not is_alive(program), "the end of the rank")
    refused = node.answer(node.ask("measure", **args_of(free_port())))
    assert (refused.outcome, "ranks run on node" in refused.message) == ("failed", True)


@pytest.mark.e2e
def test_no_measurement_outlives_the_agent(node: Node, tmp_path: Path) -> None:
    """An agent that leaves kills it, in order."""
    agent = start(node)
    started = tmp_path / "pid"
    waiting = tmp_path / "python"
    waiting.write_text(f"#!/bin/sh\necho $$ > {started}\nexec sleep 1000\n")
    waiting.chmod(0o755)
    node.ask("measure", **args_of(free_port(), python=str(waiting)))
    program = int(wait_until(lambda: started.exists() and started.read_text(), "a rank"))
    agent.terminate()
    assert agent.wait(30) == 0
    wait_until(lambda: not is_alive(program), "the end of the rank")
