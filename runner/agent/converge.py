"""Convergence: what the assignment says becomes true on this node, however often it is said.

no ranks, a plan never started before   -> prepare, spawn            RanksStarted or LaunchFailed
ranks of an older epoch, or idle        -> SIGTERM, grace, SIGKILL   RanksGone, once nothing of them is seen any more
no ranks, idle                          ->                           RanksGone for the attempt there was last
the keeper died                         -> sweep, start another      RankExited without a code for each rank it held
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from runner.agent import keeper, launch, link, output
from runner.agent.gang import Gang
from runner.agent.identity import Identity
from runner.agent.link import KeeperLink, KeeperLost, KeeperState, Place
from runner.agent.loop import Loop
from runner.agent.reports import MAX_PACKET_BYTES, Hello
from runner.errors import StokerError
from runner.facts.assignments import Assignment
from runner.facts.signals import LaunchFailed, RankExited, RanksGone
from runner.facts.wire import from_message, to_message, to_plain

log = logging.getLogger("stoker.agent")

PACKETS_AT_ONCE = 256  # of one rank before the others get their turn; chosen
MEND_SECONDS = 1.0  # between tries to start a keeper; chosen


@dataclass(slots=True, kw_only=True)
class Launching:
    """A plan on its way to the keeper."""

    assignment: Assignment
    is_prepared: bool = False
    is_sent: bool = False


@dataclass(slots=True, kw_only=True)
class Ending:
    """Ranks on their way out."""

    kill_at: float
    is_killed: bool = False
    fenced: bool = False


class Convergence:
    """Owns the keeper's link and the gang. `tell` sends a durable signal, `beat` a heartbeat at once.

    `is_sure` is False while the register may hold something newer than `assignment`: nothing is started then.
    """

    def __init__(
        self,
        place: Place,
        identity: Identity,
        loop: Loop,
        *,
        tell: Callable[[object], None],
        beat: Callable[[], None],
    ) -> None:
        self._place = place
        self._identity = identity
        self._loop = loop
        self._tell = tell
        self._beat = beat
        self.assignment: Assignment | None = None
        self.is_sure = False
        self.gang: Gang | None = None
        self.link: KeeperLink | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._launching: Launching | None = None
        self._ending: Ending | None = None
        self._when_left: Callable[[], None] | None = None
        self._waiting_channels: dict[int, socket.socket] = {}  # came before their `started`
        self._unreported: list[dict[str, Any]] = []  # exits found when adopting

    # -- beginning

    def begin(self) -> None:
        """Sweep, find the keeper or start one, adopt its ranks. Raises PermanentError when no keeper can be had."""
        found = link.connect(self._place.folder)
        state = KeeperState()
        if found is not None:
            try:
                state = found.state()
            except KeeperLost as error:
                log.warning("%s; ending it", error)
                keeper.send_signal([found.pid], signal.SIGKILL)
                found.close()
                found = None
        link.sweep(self._place)
        if found is None:
            found, self._child = link.start(self._place)
            state = found.state()
        self._take_link(found)
        if state.ranks:
            self._adopt(state)

    def report_beginning(self) -> None:
        """Tell, after joining, what became of the ranks that an earlier life had started."""
        gang = self.gang
        if gang is None:
            self._confirm_gone()
            return
        self._tell(gang.started())

    def _adopt(self, state: KeeperState) -> None:
        assignment: Assignment = from_message(state.notes["assignment"])
        now = time.monotonic()
        pids = {item["rank"]: item["pid"] for item in state.ranks}
        self.gang = gang = Gang(assignment, pids, self._identity.stamp, now)
        understood = state.notes.get("understood")
        if understood is not None:
            gang.understood = Hello(
                requests=tuple(understood["requests"]), remedies=tuple(understood["remedies"])
            )
        log.info("adopted attempt %s, ranks %s", gang.attempt, list(pids))
        self._take_channels(state.channels)
        self._unreported = [item for item in state.ranks if item["exit_code"] is not None]
        for item in self._unreported:
            gang.ranks[item["rank"]].is_alive = False
        for rank, packets in state.held.items():
            for packet in packets:
                self._take_packet(rank, packet, now)

    def report_exits(self, already: list[object]) -> None:
        """Tell the exits that a keeper held for us, but those that wait to be sent `already`."""
        gang = self.gang
        if gang is None:
            return
        known = {
            fact.rank
            for fact in already
            if isinstance(fact, RankExited) and fact.attempt == gang.attempt
        }
        for item in self._unreported:
            self._read_channel(item["rank"])
            if not item["acknowledged"] and not item["asked"] and item["rank"] not in known:
                self._tell(gang.exited(item["rank"], item["exit_code"]))
        self._unreported = []

    # -- the assignment

    def assign(self, assignment: Assignment) -> None:
        """Take what the register holds; older epochs than one obeyed before are ignored."""
        if assignment.epoch < self._identity.epoch:
            log.info("ignored an assignment of epoch %d", assignment.epoch)
            return
        self._identity.obey(assignment.epoch)
        self.assignment = assignment
        if assignment.plan is None and self._is_at_rest():
            self._confirm_gone()
            return
        self.converge()

    def converge(self) -> None:
        """Do the next thing that is missing, if nothing is under way."""
        wanted = self.assignment
        if wanted is None or self.link is None or self._when_left is not None:
            return
        gang = self.gang
        if self._launching is not None:
            self._go_on_launching(self._launching)
        elif gang is not None:
            if wanted.plan is None or wanted.epoch > gang.epoch:
                self._end(grace_seconds=wanted.grace_seconds)
        elif wanted.plan is not None and self.is_sure and not self._was_launched(wanted.epoch):
            self._launch(wanted)

    def fence(self, reason: str) -> None:
        """End the ranks on our own account."""
        if self.gang is not None and (self._ending is None or not self._ending.fenced):
            log.warning("fenced: %s", reason)
            self._end(grace_seconds=0.0, fenced=True)

    def leave(self, when_left: Callable[[], None]) -> None:
        """End ranks and keeper for good, then call back."""
        self._when_left = when_left
        if self.link is None:
            return  # a keeper is being started: `_mended` comes back here
        self._ask("end")
        wait_seconds = self._place.cluster.kill_wait_seconds + link.SEND_SECONDS
        self._loop.at("keeper answers", time.monotonic() + wait_seconds, self._keeper_is_stuck)

    def _is_at_rest(self) -> bool:
        return self.gang is None and self._launching is None

    def _was_launched(self, epoch: int) -> bool:
        launched = self._identity.launched
        return launched is not None and launched[0] >= epoch

    def _confirm_gone(self) -> None:
        """Say that nothing is left of the newest attempt: true, since nothing runs here and earlier lives were swept."""
        launched = self._identity.launched
        if launched is not None:
            epoch, attempt = launched
            self._tell(RanksGone(**self._identity.stamp(), epoch=epoch, attempt=attempt))

    # -- starting ranks

    def _launch(self, assignment: Assignment) -> None:
        plan = assignment.plan
        assert plan is not None
        self._identity.launch(assignment.epoch, plan.attempt)
        self._launching = launching = Launching(assignment=assignment)
        if plan.ranks_per_node > self._place.slots:
            self._launch_failed(
                f"node {self._place.node!r} has {self._place.slots} slots, the plan wants {plan.ranks_per_node}"
            )
            return
        self._loop.in_background(
            partial(launch.prepare, assignment), partial(self._prepared, launching)
        )

    def _prepared(self, launching: Launching, _: None, error: Exception | None) -> None:
        if self._launching is not launching:
            return
        if error is not None:
            self._launch_failed(f"cannot prepare: {error}")
            return
        launching.is_prepared = True
        self.converge()

    def _go_on_launching(self, launching: Launching) -> None:
        if launching.is_sent or not launching.is_prepared or not self.is_sure:
            return
        assert self.link is not None
        if self.assignment is not launching.assignment and self._is_superseded(launching):
            self._launching = None
            self._confirm_gone()
            self.converge()
            return
        try:
            request = launch.spawn_request(
                launching.assignment,
                cluster=self._place.cluster.name,
                python=self._place.python,
            )
        except StokerError as error:
            self._launch_failed(str(error))
            return
        launching.is_sent = True
        self._ask(request.pop("ask"), **request)

    def _is_superseded(self, launching: Launching) -> bool:
        wanted = self.assignment
        return wanted is None or wanted.plan is None or wanted.epoch > launching.assignment.epoch

    def _launch_failed(self, reason: str) -> None:
        launching, self._launching = self._launching, None
        if launching is None or launching.assignment.plan is None:
            return
        attempt, epoch = launching.assignment.plan.attempt, launching.assignment.epoch
        log.warning("attempt %s cannot be started: %s", attempt, reason)
        self._tell(
            LaunchFailed(
                **self._identity.stamp(), epoch=epoch, attempt=attempt, reason=reason[:2048]
            )
        )
        self.converge()

    def _spawn_failed(self, reason: str) -> None:
        if self._launching is None and self.gang is not None:
            # We adopted a gang that was still being spawned; the keeper has ended it by now.
            self._launching = Launching(assignment=self.gang.assignment)
            for rank in self.gang.ranks:
                self._close_channel(rank)
            self.gang = self._ending = None
        self._launch_failed(reason)

    def _started(self, message: dict[str, Any]) -> None:
        launching, self._launching = self._launching, None
        if launching is None:
            return
        pids = {item["rank"]: item["pid"] for item in message["ranks"]}
        now = time.monotonic()
        self.gang = Gang(launching.assignment, pids, self._identity.stamp, now)
        self._tell(self.gang.started())
        self._take_channels(self._waiting_channels)
        self._waiting_channels = {}
        for item in message["ranks"]:
            if item["exit_code"] is not None:
                self._exited(item)
        self._beat()
        self.converge()

    # -- ending ranks

    def _end(self, *, grace_seconds: float, fenced: bool = False) -> None:
        gang = self.gang
        if gang is None or self.link is None:
            return
        now = time.monotonic()
        kill_at = now + grace_seconds
        if self._ending is None:
            self._ending = Ending(kill_at=kill_at, fenced=fenced)
            if grace_seconds > 0:
                for rank in gang.alive:
                    self._ask("signal", rank=rank.rank, signal=int(signal.SIGTERM), asked=True)
        self._ending.kill_at = min(self._ending.kill_at, kill_at)
        self._ending.fenced = self._ending.fenced or fenced
        if self._ending.kill_at <= now or not gang.alive:
            self._kill()
        else:
            self._loop.at("grace", self._ending.kill_at, self._kill)

    def _kill(self) -> None:
        gang, ending = self.gang, self._ending
        if gang is None or ending is None or ending.is_killed:
            return
        ending.is_killed = True
        self._loop.cancel("grace")
        self._ask("kill", epoch=gang.epoch, attempt=str(gang.attempt))
        wait_seconds = self._place.cluster.kill_wait_seconds + link.SEND_SECONDS
        self._loop.at("keeper answers", time.monotonic() + wait_seconds, self._keeper_is_stuck)

    def _gone(self, left_behind: tuple[int, ...]) -> None:
        self._loop.cancel("grace")
        gang, ending = self.gang, self._ending
        if gang is None:
            self._ending = None
            return
        for rank in gang.ranks:
            self._read_channel(rank)
            self._close_channel(rank)
        self.gang, self._ending = None, None
        fenced = ending is not None and ending.fenced
        for said in gang.gone(left_behind=left_behind, fenced=fenced):
            self._tell(said)
        self._beat()
        self.converge()

    def _exited(self, message: dict[str, Any]) -> None:
        gang, number = self.gang, message["rank"]
        if gang is None or message.get("epoch", gang.epoch) != gang.epoch:
            return
        self._read_channel(number)
        if message["asked"]:
            gang.ranks[number].is_alive = False
        else:
            self._tell(gang.exited(number, message["exit_code"]))
        if self._ending is not None and not gang.alive:
            self._kill()  # what they left behind

    # -- the keeper

    def _ask(self, what: str, **fields: Any) -> None:
        """Ask the keeper for something; if it is gone, that is seen when its link is read."""
        if self.link is None:
            return
        try:
            self.link.ask(what, **fields)
        except KeeperLost as error:
            log.warning("%s", error)
            keeper.send_signal([self.link.pid], signal.SIGKILL)

    def acknowledge(self, exits: list[RankExited]) -> None:
        """Let the keeper forget exits that the store has."""
        for fact in exits:
            self._ask("acknowledge", epoch=fact.epoch, rank=fact.rank)

    def signal_rank(self, rank: int, number: int) -> None:
        """Strike one rank as a drill does: what follows counts as its own doing."""
        self._ask("signal", rank=rank, signal=number, asked=False)

    def _take_link(self, found: KeeperLink) -> None:
        self.link = found
        self._waiting_channels = {}
        self._loop.watch(found.fileno(), self._hear_keeper)

    def _hear_keeper(self) -> None:
        if self.link is None:
            return
        try:
            messages = self.link.receive()
        except KeeperLost as error:
            self._keeper_died(error)
            return
        for message in messages:
            match message["tell"]:
                case "channel":
                    self._waiting_channels[message["rank"]] = message["socket"]
                case "started":
                    self._started(message)
                case "failed":
                    self._spawn_failed(message["reason"])
                case "exited":
                    self._exited(message)
                case "gone":
                    self._loop.cancel("keeper answers")
                    self._gone(tuple(message["left_behind"]))

    def wake_keeper(self) -> None:
        """Let the keeper go on if somebody stopped it."""
        if self.link is not None:
            link.let_go_on(self.link.pid)

    def _keeper_is_stuck(self) -> None:
        if self.link is not None:
            log.warning("keeper %d does not answer; ending it", self.link.pid)
            keeper.send_signal([self.link.pid], signal.SIGKILL)

    def _keeper_died(self, error: KeeperLost) -> None:
        assert self.link is not None
        self._loop.cancel("keeper answers")
        self._loop.unwatch(self.link.fileno())
        self.link.close()
        self.link = None
        if self._when_left is None:
            log.warning("%s", error)
        self._mend()

    def _mend(self) -> None:
        self._loop.in_background(self._sweep_and_start, self._mended)

    def _sweep_and_start(
        self,
    ) -> tuple[tuple[int, ...], tuple[KeeperLink, subprocess.Popen[bytes]] | None]:
        if self._child is not None:
            self._child.wait()
        left_behind = link.sweep(self._place)
        if self._when_left is not None:
            return left_behind, None
        return left_behind, link.start(self._place)

    def _mended(self, result: Any, error: Exception | None) -> None:
        if error is not None:
            log.error("cannot start a keeper: %s", error)
            self._loop.at("mend", time.monotonic() + MEND_SECONDS, self._mend)
            return
        left_behind, started = result
        self._lost_with_keeper(left_behind)
        if started is not None:
            found, self._child = started
            self._take_link(found)
        if self._when_left is not None:
            if self.link is not None:
                self.leave(self._when_left)
            else:
                self._when_left()
            return
        self.converge()

    def _lost_with_keeper(self, left_behind: tuple[int, ...]) -> None:
        """Say what became of the ranks of a keeper that died: they died with it, as the sweep has seen."""
        if self._launching is not None and self._launching.is_sent:
            self._launch_failed("the keeper died while it started the ranks")
        gang = self.gang
        if gang is None:
            return
        for rank in list(gang.alive):
            self._read_channel(rank.rank)
            if self._ending is None and self._when_left is None:
                self._tell(gang.exited(rank.rank, None))
            rank.is_alive = False
        if self._ending is not None or self._when_left is not None:
            self._gone(left_behind)

    # -- channels

    def _take_channels(self, channels: dict[int, socket.socket]) -> None:
        assert self.gang is not None
        for number, channel in channels.items():
            self.gang.ranks[number].channel = channel
            self._loop.watch(channel.fileno(), partial(self._read_channel, number))

    def _read_channel(self, number: int) -> None:
        """Take what a rank has reported so far."""
        rank = self.gang.ranks.get(number) if self.gang is not None else None
        if rank is None:
            return
        for _ in range(PACKETS_AT_ONCE):
            if rank.channel is None:
                return
            try:
                packet = rank.channel.recv(MAX_PACKET_BYTES + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                packet = b""
            if not packet:
                self._close_channel(number)
                return
            self._take_packet(number, packet, time.monotonic())

    def _take_packet(self, number: int, packet: bytes, now: float) -> None:
        gang = self.gang
        if gang is None:
            return
        before = gang.understood
        for said in gang.hear(number, packet, now):
            self._tell(said)
        if gang.understood is not None and gang.understood != before:
            notes = {
                "assignment": to_message(gang.assignment),
                "understood": to_plain(gang.understood),
            }
            self._ask("note", epoch=gang.epoch, notes=notes)
        if gang.wants_beat:
            self._beat()

    def _close_channel(self, number: int) -> None:
        rank = self.gang.ranks.get(number) if self.gang is not None else None
        if rank is not None and rank.channel is not None:
            self._loop.unwatch(rank.channel.fileno())
            rank.channel.close()
            rank.channel = None

    def bound_outputs(self) -> None:
        """Keep the ranks' files within their limit."""
        gang = self.gang
        if gang is None or not gang.plan.output_limit_bytes:
            return
        for rank in gang.plan.ranks:
            for path in output.paths(gang.plan.output_folder, rank):
                try:
                    output.bound(path, gang.plan.output_limit_bytes)
                except OSError as error:
                    log.warning("cannot cut %s: %s", path, error)
