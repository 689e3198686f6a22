"""The reconciler: brings the node's ranks to what the assignment wants, however often it comes.

state, assignment                   action                             signals
no ranks, a plan not started before -> `Launcher`: prepare, spawn      RanksStarted or LaunchFailed
ranks of an older generation, or idle    -> `Terminator`: SIGTERM, SIGKILL  RanksTerminated, once no process of theirs is left
    ranks that hang                 -> stacks, SIGKILL
no ranks, idle                                                         RanksTerminated for the newest attempt
the keeper died                     -> sweep, start another            RankExited without a code for each rank it had
"""

import logging
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from runner.agent.config import AgentConfig
from runner.agent.event_loop import EventLoop
from runner.agent.folders import FolderHangs, Folders
from runner.agent.hangs import flight_recorder
from runner.agent.identity import Identity
from runner.agent.launch import rank_commands, users
from runner.agent.launch.keeper_client import KeeperState
from runner.agent.launch.keeper_lifecycle import KeeperLifecycle
from runner.agent.launch.launcher import Launcher
from runner.agent.launch.rank_commands import Launch
from runner.agent.launch.users import RankUser
from runner.agent.logs.log_search import LogSearch
from runner.agent.ranks import output_files
from runner.agent.ranks.channels import Channels
from runner.agent.ranks.gang import LocalGang
from runner.agent.ranks.reports import HelloReport
from runner.agent.ranks.save_sealer import SaveSealer
from runner.agent.ranks.termination import Termination, Terminator
from runner.agent.transport.session import SignalEmitter
from runner.errors import StokerError
from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import RankExited, RanksTerminated
from runner.facts.wire import from_message, from_plain, to_message, to_plain

log = logging.getLogger("stoker.agent")

# Finished, stopped on request, settings refused (docs/contract.md): other ranks may yet end so, too.
ORDERLY_EXITS = (0, 75, 78)


class Reconciler:
    """Owns the gang. `is_sure` is False while the register may hold a newer assignment: then no rank is started."""

    def __init__(
        self,
        config: AgentConfig,
        identity: Identity,
        loop: EventLoop,
        *,
        folders: Folders,
        emitter: SignalEmitter,
    ) -> None:
        self._config, self._identity, self._folders = config, identity, folders
        self._loop, self._emitter = loop, emitter
        self.keeper = KeeperLifecycle(
            config, loop, on_message=self._on_keeper_message, on_lost=self._on_keeper_lost
        )
        self._launcher = Launcher(
            config,
            identity,
            loop,
            folders=folders,
            emitter=emitter,
            keeper=self.keeper,
            on_change=self.reconcile,
        )
        self._terminator = Terminator(loop, self.keeper, folders)
        self.log_search = LogSearch(config, loop, emitter, folders)
        folders.on_back = self.log_search.on_folder_back
        self.devices = self._launcher.devices
        self.preloader = self._launcher.preloader
        self.conditions = self._launcher.conditions
        self.save_sealer = SaveSealer(loop=loop, emit=emitter.emit)
        self.channels = Channels(loop, self._on_packet)
        self.gang: LocalGang | None = None
        # Emits the exit of the last rank, once what the ranks have printed is read.
        self._unread_exit: Callable[[], None] | None = None
        self.is_sure = False
        self._assignment: Assignment | None = None
        # Without an assignment for this agent instance, no rank is started.
        self._is_mine = False
        # Of the newest ranks.
        self._exits: list[RankExited] = []
        self._when_left: Callable[[], None] | None = None
        # Channels that came before the message of their start.
        self._early_channels: dict[int, socket.socket] = {}
        self._logged_untruncated = set[str]()

    @property
    def is_launching(self) -> bool:
        """Whether ranks are to start here, and have not yet."""
        return self._launcher.launch is not None

    def begin(self) -> KeeperState:
        """Sweep, find or start the keeper, and adopt its ranks. Raises PermanentError without a keeper."""
        state = self.keeper.begin()
        if not state.ranks:
            self.log_search.on_started_without_gang()
            return state
        assignment: Assignment = from_message(state.annotations["assignment"])
        self.gang = gang = self._make_gang(assignment, state.ranks)
        gang.not_forked_reason = state.not_forked_reason
        gang.needs_code = bool(state.annotations.get("needs_code"))
        understood = state.annotations.get("understood")
        if understood is not None:
            gang.hello = from_plain(HelloReport, understood)
        for item in state.ranks:
            gang.ranks[item["rank"]].is_alive = item["exit_code"] is None
        log.info("adopted attempt %s, ranks %s", gang.attempt, [rank.rank for rank in gang.alive])
        self.log_search.on_gang_started(gang, adopted=True)
        self._seal_saves(gang)
        return state

    def _make_gang(
        self, assignment: Assignment, ranks: list[dict[str, Any]], spawned_at: float | None = None
    ) -> LocalGang:
        return LocalGang(
            assignment,
            {item["rank"]: item["pid"] for item in ranks},
            self._emitter.next_header,
            time.monotonic(),
            stopped_seconds=self._config.cluster.stopped_seconds,
            spawned_at=spawned_at,
        )

    def _seal_saves(self, gang: LocalGang, user: RankUser | None = None) -> None:
        """Have what an unchanged script saves sealed meanwhile."""
        try:
            user = user or users.find_user(gang.plan.user)
            keys = rank_commands.seal_keys_environment(gang.plan, self._config)
        except StokerError as error:
            log.warning("the script's own checkpoints are not sealed: %s", error)
            return
        self.save_sealer.begin(gang, keys, user)

    def report_adopted(self, state: KeeperState, spooled: list[object]) -> None:
        """Report, after joining, the ranks of an earlier agent instance, without exits that wait in the spool already."""
        gang = self.gang
        if gang is None:
            self._confirm_gone()
            return
        self._emitter.emit(gang.started())
        for rank, packets in state.buffered.items():
            for packet in packets:
                self._on_packet(rank, packet)
        self.channels.add(state.channels)
        exits = [fact for fact in spooled if isinstance(fact, RankExited)]
        self._exits = [fact for fact in exits if fact.attempt == gang.attempt]
        known = {fact.rank for fact in self._exits}
        for item in state.ranks:
            is_known = item["acknowledged"] or item["end_requested"] or item["rank"] in known
            if item["exit_code"] is not None and not is_known:
                self.channels.read(item["rank"])
                self._emit_exit(gang, item["rank"], item["exit_code"])

    def report_again(self) -> None:
        """Report the ranks again: the supervisor ignored signals of an agent it did not know yet."""
        if self.gang is not None:
            self._emitter.emit(self.gang.started())
        for fact in self._exits:
            self._emitter.emit(replace(fact, **self._emitter.next_header()))
        if self.gang is None and self._launcher.launch is None:
            self._confirm_gone()

    def assign(self, assignment: Assignment, *, is_mine: bool) -> None:
        """Handle the register's assignment, unless its generation is older than one accepted before.

        An assignment for another instance ends ranks of older generations, and starts none.
        """
        if assignment.generation < self._identity.state.generation:
            log.info("ignored an assignment of the older generation %d", assignment.generation)
            return
        self._identity.refuse_older(assignment.generation)
        before, self._assignment = self._assignment, assignment
        was_mine, self._is_mine = self._is_mine, is_mine
        if is_mine:
            self.preloader.set_plan(assignment.warm)
            if assignment.warm is not None:
                self.log_search.prepare()
        is_same = before is not None and replace(before, warm=assignment.warm) == assignment
        if is_same and was_mine == is_mine:
            return
        if assignment.plan is not None or self.gang or self._launcher.launch:
            self.reconcile()
        elif is_mine:
            self._confirm_gone()

    def reconcile(self) -> None:
        """Take the next step towards the assignment, unless one is under way."""
        assignment = self._assignment
        if assignment is None or self.keeper.link is None or self._when_left is not None:
            return
        gang, launch = self.gang, self._launcher.launch
        if launch is not None:
            self._continue_launch(launch, assignment)
        elif gang is not None:
            if assignment.plan is None or assignment.generation > gang.generation:
                self._terminator.begin(
                    gang,
                    grace_seconds=assignment.grace_seconds,
                    stacks_seconds=assignment.stacks_seconds,
                )
        elif assignment.plan is not None and self._may_launch(assignment):
            self._launcher.begin(assignment)

    def fence(self, reason: str) -> None:
        """End the ranks without an order of the supervisor."""
        termination = self._terminator.current
        if self.gang is not None and (termination is None or not termination.fenced):
            log.warning("fenced, so the ranks are killed: %s", reason)
            self._terminator.begin(self.gang, grace_seconds=0.0, fenced=True)

    def leave(self, when_left: Callable[[], None]) -> None:
        """End ranks and keeper for good, then call back."""
        self._when_left = when_left
        self.keeper.leave()

    def _may_launch(self, assignment: Assignment) -> bool:
        launched = self._identity.state.launched
        was_launched = launched is not None and launched[0] >= assignment.generation
        return self.is_sure and self._is_mine and not was_launched

    def _confirm_gone(self) -> None:
        """Report the newest attempt as terminated: no rank runs here, and the sweep ended those of earlier instances."""
        launched = self._identity.state.launched
        if launched is not None:
            self._emit_terminated(*launched)
        idle = self._assignment
        if idle is None or idle.plan is not None or idle.attempt is None:
            return
        if launched is None or launched[1] != idle.attempt:
            # Its plan was replaced before it was read, and its generation is refused since.
            self._emit_terminated(idle.generation, idle.attempt)

    def _emit_terminated(self, generation: int, attempt: AttemptId) -> None:
        header = self._emitter.next_header()
        self._emitter.emit(RanksTerminated(**header, generation=generation, attempt=attempt))

    def _continue_launch(self, launch: Launch, assignment: Assignment) -> None:
        is_replaced = (
            assignment.plan is None or assignment.generation > launch.assignment.generation
        )
        if (is_replaced or not self._is_mine) and not launch.is_sent:
            self._launcher.pop()
            self._confirm_gone()
            self.reconcile()
        elif self.is_sure:
            self._launcher.advance()

    def _on_started(self, message: dict[str, Any]) -> None:
        launch = self._launcher.pop()
        if launch is None:
            # Ranks that this agent did not launch.
            if self.gang is None:
                self.keeper.send("kill", generation=self._identity.state.generation)
            return
        self.gang = gang = self._make_gang(launch.assignment, message["ranks"], launch.sent_at)
        gang.not_forked_reason = message["not_forked_reason"]
        self.log_search.on_gang_started(gang, launched_at=launch.sent_at)
        self._exits, self._logged_untruncated = [], set()
        self._emitter.emit(gang.started())
        if not gang.not_forked_reason:
            self.preloader.on_forked()
        channels, self._early_channels = self._early_channels, {}
        self.channels.add(channels)
        self._emitter.heartbeat()
        # Not before: its children would compete with what starts the ranks.
        self.conditions.begin(launch)
        self._seal_saves(gang, launch.user)
        self.reconcile()

    def _on_spawn_failed(self, reason: str) -> None:
        if self._launcher.launch is None and self.gang is not None:
            # The agent adopted a gang that was still being spawned; the keeper has ended it by now.
            self._launcher.launch = Launch(assignment=self.gang.assignment)
            self.channels.finish()
            self.gang = None
            self.log_search.on_gang_terminated()
            self._terminator.finish()
        self._launcher.fail(reason)

    def _on_terminated(self, left_behind: tuple[int, ...]) -> None:
        self._on_output_read()
        self.channels.finish()
        gang, termination = self.gang, self._terminator.finish()
        self.save_sealer.end(gang)
        self.gang = None
        self.log_search.on_gang_terminated()
        if gang is not None:
            end = termination or Termination(gang=gang, kill_at=0.0)
            for fact in end.signals(left_behind):
                self._emitter.emit(fact)
            self._emitter.heartbeat()
            folder = gang.plan.output_folder
            clear = partial(flight_recorder.remove_pipes, folder, gang.plan.ranks)
            self._folders.run(folder, clear, lambda *_: None)
        self.reconcile()

    def _emit_exit(self, gang: LocalGang, rank: int, exit_code: int | None) -> None:
        fact = gang.exited(rank, exit_code, stderr_tail=self._stderr_tail(gang, rank))
        self._exits.append(fact)
        self._emitter.emit(fact)
        if exit_code not in ORDERLY_EXITS:
            self.log_search.on_rank_failed(gang, rank)

    def _emit_last_exit(self, gang: LocalGang, rank: int, exit_code: int) -> None:
        """Emit the exit of the last rank here once all that the ranks have printed is read: the run may be summed up then."""
        gang.ranks[rank].is_alive = False
        self._unread_exit = partial(self._emit_exit, gang, rank, exit_code)
        self.log_search.read_all(gang, self._on_output_read)

    def _on_output_read(self) -> None:
        emit, self._unread_exit = self._unread_exit, None
        if emit is not None:
            self._emitter.heartbeat()
            emit()

    def _is_last_to_print(self, gang: LocalGang, rank: int, exit_code: int | None) -> bool:
        """Whether a rank ended well, as the last one here, of a gang whose steps are known by what it prints."""
        is_last = all(other.rank == rank for other in gang.alive)
        is_orderly = exit_code in ORDERLY_EXITS and self._terminator.current is None
        return is_last and is_orderly and gang.is_printing

    def _stderr_tail(self, gang: LocalGang, rank: int) -> str:
        """Return a rank's last lines; "" while their folder hangs, for an exit is reported at once."""
        folder = gang.plan.output_folder
        errors = output_files.paths(folder, rank)[1]
        try:
            return self._folders.ask(folder, partial(output_files.tail, errors))
        except FolderHangs as error:
            log.warning("rank %d ended, and its last lines are not read: %s", rank, error)
            return ""

    def _on_exited(self, message: dict[str, Any]) -> None:
        gang, number = self.gang, message["rank"]
        if gang is None or message["generation"] != gang.generation:
            return
        self.channels.read(number)
        is_failure = False
        if message["end_requested"]:
            gang.ranks[number].is_alive = False
        elif self._is_last_to_print(gang, number, message["exit_code"]):
            self._emit_last_exit(gang, number, message["exit_code"])
        else:
            self._emit_exit(gang, number, message["exit_code"])
            is_failure = message["exit_code"] not in ORDERLY_EXITS
        if self._terminator.current is None:
            if is_failure:
                # The gang is broken and has nothing to save: no need to ask the supervisor.
                self._terminator.begin(gang, grace_seconds=0.0)
        elif not gang.alive:
            # Kill the processes that the ranks left behind.
            self._terminator.kill()

    def acknowledge(self, exits: list[RankExited]) -> None:
        """Have the keeper drop exits that the store has."""
        for fact in exits:
            self.keeper.send("acknowledge", generation=fact.generation, rank=fact.rank)

    def signal_rank(self, rank: int, number: int) -> None:
        """Send a signal to one rank, as a drill: what follows counts as the rank's own failure."""
        self.keeper.send("signal", rank=rank, signal=number, ends=False)

    def bound_outputs(self) -> None:
        """Keep the ranks' files within their limit."""
        gang = self.gang
        if gang is None or not gang.plan.output_limit_bytes:
            return
        folder, limit_bytes = gang.plan.output_folder, gang.plan.output_limit_bytes
        bound = partial(
            output_files.bound,
            folder,
            gang.plan.ranks,
            limit_bytes,
            on_progress=self._folders.note_progress,
        )
        self._folders.poll(folder, bound, self._on_bounded, busy_seconds=0.0)

    def _on_bounded(
        self, failed: list[tuple[str, OSError]] | None, error: Exception | None
    ) -> None:
        for path, reason in failed or ():
            if path not in self._logged_untruncated:
                log.warning("cannot truncate %s: %s; further failures are not logged", path, reason)
            self._logged_untruncated.add(path)
        if error is not None and not isinstance(error, FolderHangs):
            raise error

    def _on_keeper_message(self, message: dict[str, Any]) -> None:
        match message["kind"]:
            case "channel":
                self._early_channels[message["rank"]] = message["socket"]
            case "started":
                self.keeper.on_answer()
                self._on_started(message)
            case "failed":
                self.keeper.on_answer()
                self._on_spawn_failed(message["reason"])
            case "exited":
                self._on_exited(message)
            case "warm":
                self.preloader.on_message(message)
            case "terminated":
                self.keeper.on_answer()
                self._on_terminated(tuple(message["left_behind"]))

    def _on_keeper_lost(self, left_behind: tuple[int, ...]) -> None:
        """Report the ranks of a keeper that died: they died with it, as the sweep confirmed."""
        launch = self._launcher.launch
        if launch is not None and launch.is_sent:
            self._launcher.fail("the keeper died while it started the ranks")
        self._on_output_read()
        gang = self.gang
        is_intended = self._terminator.current is not None or self._when_left is not None
        if gang is not None:
            for rank in gang.alive:
                self.channels.read(rank.rank)
                if not is_intended:
                    self._emit_exit(gang, rank.rank, None)
                rank.is_alive = False
        if is_intended:
            self._on_terminated(left_behind)
        if self._when_left is not None:
            self._when_left()
        else:
            self.preloader.request()
            self.reconcile()

    def _on_packet(self, rank: int, packet: bytes) -> None:
        gang = self.gang
        if gang is None or rank not in gang.ranks:
            return
        before = gang.hello
        signals = gang.on_packet(rank, packet, time.monotonic())
        for fact in signals:
            self._emitter.emit(fact)
        if signals:
            self.save_sealer.on_reports(gang, signals)
        if gang.hello is not None and gang.hello != before:
            assignment, understood = to_message(gang.assignment), to_plain(gang.hello)
            annotations = {"assignment": assignment, "understood": understood}
            annotations["needs_code"] = gang.needs_code
            self.keeper.send("annotate", generation=gang.generation, annotations=annotations)
        if gang.heartbeat_due:
            self._emitter.heartbeat()
