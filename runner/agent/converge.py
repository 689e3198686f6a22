"""Convergence: what the assignment says becomes true on this node, however often it is said.

no ranks, a plan never started before   -> prepare, spawn            RanksStarted or LaunchFailed
ranks of an older epoch, or idle        -> SIGTERM, grace, SIGKILL   RanksGone, once nothing of them is seen any more
    if they hang                        -> stacks, SIGKILL
no ranks, idle                          ->                           RanksGone for the attempt there was last
the keeper died                         -> sweep, start another      RankExited without a code for each rank it held
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from runner.agent import launch, output, stacks
from runner.agent.channels import Channels
from runner.agent.devices import Devices, DevicesHeld
from runner.agent.gang import Gang, Stamp
from runner.agent.identity import Identity
from runner.agent.keeping import Keeping
from runner.agent.link import KeeperState, Place
from runner.agent.loop import Loop
from runner.agent.program import NoPythonProgram
from runner.agent.reports import Hello
from runner.agent.warming import Warming
from runner.errors import StokerError
from runner.facts.assignments import Assignment
from runner.facts.signals import DevicesReleased, LaunchFailed, RankExited, RanksGone
from runner.facts.wire import from_message, from_plain, to_message, to_plain

log = logging.getLogger("stoker.agent")

PREPARE_SECONDS = 30.0  # for folders to be made and the epoch raised on a slow file system; chosen
MAX_REASON = 2048  # characters of why a launch failed
# Finished, stopped as asked, settings refused (docs/contract.md): all others may yet end the same way.
ORDERLY_EXITS = (0, 75, 78)


@dataclass(slots=True, kw_only=True)
class Launching:
    """A plan on its way to the keeper."""

    assignment: Assignment
    is_prepared: bool = False
    is_sent: bool = False
    sent_at: float = 0.0  # monotonic seconds


@dataclass(slots=True, kw_only=True)
class Ending:
    """Ranks on their way out. `kill_at`: monotonic seconds."""

    kill_at: float
    is_killed: bool = False
    fenced: bool = False
    stacks: int = 0  # ranks whose stacks were written down before


class Convergence:
    """Owns the gang. `stamp` gives a signal its source, `tell` sends a durable one, `beat` a heartbeat at once.

    `is_sure` is False while the register may hold something newer than what was read: nothing is started then.
    """

    def __init__(
        self,
        place: Place,
        identity: Identity,
        loop: Loop,
        *,
        stamp: Stamp,
        tell: Callable[[object], None],
        beat: Callable[[], None],
    ) -> None:
        self._place = place
        self._identity = identity
        self._loop = loop
        self._stamp = stamp
        self._tell = tell
        self._beat = beat
        self.keeping = Keeping(
            place, loop, on_message=self._hear_keeper, on_lost=self._lost_with_keeper
        )
        self.warming = Warming(place, loop, ask=self.keeping.ask, on_change=self.converge)
        self.channels = Channels(loop, self._take_packet)
        self.gang: Gang | None = None
        self.is_sure = False
        self.devices = Devices(place.node, loop, self._devices_released, folder=place.device_files)
        self._assignment: Assignment | None = None
        self._is_mine = False  # it is meant for this life of the agent: else nothing is started
        self._cold = ""  # why the newest ranks were not forked
        self._exits: list[RankExited] = []  # of the newest ranks, told already
        self._launching: Launching | None = None
        self._ending: Ending | None = None
        self._when_left: Callable[[], None] | None = None
        self._waiting_channels: dict[int, socket.socket] = {}  # came before their `started`

    # -- beginning

    def begin(self) -> KeeperState:
        """Sweep, find or start the keeper, adopt the ranks it holds. Raises PermanentError when no keeper can be had."""
        state = self.keeping.begin()
        if not state.ranks:
            return state
        pids = {item["rank"]: item["pid"] for item in state.ranks}
        assignment: Assignment = from_message(state.notes["assignment"])
        self.gang = gang = Gang(assignment, pids, self._stamp, time.monotonic())
        understood = state.notes.get("understood")
        if understood is not None:
            gang.understood = from_plain(Hello, understood)
        for item in state.ranks:
            gang.ranks[item["rank"]].is_alive = item["exit_code"] is None
        log.info("adopted attempt %s, ranks %s", gang.attempt, [rank.rank for rank in gang.alive])
        return state

    def report_beginning(self, state: KeeperState, already: list[object]) -> None:
        """Tell, after joining, what became of the ranks an earlier life started, but exits that wait to be sent `already`."""
        gang = self.gang
        if gang is None:
            self._confirm_gone()
            return
        self._cold = state.cold
        self._tell(gang.started(cold=state.cold))
        for rank, packets in state.held.items():
            for packet in packets:
                self._take_packet(rank, packet)
        self.channels.add(state.channels)
        waiting = [fact for fact in already if isinstance(fact, RankExited)]
        self._exits = [fact for fact in waiting if fact.attempt == gang.attempt]
        known = {fact.rank for fact in self._exits}
        for item in state.ranks:
            known_already = item["acknowledged"] or item["asked"] or item["rank"] in known
            if item["exit_code"] is not None and not known_already:
                self.channels.read(item["rank"])
                self._tell_exit(gang, item["rank"], item["exit_code"])

    # -- the assignment

    def report_again(self) -> None:
        """Tell what became of the ranks, as at the beginning: whoever did not know this agent then has passed it over."""
        if self.gang is not None:
            self._tell(self.gang.started(cold=self._cold))
        for fact in self._exits:
            self._tell(replace(fact, **self._stamp()))
        if self.gang is None and self._launching is None:
            self._confirm_gone()

    def assign(self, assignment: Assignment, *, is_mine: bool) -> None:
        """Take what the register holds; older epochs than one obeyed before are ignored.

        What is not meant for this life ends ranks of older epochs, and starts nothing.
        """
        if assignment.epoch < self._identity.epoch:
            log.info("ignored an assignment of epoch %d", assignment.epoch)
            return
        self._identity.obey(assignment.epoch)
        before, self._assignment = self._assignment, assignment
        was_mine, self._is_mine = self._is_mine, is_mine
        if is_mine:
            self.warming.want(assignment.warm)
        same = before is not None and replace(before, warm=assignment.warm) == assignment
        if same and was_mine == is_mine:
            return  # nothing else is wanted than before
        if assignment.plan is None and self.gang is None and self._launching is None:
            if is_mine:
                self._confirm_gone()
            return
        self.converge()

    def converge(self) -> None:
        """Do the next thing that is missing, if nothing is under way."""
        wanted = self._assignment
        if wanted is None or not self.keeping.is_up or self._when_left is not None:
            return
        gang = self.gang
        if self._launching is not None:
            self._go_on_launching(self._launching, wanted)
        elif gang is not None:
            if wanted.plan is None or wanted.epoch > gang.epoch:
                self._end(grace_seconds=wanted.grace_seconds, stacks_seconds=wanted.stacks_seconds)
        elif wanted.plan is not None and self._may_launch(wanted):
            self._launch(wanted)

    def fence(self, reason: str) -> None:
        """End the ranks on our own account."""
        if self.gang is not None and (self._ending is None or not self._ending.fenced):
            log.warning("fenced: %s", reason)
            self._end(grace_seconds=0.0, fenced=True)

    def leave(self, when_left: Callable[[], None]) -> None:
        """End ranks and keeper for good, then call back."""
        self._when_left = when_left
        self.keeping.leave()

    def _may_launch(self, wanted: Assignment) -> bool:
        launched = self._identity.launched
        was_launched = launched is not None and launched[0] >= wanted.epoch
        return self.is_sure and self._is_mine and not was_launched

    def _confirm_gone(self) -> None:
        """Say that nothing is left of the newest attempt: true, since nothing runs here and earlier lives were swept."""
        launched = self._identity.launched
        if launched is not None:
            epoch, attempt = launched
            self._tell(RanksGone(**self._stamp(), epoch=epoch, attempt=attempt))
        idle = self._assignment
        if idle is None or idle.plan is not None or idle.attempt is None:
            return
        if launched is None or launched[1] != idle.attempt:
            # Its plan was overtaken before it was read; the epoch obeyed since then keeps it from ever being started.
            self._tell(RanksGone(**self._stamp(), epoch=idle.epoch, attempt=idle.attempt))

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
        self.devices.cease()
        prepared = partial(self._prepared, launching)
        self._loop.in_background(partial(self._make_ready, assignment), prepared)
        late = TimeoutError(f"the folders did not answer within {PREPARE_SECONDS:.0f} s")
        self._loop.at("prepare", time.monotonic() + PREPARE_SECONDS, partial(prepared, None, late))

    def _make_ready(self, assignment: Assignment) -> bool:
        """Prepare, on a thread of its own; return whether there are devices to wait for."""
        launch.prepare(assignment)
        return bool(self._place.cluster.device_release_seconds and self.devices.program())

    def _prepared(
        self, launching: Launching, has_devices: bool | None, error: Exception | None
    ) -> None:
        if self._launching is not launching or launching.is_prepared:
            return
        self._loop.cancel("prepare")
        if error is not None:
            self._launch_failed(f"cannot prepare: {error}")
        elif has_devices:
            wait = partial(
                self.devices.wait,
                _environment_of(launching.assignment),
                self._place.cluster.device_release_seconds,
                lambda: self._launching is launching,
            )
            self._loop.in_background(wait, partial(self._devices_free, launching))
        else:
            launching.is_prepared = True
            self.converge()

    def _devices_free(self, launching: Launching, _: None, error: Exception | None) -> None:
        if self._launching is not launching:
            return
        if error is not None:
            if isinstance(error, DevicesHeld):
                self.devices.watch(_environment_of(launching.assignment))
            self._launch_failed(str(error), devices_held=isinstance(error, DevicesHeld))
        else:
            launching.is_prepared = True
            self.converge()

    def _devices_released(self) -> None:
        self._tell(DevicesReleased(**self._stamp()))

    def _go_on_launching(self, launching: Launching, wanted: Assignment) -> None:
        if launching.is_sent:
            return
        if wanted.plan is None or wanted.epoch > launching.assignment.epoch:
            self._launching = None
            self._confirm_gone()
            self.converge()
        elif launching.is_prepared and self.is_sure:
            patience_ends = self.warming.patience_ends()
            if patience_ends is None:
                self._spawn(launching)
            else:
                self._loop.at("patience", patience_ends, self.converge)

    def _spawn(self, launching: Launching) -> None:
        fill = partial(
            launch.spawn_request,
            launching.assignment,
            cluster=self._place.cluster.name,
            python=self._place.python,
        )
        try:
            try:
                request = fill(fork=self.warming.state == "ready", cold=self.warming.why_cold())
            except NoPythonProgram as error:  # it was one when the modules were imported
                request = fill(cold=str(error))
        except StokerError as error:
            self._launch_failed(str(error))
            return
        launching.is_sent, launching.sent_at = True, time.monotonic()
        self.keeping.ask(**request)
        self.keeping.expect_answer()

    def _started(self, message: dict[str, Any]) -> None:
        launching, self._launching = self._launching, None
        if launching is None:
            if self.gang is None:  # ranks that nobody here has asked for
                self.keeping.ask("kill", epoch=self._identity.epoch)
            return
        pids = {item["rank"]: item["pid"] for item in message["ranks"]}
        self.gang = Gang(
            launching.assignment,
            pids,
            self._stamp,
            time.monotonic(),
            spawned_at=launching.sent_at,
        )
        self._cold, self._exits = message["cold"], []
        self._tell(self.gang.started(cold=self._cold))
        if not message["cold"]:
            self.warming.served()
        channels, self._waiting_channels = self._waiting_channels, {}
        self.channels.add(channels)
        self._beat()
        self.converge()

    def _spawn_failed(self, reason: str) -> None:
        if self._launching is None and self.gang is not None:
            # We adopted a gang that was still being spawned; the keeper has ended it by now.
            self._launching = Launching(assignment=self.gang.assignment)
            self.channels.finish()
            self.gang = self._ending = None
        self._launch_failed(reason)

    def _launch_failed(self, reason: str, *, devices_held: bool = False) -> None:
        launching, self._launching = self._launching, None
        if launching is None or launching.assignment.plan is None:
            return
        attempt, epoch = launching.assignment.plan.attempt, launching.assignment.epoch
        log.warning("attempt %s cannot be started: %s", attempt, reason)
        stamp, reason = self._stamp(), reason[:MAX_REASON]
        failed = LaunchFailed(
            **stamp, epoch=epoch, attempt=attempt, reason=reason, devices_held=devices_held
        )
        self._tell(failed)
        self.converge()

    # -- ending ranks

    def _end(
        self, *, grace_seconds: float, stacks_seconds: float = 0.0, fenced: bool = False
    ) -> None:
        gang = self.gang
        if gang is None:
            return
        now = time.monotonic()
        late_seconds = 2 * stacks.REAP_SECONDS if stacks_seconds > 0 else 0.0
        kill_at = now + max(grace_seconds, stacks_seconds + late_seconds)
        if self._ending is None:
            self._ending = Ending(kill_at=kill_at)
            if stacks_seconds > 0 and gang.alive:
                self._dump_stacks(gang, self._ending, stacks_seconds)
            if grace_seconds > 0:
                for rank in gang.alive:
                    number = int(signal.SIGTERM)
                    self.keeping.ask("signal", rank=rank.rank, signal=number, asked=True)
        self._ending.kill_at = min(self._ending.kill_at, kill_at)
        self._ending.fenced = self._ending.fenced or fenced
        if self._ending.kill_at <= now or not gang.alive:
            self._kill()
        else:
            self._loop.at("grace", self._ending.kill_at, self._kill)

    def _dump_stacks(self, gang: Gang, ending: Ending, budget_seconds: float) -> None:
        """Write down where ranks stand, then kill them; the kill does not wait for a folder that hangs."""
        job = partial(
            stacks.dump,
            {rank.rank: rank.pid for rank in gang.alive},
            folder=Path(gang.plan.output_folder, stacks.FOLDER),
            budget_seconds=budget_seconds,
            program=stacks.find_program(),
        )

        def dumped(count: int | None, error: Exception | None) -> None:
            if error is not None:
                log.warning("cannot write stacks of %s: %s", gang.attempt, error)
            if self._ending is ending:
                ending.stacks = count or 0
                self._kill()

        self._loop.in_background(job, dumped)

    def _kill(self) -> None:
        gang, ending = self.gang, self._ending
        if gang is None or ending is None or ending.is_killed:
            return
        ending.is_killed = True
        self.keeping.ask("kill", epoch=gang.epoch, attempt=str(gang.attempt))
        self.keeping.expect_answer()

    def _gone(self, left_behind: tuple[int, ...]) -> None:
        self._loop.cancel("grace")
        self.channels.finish()
        gang, ending = self.gang, self._ending
        self.gang = self._ending = None
        if gang is not None:
            ending = ending or Ending(kill_at=0.0)
            for said in gang.gone(
                left_behind=left_behind, fenced=ending.fenced, stacks=ending.stacks
            ):
                self._tell(said)
            self._beat()
        self.converge()

    def _tell_exit(self, gang: Gang, rank: int, exit_code: int | None) -> None:
        fact = gang.exited(rank, exit_code)
        self._exits.append(fact)
        self._tell(fact)

    def _exited(self, message: dict[str, Any]) -> None:
        gang, number = self.gang, message["rank"]
        if gang is None or message["epoch"] != gang.epoch:
            return
        self.channels.read(number)
        if message["asked"]:
            gang.ranks[number].is_alive = False
        else:
            self._tell_exit(gang, number, message["exit_code"])
        if self._ending is None and not message["asked"]:
            if message["exit_code"] not in ORDERLY_EXITS:
                # The gang is broken, and there is nothing to save: whoever decides can only agree.
                self._end(grace_seconds=0.0)
        elif self._ending is not None and not gang.alive:
            self._kill()  # what they left behind

    # -- the keeper and the ranks

    def acknowledge(self, exits: list[RankExited]) -> None:
        """Let the keeper forget exits that the store has."""
        for fact in exits:
            self.keeping.ask("acknowledge", epoch=fact.epoch, rank=fact.rank)

    def strike_rank(self, rank: int, number: int) -> None:
        """Hit one rank as a drill does: what follows counts as its own doing."""
        self.keeping.ask("signal", rank=rank, signal=number, asked=False)

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

    def _hear_keeper(self, message: dict[str, Any]) -> None:
        match message["tell"]:
            case "channel":
                self._waiting_channels[message["rank"]] = message["socket"]
            case "started":
                self.keeping.answered()
                self._started(message)
            case "failed":
                self.keeping.answered()
                self._spawn_failed(message["reason"])
            case "exited":
                self._exited(message)
            case "warm":
                self.warming.hear(message)
            case "gone":
                self.keeping.answered()
                self._gone(tuple(message["left_behind"]))

    def _lost_with_keeper(self, left_behind: tuple[int, ...]) -> None:
        """Say what became of the ranks of a keeper that died: they died with it, as the sweep has seen."""
        if self._launching is not None and self._launching.is_sent:
            self._launch_failed("the keeper died while it started the ranks")
        gang = self.gang
        is_meant = self._ending is not None or self._when_left is not None
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
            self.warming.begin()
            self.converge()

    def _take_packet(self, rank: int, packet: bytes) -> None:
        gang = self.gang
        if gang is None or rank not in gang.ranks:
            return
        before = gang.understood
        for said in gang.hear(rank, packet, time.monotonic()):
            self._tell(said)
        if gang.understood is not None and gang.understood != before:
            notes = {
                "assignment": to_message(gang.assignment),
                "understood": to_plain(gang.understood),
            }
            self.keeping.ask("note", epoch=gang.epoch, notes=notes)
        if gang.wants_beat:
            self._beat()


def _environment_of(assignment: Assignment) -> dict[str, str]:
    """Return what ranks of an assignment have in all attempts."""
    plan = assignment.plan
    assert plan is not None
    return launch.lasting_environment(plan.environment, ranks_per_node=plan.ranks_per_node)
