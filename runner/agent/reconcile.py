"""Convergence: what the assignment says becomes true on this node, however often it is said.

no ranks, a plan never started before   -> `Launcher`: prepare, spawn    RanksStarted or LaunchFailed
ranks of an older epoch, or idle        -> `Terminator`: SIGTERM, SIGKILL    RanksTerminated, once nothing of them is seen any more
    if they hang                        -> stacks, SIGKILL
no ranks, idle                          ->                               RanksTerminated for the attempt there was last
the keeper died                         -> sweep, start another          RankExited without a code for each rank it held
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.hangs import flight_recorder
from runner.agent.identity import Identity
from runner.agent.launch.keeper_client import KeeperState
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.launch.launcher import Launch, Launcher
from runner.agent.logs.log_search import LogSearch, kernel_source
from runner.agent.ranks import output_files
from runner.agent.ranks.channels import Channels
from runner.agent.ranks.gang import LocalGang
from runner.agent.ranks.reports import HelloReport
from runner.agent.ranks.termination import Termination, Terminator
from runner.agent.transport.signal_emitter import SignalEmitter
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import RankExited, RanksTerminated
from runner.facts.wire import from_message, from_plain, to_message, to_plain

log = logging.getLogger("stoker.agent")

# Finished, stopped as asked, settings refused (docs/contract.md): all others may yet end the same way.
ORDERLY_EXITS = (0, 75, 78)


class Reconciler:
    """Owns the gang.

    `is_sure` is False while the register may hold something newer than what was read: nothing is started then.
    """

    def __init__(
        self, config: AgentConfig, identity: Identity, loop: EventLoop, *, emitter: SignalEmitter
    ) -> None:
        self._identity = identity
        self._loop, self._emitter = loop, emitter
        self.keeper = KeeperLifecycle(
            config, loop, on_message=self._hear_keeper, on_lost=self._lost_with_keeper
        )
        self._launcher = Launcher(
            config, identity, loop, emitter=emitter, keeper=self.keeper, on_change=self.reconcile
        )
        self._terminator = Terminator(loop, self.keeper)
        kernel_log = kernel_source(
            config.cluster.kernel_log, node=config.node, shares_machine=config.shares_machine
        )
        self.log_search = LogSearch(loop, emitter, folder=config.folder, kernel_log=kernel_log)
        self.preloader = self._launcher.preloader
        self.channels = Channels(loop, self._take_packet)
        self.gang: LocalGang | None = None
        self.is_sure = False
        self._assignment: Assignment | None = None
        # it is meant for this life of the agent: else nothing is started
        self._is_mine = False
        # why the newest ranks were not forked
        self._cold = ""
        # of the newest ranks, told already
        self._exits: list[RankExited] = []
        self._when_left: Callable[[], None] | None = None
        # came before their `started`
        self._waiting_channels: dict[int, socket.socket] = {}
        # output files that could not be cut, said already
        self._uncut: dict[str, None] = {}

    # -- beginning

    def begin(self) -> KeeperState:
        """Sweep, find or start the keeper, adopt the ranks it holds. Raises PermanentError when no keeper can be had."""
        state = self.keeper.begin()
        if not state.ranks:
            return state
        pids = {item["rank"]: item["pid"] for item in state.ranks}
        assignment: Assignment = from_message(state.annotations["assignment"])
        self.gang = gang = LocalGang(assignment, pids, self._emitter.next_header, time.monotonic())
        understood = state.annotations.get("understood")
        if understood is not None:
            gang.hello = from_plain(HelloReport, understood)
        for item in state.ranks:
            gang.ranks[item["rank"]].is_alive = item["exit_code"] is None
        log.info("adopted attempt %s, ranks %s", gang.attempt, [rank.rank for rank in gang.alive])
        self.log_search.begun(gang, adopted=True)
        return state

    def report_beginning(self, state: KeeperState, already: list[object]) -> None:
        """Tell, after joining, what became of the ranks an earlier life started, but exits that wait to be sent `already`."""
        gang = self.gang
        if gang is None:
            self._confirm_gone()
            return
        self._cold = state.cold
        self._emitter.emit(gang.started(cold=state.cold))
        for rank, packets in state.buffered.items():
            for packet in packets:
                self._take_packet(rank, packet)
        self.channels.add(state.channels)
        waiting = [fact for fact in already if isinstance(fact, RankExited)]
        self._exits = [fact for fact in waiting if fact.attempt == gang.attempt]
        known = {fact.rank for fact in self._exits}
        for item in state.ranks:
            known_already = item["acknowledged"] or item["end_requested"] or item["rank"] in known
            if item["exit_code"] is not None and not known_already:
                self.channels.read(item["rank"])
                self._tell_exit(gang, item["rank"], item["exit_code"])

    # -- the assignment

    def report_again(self) -> None:
        """Tell what became of the ranks, as at the beginning: whoever did not know this agent then has passed it over."""
        if self.gang is not None:
            self._emitter.emit(self.gang.started(cold=self._cold))
        for fact in self._exits:
            self._emitter.emit(replace(fact, **self._emitter.next_header()))
        if self.gang is None and self._launcher.launch is None:
            self._confirm_gone()

    def assign(self, assignment: Assignment, *, is_mine: bool) -> None:
        """Take what the register holds; older epochs than one obeyed before are ignored.

        What is not meant for this life ends ranks of older epochs, and starts nothing.
        """
        if assignment.epoch < self._identity.epoch:
            log.info("ignored an assignment of epoch %d", assignment.epoch)
            return
        self._identity.refuse_older(assignment.epoch)
        before, self._assignment = self._assignment, assignment
        was_mine, self._is_mine = self._is_mine, is_mine
        if is_mine:
            self.preloader.want(assignment.warm)
        same = before is not None and replace(before, warm=assignment.warm) == assignment
        if same and was_mine == is_mine:
            # nothing else is wanted than before
            return
        if assignment.plan is None and self.gang is None and self._launcher.launch is None:
            if is_mine:
                self._confirm_gone()
            return
        self.reconcile()

    def reconcile(self) -> None:
        """Do the next thing that is missing, if nothing is under way."""
        wanted = self._assignment
        if wanted is None or not self.keeper.is_up or self._when_left is not None:
            return
        gang, launch = self.gang, self._launcher.launch
        if launch is not None:
            self._go_on(launch, wanted)
        elif gang is not None:
            if wanted.plan is None or wanted.epoch > gang.epoch:
                self._terminator.begin(
                    gang,
                    grace_seconds=wanted.grace_seconds,
                    stacks_seconds=wanted.stacks_seconds,
                )
        elif wanted.plan is not None and self._may_launch(wanted):
            self._launcher.begin(wanted)

    def fence(self, reason: str) -> None:
        """End the ranks on our own account."""
        end = self._terminator.current
        if self.gang is not None and (end is None or not end.fenced):
            log.warning("fenced: %s", reason)
            self._terminator.begin(self.gang, grace_seconds=0.0, fenced=True)

    def leave(self, when_left: Callable[[], None]) -> None:
        """End ranks and keeper for good, then call back."""
        self._when_left = when_left
        self.keeper.leave()

    def _may_launch(self, wanted: Assignment) -> bool:
        launched = self._identity.launched
        was_launched = launched is not None and launched[0] >= wanted.epoch
        return self.is_sure and self._is_mine and not was_launched

    def _confirm_gone(self) -> None:
        """Say that nothing is left of the newest attempt: true, since nothing runs here and earlier lives were swept."""
        launched = self._identity.launched
        if launched is not None:
            epoch, attempt = launched
            self._emitter.emit(
                RanksTerminated(**self._emitter.next_header(), epoch=epoch, attempt=attempt)
            )
        idle = self._assignment
        if idle is None or idle.plan is not None or idle.attempt is None:
            return
        if launched is None or launched[1] != idle.attempt:
            # Its plan was overtaken before it was read; the epoch obeyed since then keeps it from ever being started.
            self._emitter.emit(
                RanksTerminated(
                    **self._emitter.next_header(), epoch=idle.epoch, attempt=idle.attempt
                )
            )

    # -- ranks come and go

    def _go_on(self, launch: Launch, wanted: Assignment) -> None:
        is_overtaken = wanted.plan is None or wanted.epoch > launch.assignment.epoch
        if (is_overtaken or not self._is_mine) and not launch.is_sent:
            self._launcher.call_off()
            self._confirm_gone()
            self.reconcile()
        elif self.is_sure:
            self._launcher.go_on()

    def _started(self, message: dict[str, Any]) -> None:
        launch = self._launcher.started()
        if launch is None:
            # ranks that nobody here has asked for
            if self.gang is None:
                self.keeper.send("kill", epoch=self._identity.epoch)
            return
        pids = {item["rank"]: item["pid"] for item in message["ranks"]}
        self.gang = LocalGang(
            launch.assignment,
            pids,
            self._emitter.next_header,
            time.monotonic(),
            spawned_at=launch.sent_at,
        )
        self.log_search.begun(self.gang)
        self._cold, self._exits, self._uncut = message["cold"], [], {}
        self._emitter.emit(self.gang.started(cold=self._cold))
        if not self._cold:
            self.preloader.served()
        channels, self._waiting_channels = self._waiting_channels, {}
        self.channels.add(channels)
        self._emitter.heartbeat()
        self.reconcile()

    def _spawn_failed(self, reason: str) -> None:
        if self._launcher.launch is None and self.gang is not None:
            # We adopted a gang that was still being spawned; the keeper has ended it by now.
            self._launcher.launch = Launch(assignment=self.gang.assignment)
            self.channels.finish()
            self.gang = None
            self.log_search.gone()
            self._terminator.finish()
        self._launcher.failed(reason)

    def _gone(self, left_behind: tuple[int, ...]) -> None:
        self.channels.finish()
        gang, end = self.gang, self._terminator.finish()
        self.gang = None
        self.log_search.gone()
        if gang is not None:
            end = end or Termination(gang=gang, kill_at=0.0)
            for said in gang.terminated(
                left_behind=left_behind, fenced=end.fenced, stacks=end.stacks, stands=end.stands
            ):
                self._emitter.emit(said)
            self._emitter.heartbeat()
            clear = partial(flight_recorder.remove_pipes, gang.plan.output_folder, gang.plan.ranks)
            self._loop.in_background(clear, lambda *_: None)
        self.reconcile()

    def _tell_exit(self, gang: LocalGang, rank: int, exit_code: int | None) -> None:
        fact = gang.exited(rank, exit_code)
        self._exits.append(fact)
        self._emitter.emit(fact)
        if exit_code not in ORDERLY_EXITS:
            self.log_search.ended(gang, rank)

    def _exited(self, message: dict[str, Any]) -> None:
        gang, number = self.gang, message["rank"]
        if gang is None or message["epoch"] != gang.epoch:
            return
        self.channels.read(number)
        if message["end_requested"]:
            gang.ranks[number].is_alive = False
        else:
            self._tell_exit(gang, number, message["exit_code"])
        is_ending = self._terminator.current is not None
        if not is_ending and not message["end_requested"]:
            if message["exit_code"] not in ORDERLY_EXITS:
                # The gang is broken, and there is nothing to save: whoever decides can only agree.
                self._terminator.begin(gang, grace_seconds=0.0)
        elif is_ending and not gang.alive:
            # what they left behind
            self._terminator.kill()

    # -- the keeper and the ranks

    def acknowledge(self, exits: list[RankExited]) -> None:
        """Let the keeper forget exits that the store has."""
        for fact in exits:
            self.keeper.send("acknowledge", epoch=fact.epoch, rank=fact.rank)

    def signal_rank(self, rank: int, number: int) -> None:
        """Hit one rank as a drill does: what follows counts as its own doing."""
        self.keeper.send("signal", rank=rank, signal=number, ends=False)

    def bound_outputs(self) -> None:
        """Keep the ranks' files within their limit."""
        gang = self.gang
        if gang is None or not gang.plan.output_limit_bytes:
            return
        for rank in gang.plan.ranks:
            for path in output_files.paths(gang.plan.output_folder, rank):
                try:
                    output_files.truncate(path, gang.plan.output_limit_bytes)
                except OSError as error:
                    if path.name not in self._uncut:
                        log.warning("cannot cut %s: %s; said once", path, error)
                    self._uncut[path.name] = None

    def _hear_keeper(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "channel":
                self._waiting_channels[message["rank"]] = message["socket"]
            case "started":
                self.keeper.answered()
                self._started(message)
            case "failed":
                self.keeper.answered()
                self._spawn_failed(message["reason"])
            case "exited":
                self._exited(message)
            case "warm":
                self.preloader.hear(message)
            case "terminated":
                self.keeper.answered()
                self._gone(tuple(message["left_behind"]))

    def _lost_with_keeper(self, left_behind: tuple[int, ...]) -> None:
        """Say what became of the ranks of a keeper that died: they died with it, as the sweep has seen."""
        launch = self._launcher.launch
        if launch is not None and launch.is_sent:
            self._launcher.failed("the keeper died while it started the ranks")
        gang = self.gang
        is_meant = self._terminator.current is not None or self._when_left is not None
        for rank in list(gang.alive) if gang is not None else []:
            self.channels.read(rank.rank)
            if gang is not None and not is_meant:
                self._tell_exit(gang, rank.rank, None)
            rank.is_alive = False
        if is_meant:
            self._gone(left_behind)
        if self._when_left is not None:
            self._when_left()
        else:
            self.preloader.begin()
            self.reconcile()

    def _take_packet(self, rank: int, packet: bytes) -> None:
        gang = self.gang
        if gang is None or rank not in gang.ranks:
            return
        before = gang.hello
        for said in gang.on_packet(rank, packet, time.monotonic()):
            self._emitter.emit(said)
        if gang.hello is not None and gang.hello != before:
            annotations = {
                "assignment": to_message(gang.assignment),
                "understood": to_plain(gang.hello),
            }
            self.keeper.send("annotate", epoch=gang.epoch, annotations=annotations)
        if gang.heartbeat_due:
            self._emitter.heartbeat()
