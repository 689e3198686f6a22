"""The program of a task: a child with a session of its own and a deadline, one at a time on a node, which gives way to ranks."""

import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from runner.agent import tasks
from runner.agent.event_loop import EventLoop, is_ready
from runner.agent.launch.rank_commands import base_environment
from runner.errors import TemporaryError
from runner.facts.actions import ActionResult, UnderWay
from runner.facts.messages.assignments import Task
from runner.keeper.procfs import kill_group

# Chosen, not measured. All checks print less than a tenth of the output allowed.
MAX_OUTPUT_BYTES = 512 * 1024
MAX_REASON_CHARACTERS = 300
# Chosen. Of a task's time: the program ends by then, so that the answer comes before the deadline.
LAST_RATIO = 0.95
# What runs, by the kind of its task.
NAMES = {"check": "the checks", "measure": "the measurement"}

# What becomes of the program's output: the answer, from all that it printed and why that is incomplete, if so.
ReadOutput = Callable[[bytes, str], ActionResult]


@dataclass(slots=True)
class TaskProgram:
    """Runs the program of one task after the other. `answer` is called on the loop; the program starts in `folder`."""

    folder: Path
    loop: EventLoop
    answer: Callable[[ActionResult], None]
    _task: Task | None = None
    # By the monotonic clock: when the program is killed.
    _ends_at: float = 0.0
    # Later ones that ask for the same.
    _joined: list[Task] = field(default_factory=list)
    # Of the two below, so that no child is started after `end`.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _child: "subprocess.Popen[bytes] | None" = None
    _is_closed: bool = False
    # Ranks are to start here.
    _gives_way: bool = False

    def begin(self, task: Task, command: Sequence[str], read: ReadOutput) -> None:
        """Start the program of a task; its answer follows, at once if another one is under way: the supervisor then asks again.

        One that asks for the same as the one under way gets its outcome, too: a supervisor that gave a task up with the agent that
        had it orders it again, while the next agent finds both.
        """
        if self._task is None:
            self._task, self._gives_way = task, False
            self._ends_at = time.monotonic() + LAST_RATIO * task.deadline_seconds
            done = partial(self._done, task)
            self.loop.in_background(partial(self._run, task, command, read), done)
        elif task.id in [each.id for each in (self._task, *self._joined)]:
            return
        elif (task.task, task.args) == (self._task.task, self._task.args):
            self._joined.append(task)
        else:
            other = UnderWay(self._task.id, max(0.0, self._ends_at - time.monotonic()))
            reason = f"{self._task.task} task {self._task.id} is under way here; ask again"
            self.answer(tasks.result(task, "failed", reason, other.detail))

    def give_way(self) -> None:
        """End the program, since ranks are to start; its task has no result. A look beside that start goes on."""
        if self._task is not None and not self._task.args.get("beside"):
            self._gives_way = True
            with self._lock:
                if self._child is not None:
                    _kill(self._child)

    def end(self) -> None:
        """Kill the program, and start no more."""
        with self._lock:
            self._is_closed = True
            if self._child is not None:
                _kill(self._child)

    def _done(self, task: Task, result: ActionResult | None, error: Exception | None) -> None:
        joined, self._task, self._joined = self._joined, None, []
        if self._gives_way:
            result = tasks.result(
                task, "failed", f"{NAMES[task.task]} gave way: ranks are to start"
            )
        elif result is None:
            reason = f"cannot {task.task}: {error}"[: 2 * MAX_REASON_CHARACTERS]
            result = tasks.result(task, "failed", reason)
        for each in (task, *joined):
            self.answer(replace(result, id=each.id))

    def _run(self, task: Task, command: Sequence[str], read: ReadOutput) -> ActionResult:
        """Run the program to its end or the deadline, on a thread."""
        with self._lock:
            if self._is_closed or self._gives_way:
                raise TemporaryError(
                    "the agent leaves" if self._is_closed else "ranks are to start"
                )
            self._child = child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=base_environment(),
                start_new_session=True,
            )
        assert child.stdout is not None
        try:
            output, trouble = _read(child.stdout, self._ends_at)
        finally:
            with self._lock:
                _kill(child)
                self._child = None
            child.stdout.close()
            child.wait()
        return read(output, trouble)


def _read(stream: IO[bytes], deadline: float) -> tuple[bytes, str]:
    """Return the output, and why it is incomplete, if so."""
    output = b""
    while (left_seconds := deadline - time.monotonic()) > 0:
        if is_ready(stream, left_seconds):
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                return output, ""
            output += chunk
        if len(output) > MAX_OUTPUT_BYTES:
            return output, f"the program printed more than {MAX_OUTPUT_BYTES} bytes"
    return output, "the program did not end in time, and was killed"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the program and its own children, which die with their parent."""
    if child.poll() is None:
        kill_group(child.pid)
