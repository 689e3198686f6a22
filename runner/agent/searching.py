"""Searching: the output of ranks that ended by themselves is searched for what is known, once they have ended.

A child of low priority does it (`python -m runner.collect`): the word that a rank died waits for nothing, and what hostile text
does to a search it does to no agent. What comes of it is told as a signal of its own.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial

from runner.agent import output
from runner.agent.gang import Gang
from runner.agent.loop import Loop
from runner.agent.voice import Voice
from runner.errors import WireError
from runner.facts import wire
from runner.facts.matches import ScannedLogs
from runner.facts.signals import LinesMatched

log = logging.getLogger("stoker.agent")

WAIT_SECONDS = 0.5  # after the first death of a gang, for those that die of it; chosen
LIMIT_SECONDS = 30.0  # for one search; far above what it takes; chosen
NICE = 10  # others restart ranks meanwhile


@dataclass(slots=True)
class _Due:
    """Ranks of one gang whose output is to be searched."""

    gang: Gang
    ranks: dict[int, None] = field(default_factory=dict)


class Searching:
    """Owned by the agent's loop."""

    def __init__(self, loop: Loop, voice: Voice) -> None:
        self._loop, self._voice = loop, voice
        self._due: _Due | None = None
        self._children: dict[int, subprocess.Popen[bytes]] = {}  # at work, by pid

    def ended(self, gang: Gang, rank: int) -> None:
        """Note that a rank ended by itself and should not have."""
        if self._due is None or self._due.gang is not gang:
            self._search()
            self._due = _Due(gang)
            self._loop.at("search", time.monotonic() + WAIT_SECONDS, self._search)
        self._due.ranks[rank] = None

    def close(self) -> None:
        """End what is under way: nobody will hear of it."""
        self._loop.cancel("search")
        for child in list(self._children.values()):
            child.kill()

    def _search(self) -> None:
        due, self._due = self._due, None
        if due is None:
            return
        files = [
            f"{rank}={path}"
            for rank in sorted(due.ranks)
            for path in output.paths(due.gang.plan.output_folder, rank)
        ]
        self._loop.in_background(partial(self._searched, files), partial(self._found, due.gang))

    def _found(self, gang: Gang, found: ScannedLogs | None, error: Exception | None) -> None:
        if error is not None:
            log.warning("cannot search the output of %s: %s", gang.attempt, error)
        elif found is not None and found.matches:
            self._voice.tell(
                LinesMatched(
                    **self._voice.stamp(),
                    epoch=gang.epoch,
                    attempt=gang.attempt,
                    matches=found.matches,
                    steps=found.steps,
                )
            )

    def _searched(self, files: list[str]) -> ScannedLogs:
        """Run a search, on a thread; raises OSError, SubprocessError or WireError when nothing comes of it."""
        command = ["nice", "-n", str(NICE), sys.executable, "-m", "runner.collect", *files]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as child:
            self._children[child.pid] = child
            try:
                said, _ = child.communicate(timeout=LIMIT_SECONDS)
            finally:
                child.kill()
                del self._children[child.pid]
        found = wire.decode(said)
        if not isinstance(found, ScannedLogs):
            raise WireError(f"a search answered with {wire.kind_of(found)!r}")
        return found
