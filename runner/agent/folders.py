"""Folders that users name: their files are read and written on threads, so that a file system that hangs stops no agent.

Each mount has one thread for what takes moments and one for what may take long. A thread in a hung call cannot be ended, so what
else concerns that mount waits behind it or is refused: threads do not pile up. A call that is overdue is a finding, which names
the mount; once it returns, all goes on. The threads are daemons: an agent ends while one of them hangs.
"""

import collections
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from runner.agent import mounts
from runner.agent.event_loop import EventLoop
from runner.agent.mounts import Mount
from runner.errors import TemporaryError
from runner.facts.messages.signals import HungFolder
from runner.facts.wording import valid_text

log = logging.getLogger("stoker.agent")

# Since when a call is overdue. Chosen: disks under load take seconds, and a launch waits ten for the lock of a checkpoint folder.
OVERDUE_SECONDS = 12.0
CHECK_SECONDS = 1.0
# How long the loop itself waits for an answer. Chosen: such a turn does not count as late (`event_loop.LATE_SECONDS`).
ASK_SECONDS = 0.75
# Of threads; those that hang in a mount that is gone count, too. Chosen.
MAX_LANES = 8
# Calls that wait for a thread. Chosen.
MAX_WAITING = 32
IDLE_SECONDS = 60.0
# A table of mounts is read again after so long. Chosen.
MOUNTS_SECONDS = 10.0
# As the kernel has it (ELOOP).
MAX_LINKS = 40
MAX_FOLDERS = 256
# Of one path in a heartbeat; chosen.
MAX_PATH_CHARACTERS = 500

T = TypeVar("T")


class FolderHangs(TemporaryError):
    """A file system has not answered in time; the text names its mount and says what to do."""


@dataclass(slots=True, eq=False)
class _Call:
    """A call for a folder. `place`: the path it has got to; `running_seconds`: without progress, while the agent itself ran."""

    folder: str
    job: Callable[[], Any]
    future: "Future[Any]"
    place: str
    overdue_seconds: float
    began_at: float = 0.0
    progress_at: float = 0.0
    checked_at: float = 0.0
    running_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class _Lane:
    """A thread, and what waits for it."""

    mount: Mount
    is_long: bool
    new_call: threading.Condition
    waiting: collections.deque[_Call] = field(default_factory=collections.deque)
    running: _Call | None = None
    is_hung: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether another call would have to wait."""
        return self.running is not None or bool(self.waiting)


class Folders:
    """Runs calls on folders of users. Owned by the agent's loop; its threads only run the calls.

    `on_back` is called when a file system that hung answers again.
    """

    def __init__(self, loop: EventLoop) -> None:
        self.on_back: Callable[[], None] = lambda: None
        self._loop = loop
        self._lock = threading.Lock()
        self._lanes: list[_Lane] = []
        # Folder -> its path without links, once a thread has found it.
        self._resolved: dict[str, str] = {}
        self._mounts: list[Mount] = []
        self._mounts_read_at = -MOUNTS_SECONDS
        self._is_checking = self._is_closed = False
        self._number = 0
        self._current = threading.local()

    def run(
        self,
        folder: str,
        job: Callable[[], T],
        then: Callable[[T | None, Exception | None], None],
        *,
        wait_seconds: float | None = None,
        busy_seconds: float | None = None,
    ) -> None:
        """Run a job that touches files below `folder`, and call `then(result, error)` on the loop.

        After `wait_seconds` the error is FolderHangs, and what the job returns later is dropped; None: it may take for ever.
        `busy_seconds`: a job may take so much longer although its folder answers; None: it takes moments, or notes its progress.
        """
        try:
            call = self._submit(folder, job, busy_seconds)
        except FolderHangs as error:
            self._loop.post(partial(then, None, error))
            return
        self._number += 1
        timer = f"folder {self._number}"
        open_calls = [call]

        def finish(result: T | None, error: Exception | None) -> None:
            if open_calls:
                open_calls.clear()
                self._loop.cancel(timer)
                then(result, error)

        def on_late() -> None:
            call.future.cancel()
            finish(None, self._late(call, wait_seconds or 0.0))

        if wait_seconds is not None:
            self._loop.at(timer, time.monotonic() + wait_seconds, on_late)
        call.future.add_done_callback(partial(self._post_result, finish))

    def poll(
        self,
        folder: str,
        job: Callable[[], T],
        then: Callable[[T | None, Exception | None], None],
        *,
        busy_seconds: float | None = None,
    ) -> None:
        """Run a job that comes again soon: not if its thread is busy."""
        lane = self._lane(folder, is_long=busy_seconds is not None)
        if lane is None or not lane.is_busy:
            self.run(folder, job, then, busy_seconds=busy_seconds)

    def ask(self, folder: str, job: Callable[[], T]) -> T:
        """Return what a job returns, which takes moments; the loop waits for ASK_SECONDS at most. Raises FolderHangs too."""
        call = self._submit(folder, job, None)
        lane = self._lane(folder, is_long=False)
        ahead = lane.running if lane is not None else None
        # Several calls in a row must not add up.
        is_stuck = ahead is not call and _age(ahead) > ASK_SECONDS
        try:
            result: T = call.future.result(0.0 if is_stuck else ASK_SECONDS)
        except TimeoutError as error:
            if call.future.cancel() or not call.future.done():
                raise self._late(call, ASK_SECONDS) from error
            # The job raised it, or has just ended.
            result = call.future.result()
        return result

    def note_progress(self) -> None:
        """A job's own thread reports that its long work goes on."""
        call = getattr(self._current, "call", None)
        if call is not None:
            call.progress_at = time.monotonic()

    def is_hung(self, folder: str) -> bool:
        """Whether the file system of a folder is overdue with an answer."""
        mount = self._mount(folder)
        return any(lane.is_hung and lane.mount.number == mount.number for lane in self._lanes)

    def hung(self) -> tuple[HungFolder, ...]:
        """Return the file systems that hang, one for each mount; not those that were unmounted meanwhile."""
        lanes = [lane for lane in self._lanes if lane.is_hung and lane.running is not None]
        if not lanes:
            return ()
        present = [mount.number for mount in self._read_mounts(is_new=True)]
        found: dict[int, HungFolder] = {}
        for lane in sorted(lanes, key=_lane_age, reverse=True):
            mount, call = lane.mount, lane.running
            if call is not None and mount.number in present:
                found.setdefault(
                    mount.number,
                    HungFolder(
                        folder=valid_text(call.place)[:MAX_PATH_CHARACTERS],
                        mount=mount.point[:MAX_PATH_CHARACTERS],
                        file_system=mount.file_system,
                        source=mount.source,
                        seconds=round(_age(call), 1),
                    ),
                )
        return tuple(found.values())

    def close(self) -> None:
        """End the threads that are idle; those that hang end with the process."""
        self._loop.cancel("folders")
        with self._lock:
            self._is_closed = True
            for lane in self._lanes:
                lane.new_call.notify()

    def _submit(self, folder: str, job: Callable[[], Any], busy_seconds: float | None) -> _Call:
        folder, is_long = os.path.abspath(folder), busy_seconds is not None
        overdue_seconds = OVERDUE_SECONDS + (busy_seconds or 0.0)
        call = _Call(folder, job, Future(), place=folder, overdue_seconds=overdue_seconds)
        lane = self._lane(folder, is_long=is_long)
        if lane is None and len(self._lanes) >= MAX_LANES:
            hung = "; ".join(dict.fromkeys(str(each.mount) for each in self._lanes))
            raise FolderHangs(f"{MAX_LANES} file systems hang: {hung}; {folder} is not tried")
        if lane is not None and len(lane.waiting) >= MAX_WAITING:
            raise self._late(call, 0.0)
        with self._lock:
            if lane is not None and lane in self._lanes:
                lane.waiting.append(call)
                lane.new_call.notify()
            else:
                self._start(call, is_long=is_long)
        if not self._is_checking:
            self._is_checking = True
            self._loop.at("folders", time.monotonic() + CHECK_SECONDS, self._check)
        return call

    def _start(self, call: _Call, *, is_long: bool) -> None:
        lane = _Lane(self._mount(call.folder), is_long, threading.Condition(self._lock))
        lane.waiting.append(call)
        self._lanes.append(lane)
        threading.Thread(
            target=self._serve, args=(lane,), daemon=True, name="stoker-folder"
        ).start()

    def _lane(self, folder: str, *, is_long: bool) -> _Lane | None:
        number = self._mount(os.path.abspath(folder)).number
        alike = (
            lane for lane in self._lanes if lane.is_long == is_long and lane.mount.number == number
        )
        return next(alike, None)

    def _mount(self, folder: str) -> Mount:
        """Return the mount of a folder; of one whose links no thread has followed yet, that of its name."""
        return mounts.mount_of(self._resolved.get(folder, folder), self._read_mounts())

    def _read_mounts(self, *, is_new: bool = False) -> list[Mount]:
        now = time.monotonic()
        if is_new or now >= self._mounts_read_at + MOUNTS_SECONDS:
            self._mounts, self._mounts_read_at = mounts.read_mounts(), now
        return self._mounts

    def _late(self, call: _Call, seconds: float) -> FolderHangs:
        mount = mounts.mount_of(call.place, self._read_mounts(is_new=True))
        return FolderHangs(
            f"{mount} has not answered for {seconds:g} s, asked for {call.place}: "
            f"look at its server, network or disk; all goes on once it answers"
        )

    # -- the loop's watch over the threads

    def _check(self) -> None:
        """Find calls that are overdue. Only time in which this loop runs counts: a stopped agent finds nothing."""
        now = time.monotonic()
        self._is_checking = any(lane.is_busy for lane in self._lanes)
        if self._is_checking:
            self._loop.at("folders", now + CHECK_SECONDS, self._check)
        for lane in list(self._lanes):
            call = lane.running
            if call is None:
                continue
            progress_at = call.progress_at
            if progress_at > call.checked_at:
                call.running_seconds, call.checked_at = 0.0, progress_at
            call.running_seconds += min(now - call.checked_at, 2 * CHECK_SECONDS)
            call.checked_at = now
            if call.running_seconds >= call.overdue_seconds and not lane.is_hung:
                self._on_overdue(lane, call)

    def _on_overdue(self, lane: _Lane, call: _Call) -> None:
        lane.is_hung = True
        # A link may have led to another mount.
        lane.mount = mounts.mount_of(call.place, self._read_mounts(is_new=True))
        log.warning(
            "%s has not answered for %.0f s, asked for %s; ranks and heartbeats go on",
            lane.mount,
            _age(call),
            call.place,
        )
        with self._lock:
            others = [each for each in lane.waiting if self._mount(each.folder) != lane.mount]
            lane.waiting = collections.deque(each for each in lane.waiting if each not in others)
            for each in others:
                self._place_again(each, is_long=lane.is_long)

    def _place_again(self, call: _Call, *, is_long: bool) -> None:
        lane = self._lane(call.folder, is_long=is_long)
        if lane is not None:
            lane.waiting.append(call)
            lane.new_call.notify()
        elif len(self._lanes) < MAX_LANES:
            self._start(call, is_long=is_long)
        else:
            call.future.set_exception(self._late(call, 0.0))

    def _post_result(self, finish: Callable[[Any, Exception | None], None], future: Any) -> None:
        if future.cancelled():
            return
        error = future.exception()
        result = None if error is not None else future.result()
        self._loop.post(partial(finish, result, error))

    def _on_answered(self, lane: _Lane, call: _Call) -> None:
        log.warning("%s answers again, after %.0f s", lane.mount, _age(call))
        self.on_back()

    # -- the threads

    def _serve(self, lane: _Lane) -> None:
        for call in self._calls(lane):
            self._current.call = call
            if call.future.set_running_or_notify_cancel():
                try:
                    self._resolve(call)
                    result = call.job()
                except Exception as error:  # noqa: BLE001  a bulkhead: `then` reports it
                    call.future.set_exception(error)
                else:
                    call.future.set_result(result)

    def _calls(self, lane: _Lane) -> Iterator[_Call]:
        """Give the calls of a lane as they come, until it was idle for long."""
        while True:
            with self._lock:
                done, lane.running = lane.running, None
                was_hung, lane.is_hung = lane.is_hung, False
                if done is not None and was_hung:
                    self._loop.post(partial(self._on_answered, lane, done))
                while not lane.waiting:
                    is_idle = self._is_closed or not lane.new_call.wait(IDLE_SECONDS)
                    if is_idle and not lane.waiting:
                        self._lanes.remove(lane)
                        return
                call = lane.waiting.popleft()
                call.began_at = call.progress_at = time.monotonic()
                lane.running = call
            yield call

    def _resolve(self, call: _Call) -> None:
        """Follow the links of a call's folder, and write down each place before it is asked: it may hang there."""
        if call.folder in self._resolved:
            call.place = self._resolved[call.folder]
            return
        left = collections.deque(call.folder.split("/"))
        path, num_links = "/", 0
        while left and num_links < MAX_LINKS:
            name = left.popleft()
            if name in ("", "."):
                continue
            if name == "..":
                path = os.path.dirname(path)
                continue
            call.place = os.path.join(path, name)
            target = mounts.link_target(call.place)
            if target is None:
                path = call.place
                continue
            num_links += 1
            path = "/" if target.startswith("/") else path
            left.extendleft(reversed(target.split("/")))
        call.place = path
        if len(self._resolved) >= MAX_FOLDERS:
            self._resolved.clear()
        self._resolved[call.folder] = path


def _age(call: _Call | None) -> float:
    return time.monotonic() - call.began_at if call is not None else 0.0


def _lane_age(lane: _Lane) -> float:
    return _age(lane.running)
