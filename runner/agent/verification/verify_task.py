"""The task `verify`: one share at a time, the others wait; each is answered, by this agent instance or by a later one."""

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from runner.agent import tasks
from runner.agent.event_loop import EventLoop
from runner.agent.transport.session import SignalEmitter
from runner.agent.verification.open_tasks import load_tasks, save_tasks
from runner.agent.verification.share_child import RECORD_NAME, ShareChild, start_child
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task
from runner.facts.messages.signals import TaskProgressed

log = logging.getLogger("stoker.agent")

STATE_NAME = "verification.jsonl"
# All chosen, not measured. A supervisor asks a node for one share at a time; the rest is for runs that share the node.
MAX_OPEN = 4
MAX_ANSWERS = 8
PROGRESS_SECONDS = 20.0
# For a manifest to become visible: the longest time that NFS keeps what it knows of a folder by default (acdirmax).
MANIFEST_SECONDS = 60.0
# Of a task's time without progress, so that the child itself reports what it waited for.
MANIFEST_RATIO = 0.8
CONFIRM_SECONDS = 5.0
# A child that dies (no memory, an operator) is replaced, twice.
MAX_STARTS = 3
RESTART_SECONDS = 1.0
REAP_SECONDS = 0.05
MAX_SHARES = 1_000_000
MAX_PATH_CHARACTERS = 4096
MAX_REASON_CHARACTERS = 600
TIMERS = ("verification stall", "verification start")


@dataclass(slots=True, kw_only=True)
class VerifyRunner:
    """Owned by the agent's loop. `answer` sends an answer, durably; `folder` is the node's.

    A task whose child brings no byte within the task's `deadline_seconds` is given up.
    """

    folder: Path
    loop: EventLoop
    emitter: SignalEmitter
    answer: Callable[[ActionResult], None]
    progress_seconds: float = PROGRESS_SECONDS
    manifest_seconds: float = MANIFEST_SECONDS
    confirm_seconds: float = CONFIRM_SECONDS
    # The first is under way.
    _open: deque[Task] = field(default_factory=deque)
    _answers: deque[ActionResult] = field(default_factory=lambda: deque(maxlen=MAX_ANSWERS))
    _child: ShareChild | None = None
    # A killed child that waits for a file system lingers on.
    _killed: list[ShareChild] = field(default_factory=list)
    _num_starts: int = 0
    # Of the task under way: what its child reported last, and what was signalled last; -1: nothing.
    _done_bytes: int = -1
    _signalled_bytes: int = -1
    _signalled_at: float = 0.0
    _is_closed: bool = False

    def resume(self, answered: Collection[str]) -> list[ActionResult]:
        """Go on with what an earlier instance left open; return its last answers.

        `answered`: ids of tasks whose answers are on their way to the store.
        """
        open_tasks, answers = load_tasks(self.folder / STATE_NAME)
        self._answers.extend(answers)
        known = {*answered, *(each.id for each in answers)}
        self._open.extend([task for task in open_tasks if task.id not in known][:MAX_OPEN])
        self._start()
        return list(self._answers)

    def begin(self, task: Task) -> None:
        """Note a task, durably, and start it when its turn comes; one that is open already is left alone."""
        if any(each.id == task.id for each in self._open):
            return
        reason = _malformed(task)
        if not reason and len(self._open) >= MAX_OPEN:
            waiting = ", ".join(each.id for each in self._open)
            reason = f"{len(self._open)} verifications are open here ({waiting}); ask again"
        if reason:
            self.answer(_failed(task, reason))
            return
        self._open.append(task)
        self._save()
        self._start()

    def end(self, *, for_good: bool) -> None:
        """Kill the child, and start none any more. The open tasks are a later instance's, unless the agent leaves for good."""
        self._is_closed = True
        self._drop()
        if for_good and self._open:
            self._open.clear()
            self._save()

    def _start(self) -> None:
        """Start the child for the first of the open tasks, unless there is one."""
        if self._is_closed or self._child is not None or not self._open:
            return
        task = self._open[0]
        self._reap()
        if any(child.hangs for child in self._killed):
            pid = self._killed[0].process.pid
            reason = f"the reader before it, pid {pid}, is killed and has not ended: its file system hangs"
            self._finish(_failed(task, reason))
            return
        if self._killed:
            self._start_in(REAP_SECONDS)
            return
        self._num_starts += 1
        wait_seconds = min(self.manifest_seconds, MANIFEST_RATIO * task.deadline_seconds)
        try:
            process = start_child(
                self.folder, task, wait_seconds=wait_seconds, confirm_seconds=self.confirm_seconds
            )
        except OSError as error:
            self._finish(_failed(task, f"no process can be started: {error}"))
            return
        log.info("task %s: pid %d verifies a share of %s", task.id, process.pid, task.args["path"])
        self._child = ShareChild(
            loop=self.loop, process=process, on_line=self._on_line, on_end=self._on_death
        )
        self._child.watch()
        self._done_bytes = -1
        self._expect_progress(task)

    def _expect_progress(self, task: Task) -> None:
        at = time.monotonic() + task.deadline_seconds
        self.loop.at("verification stall", at, partial(self._on_stall, task))

    def _on_stall(self, task: Task) -> None:
        what = "nothing" if self._done_bytes < 0 else f"no byte after the first {self._done_bytes}"
        self._finish(_failed(task, f"{what} could be read for {task.deadline_seconds:g} s"))

    def _on_line(self, plain: dict[str, Any]) -> None:
        task = self._open[0]
        if plain.get("kind") == "result":
            self._finish(_result(task, plain))
        elif plain.get("kind") == "progress":
            self._on_progress(task, plain)

    def _on_progress(self, task: Task, counts: dict[str, Any]) -> None:
        now, done_bytes = time.monotonic(), counts["done_bytes"]
        if done_bytes > self._done_bytes:
            self._done_bytes = done_bytes
            self._expect_progress(task)
        is_due = self._signalled_bytes < 0 or now >= self._signalled_at + self.progress_seconds
        if is_due and done_bytes > self._signalled_bytes:
            self._signalled_at, self._signalled_bytes = now, done_bytes
            progress = TaskProgressed(
                **self.emitter.next_header(),
                id=task.id,
                done_bytes=done_bytes,
                total_bytes=counts["total_bytes"],
                done_files=counts["done_files"],
                total_files=counts["total_files"],
            )
            self.emitter.emit(progress)
            # Those that wait for it are not overdue while it advances.
            for waiting in list(self._open)[1:]:
                self.emitter.emit(TaskProgressed(**self.emitter.next_header(), id=waiting.id))

    def _on_death(self, last_words: str) -> None:
        """Replace a child that ended without a result, a few times: the next one goes on where it was."""
        task = self._open[0]
        self._drop()
        if self._num_starts < MAX_STARTS:
            log.warning(
                "task %s: its reader died (%s); it is replaced",
                task.id,
                last_words or "no reason given",
            )
            self._start_in(RESTART_SECONDS)
            return
        reason = f"the reader died {self._num_starts} times: {last_words or 'it was killed'}"
        self._finish(_failed(task, reason))

    def _finish(self, result: ActionResult) -> None:
        """Answer the task under way, and go on to the next."""
        self._drop()
        # Kill the agent here, and the next one answers a second time, which counts for nothing; the other way round, the answer
        # would be lost.
        self.answer(result)
        self._open.popleft()
        self._answers.append(result)
        self._num_starts, self._signalled_bytes = 0, -1
        self._save()
        if result.outcome == "done" or result.detail["damaged"]:
            # If the share is asked for again, every file is read again.
            with suppress(OSError):
                (self.folder / RECORD_NAME).unlink()
        self._start_in(0.0)

    def _start_in(self, seconds: float) -> None:
        self.loop.at("verification start", time.monotonic() + seconds, self._start)

    def _reap(self) -> None:
        self._killed = [child for child in self._killed if not child.has_ended]

    def _drop(self) -> None:
        """Kill the child, if there is one."""
        child, self._child = self._child, None
        for name in TIMERS:
            self.loop.cancel(name)
        if child is not None:
            child.kill()
            self._killed.append(child)
            self.loop.at("verification reap", time.monotonic() + RESTART_SECONDS, self._reap)

    def _save(self) -> None:
        save_tasks(self.folder / STATE_NAME, self._open, self._answers)


def _malformed(task: Task) -> str:
    """Return why the arguments of a task make no sense; "" if they do."""
    path, manifest = task.args.get("path"), task.args.get("manifest")
    share, shares = task.args.get("share"), task.args.get("shares")
    if not (isinstance(path, str) and path.startswith("/") and len(path) <= MAX_PATH_CHARACTERS):
        return f"path: {str(path)[:80]!r} is no absolute path"
    if "\0" in path:
        return f"path: {path[:80]!r} has a zero byte"
    if not (isinstance(manifest, str) and re.fullmatch("[0-9a-f]{64}", manifest)):
        return f"manifest: {str(manifest)[:80]!r} is no sha256 of 64 hexadecimal digits"
    if not (type(share) is type(shares) is int and 0 <= share < shares <= MAX_SHARES):
        return f"share: {str(share)[:20]} of {str(shares)[:20]} is none, counted from 0"
    return ""


def _result(task: Task, plain: dict[str, Any]) -> ActionResult:
    """Return the answer that a child's last line gives."""
    share = f"share {task.args['share'] + 1} of {task.args['shares']} of {task.args['path']}"
    if plain["outcome"] == "done":
        counts = {name: plain[name] for name in ("files", "size_bytes", "tensors")}
        findings = {
            name: str(plain[name])[:MAX_REASON_CHARACTERS] for name in ("uncovered", "not_finite")
        }
        detail = {**counts, **findings}
        message = f"{share}: {plain['files']} files, {plain['size_bytes']} bytes agree"
        return tasks.result(task, "done", message, detail)
    return _failed(task, str(plain["reason"]), damaged=plain["damaged"] is True)


def _failed(task: Task, reason: str, *, damaged: bool = False) -> ActionResult:
    return tasks.result(task, "failed", reason[:MAX_REASON_CHARACTERS], {"damaged": damaged})
