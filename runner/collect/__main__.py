"""`python -m runner.collect`: reads the logs of a node's ranks for its agent, which talks to it over standard input and output.

A process of its own, of low priority: what hostile text does to it is done to nobody else, and nobody who restarts ranks waits for
it. It ends when its agent does.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path

from runner.collect.diagnosis import Diagnosis
from runner.collect.engines import Engine
from runner.collect.scan import engine_for
from runner.collect.tails.followed_logs import CALM_SECONDS
from runner.collect.tails.follower import Follower
from runner.errors import UserError
from runner.facts import wire
from runner.facts.matches import ScannedLogs
from runner.facts.messages.log_search import Follow, Followed, Search, Searched

# Between two looks at the logs; chosen: with the way to the journal, a line is there within a tenth of a second. Where the kernel
# tells of writes, as little as that; else that often.
LOOK_SECONDS = 0.05
MOST_BYTES = (
    4 * 1024 * 1024
    # of the end of each file; chosen: a cause stands near the end, or is too old to be one
)
# That are told, of all files together, and of each of them: thousands of nodes may speak of one death; chosen.
MOST_MATCHES, MOST_TEXT = 10, 300
# of a message, for what stands around it
SPARE_BYTES = 8 * 1024
# an order names every log of a node
MOST_ORDER_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1 << 20


class Searcher:
    """Does what it is asked for, one order after the other, and follows logs in between."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._follower: Follower | None = None
        self._looked_at = 0.0

    def serve(self) -> None:
        """Serve until standard input ends."""
        orders = b""
        while True:
            if self._is_told():
                data = os.read(0, _READ_BYTES)
                if not data:
                    return
                *lines, orders = (orders + data).split(b"\n")
                for line in lines:
                    self._obey(wire.decode(line, limit_bytes=MOST_ORDER_BYTES))
            follower, now = self._follower, time.monotonic()
            if follower is not None and now >= self._looked_at + LOOK_SECONDS:
                self._looked_at = now
                for word in follower.look(now):
                    _say(word)

    def _is_told(self) -> bool:
        """Wait for an order, or until it is time to look at the logs; return whether there is an order."""
        follower = self._follower
        if follower is None:
            return bool(select.select([0], [], [])[0])
        # However much is written, logs are not looked at more often than that.
        soon = max(0.0, self._looked_at + LOOK_SECONDS - time.monotonic())
        if select.select([0], [], [], soon)[0]:
            return True
        if follower.is_behind:
            return False
        wait_seconds = CALM_SECONDS if follower.wakers else 0.0
        return 0 in select.select([0, *follower.wakers], [], [], wait_seconds)[0]

    def _obey(self, order: object) -> None:
        if isinstance(order, Search):
            _say(Searched(number=order.number, found=self._search(order)))
        elif isinstance(order, Follow):
            if self._follower is not None:
                self._follower.close()
            self._follower = None
            if order.files or order.kernel_log:
                self._follow(order)

    def _follow(self, order: Follow) -> None:
        try:
            # The engine that searches for everything known is made once.
            engine = None if order.metric_pattern else self._usual()
            self._follower = Follower(order, engine)
        except (UserError, OSError) as error:
            _say(Followed(gang=order.gang, trouble=f"nothing is followed: {error}"))

    def _search(self, order: Search) -> ScannedLogs:
        own_format = order.metric_pattern or None
        diagnosis = Diagnosis(engine=None if own_format else self._usual(), own_format=own_format)
        for name, rank in order.files.items():
            _read_end(diagnosis, Path(name), rank)
        most = MOST_MATCHES
        found = diagnosis.scanned(most, text=MOST_TEXT)
        while len(wire.encode(found)) > wire.MAX_MESSAGE_BYTES - SPARE_BYTES and most:
            most //= 2
            found = diagnosis.scanned(most, text=MOST_TEXT)
        return found

    def _usual(self) -> Engine:
        if self._engine is None:
            self._engine = engine_for()
        return self._engine


def _read_end(diagnosis: Diagnosis, path: Path, rank: int) -> None:
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    # Lines are counted from where the search begins.
    part = f" (its last {MOST_BYTES >> 20} MB)" if size > MOST_BYTES else ""
    log = diagnosis.log(f"{path.name}{part}", rank=rank)
    try:
        with path.open("rb") as file:
            file.seek(max(0, size - MOST_BYTES))
            log.feed(file.read(MOST_BYTES))
    except OSError as error:
        sys.stderr.write(f"{path.name}: {error.strerror}\n")
    log.finish()


def _say(word: object) -> None:
    data = wire.encode(word) + b"\n"
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    try:
        Searcher().serve()
    except (BrokenPipeError, KeyboardInterrupt):
        # its agent has ended
        pass
