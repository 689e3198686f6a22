"""Log search: follows the logs of the node's ranks while they run, and searches them again after a rank failed.

Without ranks it follows the kernel's log alone, where that is of this node and no other.

A child process (`log_reader`) reads: the report of a failed rank does not wait for it, and hostile text does not reach the agent.
The positions in the logs are saved after matches are emitted, so that the next agent instance continues there.
"""

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from msgspec.structs import replace

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.folders import Folders
from runner.agent.logs.gang_matches import with_lost_bytes, with_rank
from runner.agent.logs.log_reader import LIMIT_SECONDS, Reader
from runner.agent.ranks import output_files
from runner.agent.ranks.gang import LocalGang
from runner.agent.transport.session import SignalEmitter
from runner.errors import WireError
from runner.facts import wire
from runner.facts.matches import Match
from runner.facts.messages.log_search import (
    FollowReport,
    FollowRequest,
    ReadAllRequest,
    ReadAllResult,
    SearchRequest,
    SearchResult,
)
from runner.facts.messages.signals import KernelLinesMatched, LinesMatched

log = logging.getLogger("stoker.agent")

# Chosen, not measured: a gang's start keeps the node busy, lines about it come after its end, other
# ranks fail in consequence of the first, and an agent leaves within its heartbeat timeout.
FOLLOW_SECONDS = 1.0
FOLLOW_SOON_SECONDS = 0.1
LINGER_SECONDS = 2.0
WAIT_SECONDS = 0.5
FINISH_SECONDS = 1.5
# Until a search is tried again whose folder hangs; chosen.
HUNG_SECONDS = 60.0
# For the last lines of a gang that ended well; chosen.
READ_ALL_SECONDS = 2.0
POSITIONS_NAME = "followed.json"
# How far an agent that starts reads the kernel's log back for a node without ranks, as the check `kernel_log` does; chosen.
IDLE_WINDOW_MICROSECONDS = 3600 * 10**6
TIMERS = (
    *("follow", "unfollow", "search", "searched", "search again", "finish", "reader"),
    "read all",
)


class LogSearch:
    """Owned by the agent's loop."""

    def __init__(
        self, config: AgentConfig, loop: EventLoop, emitter: SignalEmitter, folders: Folders
    ) -> None:
        self._loop, self._emitter, self._folders = loop, emitter, folders
        self._positions_path = config.folder / POSITIONS_NAME
        setting = config.cluster.kernel_log
        self._most_wait_seconds = config.cluster.heartbeat_timeout_seconds
        self._kernel_log = setting.replace("{node}", config.node)
        # The kernel's log is that of other nodes of this machine, too.
        self._is_kernel_log_shared = config.shares_machine and "{node}" not in setting
        self._reader = Reader(
            loop, config.folder, on_message=self._on_message, on_death=self._on_reader_died
        )
        # The gang that runs, and how to follow its logs, or without one the kernel's: the positions are those read so far.
        self._gang: LocalGang | None = None
        self._follow_request = FollowRequest(gang="")
        # The gang whose logs are followed: lines on its failure may come after its end.
        self._followed: LocalGang | None = None
        # The gang before, of which the rest of its output may be read still.
        self._ended: LocalGang | None = None
        self._failed_gang: LocalGang | None = None
        self._failed_ranks = set[int]()
        # Requested searches by number, and those that were requested twice.
        self._pending: dict[int, tuple[LocalGang, SearchRequest]] = {}
        self._retried = set[int]()
        self._when_finished: Callable[[], None] | None = None
        self._when_all_read: Callable[[], None] | None = None
        # The last gang of which nothing was read, since its ranks wrote nothing.
        self._without_output: LocalGang | None = None
        self._number = 0

    def on_gang_started(
        self, gang: LocalGang, *, launched_at: float | None = None, adopted: bool = False
    ) -> None:
        """Follow the logs of a gang, soon; those of an adopted gang from their saved positions.

        `launched_at`, by the monotonic clock: when its ranks were ordered. On a busy machine the kernel may kill one before the
        agent knows that it has started.
        """
        if self._followed is not None:
            # The kernel's lines from now on are not about the gang before.
            self._stop_following()
        self._gang = gang
        since = time.monotonic() if launched_at is None else launched_at
        # Of these lines the follower of the idle node has reported some.
        before, own = self._follow_request, self._own_kernel_log
        reported = {} if before.gang or own not in before.places else {own: before.places[own]}
        self._follow_request = FollowRequest(
            gang=str(gang.attempt),
            files=output_files.ranks_by_path(gang.plan.output_folder, gang.plan.ranks),
            kernel_log=self._kernel_log,
            since_microseconds=int(since * 1e6),
            places=reported,
            metric_pattern=gang.plan.metric_pattern,
        )
        if adopted:
            self._load_positions()
        self._reader.reset_backoff()
        self._loop.cancel("unfollow")
        # Where a reader runs, its start keeps nothing busy, and the first steps are seen when they are made.
        seconds = FOLLOW_SOON_SECONDS if self._reader.is_running else FOLLOW_SECONDS
        self._loop.at("follow", time.monotonic() + seconds, self._follow)

    def on_started_without_gang(self) -> None:
        """Follow the kernel's log, from where an earlier agent was."""
        now_microseconds = int(time.monotonic() * 1e6)
        self._follow_request = FollowRequest(
            gang="", kernel_log=self._own_kernel_log, since_microseconds=now_microseconds
        )
        self._load_positions()
        # A later moment than now was that of an earlier boot.
        since = min(self._follow_request.since_microseconds, now_microseconds)
        since = max(since, now_microseconds - IDLE_WINDOW_MICROSECONDS)
        self._follow_request = replace(self._follow_request, since_microseconds=since)
        self._loop.at("follow", time.monotonic() + FOLLOW_SECONDS, self._follow)

    def prepare(self) -> None:
        """Start a reader before there are ranks: the steps that they print first are then seen when they are printed."""
        if not self._reader.is_running and self._gang is None:
            self._reader.send(FollowRequest(gang=""))

    def on_gang_terminated(self) -> None:
        """Stop following after LINGER_SECONDS; the output of failed ranks is searched on its own."""
        gang, self._gang = self._gang, None
        self._ended = gang
        if gang is not None and gang.is_printing and gang is not self._without_output:
            # Before the reader follows the next gang.
            self._request_rest(gang)
        self._loop.cancel("follow")
        self._loop.at("unfollow", time.monotonic() + LINGER_SECONDS, self._unfollow)

    def on_rank_failed(self, gang: LocalGang, rank: int) -> None:
        """Search the output of a rank that failed, after WAIT_SECONDS."""
        if self._failed_gang is not gang:
            self._search()
            self._failed_gang = gang
            self._loop.at("search", time.monotonic() + WAIT_SECONDS, self._search)
        self._failed_ranks.add(rank)

    def read_all(self, gang: LocalGang, then: Callable[[], None]) -> None:
        """Read all that the ranks of a gang have written, then call back.

        After READ_ALL_SECONDS in any case; after the heartbeat timeout where the reader gets hardly any of a processor, and after
        LIMIT_SECONDS where it has yet to prepare itself.
        """
        self._when_all_read = then
        now = time.monotonic()
        on_due = partial(self._on_read_due, now)
        self._loop.at("read all", now + READ_ALL_SECONDS, on_due)
        if self._reader.is_running:
            self._request_rest(gang)
            return
        folder, ranks = gang.plan.output_folder, gang.plan.ranks

        def on_stats(stats: tuple[tuple[int, int], ...] | None, _: Exception | None) -> None:
            if stats is not None and not any(size for size, _ in stats):
                # A reader takes a part of a second to start, for nothing.
                self._without_output = gang
                self._on_all_read()
            elif self._when_all_read is then:
                self._request_rest(gang)

        self._folders.run(folder, partial(output_files.stats, folder, ranks), on_stats)

    def _request_rest(self, gang: LocalGang) -> None:
        """Have all read that the ranks of a gang have printed."""
        if self._followed is not gang:
            self._loop.cancel("follow")
            self._followed = gang
            self._reader.send(self._follow_request)
        self._number += 1
        self._reader.send(ReadAllRequest(number=self._number, gang=str(gang.attempt)))

    def _on_read_due(self, asked_at: float) -> None:
        again = partial(self._on_read_due, asked_at)
        until, ready_by = asked_at + self._most_wait_seconds, asked_at + LIMIT_SECONDS
        if not self._is_postponed(
            "read all", READ_ALL_SECONDS, again, until=until, ready_by=ready_by
        ):
            self._on_all_read()

    def _on_all_read(self) -> None:
        self._loop.cancel("read all")
        then, self._when_all_read = self._when_all_read, None
        if then is not None:
            then()

    def on_folder_back(self) -> None:
        """Replace a reader that ended, without its delay: a file system that had hung answers again."""
        if self._reader.is_running:
            return
        self._reader.reset_backoff()
        now = time.monotonic()
        if self._wants_follow:
            self._loop.at("follow", now, self._follow)
        if self._pending:
            self._loop.at("search again", now, self._retry)

    def finish(self, then: Callable[[], None]) -> None:
        """Call back after the last search, or after FINISH_SECONDS: an agent that leaves first reports why its ranks failed.

        Where the reader gets hardly any of a processor, or has yet to prepare itself, it has until the heartbeat timeout.
        """
        self._reader.hasten()
        self._search()
        self._when_finished = then
        now = time.monotonic()
        on_due = partial(self._on_finish_due, now + self._most_wait_seconds)
        self._loop.at("finish", now + FINISH_SECONDS, on_due)
        self._check_finished()

    def _on_finish_due(self, until: float) -> None:
        again = partial(self._on_finish_due, until)
        if self._is_postponed("finish", FINISH_SECONDS, again, until=until, ready_by=until):
            return
        log.warning(
            "leaves without the last lines of its ranks: the log reader had not read them after %.1f s; they are in %s",
            time.monotonic() - (until - self._most_wait_seconds),
            ", ".join(sorted({gang.plan.output_folder for gang, _ in self._pending.values()})),
        )
        if self._when_finished is not None:
            self._when_finished()

    def _check_finished(self) -> None:
        if self._when_finished is not None and not self._pending:
            self._loop.cancel("finish")
            self._when_finished()

    def close(self) -> None:
        """Stop the timers and the reader, and drop what is under way."""
        for timer in TIMERS:
            self._loop.cancel(timer)
        self._reader.close()

    def _on_hang(self) -> None:
        if not self._is_postponed("reader", LIMIT_SECONDS, self._on_hang):
            self._reader.fail(f"sent nothing for {LIMIT_SECONDS:g} s")

    def _is_postponed(
        self,
        timer: str,
        seconds: float,
        again: Callable[[], None],
        *,
        until: float = math.inf,
        ready_by: float = 0.0,
    ) -> bool:
        """Set a timer again while the reader gets hardly any of a processor, or has yet to prepare itself.

        The one until `until`, the other until `ready_by` at most, by the monotonic clock.
        """
        now = time.monotonic()
        is_preparing = now < ready_by and self._reader.is_preparing()
        if not is_preparing and (now >= until or not self._reader.is_starved()):
            return False
        self._loop.at(timer, now + seconds, again)
        return True

    @property
    def _own_kernel_log(self) -> str:
        """The kernel's log if it is of no other node; "": a line in it that names no rank may be about any of them."""
        return "" if self._is_kernel_log_shared else self._kernel_log

    @property
    def _wants_follow(self) -> bool:
        is_idle = not self._follow_request.gang and bool(self._follow_request.kernel_log)
        return self._gang is not None or is_idle

    def _stop_following(self) -> None:
        self._followed = None
        self._loop.cancel("reader")
        if self._reader.is_running:
            self._reader.send(FollowRequest(gang=""))

    def _unfollow(self) -> None:
        """Follow the kernel's log alone, from where it was read while the gang was there."""
        before = self._follow_request
        places = {name: at for name, at in before.places.items() if name == before.kernel_log}
        self._follow_request = replace(
            before, gang="", files={}, kernel_log=self._own_kernel_log, places=places
        )
        self._stop_following()
        self._follow()

    def _follow(self) -> None:
        self._followed = self._gang
        if self._wants_follow:
            self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._on_hang)
            self._reader.send(self._follow_request)

    def _search(self) -> None:
        gang, self._failed_gang = self._failed_gang, None
        ranks, self._failed_ranks = sorted(self._failed_ranks), set()
        if gang is None:
            return
        self._number += 1
        request = SearchRequest(
            number=self._number,
            files=output_files.ranks_by_path(gang.plan.output_folder, ranks),
            metric_pattern=gang.plan.metric_pattern,
        )
        self._request(gang, request)

    def _request(self, gang: LocalGang, request: SearchRequest) -> None:
        self._pending[request.number] = (gang, request)
        self._reader.send(request)
        on_deadline = partial(self._on_deadline, request.number)
        self._loop.at("searched", time.monotonic() + LIMIT_SECONDS, on_deadline)

    def _on_deadline(self, number: int) -> None:
        again = partial(self._on_deadline, number)
        if number in self._pending and not self._is_postponed("searched", LIMIT_SECONDS, again):
            self._reader.fail(f"did not answer for {LIMIT_SECONDS:g} s")

    def _on_message(self, message: object) -> None:
        if isinstance(message, FollowReport):
            self._on_report(message)
        elif isinstance(message, SearchResult):
            self._on_result(message)
        elif isinstance(message, ReadAllResult):
            self._on_all_read()

    def _on_report(self, report: FollowReport) -> None:
        gang, ended = self._followed, self._ended
        if ended is not None and ended is not gang and report.gang == str(ended.attempt):
            # What was read late, on a busy machine or while the next gang starts: its last steps, and why it ended.
            self._on_gang_report(ended, report, ranks_alive=False)
            return
        if report.gang != ("" if gang is None else str(gang.attempt)):
            return
        self._loop.at("reader", time.monotonic() + LIMIT_SECONDS, self._on_hang)
        if report.trouble:
            whose = report.gang or "a node without ranks"
            log.warning("following the logs of %s: %s", whose, report.trouble)
        if gang is None:
            self._on_idle_report(report)
        else:
            self._on_gang_report(gang, report)
        if report.places and self._follow_request.gang == report.gang:
            places = {**self._follow_request.places, **report.places}
            self._follow_request = replace(self._follow_request, places=places)
            self._save_positions()

    def _on_idle_report(self, report: FollowReport) -> None:
        """Report lines of the kernel; once a gang has started, its own follower finds those from then on."""
        if report.matches and self._gang is None:
            header = self._emitter.next_header()
            self._emitter.emit(KernelLinesMatched(**header, matches=report.matches))

    def _on_gang_report(
        self, gang: LocalGang, report: FollowReport, *, ranks_alive: bool = True
    ) -> None:
        for name, num_bytes in report.lost_bytes.items():
            gang.log_bytes_lost[name] = gang.log_bytes_lost.get(name, 0) + num_bytes
            log.warning("%s lost %d bytes of %s in a truncation", report.gang, num_bytes, name)
        matches = [with_rank(match, gang) for match in report.matches]
        # A line that names no process of this gang may be about another node.
        if self._is_kernel_log_shared:
            matches = [one for one in matches if not one.of_kernel or one.rank is not None]
        if matches:
            self._emit(gang, matches, ranks_alive=ranks_alive, last_step=gang.furthest_step)
        if report.skipped_bytes > gang.log_bytes_skipped:
            if not gang.log_bytes_skipped:
                log.warning("%s writes more than can be read; parts are skipped", report.gang)
            gang.log_bytes_skipped = report.skipped_bytes
        self._add_steps(gang, report)

    def _add_steps(self, gang: LocalGang, report: FollowReport) -> None:
        now = time.monotonic()
        for fact in gang.add_log_steps(report.records, report.records_rank, now):
            self._emitter.emit(fact)

    def _on_result(self, result: SearchResult) -> None:
        gang, _ = self._pending.pop(result.number, (None, None))
        self._retried.discard(result.number)
        found = result.found
        if gang is not None:
            self._emit(gang, found.matches, steps=found.steps, is_last=True)
        self._check_finished()

    def _emit(self, gang: LocalGang, matches: Iterable[Match], **fields: Any) -> None:
        header, generation = gang.header(), gang.generation
        completed = tuple(with_lost_bytes(match, gang) for match in matches)
        self._emitter.emit(
            LinesMatched(**header, generation=generation, matches=completed, **fields)
        )

    def _on_reader_died(self, again_seconds: float) -> None:
        """Repeat its requests to another reader, after a delay."""
        self._loop.cancel("reader")
        at = time.monotonic() + again_seconds
        if self._wants_follow:
            self._loop.at("follow", at, self._follow)
        if self._pending:
            self._loop.at("search again", at, self._retry)

    def _retry(self) -> None:
        """Repeat the requests that the reader left open; one that two readers died of is dropped."""
        pending, self._pending = self._pending, {}
        for number, (gang, request) in pending.items():
            if self._folders.is_hung(gang.plan.output_folder):
                # `on_folder_back` repeats it, or this does.
                self._pending[number] = (gang, request)
                at = time.monotonic() + HUNG_SECONDS
                self._loop.at("search again", at, self._retry)
            elif number in self._retried:
                num_files = len(request.files)
                log.warning(
                    "gave up the search of %d outputs: the log reader died twice", num_files
                )
                self._retried.remove(number)
            else:
                self._retried.add(number)
                self._request(gang, request)

    def _save_positions(self) -> None:
        """Save positions for the next agent instance; without fsync, since a machine's crash ends the ranks too."""
        scratch = self._positions_path.with_suffix(".part")
        # On a full disk, the next agent instance reports some lines twice.
        with contextlib.suppress(OSError):
            scratch.write_bytes(wire.encode(replace(self._follow_request, files={})))
            scratch.replace(self._positions_path)

    def _load_positions(self) -> None:
        with contextlib.suppress(OSError, ValueError, WireError):
            saved = wire.from_plain(FollowRequest, json.loads(self._positions_path.read_bytes()))
            if saved.gang == self._follow_request.gang:
                since, places = saved.since_microseconds, saved.places
                self._follow_request = replace(
                    self._follow_request, since_microseconds=since, places=places
                )
