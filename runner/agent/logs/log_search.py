"""Log search: follows the logs of the node's ranks while they run, and searches them again after a rank failed.

A child process (`log_reader`) reads: the report of a failed rank does not wait for it, and hostile
text does not reach the agent. Matches are emitted as `LinesMatched`. The positions in the logs are
saved afterwards, so that the next agent instance continues there.
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
from runner.facts.matches import LoggedStep, Match
from runner.facts.messages.log_search import (
    FollowReport,
    FollowRequest,
    LogPosition,
    SearchRequest,
    SearchResult,
)
from runner.facts.messages.signals import LinesMatched

log = logging.getLogger("stoker.agent")

# After a gang's start, which keeps the node busy; chosen.
FOLLOW_SECONDS = 1.0
# After a gang's end, for lines about it; chosen.
LINGER_SECONDS = 2.0
# How long an agent that leaves waits for a search; chosen: less than the heartbeat timeout.
FINISH_SECONDS = 1.5
# After a gang's first failed rank, for ranks that fail in consequence; chosen.
WAIT_SECONDS = 0.5
POSITIONS_NAME = "followed.json"
# PROC_PID_INIT_INO of Linux, include/linux/proc_ns.h.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """The kernel's log of a node. `path` "": none. `is_shared`: it is that of other nodes of this machine, too."""

    path: str = ""
    is_shared: bool = False


@dataclass(slots=True)
class _FailedRanks:
    """Failed ranks of one gang whose output is to be searched."""

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
        self._reader = Reader(
            loop, folder, on_message=self._on_message, on_death=self._on_reader_died
        )
        # The gang that runs.
        self._gang: LocalGang | None = None
        # The gang whose logs are followed: lines on its failure may come after its end.
        self._followed: LocalGang | None = None
        self._since_microseconds = 0
        self._positions: Mapping[str, LogPosition] = {}
        self._failed: _FailedRanks | None = None
        # Requested searches, by number.
        self._pending: dict[int, tuple[LocalGang, SearchRequest]] = {}
        # Searches that were requested twice.
        self._retried: dict[int, None] = {}
        # Set when the agent is about to leave.
        self._when_finished: Callable[[], None] | None = None
        self._number = 0

    # -- gangs

    def on_gang_started(self, gang: LocalGang, *, adopted: bool = False) -> None:
        """Follow the logs of a gang, soon; those of an adopted gang from their saved positions."""
        if self._followed is not None:
            # The kernel's lines from now on are not about the gang before.
            self._unfollow()
        self._gang = gang
        self._since_microseconds = int(time.monotonic() * 1e6)
        self._positions = {}
        if adopted:
            self._load_positions(gang)
        self._reader.reset_backoff()
        self._loop.cancel("unfollow")
        self._loop.at("follow", time.monotonic() + FOLLOW_SECONDS, self._follow)

    def on_gang_terminated(self) -> None:
        """Stop following after LINGER_SECONDS; the output of failed ranks is searched on its own."""
        self._gang = None
        self._loop.cancel("follow")
        self._loop.at("unfollow", time.monotonic() + LINGER_SECONDS, self._unfollow)

    def on_rank_failed(self, gang: LocalGang, rank: int) -> None:
        """Search the output of a rank that failed, after WAIT_SECONDS."""
        if self._failed is None or self._failed.gang is not gang:
            self._search()
            self._failed = _FailedRanks(gang)
            self._loop.at("search", time.monotonic() + WAIT_SECONDS, self._search)
        self._failed.ranks[rank] = None

    def finish(self, then: Callable[[], None]) -> None:
        """Call back after the last search, or after FINISH_SECONDS: an agent that leaves first reports why its ranks failed."""
        self._search()
        self._when_finished = then
        self._loop.at("finish", time.monotonic() + FINISH_SECONDS, then)
        self._check_finished()

    def _check_finished(self) -> None:
        if self._when_finished is not None and not self._pending:
            self._loop.cancel("finish")
            self._when_finished()

    def close(self) -> None:
        """Stop the timers and the reader, and drop what is under way."""
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

    # -- requests

    def _on_hang(self) -> None:
        self._reader.fail(f"sent nothing for {LIMIT_SECONDS:g} s")

    def _unfollow(self) -> None:
        self._followed = None
        self._loop.cancel("reader")
        if self._reader.is_running:
            self._reader.send(FollowRequest(gang=""))

    def _follow(self) -> None:
        gang = self._followed = self._gang
        if gang is None:
            return
        files = {
            str(path): rank
            for rank in gang.plan.ranks
            for path in output_files.paths(gang.plan.output_folder, rank)
        }
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._on_hang)
        self._reader.send(
            FollowRequest(
                gang=str(gang.attempt),
                files=files,
                kernel_log=self._kernel_log.path,
                since_microseconds=self._since_microseconds,
                places=self._positions,
                metric_pattern=gang.plan.metric_pattern,
            )
        )

    def _search(self) -> None:
        failed, self._failed = self._failed, None
        if failed is None:
            return
        self._number += 1
        plan = failed.gang.plan
        files = {
            str(path): rank
            for rank in sorted(failed.ranks)
            for path in output_files.paths(plan.output_folder, rank)
        }
        self._request(
            failed.gang,
            SearchRequest(number=self._number, files=files, metric_pattern=plan.metric_pattern),
        )

    def _request(self, gang: LocalGang, request: SearchRequest) -> None:
        self._pending[request.number] = (gang, request)
        self._reader.send(request)
        expect = partial(self._on_deadline, request.number)
        self._loop.at("searched", time.monotonic() + LIMIT_SECONDS, expect)

    def _on_deadline(self, number: int) -> None:
        if number in self._pending:
            self._reader.fail(f"did not answer for {LIMIT_SECONDS:g} s")

    # -- answers

    def _on_message(self, message: object) -> None:
        if isinstance(message, FollowReport):
            self._on_report(message)
        elif isinstance(message, SearchResult):
            self._on_result(message)

    def _on_report(self, report: FollowReport) -> None:
        gang = self._followed
        if gang is None or report.gang != str(gang.attempt):
            return
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._on_hang)
        if report.trouble:
            log.warning("following the logs of %s: %s", report.gang, report.trouble)
        matches = [_with_rank(match, gang) for match in report.matches]
        # A line that names no process of this gang may be about another node.
        if self._kernel_log.is_shared:
            matches = [one for one in matches if not one.of_kernel or one.rank is not None]
        if matches:
            self._emit(gang, tuple(matches), ranks_alive=True, last_step=gang.last_step)
        if report.skipped_bytes > gang.log_bytes_skipped:
            if not gang.log_bytes_skipped:
                log.warning("%s writes more than can be read; parts are skipped", report.gang)
            gang.log_bytes_skipped = report.skipped_bytes
        if report.records:
            gang.add_log_steps(report.records)
        if report.places and gang is self._gang:
            self._positions = {**self._positions, **report.places}
            self._save_positions(gang)

    def _on_result(self, result: SearchResult) -> None:
        gang, _ = self._pending.pop(result.number, (None, None))
        self._retried.pop(result.number, None)
        if gang is not None and result.found.matches:
            self._emit(gang, result.found.matches, steps=result.found.steps)
        self._check_finished()

    def _emit(
        self,
        gang: LocalGang,
        matches: tuple[Match, ...],
        *,
        steps: tuple[LoggedStep, ...] = (),
        ranks_alive: bool = False,
        last_step: int | None = None,
    ) -> None:
        self._emitter.emit(
            LinesMatched(
                **self._emitter.next_header(),
                generation=gang.generation,
                attempt=gang.attempt,
                matches=matches,
                steps=steps,
                ranks_alive=ranks_alive,
                last_step=last_step,
            )
        )

    # -- a reader that died

    def _on_reader_died(self, again_seconds: float) -> None:
        """Repeat its requests to another reader, after a delay."""
        self._loop.cancel("reader")
        at = time.monotonic() + again_seconds
        if self._gang is not None:
            self._loop.at("follow", at, self._follow)
        if self._pending:
            self._loop.at("search again", at, self._retry)

    def _retry(self) -> None:
        """Repeat the requests that the reader left open; one that two readers died of is dropped."""
        pending, self._pending = self._pending, {}
        for number, (gang, request) in pending.items():
            if number in self._retried:
                log.warning(
                    "gave up the search of %d outputs: the log reader died twice",
                    len(request.files),
                )
                del self._retried[number]
            else:
                self._retried[number] = None
                self._request(gang, request)

    # -- positions

    def _save_positions(self, gang: LocalGang) -> None:
        """Save positions for the next agent instance; without fsync, since a machine's crash ends the ranks too."""
        plain = {
            "gang": str(gang.attempt),
            "since_microseconds": self._since_microseconds,
            "places": wire.to_plain(self._positions),
        }
        path = self._folder / POSITIONS_NAME
        scratch = path.with_suffix(".part")
        # On a full disk, the next agent instance reports some lines twice.
        with contextlib.suppress(OSError):
            scratch.write_text(json.dumps(plain))
            scratch.replace(path)

    def _load_positions(self, gang: LocalGang) -> None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, WireError):
            plain = json.loads((self._folder / POSITIONS_NAME).read_text())
            if plain["gang"] == str(gang.attempt):
                self._since_microseconds = int(plain["since_microseconds"])
                self._positions = {
                    str(path): wire.from_plain(LogPosition, place)
                    for path, place in plain["places"].items()
                }


def kernel_source(kernel_log: str, *, node: str, shares_machine: bool) -> KernelSource:
    """Return the kernel's log that a node reads; `kernel_log`: the setting."""
    is_own = "{node}" in kernel_log or not shares_machine
    return KernelSource(path=kernel_log.replace("{node}", node), is_shared=not is_own)


def _with_rank(match: Match, gang: LocalGang) -> Match:
    """Add the rank whose process a kernel's line names."""
    pid = match.named.get("pid", "")
    if match.rank is not None or not pid or not (match.of_kernel and _numbers_as_the_kernel()):
        return match
    for rank in gang.ranks.values():
        if pid == str(rank.pid):
            return replace(match, rank=rank.rank)
    return match


@cache
def _numbers_as_the_kernel() -> bool:
    """Whether pids here are those of the kernel's log: not in a container's pid namespace."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False
