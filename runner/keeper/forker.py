"""Forking ranks: the keeper's one warm process, and the one job that it works on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from selectors import EVENT_READ, BaseSelector

from runner.keeper.protocol import Message
from runner.keeper.rank import Rank
from runner.keeper.warm_process import FORK_SECONDS, ForkJob, WarmProcess


class Forker:
    """Owns the warm process. `emit` sends a message to the agent; `on_forked` gets the ranks of a job.

    `on_not_forked(request, reason)` gets a spawn request whose ranks are to be started as fresh processes.
    """

    def __init__(
        self,
        folder: str,
        selector: BaseSelector,
        *,
        emit: Callable[[Message], None],
        on_forked: Callable[[list[Rank]], None],
        on_not_forked: Callable[[Message, str], None],
    ) -> None:
        self._folder = folder
        self._selector = selector
        self._emit = emit
        self._on_forked = on_forked
        self._on_not_forked = on_not_forked
        self._warm: WarmProcess | None = None
        self._unreaped: dict[int, WarmProcess] = {}
        self._job: ForkJob | None = None

    @property
    def deadline(self) -> float | None:
        """Monotonic seconds until which the current job must be done; None without a job."""
        return self._job.deadline if self._job is not None else None

    @property
    def has_unreaped(self) -> bool:
        """Whether a warm process is still to be reaped."""
        return bool(self._unreaped)

    def preload(self, request: Message) -> None:
        """Have the warm process that is requested, and no other; an empty request wants none."""
        warm = self._warm
        if warm is not None and warm.request == request and warm.state != "dead":
            self._emit(warm.as_message())
            return
        self.stop()
        if not request:
            return
        try:
            self._warm = warm = WarmProcess(request, self._folder)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = f"cannot start {request['interpreter'][0]!r} to warm it up: {error}"
            state = {"state": "dead", "reason": reason, "pid": 0, "versions": {}}
            self._emit({"kind": "warm", "request": request, **state})
            return
        self._unreaped[warm.pid] = warm
        self._selector.register(warm.stream, EVENT_READ, lambda: self._read(warm))

    def stop(self) -> None:
        """End the warm process; a job that it works on is spawned."""
        warm, self._warm = self._warm, None
        if warm is not None:
            self._disconnect(warm)
            self._refuse("the warm process was ended")

    def fork(self, request: Message) -> None:
        """Have ranks forked, or handed to `on_not_forked`. Raises OSError when their files cannot be opened."""
        warm = self._warm
        if warm is None:
            self._on_not_forked(request, "there is no warm process")
            return
        if warm.state != "ready":
            self._on_not_forked(request, warm.reason)
            return
        if warm.request.get("user") != request.get("user"):
            self._on_not_forked(request, "the warm process is of another user")
            return
        self._job = job = ForkJob(request)
        try:
            job.send(warm)
        except OSError as error:
            self._refuse(f"the warm process cannot be asked: {error}")

    def cancel(self) -> bool:
        """Cancel the job, whose ranks have run nothing yet; return whether there was one."""
        job, self._job = self._job, None
        if job is not None:
            job.cancel()
        return job is not None

    def check_deadline(self, now: float) -> None:
        """Give up on a warm process that does not fork in time."""
        if self._job is not None and now >= self._job.deadline:
            self._reap(f"the warm process did not fork within {FORK_SECONDS:g} s")

    def before_reap(self, pid: int) -> None:
        """Kill what a warm process that has exited started: its process group is its own until it is reaped."""
        warm = self._unreaped.pop(pid, None)
        if warm is not None:
            warm.kill()
            warm.is_reaped = True

    def _read(self, warm: WarmProcess) -> None:
        message = warm.receive() if warm is self._warm else None
        # It was replaced in this very turn, or there is nothing yet.
        if message is None:
            return
        kind = message.get("kind")
        if kind in ("ready", "odd"):
            warm.state, warm.reason = kind, message.get("reason", "")
            warm.versions = message.get("versions", {})
            self._emit(warm.as_message())
        elif kind == "refused":
            if self._job is not None and message["job"] == self._job.id:
                self._refuse(message["reason"])
            # Its imports are not what a fresh process would import: another one is to be made.
            self._reap(message["reason"])
        elif kind == "forked":
            self._release(message)
        elif warm.state == "odd":
            # It has ended, as it does after that message.
            self._disconnect(warm)
        else:
            self._reap("the warm process died")

    def _release(self, message: Message) -> None:
        job = self._job
        # Its job may have been cancelled meanwhile.
        if job is None or message["job"] != job.id:
            return
        self._job = None
        try:
            ranks = job.release(message["pids"])
        except OSError as error:
            self._on_not_forked(job.request, f"a forked rank died before it ran: {error}")
            return
        self._on_forked(ranks)

    def _reap(self, reason: str) -> None:
        warm = self._warm
        if warm is None or warm.state == "dead":
            return
        warm.state, warm.reason = "dead", reason
        self._disconnect(warm)
        self._emit(warm.as_message())
        self._refuse(reason)

    def _disconnect(self, warm: WarmProcess) -> None:
        if warm.stream.fileno() >= 0:
            self._selector.unregister(warm.stream)
        warm.close()

    def _refuse(self, reason: str) -> None:
        job = self._job
        if job is not None:
            self.cancel()
            self._on_not_forked(job.request, reason)
