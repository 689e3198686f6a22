"""An agent whose ranks' output lies on a file system that hangs: it reports, ends and starts as ever, and reads on afterwards."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.node import REPORTER, WAIT_SECONDS, Node, is_alive, wait_until
from tests.hanging_folder import Hanging, hanging_folder

pytestmark = pytest.mark.e2e

PRINTS_STEPS = """
import time
for step in range(1, 100000):
    print(f"step {step} loss {1 / step:.6f}", flush=True)
    time.sleep(0.02)
"""


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    """Give a folder that hangs on demand."""
    with hanging_folder(tmp_path / "mount", tmp_path / "behind") as made:
        yield made


def test_a_rank_that_ends_while_its_output_hangs_is_reported_at_once(
    hanging: Hanging, node: Node
) -> None:
    """Steps and heartbeats go on, another agent adopts the ranks, an exit comes before the gang's end, and the agent can end."""
    node.start_agent()
    plan = node.plan(REPORTER, {"pause": 0.02}, output_folder=str(hanging.folder / "1.1.0"))
    pids = node.launch(plan, generation=1)
    node.wait_for("Progress")
    hanging.hang()
    node.kill_agent()
    agent = node.start_agent()
    heartbeats = (each for each in node.heartbeats() if each.incarnation == 2)
    before = wait_until(lambda: next(heartbeats).last_step or 0, "a step")
    wait_until(lambda: (next(heartbeats).last_step or 0) > before + 50, "further steps")
    os.kill(pids[0], signal.SIGKILL)
    exited = node.wait_for("RankExited")
    node.wait_for("RanksTerminated")
    ends = [type(fact).__name__ for fact in node.received if "Rank" in type(fact).__name__]
    assert ends.index("RankExited") < ends.index("RanksTerminated")
    assert (exited.rank, exited.exit_code, exited.stderr_tail) == (0, -signal.SIGKILL, "")
    assert "last lines are not read" in node.log()
    assert not any(is_alive(pid) for pid in pids.values())
    agent.terminate()
    assert agent.wait(WAIT_SECONDS) == 0


@pytest.mark.slow
def test_a_launch_waits_for_a_file_system_that_hangs(hanging: Hanging, node: Node) -> None:
    """Heartbeats name the mount meanwhile; the ranks start as soon as it answers, and no heartbeat names it then."""
    agent = node.start_agent()
    hanging.hang()
    folder = hanging.folder / "1.1.0"
    node.assign(node.plan(REPORTER, {"pause": 0.02}, output_folder=str(folder)), 1)
    hung = next(each.hung_folders[0] for each in node.heartbeats() if each.hung_folders)
    assert (hung.mount, hung.file_system) == (str(hanging.folder), "fuse")
    assert (hung.source, hung.folder) == ("stoker-test", str(folder))
    assert not node.signals("RanksStarted")
    hanging.answer()
    node.wait_for("RanksStarted")
    assert not next(each for each in node.heartbeats() if each.last_step).hung_folders
    assert not node.signals("LaunchFailed")
    assert agent.poll() is None


def test_lines_are_read_on_once_their_folder_answers(hanging: Hanging, node: Node) -> None:
    """Each step that ranks printed before, while and after their folder hung is read once, and the output is bounded again."""
    node.start_agent()
    plan = node.plan(
        PRINTS_STEPS,
        output_folder=str(hanging.folder / "1.1.0"),
        output_limit_bytes=8192,
        ranks_per_node=1,
    )
    node.launch(plan, generation=1)
    heartbeats, steps = node.heartbeats(), list[int]()

    def reads_past(step: int) -> bool:
        steps.extend(record.step for record in next(heartbeats).logged_steps)
        return bool(steps) and steps[-1] > step

    wait_until(lambda: reads_past(50), "the first steps")
    hanging.hang()
    for _ in range(10):
        reads_past(0)
    num_before, last = len(steps), steps[-1]
    hanging.answer()
    wait_until(lambda: reads_past(last + 50), "steps after it answers")
    wait_until(lambda: (hanging.folder / "1.1.0/rank0.out.1").exists(), "a bounded output")
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    assert len(steps) > num_before
