"""Agents, keepers and whole nodes die; the next agent reports what follows, and assumes nothing that it did not see."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import pytest

from runner.facts.ids import AttemptId
from tests.agent.node import REPORTER, SILENT, Node, is_alive, is_of, wait_until

pytestmark = pytest.mark.e2e


def test_a_new_agent_adopts_ranks_and_misses_no_exit(node: Node) -> None:
    """After SIGKILL of the agent its ranks continue; the next agent reports an exit in between, with the steps made so far."""
    node.start_agent()
    pids = node.launch(node.plan(REPORTER, {"pause": 0.02}), generation=1)
    node.wait_for("Progress")
    node.kill_agent()
    # Fifty steps of theirs, where the machine does not stand still.
    time.sleep(1.0)
    os.kill(pids[1], signal.SIGTERM)
    wait_until(lambda: not is_alive(pids[1]), "the rank's end")
    assert is_alive(pids[0])
    node.start_agent()
    joined = node.wait_for("NodeJoined", lambda fact: fact.incarnation == 2)
    assert (joined.generation, joined.attempt, joined.ranks_alive) == (1, AttemptId(1, 1, 0), (0,))
    exited = node.wait_for("RankExited")
    assert (exited.rank, exited.exit_code, exited.incarnation) == (1, -signal.SIGTERM, 2)
    assert exited.last_step > 3
    heartbeats = node.heartbeats()
    wait_until(
        lambda: (
            (heartbeat := next(heartbeats)).incarnation == 2
            and heartbeat.steps
            and heartbeat.ranks_alive == (0,)
        ),
        "steps of the adopted rank",
    )
    assert len(node.signals("RankExited")) == 1


def test_an_exit_is_held_until_the_store_has_it(node: Node) -> None:
    """The next agent reports, once, an exit that a killed agent saw but could not write."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    agent = node.agents[-1]
    agent.send_signal(signal.SIGSTOP)
    os.kill(pids[0], signal.SIGKILL)
    node.kill_agent()
    node.start_agent()
    assert node.wait_for("RankExited").rank == 0
    # Killed sooner, the agent may report it twice rather than not at all.
    time.sleep(0.2)
    node.kill_agent()
    node.start_agent()
    node.assign(None, generation=1)
    node.wait_for("RanksTerminated")
    assert len(node.signals("RankExited")) == 1


def test_the_keeper_takes_its_ranks_along(node: Node) -> None:
    """SIGKILL of the keeper ends its ranks; the agent reports unobserved exits, and has a keeper for the next attempt."""
    node.start_agent()
    pids = node.launch(node.plan(REPORTER, {}), generation=1)
    old = node.keeper
    os.kill(old, signal.SIGKILL)
    for rank in (0, 1):
        exited = node.wait_for("RankExited", partial(is_of, rank))
        assert exited.exit_code is None
    assert not any(is_alive(pid) for pid in pids.values())
    node.assign(None, generation=1)
    node.wait_for("RanksTerminated")
    node.launch(node.plan(SILENT, attempt=AttemptId(1, 1, 1)), generation=2)
    assert node.keeper != old


def test_agent_and_keeper_die_together(node: Node) -> None:
    """A node that died whole comes back without ranks, sweeps what was left, confirms that, and repeats no launch."""
    script = (
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(1000)'], start_new_session=True); "
        "time.sleep(1000)"
    )
    node.start_agent()
    node.launch(node.plan(script), generation=3)
    wait_until(lambda: len(node.marked()) == 5, "two ranks, a child of each, a keeper")
    answered = node.ask("drill", fault="kill-node")
    assert node.answer(answered).outcome == "done"
    assert node.agents[-1].wait(10) == -signal.SIGKILL
    wait_until(lambda: len(node.marked()) == 2, "only the ranks' children left")
    node.start_agent()
    joined = node.wait_for("NodeJoined", lambda fact: fact.incarnation == 2)
    assert joined.ranks_alive == ()
    gone = node.wait_for("RanksTerminated")
    assert (gone.generation, gone.attempt) == (3, AttemptId(1, 1, 0))
    assert node.marked() == [node.keeper]
    assert len(node.signals("RanksStarted")) == 1


def test_a_second_agent_is_refused(node: Node) -> None:
    """A second agent of the same node ends with code 2 and a message that names the node and the first one's pid."""
    first = node.start_agent()
    second = node.start_agent(wait=False)
    assert second.wait(10) == 2
    assert f"node 'n1' has an agent already ({{\"pid\": {first.pid}" in node.log()
    assert first.poll() is None


def test_leaving_on_purpose_leaves_nothing(node: Node) -> None:
    """On SIGTERM the agent ends ranks and keeper, reports that it left, and exits with 0."""
    agent = node.start_agent()
    node.launch(node.plan(SILENT), generation=1)
    agent.terminate()
    assert agent.wait(10) == 0
    assert node.marked() == []
    node.listen(0.0)
    assert [type(fact).__name__ for fact in node.received[-2:]] == ["RanksTerminated", "NodeLeft"]


def test_a_stopped_agent_reads_its_assignment_first(node: Node) -> None:
    """A stopped agent starts the assignment in the register when it resumes, never an earlier one."""
    agent = node.start_agent()
    node.launch(node.plan(SILENT), generation=1)
    agent.send_signal(signal.SIGSTOP)
    node.assign(node.plan(SILENT, attempt=AttemptId(1, 1, 1)), generation=2)
    time.sleep(1.5)
    node.assign(node.plan(SILENT, attempt=AttemptId(1, 1, 2)), generation=3)
    agent.send_signal(signal.SIGCONT)
    node.wait_for("RanksStarted", lambda fact: fact.generation == 3)
    assert not [fact for fact in node.signals("RanksStarted") if fact.generation == 2]


def test_a_keeper_without_agent_ends_ranks_that_make_no_progress(
    make_node: Callable[..., Node],
) -> None:
    """Without an agent, ranks that advance go on past the hard cap; ranks that do not are ended after it."""
    node = make_node(hard_cap_seconds=0.6, fence_seconds=0.5)
    node.start_agent()
    quiet = "import os, time\nif os.environ['RANK'] == '0': time.sleep(1000)\n" + REPORTER
    advancing = node.launch(node.plan(quiet, {"pause": 0.05}), generation=1)
    node.kill_agent()
    time.sleep(1.5)
    assert all(is_alive(pid) for pid in advancing.values())
    node.start_agent()
    still = node.launch(node.plan(SILENT, attempt=AttemptId(1, 1, 1)), generation=2)
    node.kill_agent()
    wait_until(lambda: not any(is_alive(pid) for pid in still.values()), "the ranks' end")
    node.start_agent()
    exited = node.wait_for("RankExited", lambda fact: fact.generation == 2)
    assert exited.exit_code == -signal.SIGKILL


def test_two_clusters_of_one_name_do_not_sweep_each_other(
    make_node: Callable[..., Node], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ranks below a running keeper belong to its agent alone, even if another cluster has the same name."""
    first = make_node()
    first.start_agent()
    pids = first.launch(first.plan(SILENT), generation=1)
    other = Node(tmp_path_factory.mktemp("other"))
    other.cluster = first.cluster.__class__(
        **{
            **{name: getattr(first.cluster, name) for name in first.cluster.__struct_fields__},
            "state": str(other.state),
        }
    )
    try:
        other.start_agent()
        other.launch(other.plan(SILENT), generation=1)
        other.assign(None, generation=1)
        other.wait_for("RanksTerminated")
        assert all(is_alive(pid) for pid in pids.values())
    finally:
        for agent in other.agents:
            agent.terminate()
            agent.wait(10)
        other.store.close()
    assert all(is_alive(pid) for pid in pids.values())


def test_the_agent_runs_from_the_command_line_alone(node: Node) -> None:
    """A cluster file that is missing is named, with exit code 2."""
    command = [sys.executable, "-P", "-m", "runner.agent"]
    command += ["--cluster", str(node.state / "no.json"), "--node", "n1"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "no.json" in ended.stderr
