"""`python -m runner.collect [--nice=N]`: the log reader of an agent. It reads requests from its standard input and writes
answers to its standard output.

It is a process of low priority, so hostile text harms it alone, and no restart of ranks waits for it. It ends with its agent.
"""

import os
import select
import sys
import time
from pathlib import Path

from runner.collect.end_search import end_of_file, search_ends
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.tails.followed_logs import UNCHANGED_SECONDS
from runner.collect.tails.follower import Follower
from runner.errors import UserError
from runner.facts import wire
from runner.facts.matches import ScannedLogs
from runner.facts.messages.log_search import (
    FollowReport,
    FollowRequest,
    ReadAllRequest,
    ReadAllResult,
    ReaderReady,
    SearchRequest,
    SearchResult,
)

# All chosen. Shortest time between two polls: a line reaches the journal within 0.1 s.
POLL_SECONDS = 0.05
# A request names every log of a node.
MAX_REQUEST_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1 << 20


class LogReader:
    """Handles requests one after the other, and follows logs in between."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._follower: Follower | None = None
        self._polled_at = 0.0
        self._is_ready = False

    def serve(self) -> None:
        """Serve until standard input ends."""
        rest = b""
        while True:
            if self._wait():
                data = os.read(0, _READ_BYTES)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._handle(wire.decode(line, limit_bytes=MAX_REQUEST_BYTES))
            follower, now = self._follower, time.monotonic()
            if follower is not None and now >= self._polled_at + POLL_SECONDS:
                self._polled_at = now
                for report in follower.poll(now):
                    _send(report)

    def _wait(self) -> bool:
        """Wait for a request, or until the next poll is due; return whether there is a request."""
        follower = self._follower
        if follower is None:
            return bool(select.select([0], [], [])[0])
        # A flood does not shorten the time between two polls.
        soon = max(0.0, self._polled_at + POLL_SECONDS - time.monotonic())
        if select.select([0], [], [], soon)[0]:
            return True
        if follower.is_behind:
            return False
        wait_seconds = UNCHANGED_SECONDS if follower.wakers else 0.0
        return 0 in select.select([0, *follower.wakers], [], [], wait_seconds)[0]

    def _handle(self, request: object) -> None:
        if isinstance(request, SearchRequest):
            _send(SearchResult(number=request.number, found=self._search(request)))
        elif isinstance(request, FollowRequest):
            self._follow(request)
        elif isinstance(request, ReadAllRequest):
            if self._follower is not None and self._follower.gang == request.gang:
                for report in self._follower.read_all(time.monotonic()):
                    _send(report)
            _send(ReadAllResult(number=request.number))
        if not self._is_ready:
            self._is_ready = True
            _send(ReaderReady())

    def _follow(self, request: FollowRequest) -> None:
        if self._follower is not None:
            # A busy machine may not have let it look since the last line, which says why a gang ended.
            for report in self._follower.poll(time.monotonic()):
                _send(report)
            self._follower.close()
        self._follower = None
        if not (request.files or request.kernel_log):
            # What the next request most likely needs, and takes a while to load.
            self._engine_for(request.metric_pattern)
            return
        try:
            self._follower = Follower(request, self._engine_for(request.metric_pattern))
        except (UserError, OSError) as error:
            _send(FollowReport(gang=request.gang, trouble=f"no log is followed: {error}"))

    def _search(self, request: SearchRequest) -> ScannedLogs:
        engine = self._engine_for(request.metric_pattern)
        ends = [end_of_file(Path(name), rank) for name, rank in request.files.items()]
        return search_ends(ends, engine, own_format=request.metric_pattern or None)

    def _engine_for(self, metric_pattern: str) -> Engine | None:
        """Return the engine of all known formats, made once; None: an own pattern needs one of its own."""
        if metric_pattern:
            return None
        self._engine = self._engine or engine_for()
        return self._engine


def _send(message: object) -> None:
    data = wire.encode(message) + b"\n"
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    # Once all is imported: before, it would take a busy machine minutes.
    os.nice(int(sys.argv[1].partition("=")[2]) if sys.argv[1:] else 0)
    try:
        LogReader().serve()
    except (BrokenPipeError, KeyboardInterrupt):
        # Its agent has ended.
        pass
