"""A child that only waits for a processor is distinguished from one that hangs, is stopped or loops."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import pytest

from runner.agent.logs.processor_share import ProcessorShare
from runner.keeper.procfs import read_process
from tests.agent.node import wait_until

pytestmark = pytest.mark.e2e
LOOP = "while True: pass"


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Give a list of children, which are ended."""
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        child.kill()
        child.communicate()


def started(children: list[subprocess.Popen[bytes]], program: str, *, is_idle: bool = False) -> int:
    """Start a program on the first processor; return its pid. `is_idle`: it runs where nothing else wants to."""
    # What it prints, it prints once nothing but its last statement is left.
    child = subprocess.Popen([sys.executable, "-uc", program], stdout=subprocess.PIPE)
    children.append(child)
    os.sched_setaffinity(child.pid, {min(os.sched_getaffinity(0))})
    if is_idle:
        os.sched_setscheduler(child.pid, os.SCHED_IDLE, os.sched_param(0))
    if "print" in program:
        assert child.stdout is not None
        child.stdout.readline()
    return child.pid


def is_in_state(pid: int, state: str) -> bool:
    """Whether the kernel shows a process in a state of proc(5)."""
    process = read_process(pid)
    return process is not None and process.state == state


def test_a_child_that_others_leave_no_processor_is_starved(
    children: list[subprocess.Popen[bytes]],
) -> None:
    """It is ready to run; once the others are gone it runs, and is not starved whatever it does."""
    pid = started(children, LOOP, is_idle=True)
    started(children, LOOP)
    share = ProcessorShare(pid)
    time.sleep(0.5)
    assert share.is_starved()


def test_a_child_that_waits_or_is_stopped_is_not_starved(
    children: list[subprocess.Popen[bytes]],
) -> None:
    """Nothing keeps it from running but itself."""
    waiting = started(children, "import signal; print(); signal.pause()")
    stopped = started(children, LOOP)
    os.kill(stopped, signal.SIGSTOP)
    shares = [ProcessorShare(waiting), ProcessorShare(stopped)]
    for pid, state in ((waiting, "S"), (stopped, "T")):
        wait_until(partial(is_in_state, pid, state), f"the state {state}")
    for _ in range(100):
        assert [share.is_starved() for share in shares] == [False, False]


def test_a_child_that_loops_alone_is_not_starved(children: list[subprocess.Popen[bytes]]) -> None:
    """It has most of a processor as soon as the machine gives it one, if only for a moment."""
    share = ProcessorShare(started(children, LOOP))
    wait_until(lambda: not share.is_starved(), "a turn of it")


def test_a_child_that_is_gone_is_not_starved(children: list[subprocess.Popen[bytes]]) -> None:
    """Its end is noticed elsewhere."""
    share = ProcessorShare(started(children, "pass"))
    children[0].wait()
    assert not share.is_starved()
