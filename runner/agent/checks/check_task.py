"""The task `check`: runs the health checks of this node as a child with a deadline, one task at a time."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, Any

from runner.agent import tasks
from runner.agent.event_loop import EventLoop
from runner.agent.launch.rank_commands import base_environment
from runner.errors import TemporaryError
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task
from runner.keeper.procfs import kill_group

log = logging.getLogger("stoker.agent")

PROGRAM = (sys.executable, "-P", "-m", "healthchecks")
# In one task; chosen.
MAX_CHECKS = 32
# Of the program; chosen: all its checks print less than a tenth.
MAX_OUTPUT_BYTES = 512 * 1024
# Of the answer's detail, which must fit a message with its other fields; chosen.
MAX_DETAIL_BYTES = 40 * 1024
# Characters of a reason.
MAX_REASON = 300
# Of a task's time: the checks share the first ratio, so that the program itself reports one that
# hangs; the program ends by the second, so that the answer comes before the deadline. Both chosen.
SHARED_RATIO, LAST_RATIO = 0.8, 0.95
OUTCOMES = ("PASS", "FAIL", "UNKNOWN")


class CheckRunner:
    """Runs the task `check`. `answer` is called on the loop."""

    def __init__(
        self, folder: Path, loop: EventLoop, answer: Callable[[ActionResult], None]
    ) -> None:
        """`folder`: of the node, whose disk is checked."""
        self._folder = folder
        self._loop = loop
        self._answer = answer
        self._task: Task | None = None
        # Of the two below, so that no child is started after `end`.
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._is_closed = False

    def begin(self, task: Task) -> None:
        """Start a task; its answer follows, at once if it is refused."""
        names = task.args.get("checks")
        if self._task is not None:
            if self._task.id != task.id:
                reason = f"check task {self._task.id} is under way here; ask again"
                self._answer(tasks.result(task, "failed", reason))
            return
        names = tuple(names) if isinstance(names, list | tuple) else ()
        if not 0 < len(names) <= MAX_CHECKS or not all(isinstance(name, str) for name in names):
            reason = f"checks: {str(task.args.get('checks'))[:80]!r} is no list of 1 to {MAX_CHECKS} names"
            self._answer(tasks.result(task, "failed", reason))
            return
        self._task = task
        self._loop.in_background(partial(self._run, task, names), partial(self._done, task))

    def end(self) -> None:
        """Kill the running checks, and start no more."""
        with self._lock:
            self._is_closed = True
            if self._child is not None:
                _kill(self._child)

    def _done(self, task: Task, detail: dict[str, Any] | None, error: Exception | None) -> None:
        self._task = None
        if detail is None:
            self._answer(tasks.result(task, "failed", f"cannot check: {error}"[: 2 * MAX_REASON]))
        else:
            self._answer(tasks.result(task, "done", detail["outcome"], detail))

    def _run(self, task: Task, names: tuple[str, ...]) -> dict[str, Any]:
        """Run the program to its end or the deadline, on a thread; return the answer's detail."""
        deadline = time.monotonic() + LAST_RATIO * task.deadline_seconds
        command = [*PROGRAM, *(f"--check={name}" for name in names)]
        command += [f"--folder={self._folder}"]
        command += [f"--seconds={SHARED_RATIO * task.deadline_seconds / len(names):.3f}"]
        with self._lock:
            if self._is_closed:
                raise TemporaryError("the agent leaves")
            self._child = child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=base_environment(),
                start_new_session=True,
            )
        assert child.stdout is not None
        try:
            output, trouble = _read(child.stdout, deadline)
        finally:
            with self._lock:
                _kill(child)
                self._child = None
            child.stdout.close()
            child.wait()
        return _detail(output, trouble, names)


def _read(stream: IO[bytes], deadline: float) -> tuple[bytes, str]:
    """Return the output, and why it is incomplete, if so."""
    output = b""
    poll = select.poll()
    poll.register(stream, select.POLLIN | select.POLLHUP)
    while time.monotonic() < deadline:
        if poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                return output, ""
            output += chunk
        if len(output) > MAX_OUTPUT_BYTES:
            return output, f"the health checks printed more than {MAX_OUTPUT_BYTES} bytes"
    return output, "the health checks did not end in time, and were killed"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the program and its checks, which die with their parent."""
    if child.poll() is None:
        kill_group(child.pid)


def _detail(output: bytes, trouble: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return outcome and verdicts. A check that did not end is UNKNOWN, which is not healthy."""
    verdicts: list[dict[str, Any]] = []
    total, other = None, ""
    for line in output.splitlines():
        try:
            plain = json.loads(line)
            kind = plain["kind"]
        except (ValueError, LookupError, TypeError):
            other = line.decode(errors="replace")
            continue
        if kind == "check" and len(verdicts) < MAX_CHECKS:
            # A verdict may hold half of a surrogate pair, which no message can.
            text = json.dumps(plain, ensure_ascii=False).encode(errors="replace")
            verdicts.append(json.loads(text))
        elif kind == "overall":
            total = plain
    for name in names:
        if not any(verdict.get("check") == name for verdict in verdicts):
            reason = (trouble or other or "the health checks printed no verdict on it")[:MAX_REASON]
            verdicts.append({"check": name, "outcome": "UNKNOWN", "reason": reason})
    outcomes = [verdict.get("outcome") for verdict in verdicts]
    outcome = "UNKNOWN"
    if "FAIL" in outcomes:
        outcome = "FAIL"
    elif total is not None and all(each == "PASS" for each in outcomes):
        outcome = "PASS"
    return {"outcome": outcome, "checks": _cut(verdicts)}


def _cut(verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the verdicts, without their evidence if that would not fit a message."""
    if len(json.dumps(verdicts)) <= MAX_DETAIL_BYTES:
        return verdicts
    return [
        {
            "check": str(verdict.get("check"))[:MAX_REASON],
            "outcome": verdict.get("outcome") if verdict.get("outcome") in OUTCOMES else "UNKNOWN",
            "reason": str(verdict.get("reason", ""))[:MAX_REASON],
        }
        for verdict in verdicts
    ]
