"""Searching: the logs of the node's ranks are followed while they live, and searched once more when some of them have died.

A child does it (`reader`): the word that a rank died waits for nothing, and what hostile text does to a search it does to no agent.
What comes of it is told as signals of its own (`LinesMatched`). How far logs were read is written down after that, so that the next
life of the agent goes on there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from msgspec.structs import replace

from runner.agent.event_loop import EventLoop
from runner.agent.logs.log_reader import LIMIT_SECONDS, Reader
from runner.agent.ranks import output_files
from runner.agent.ranks.gang import LocalGang
from runner.agent.transport.signal_emitter import SignalEmitter
from runner.errors import WireError
from runner.facts import wire
from runner.facts.matches import Match
from runner.facts.messages.log_search import (
    FollowReport,
    FollowRequest,
    LogPosition,
    SearchRequest,
    SearchResult,
)
from runner.facts.messages.signals import LinesMatched

log = logging.getLogger("stoker.agent")

# after a gang's start, which is busy enough; chosen
FOLLOW_SECONDS = 1.0
# after a gang's end, for words about it; chosen
LINGER_SECONDS = 2.0
# that an agent which leaves waits for a search; chosen: less than nodes may be silent
FINISH_SECONDS = 1.5
# after the first death of a gang, for those that die of it; chosen
WAIT_SECONDS = 0.5
PLACES_NAME = "followed.json"
# Linux, include/linux/proc_ns.h
INITIAL_PID_NAMESPACE = 0xEFFFFFFC


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """Where a node's kernel speaks. `path` "": nowhere. `is_shared`: for other nodes of this machine, too."""

    path: str = ""
    is_shared: bool = False


@dataclass(slots=True)
class _Due:
    """Ranks of one gang whose output is to be searched."""

    gang: LocalGang
    ranks: dict[int, None] = field(default_factory=dict)


class LogSearch:
    """Owned by the agent's loop."""

    def __init__(
        self, loop: EventLoop, emitter: SignalEmitter, *, folder: Path, kernel_log: KernelSource
    ) -> None:
        """`folder`: the node's own."""
        self._loop, self._emitter = loop, emitter
        self._folder, self._kernel_log = folder, kernel_log
        self._reader = Reader(loop, folder, on_word=self._hear, on_death=self._bereft)
        # that is there
        self._gang: LocalGang | None = None
        # whose logs are followed: what kills a gang is said after it is gone
        self._followed: LocalGang | None = None
        self._since_microseconds = 0
        self._places: Mapping[str, LogPosition] = {}
        self._due: _Due | None = None
        # searches under way, by number
        self._asked: dict[int, tuple[LocalGang, SearchRequest]] = {}
        # searches that were asked for twice
        self._repeated: dict[int, None] = {}
        # the agent is about to leave
        self._when_finished: Callable[[], None] | None = None
        self._number = 0

    # -- gangs

    def begun(self, gang: LocalGang, *, adopted: bool = False) -> None:
        """Follow the logs of a gang, soon; of one that an earlier life of the agent followed, from where that one stopped."""
        if self._followed is not None:
            # what the kernel says from now on is not about the gang before
            self._unfollow()
        self._gang = gang
        self._since_microseconds = int(time.monotonic() * 1e6)
        self._places = {}
        if adopted:
            self._remember(gang)
        self._reader.forgive()
        self._loop.cancel("unfollow")
        self._loop.at("follow", time.monotonic() + FOLLOW_SECONDS, self._follow)

    def gone(self) -> None:
        """The gang has no rank here any more: what those that died had written last is searched for by itself."""
        self._gang = None
        self._loop.cancel("follow")
        self._loop.at("unfollow", time.monotonic() + LINGER_SECONDS, self._unfollow)

    def ended(self, gang: LocalGang, rank: int) -> None:
        """Note that a rank ended by itself and should not have."""
        if self._due is None or self._due.gang is not gang:
            self._search()
            self._due = _Due(gang)
            self._loop.at("search", time.monotonic() + WAIT_SECONDS, self._search)
        self._due.ranks[rank] = None

    def finish(self, then: Callable[[], None]) -> None:
        """Call back once nothing is searched for any more, or after a while: who leaves says first what its ranks died of."""
        self._search()
        self._when_finished = then
        self._loop.at("finish", time.monotonic() + FINISH_SECONDS, then)
        self._note_finished()

    def _note_finished(self) -> None:
        if self._when_finished is not None and not self._asked:
            self._loop.cancel("finish")
            self._when_finished()

    def close(self) -> None:
        """End what is under way: nobody will hear of it."""
        for timer in (
            "follow",
            "unfollow",
            "search",
            "searched",
            "search again",
            "finish",
            "reader",
        ):
            self._loop.cancel(timer)
        self._reader.close()

    # -- orders

    def _hung(self) -> None:
        self._reader.died(f"said nothing for {LIMIT_SECONDS:g} s")

    def _unfollow(self) -> None:
        self._followed = None
        self._loop.cancel("reader")
        if self._reader.is_there:
            self._reader.order(FollowRequest(gang=""))

    def _follow(self) -> None:
        gang = self._followed = self._gang
        if gang is None:
            return
        files = {
            str(path): rank
            for rank in gang.plan.ranks
            for path in output_files.paths(gang.plan.output_folder, rank)
        }
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._hung)
        self._reader.order(
            FollowRequest(
                gang=str(gang.attempt),
                files=files,
                kernel_log=self._kernel_log.path,
                since_microseconds=self._since_microseconds,
                places=self._places,
                metric_pattern=gang.plan.metric_pattern,
            )
        )

    def _search(self) -> None:
        due, self._due = self._due, None
        if due is None:
            return
        self._number += 1
        plan = due.gang.plan
        files = {
            str(path): rank
            for rank in sorted(due.ranks)
            for path in output_files.paths(plan.output_folder, rank)
        }
        self._ask(
            due.gang,
            SearchRequest(number=self._number, files=files, metric_pattern=plan.metric_pattern),
        )

    def _ask(self, gang: LocalGang, order: SearchRequest) -> None:
        self._asked[order.number] = (gang, order)
        self._reader.order(order)
        expect = partial(self._expect, order.number)
        self._loop.at("searched", time.monotonic() + LIMIT_SECONDS, expect)

    def _expect(self, number: int) -> None:
        if number in self._asked:
            self._reader.died(f"did not answer for {LIMIT_SECONDS:g} s")

    # -- answers

    def _hear(self, said: object) -> None:
        if isinstance(said, FollowReport):
            self._take(said)
        elif isinstance(said, SearchResult):
            self._searched(said)

    def _take(self, said: FollowReport) -> None:
        gang = self._followed
        if gang is None or said.gang != str(gang.attempt):
            return
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._hung)
        if said.trouble:
            log.warning("following the logs of %s: %s", said.gang, said.trouble)
        matches = [_of_rank(match, gang) for match in said.matches]
        # what names none of our processes may be another node's
        if self._kernel_log.is_shared:
            matches = [one for one in matches if not one.of_kernel or one.rank is not None]
        if matches:
            self._emitter.emit(
                LinesMatched(
                    **self._emitter.next_header(),
                    epoch=gang.epoch,
                    attempt=gang.attempt,
                    matches=tuple(matches),
                    living=True,
                    last_step=gang.last_step,
                )
            )
        if said.skipped_bytes > gang.log_bytes_skipped:
            if not gang.log_bytes_skipped:
                log.warning("%s writes more than can be read: the middle is skipped", said.gang)
            gang.log_bytes_skipped = said.skipped_bytes
        if said.records:
            gang.add_log_steps(said.records)
        if said.places and gang is self._gang:
            self._places = {**self._places, **said.places}
            self._write_down(gang)

    def _searched(self, said: SearchResult) -> None:
        gang, _ = self._asked.pop(said.number, (None, None))
        self._repeated.pop(said.number, None)
        if gang is not None and said.found.matches:
            self._emitter.emit(
                LinesMatched(
                    **self._emitter.next_header(),
                    epoch=gang.epoch,
                    attempt=gang.attempt,
                    matches=said.found.matches,
                    steps=said.found.steps,
                )
            )
        self._note_finished()

    # -- the reader's end

    def _bereft(self, again_seconds: float) -> None:
        """The reader has died: have another one do, after a while, what it would have done."""
        self._loop.cancel("reader")
        at = time.monotonic() + again_seconds
        if self._gang is not None:
            self._loop.at("follow", at, self._follow)
        if self._asked:
            self._loop.at("search again", at, self._ask_again)

    def _ask_again(self) -> None:
        """Ask once more for what the reader owed when it died; what kills two of them is let be."""
        asked, self._asked = self._asked, {}
        for number, (gang, order) in asked.items():
            if number in self._repeated:
                log.warning("the search of %d outputs is lost", len(order.files))
                del self._repeated[number]
            else:
                self._repeated[number] = None
                self._ask(gang, order)

    # -- how far logs were read

    def _write_down(self, gang: LocalGang) -> None:
        """Keep places for the next life of this agent; a crash of the machine takes the ranks with it, so nothing is fsynced."""
        plain = {
            "gang": str(gang.attempt),
            "since_microseconds": self._since_microseconds,
            "places": wire.to_plain(self._places),
        }
        path = self._folder / PLACES_NAME
        scratch = path.with_suffix(".part")
        # a full disk: the next life tells some lines twice
        with contextlib.suppress(OSError):
            scratch.write_text(json.dumps(plain))
            scratch.replace(path)

    def _remember(self, gang: LocalGang) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, WireError):
            plain = json.loads((self._folder / PLACES_NAME).read_text())
            if plain["gang"] == str(gang.attempt):
                self._since_microseconds = int(plain["since_microseconds"])
                self._places = {
                    str(path): wire.from_plain(LogPosition, place)
                    for path, place in plain["places"].items()
                }


def kernel_source(kernel_log: str, *, node: str, shares_machine: bool) -> KernelSource:
    """Return which kernel's log a node reads; `kernel_log`: the setting."""
    is_own = "{node}" in kernel_log or not shares_machine
    return KernelSource(path=kernel_log.replace("{node}", node), is_shared=not is_own)


def _of_rank(match: Match, gang: LocalGang) -> Match:
    """Name the rank whose process a line is about."""
    pid = match.named.get("pid", "")
    if match.rank is not None or not pid or not (match.of_kernel and _numbers_as_the_kernel()):
        return match
    for rank in gang.ranks.values():
        if pid == str(rank.pid):
            return replace(match, rank=rank.rank)
    return match


@cache
def _numbers_as_the_kernel() -> bool:
    """Whether our processes have the numbers by which the kernel's log calls them: not in a pid namespace of a container."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False
