"""Ranks that hang are seen from outside: stopped ones at once, silent ones by what they write."""

import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.agent.ranks.gang import POLL_SECONDS
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import Heartbeat
from runner.facts.wire import encode
from tests.agent.node import REPORTER, SILENT, Node, is_alive, state_of, wait_until

pytestmark = pytest.mark.e2e

# <sys/ptrace.h>
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WRITER = "import time\nwhile True:\n    print('a line', flush=True)\n    time.sleep(0.05)"


def first(node: Node, holds: Callable[[Heartbeat], bool]) -> Heartbeat:
    """Return the first heartbeat from now on that holds."""
    return next(heartbeat for heartbeat in node.heartbeats() if holds(heartbeat))


def test_the_agent_reports_a_stopped_rank_without_waiting_for_a_heartbeat(
    make_node: Callable[..., Node],
) -> None:
    """With heartbeats a minute apart, the agent reports a rank in state T, by number, once its limit has passed."""
    node = make_node(heartbeat_seconds=60.0, heartbeat_timeout_seconds=200.0, stopped_seconds=0.5)
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    first(node, lambda heartbeat: heartbeat.ranks_alive == (0, 1))
    stopped_at = time.monotonic()
    os.kill(pids[1], signal.SIGSTOP)
    heartbeat = first(node, lambda heartbeat: bool(heartbeat.ranks_stopped))
    after_seconds = time.monotonic() - stopped_at
    print(f"SIGSTOP to the heartbeat that reports it: {after_seconds:.3f} s, limit 0.5 s")
    assert heartbeat.ranks_stopped == (1,)
    assert after_seconds >= 0.5 - POLL_SECONDS / 2


def test_the_agent_does_not_report_a_rank_that_resumes_in_time(
    make_node: Callable[..., Node],
) -> None:
    """A rank stopped for less than the limit, several times, is never in a heartbeat as stopped."""
    node = make_node(heartbeat_seconds=0.1, stopped_seconds=30.0)
    node.start_agent()
    pids = node.launch(node.plan(REPORTER, {}), generation=1)
    for _ in range(3):
        os.kill(pids[0], signal.SIGSTOP)
        wait_until(lambda: state_of(pids[0]) == "T", "state T")
        heartbeats = node.heartbeats()
        seen = [next(heartbeats) for _ in range(4)]
        os.kill(pids[0], signal.SIGCONT)
        assert [heartbeat.ranks_stopped for heartbeat in seen] == [()] * 4
    before = first(node, lambda heartbeat: heartbeat.last_step is not None).last_step or 0
    first(node, lambda heartbeat: (heartbeat.last_step or 0) > before)


def test_the_agent_does_not_report_a_rank_held_by_a_debugger_as_stopped(
    make_node: Callable[..., Node],
) -> None:
    """A rank in state t for longer than the limit is not reported: the debugger will resume it."""
    node = make_node(heartbeat_seconds=0.1, stopped_seconds=0.2)
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        if libc.ptrace(request, pids[0], None, None) != 0:
            pytest.skip(f"ptrace is not allowed here: {os.strerror(ctypes.get_errno())}")
    wait_until(lambda: state_of(pids[0]) == "t", "state t")
    heartbeats = node.heartbeats()
    assert [next(heartbeats).ranks_stopped for _ in range(8)] == [()] * 8
    libc.ptrace(PTRACE_DETACH, pids[0], None, None)


def test_what_ranks_write_is_counted_while_they_report_no_steps(node: Node) -> None:
    """The count of writes rises with the output of a script without a client, and stays when the output stops."""
    node.start_agent()
    pids = node.launch(node.plan(WRITER, ranks_per_node=1), generation=1)
    early = first(node, lambda heartbeat: heartbeat.num_writes > 0)
    first(node, lambda heartbeat: heartbeat.num_writes > early.num_writes + 3)
    os.kill(pids[0], signal.SIGSTOP)
    heartbeats = node.heartbeats()
    stopped = next(heartbeat for heartbeat in heartbeats if heartbeat.ranks_stopped)
    assert [next(heartbeats).num_writes for _ in range(4)] == [stopped.num_writes] * 4


def test_ranks_that_report_steps_are_not_judged_by_what_they_write(node: Node) -> None:
    """Once a rank has reported a step, the agent no longer checks its files."""
    script = REPORTER.replace('emit(kind="step"', 'print(step, flush=True); emit(kind="step"')
    node.start_agent()
    node.launch(node.plan(script, {}), generation=1)
    early = first(node, lambda heartbeat: heartbeat.last_step is not None)
    assert (
        first(node, lambda heartbeat: (heartbeat.last_step or 0) > 10).num_writes
        <= early.num_writes + 1
    )


def test_stacks_are_written_down_before_ranks_that_hang_are_killed(node: Node) -> None:
    """Before it kills idle ranks the agent writes one stack file for each and reports their number; no rank survives."""
    node.start_agent()
    plan = node.plan(SILENT)
    pids = node.launch(plan, generation=1)
    wait_until(lambda: all(state_of(pid) == "S" for pid in pids.values()), "ranks asleep")
    os.kill(pids[0], signal.SIGSTOP)
    wait_until(lambda: state_of(pids[0]) == "T", "state T")
    idle = Assignment(node=node.name, generation=2, attempt=plan.attempt, stacks_seconds=10.0)
    began = time.monotonic()
    node.store.put(f"assignment/{node.name}", encode(idle))
    gone = node.wait_for("RanksTerminated")
    print(f"idle with stacks to ranks gone: {time.monotonic() - began:.3f} s")
    assert (gone.num_stacks, gone.left_behind) == (2, ())
    output = [
        (Path(plan.output_folder) / "stacks" / f"rank{rank}.txt").read_text() for rank in (0, 1)
    ]
    assert ", state T" in output[0]
    assert all("<module> (<string>:1)" in text for text in output), output
    assert not any(is_alive(pid) for pid in pids.values())


def test_a_folder_that_takes_no_stacks_delays_nothing(node: Node) -> None:
    """Where nothing can be written, ranks are killed all the same, and no stacks are claimed."""
    node.start_agent()
    plan = node.plan(SILENT)
    pids = node.launch(plan, generation=1)
    (Path(plan.output_folder) / "stacks").write_text("a file in the way")
    idle = Assignment(node=node.name, generation=2, attempt=plan.attempt, stacks_seconds=10.0)
    node.store.put(f"assignment/{node.name}", encode(idle))
    assert node.wait_for("RanksTerminated").num_stacks == 0
    assert not any(is_alive(pid) for pid in pids.values())
