"""The agent starts, observes and ends ranks as the assignment requires."""

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from runner.checkpoints import current_generation
from runner.facts.ids import AttemptId
from tests.agent.node import REPORTER, SILENT, Node, is_alive, is_of, state_of, wait_until

pytestmark = pytest.mark.e2e


def test_a_killed_rank_is_reported_at_once(
    node: Node, record_property: Callable[[str, object], None]
) -> None:
    """SIGKILL of a rank is in the store as its exit, with code and last step, long before a heartbeat is due."""
    node.cluster = replace(node.cluster, heartbeat_seconds=5.0)
    node.start_agent()
    pids = node.launch(node.plan(REPORTER, {}), generation=1)
    node.wait_for("Progress")
    killed_at = time.monotonic()
    os.kill(pids[1], signal.SIGKILL)
    exited = node.wait_for("RankExited")
    latency_seconds = time.monotonic() - killed_at
    record_property("kill_to_store_seconds", latency_seconds)
    print(f"kill -9 of a rank to its exit in the store: {latency_seconds * 1000:.1f} ms")
    assert (exited.rank, exited.exit_code, exited.generation) == (1, -signal.SIGKILL, 1)
    assert exited.last_step >= 1
    assert latency_seconds < 2.0


def test_the_agent_reports_exit_codes_and_the_end_of_stderr(node: Node) -> None:
    """The agent reports an exit with its code, its last step and the end of its stderr, with any bytes in it."""
    node.start_agent()
    do = {"steps": 3, "pause": 0.01, "exit": 3, "last_words": "a\nb \\ud800 last\n"}
    script = REPORTER.replace(
        "sys.stderr.flush()", "sys.stderr.flush(); os.write(2, bytes([255, 10]))"
    )
    node.launch(node.plan(script, do, ranks_per_node=1), generation=1)
    exited = node.wait_for("RankExited")
    assert exited.exit_code == 3
    assert exited.last_step == 3
    assert exited.stderr_tail.endswith("last\n\ufffd")


def test_the_agent_reports_a_finished_gang_and_does_not_restart_it(node: Node) -> None:
    """The agent reports exit 0 for each rank; the plan still in the register starts nothing a second time."""
    node.start_agent()
    node.launch(node.plan(REPORTER, {"steps": 1}), generation=1)
    for rank in (0, 1):
        assert node.wait_for("RankExited", partial(is_of, rank)).exit_code == 0
    node.assign(node.plan(REPORTER, {"steps": 1}), generation=1)
    node.kill_agent()
    node.start_agent()
    heartbeats = node.heartbeats()
    wait_until(lambda: next(heartbeats).incarnation == 2, "a heartbeat of the second incarnation")
    # Reported again on adoption, not started again.
    assert len(node.signals("RanksStarted")) == 2
    assert not [pid for pid in node.marked() if pid != node.keeper]


def test_idle_ends_ranks_and_confirms(node: Node) -> None:
    """Idle kills all ranks and what they started, and is confirmed only once none is there; asking again confirms again."""
    script = (
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(1000)'], start_new_session=True); "
        "time.sleep(1000)"
    )
    node.start_agent()
    pids = node.launch(node.plan(script), generation=4)
    wait_until(lambda: len(node.marked()) == 5, "two ranks, a child of each, a keeper")
    node.assign(None, generation=4)
    gone = node.wait_for("RanksTerminated")
    assert node.marked() == [node.keeper]
    assert not any(is_alive(pid) for pid in pids.values())
    assert (gone.generation, gone.attempt, gone.left_behind) == (4, AttemptId(1, 1, 0), ())
    assert not node.signals("RankExited")
    node.assign(None, generation=5)
    wait_until(lambda: len(node.signals("RanksTerminated")) == 2, "a second confirmation")
    assert node.signals("RanksTerminated")[1].attempt == gone.attempt


def test_a_new_plan_replaces_the_old_gang(node: Node, tmp_path: Path) -> None:
    """A plan of a newer generation ends the old gang, reports it, raises the checkpoints' generation, and only then starts."""
    node.start_agent()
    old = node.launch(node.plan(SILENT), generation=1)
    checkpoints = str(tmp_path / "checkpoints")
    plan = node.plan(
        REPORTER, {}, attempt=AttemptId(1, 1, 1), checkpoints=checkpoints, ranks_per_node=1
    )
    new = node.launch(plan, generation=2)
    kinds = [type(fact).__name__ for fact in node.received]
    assert kinds.index("RanksTerminated") < len(kinds) - 1 - kinds[::-1].index("RanksStarted")
    assert not any(is_alive(pid) for pid in old.values())
    assert is_alive(new[0])
    assert current_generation(checkpoints) == 2


def test_an_older_generation_is_ignored(node: Node) -> None:
    """The agent ignores an assignment older than one it obeyed, also after its restart."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=7)
    node.assign(None, generation=6)
    wait_until(
        lambda: "ignored an assignment of the older generation 6" in node.log(),
        "the agent to report it",
    )
    node.kill_agent()
    node.start_agent()
    wait_until(lambda: node.log().count("ignored an assignment") == 2, "the second incarnation too")
    assert all(is_alive(pid) for pid in pids.values())
    assert not node.signals("RanksTerminated")


def test_grace_lets_a_rank_end_itself(node: Node) -> None:
    """With grace, ranks get SIGTERM first; those that heed it are not killed, those that do not are, after the grace."""
    script = (
        "import os, signal, sys, time\n"
        "def end(*_):\n"
        "    open('ended' + os.environ['RANK'], 'w').close(); os._exit(0)\n"
        "signal.signal(signal.SIGTERM, end if os.environ['RANK'] == '0' else signal.SIG_IGN)\n"
        "open('ready' + os.environ['RANK'], 'w').close()\n"
        "time.sleep(1000)"
    )
    node.start_agent()
    node.launch(node.plan(script), generation=1)
    wait_until(lambda: len(list(node.state.glob("ready*"))) == 2, "both ranks ready")
    stop_requested_at = time.monotonic()
    node.assign(None, generation=1, grace_seconds=0.5)
    node.wait_for("RanksTerminated")
    assert time.monotonic() - stop_requested_at >= 0.5
    assert (node.state / "ended0").exists()
    assert not node.signals("RankExited")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"command": ("no-such-program",)}, "no-such-program"),
        ({"working_directory": "/no/such/folder"}, "/no/such/folder"),
        ({"command": ("{python}", "{rnak}")}, "{rnak}"),
        ({"ranks_per_node": 5}, "4 slots"),
        ({"checkpoints": "/proc/nowhere"}, "/proc/nowhere"),
    ],
)
def test_a_launch_that_fails_reports_why(node: Node, fields: dict[str, Any], expected: str) -> None:
    """What cannot be started is reported with the thing at fault, leaves nothing, and does not keep the next plan back."""
    node.start_agent()
    node.assign(node.plan(SILENT, **fields), generation=1)
    failed = node.wait_for("LaunchFailed")
    assert expected in failed.reason
    assert node.marked() == [node.keeper]
    node.launch(node.plan(SILENT, attempt=AttemptId(1, 1, 1)), generation=2)


def test_a_stopped_rank_is_listed(node: Node) -> None:
    """A rank in state T for `stopped_seconds` is in the heartbeats, and no longer once it goes on."""
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    os.kill(pids[1], signal.SIGSTOP)
    heartbeats = node.heartbeats()
    wait_until(lambda: next(heartbeats).ranks_stopped == (1,), "the stopped rank listed")
    assert state_of(pids[1]) == "T"
    os.kill(pids[1], signal.SIGCONT)
    wait_until(lambda: next(heartbeats).ranks_stopped == (), "no rank listed any more")


def test_output_stays_within_bounds(node: Node) -> None:
    """Output beyond its limit moves to `.1` in halves, and the rank goes on writing into the same file."""
    script = (
        "import sys, time\n"
        "for number in range(10**9):\n"
        "    sys.stdout.write(f'line {number} ' + 'x' * 80 + chr(10)); sys.stdout.flush()\n"
        "    time.sleep(0.0005)"
    )
    node.start_agent()
    node.launch(node.plan(script, ranks_per_node=1, output_limit_bytes=20_000), generation=1)
    path = node.state / "attempts" / "1.1.0" / "rank0.out"
    kept = path.with_name("rank0.out.1")
    wait_until(kept.exists, "the first cut")
    first = kept.stat().st_mtime_ns
    wait_until(lambda: kept.stat().st_mtime_ns != first, "a second cut")
    assert kept.read_bytes().startswith(b"line ")
    assert (
        kept.stat().st_size <= 10_000 + 200_000
        # half the limit, and what came within a heartbeat
    )
    wait_until(
        lambda: path.read_bytes().startswith(b"line "), "new lines, without a hole before them"
    )
