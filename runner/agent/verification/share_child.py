"""The child that reads a share of a checkpoint (`runner.checkpoints.share_verification`): a pipe, one JSON object a line.

The agent never waits for it: it may hang in the kernel for as long as a file system does.
"""

import json
import logging
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.agent.event_loop import EventLoop
from runner.agent.launch.rank_commands import base_environment
from runner.facts.messages.assignments import Task
from runner.facts.specs.programs import module_command
from runner.keeper.procfs import kill_group

log = logging.getLogger("stoker.agent")

# -P: a file in the working folder must not pass for a module.
PROGRAM = module_command("runner.checkpoints.share_verification")
RECORD_NAME = "verified.jsonl"
# Chosen: a line has a path of at most 4 KB.
MAX_LINE_BYTES = 64 * 1024
MAX_REASON_CHARACTERS = 300
# For SIGKILL to take effect. Chosen, not measured.
KILL_SECONDS = 2.0


@dataclass(slots=True, kw_only=True)
class ShareChild:
    """One child, owned by the agent's loop. `on_line` gets its lines, `on_end(last_words)` is called once when its output ends."""

    loop: EventLoop
    process: "subprocess.Popen[bytes]"
    on_line: Callable[[dict[str, Any]], None]
    on_end: Callable[[str], None]
    # Of lines in the log that are no objects.
    title: str = "verification"
    _unfinished_line: bytes = b""
    _last_words: str = ""
    _closed_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether the process is gone; one that waits in the kernel lingers on after its SIGKILL."""
        return self.process.poll() is not None

    @property
    def hangs(self) -> bool:
        """Whether it was killed, and waits in the kernel all the same."""
        is_late = time.monotonic() > self._closed_at + KILL_SECONDS
        return self._closed_at > 0 and is_late and not self.has_ended

    def watch(self) -> None:
        """Begin to read its output."""
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        self.loop.watch(self.process.stdout.fileno(), self._on_readable)

    def kill(self) -> None:
        """Kill it, without waiting for its end, and read no more of it."""
        if self._closed_at:
            return
        self._closed_at = time.monotonic()
        assert self.process.stdout is not None
        self.loop.unwatch(self.process.stdout.fileno())
        self.process.stdout.close()
        if not self.has_ended:
            kill_group(self.process.pid)

    def _on_readable(self) -> None:
        assert self.process.stdout is not None
        try:
            data = os.read(self.process.stdout.fileno(), MAX_LINE_BYTES)
        except BlockingIOError:
            return
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        for line in lines:
            self._on_output(line)
            if self._closed_at:
                return
        if not data or len(self._unfinished_line) > MAX_LINE_BYTES:
            self.kill()
            self.on_end(self._last_words)

    def _on_output(self, line: bytes) -> None:
        """Pass on an object; anything else is what it wrote to its standard error."""
        try:
            plain = json.loads(line)
        except (ValueError, RecursionError):
            plain = None
        if isinstance(plain, dict):
            self.on_line(plain)
        else:
            self._last_words = line.decode(errors="replace")[:MAX_REASON_CHARACTERS]
            log.info("%s: %s", self.title, self._last_words)


def start_child(folder: Path, task: Task, *, wait_seconds: float, confirm_seconds: float) -> Any:
    """Start the process that reads the share of a task; its record is in `folder`, the node's. Raises OSError."""
    command = [
        *PROGRAM,
        f"--manifest={task.args['manifest']}",
        f"--share={task.args['share']}",
        f"--shares={task.args['shares']}",
        f"--record={folder / RECORD_NAME}",
        f"--wait-seconds={wait_seconds:.3f}",
        f"--confirm-seconds={confirm_seconds:.3f}",
        f"--parent={os.getpid()}",
        "--",
        str(task.args["path"]),
    ]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=base_environment(),
        start_new_session=True,
    )
