"""The agent: reads what its node is to run, makes it true, and says what it sees.

One owner thread (`Loop`) holds all state. Two more threads, those of the session's `StoreClient`, talk to the store and only post.
Blocking work on file systems runs on short-lived threads that post their result.
"""

from __future__ import annotations

import collections
import logging
import os
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from runner.agent import notices, tasks
from runner.agent.checks import hardware_parts
from runner.agent.checks.check_task import Checking
from runner.agent.event_loop import LATE_SECONDS, Loop
from runner.agent.fence import Fence
from runner.agent.identity import Identity, Unwritable
from runner.agent.launch.devices import Devices
from runner.agent.launch.keeper_client import AgentConfig
from runner.agent.notices import Announcement, Notices
from runner.agent.ranks import rank_resources
from runner.agent.reconcile import Reconciler
from runner.agent.transport.session import AgentSession, Source, new_life
from runner.agent.transport.signal_emitter import SignalEmitter
from runner.agent.transport.spool import Spool
from runner.agent.transport.store_client import StoreClient
from runner.errors import PermanentError, WireError
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.messages.signals import (
    Heartbeat,
    MalformedMessage,
    NodeJoined,
    NodeLeft,
    Notice,
    RankExited,
)
from runner.keeper import keeper
from runner.signer import load_signer
from runner.store.protocol import Store

log = logging.getLogger("stoker.agent")

# between two durable marks of progress; chosen
PROGRESS_MARK_SECONDS = 5.0
# for the store to take the last words
FLUSH_SECONDS = 5.0
# answers kept for tasks that arrive twice; chosen
MAX_TASKS_REMEMBERED = 256
# characters of why there is no warm process, or of what was junk
MAX_SHOWN = 300
# sources of junk told apart; chosen
MAX_JUNK_SOURCES = 100
SPOOL_NAME = "outbox.jsonl"
# Exit code of an agent whose node is another one's now: starting it again would not help (EX_NOPERM of sysexits.h).
DISPLACED = 77


class Agent:
    """One life of a node's agent. Raises UserError when the node has one already, PermanentError when it cannot work.

    The session calls its `on_...` methods on threads of its own; they only post.
    """

    def __init__(
        self,
        store: Store,
        place: AgentConfig,
        *,
        progress_mark_seconds: float = PROGRESS_MARK_SECONDS,
    ) -> None:
        self._place = place
        self._progress_mark_seconds = progress_mark_seconds
        self._identity = Identity(place.node, place.folder)
        self._loop = Loop(self._was_stopped)
        gpus = Devices(place.node, self._loop, lambda: None, folder=place.device_files).uuids
        self._hardware = hardware_parts.find(
            place.folder, shares_machine=place.shares_machine, gpus=gpus, root=place.machine
        )
        self._courier = StoreClient(store)
        self._session = AgentSession(
            self._courier,
            Source(
                node=place.node,
                incarnation=self._identity.incarnation,
                life=new_life(),
                task_cursor=self._identity.task_cursor,
            ),
            self,
            signer=load_signer(place.cluster.token_file),
            rejoin_seconds=place.cluster.silence_seconds,
            spool=_spool(place.folder),
        )
        voice = SignalEmitter(stamp=self._session.stamp, tell=self._tell, beat=self._beat)
        self._ranks = Reconciler(place, self._identity, self._loop, voice=voice)
        cluster = place.cluster
        self._checking = Checking(place.folder, self._loop, self._answer)
        self._notices = Notices(
            notices.file_of(cluster.notice_file, node=place.node, folder=place.folder),
            on_notice=self._announce,
            on_junk=self._junk,
        )
        self._fence = Fence(
            fence_seconds=cluster.fence_seconds, hard_cap_seconds=cluster.hard_cap_seconds
        )
        self._resumed_at = time.monotonic()
        # the newest confirmation of the assignment asked for
        self._asked = 0
        # tasks read before are older than this life
        self._has_listened = False
        self._answers: collections.OrderedDict[str, ActionResult] = collections.OrderedDict()
        self._junk_sources: collections.Counter[str] = collections.Counter()
        # whether the timer for the next look at the ranks is set
        self._is_looking = False
        self._is_leaving = False
        self._is_displaced = False

    def run(self) -> int:
        """Serve until told to leave; return the exit code."""
        self._obey_signals()
        waiting = self._session.waiting
        state = self._ranks.begin()
        self._session.join(self._joined(), time.monotonic())
        self._ranks.report_beginning(state, waiting)
        self._session.start()
        self._courier.start()
        self._heartbeat()
        self._loop.run()
        self._session.deafen()
        if not self._is_displaced:
            self._tell(NodeLeft(**self._session.stamp()))
        if not self._session.flush(FLUSH_SECONDS):
            log.warning("the store is away: %d signals wait", len(self._session.waiting))
        self._courier.close()
        self._session.close()
        self._ranks.searching.close()
        self._loop.close()
        self._identity.close()
        return DISPLACED if self._is_displaced else 0

    def leave(self) -> None:
        """Have `run` end ranks and keeper and return. May be called from any thread and from signal handlers."""
        self._loop.post(self._leave)

    # -- what comes in

    def on_assignment(self, assignment: Assignment) -> None:
        """Have the owner take an assignment."""
        self._loop.post(partial(self._on_assignment, assignment))

    def on_task(self, task: Task, number: int) -> None:
        """Have the owner do a task."""
        self._loop.post(partial(self._on_task, task, number))

    def on_confirmed(self, asked: int) -> None:
        """Have the owner know that the register was read anew."""
        self._loop.post(partial(self._confirmed, asked))

    def on_junk(self, reason: str) -> None:
        """Have the owner say that something came which cannot be obeyed."""
        self._loop.post(partial(self._junk, reason))

    def on_acknowledged(self, facts: list[object]) -> None:
        """Have the keeper forget exits that the store has."""
        exits = [fact for fact in facts if isinstance(fact, RankExited)]
        if exits:
            self._loop.post(partial(self._ranks.acknowledge, exits))

    def on_displaced(self, life: str) -> None:
        """Have the owner end: this node is another life's."""
        self._loop.post(partial(self._displaced, life))

    def _on_assignment(self, assignment: Assignment) -> None:
        if assignment.node != self._place.node:
            self._junk(f"assignment of node {assignment.node!r} in the register of this one")
            return
        self._ranks.assign(assignment, is_mine=self._session.is_mine(assignment))

    def _confirmed(self, asked: int) -> None:
        if asked >= self._asked:
            self._has_listened = True
            self._ranks.is_sure = True
            self._ranks.converge()

    def _was_stopped(self, seconds: float) -> None:
        """Believe nothing after having been stopped: the assignment may have changed, a task may be long overdue."""
        log.warning("stood still for %.1f s; reading the assignment anew", seconds)
        self._resumed_at = time.monotonic()
        self._ranks.is_sure = False
        self._asked = self._session.confirm()

    # -- what goes out

    def _tell(self, fact: object) -> None:
        try:
            self._session.tell(fact)
        except WireError as error:
            self._junk(str(error))

    def _junk(self, reason: str) -> None:
        source = reason.partition(" ")[0]
        if self._junk_sources[source] or len(self._junk_sources) < MAX_JUNK_SOURCES:
            self._junk_sources[source] += 1
        if self._junk_sources[source] == 1:
            log.warning("junk, said once: %s", reason[:MAX_SHOWN])
            self._session.tell(MalformedMessage(**self._session.stamp(), reason=reason[:MAX_SHOWN]))

    def _joined(self) -> NodeJoined:
        gang = self._ranks.gang
        return NodeJoined(
            **self._session.stamp(),
            hardware=self._hardware.hardware,
            parts=self._hardware.parts,
            slots=self._place.slots,
            address=self._place.address,
            pid=os.getpid(),
            epoch=gang.epoch if gang is not None else self._identity.epoch,
            attempt=gang.attempt if gang is not None else None,
            ranks_alive=tuple(rank.rank for rank in gang.alive) if gang is not None else (),
        )

    def _join_again(self, now: float) -> None:
        """Nobody has answered: say again that we are here, and what became of ranks, in case it was not believed then."""
        self._session.join(self._joined(), now)
        self._ranks.report_again()

    def _heartbeat(self) -> None:
        """Do what is done once per heartbeat: look, tell, keep files small, judge whether to go on without the store."""
        now = time.monotonic()
        self._loop.at("heartbeat", now + self._place.cluster.heartbeat_seconds, self._heartbeat)
        gang = self._ranks.gang
        if gang is not None:
            gang.look(now, stopped_seconds=self._place.cluster.stopped_seconds)
            for said in gang.mark(now, every_seconds=self._progress_mark_seconds):
                self._tell(said)
            if pids := gang.to_measure(now):
                self._loop.in_background(partial(rank_resources.measure, pids), gang.measured)
        self._notices.look()
        if self._session.wants_join(now):
            self._join_again(now)
        self._beat()
        self._ranks.bound_outputs()
        self._ranks.keeping.wake()
        if gang is not None:
            reason = self._fence.verdict(
                now,
                lost_since=self._session.lost_since(now),
                progress_at=gang.progress_at,
                resumed_at=self._resumed_at,
            )
            if reason:
                self._ranks.fence(reason)

    def _look(self) -> None:
        """Look at the ranks several times a second, as long as there are any; what cannot wait is told at once."""
        gang = self._ranks.gang
        self._is_looking = gang is not None
        if gang is not None:
            stopped_seconds = self._place.cluster.stopped_seconds
            again_at = gang.look(time.monotonic(), stopped_seconds=stopped_seconds)
            self._loop.at("look", again_at, self._look)
            if gang.wants_beat:
                self._beat()

    def _beat(self) -> None:
        gang = self._ranks.gang
        if gang is not None and not self._is_looking:
            self._look()
        resident_bytes = _resident_bytes()
        if gang is None:
            beat = Heartbeat(
                **self._session.stamp(),
                epoch=self._identity.epoch,
                agent_resident_bytes=resident_bytes,
            )
        else:
            stopped_seconds = self._place.cluster.stopped_seconds
            beat = gang.heartbeat(
                time.monotonic(), stopped_seconds=stopped_seconds, resident_bytes=resident_bytes
            )
        warming = self._ranks.warming
        if warming.is_wanted:
            resident_bytes = _resident_bytes(warming.pid) if warming.pid else 0
            beat = replace(
                beat,
                warm=warming.shown[:MAX_SHOWN],
                warm_resident_bytes=resident_bytes,
                warm_versions=warming.versions,
            )
        self._session.beat(beat)

    def _announce(self, announced: Announcement) -> None:
        log.warning("%s announced: %s", announced.kind, announced.reason or "no reason given")
        self._tell(
            Notice(
                **self._session.stamp(),
                notice=announced.kind,
                reason=announced.reason,
                deadline_seconds=announced.deadline_seconds,
            )
        )

    def _preempted(self) -> None:
        """Take SIGUSR1 for what a scheduler means by it (Slurm: `--signal=USR1@SECONDS`)."""
        self._announce(Announcement("preemption", "SIGUSR1 to the agent"))

    # -- tasks

    def _on_task(self, task: Task, number: int) -> None:
        answered = self._answers.get(task.id)
        if answered is not None:
            self._tell(answered)
            return
        since_resumed = time.monotonic() - self._resumed_at
        gang = self._ranks.gang
        reason = tasks.refusal(
            task,
            node=self._place.node,
            life=self._session.source.life,
            epoch=self._identity.epoch,
            gang=gang,
            has_waited=not self._has_listened or self._has_just_resumed(since_resumed),
        )
        try:
            self._identity.take_task(number)
        except Unwritable as error:
            # a later life would do it again
            if task.task in tasks.ONCE:
                reason = reason or str(error)
        if reason:
            self._answer(tasks.result(task, "failed", reason))
        else:
            self._do(task)

    def _do(self, task: Task) -> None:
        gang = self._ranks.gang
        if task.task == "check":
            self._checking.begin(task)
        elif task.task == "leave":
            # NodeLeft is the answer
            self._leave()
        elif task.task == "drill" and task.args.get("fault") in tasks.STRIKES:
            self._strike(task)
        elif gang is not None:
            ranks = self._ranks
            done = tasks.perform(task, gang, ranks.channels, ranks.strike_rank)
            outcome, message, detail = done
            self._answer(tasks.result(task, outcome, message, detail))

    def _has_just_resumed(self, since_resumed: float) -> bool:
        return self._asked > 0 and since_resumed < LATE_SECONDS

    def _answer(self, answer: ActionResult) -> None:
        self._answers[answer.id] = answer
        while len(self._answers) > MAX_TASKS_REMEMBERED:
            self._answers.popitem(last=False)
        self._tell(answer)

    def _strike(self, task: Task) -> None:
        """End ourselves as a real fault would, once the answer is in the store."""
        fault = task.args["fault"]
        log.warning("drill %s", fault)
        self._answer(tasks.result(task, "done", str(fault)))
        self._session.flush(FLUSH_SECONDS)
        if fault == "kill-node":
            gang, pid = self._ranks.gang, self._ranks.keeping.pid
            pids = [rank.pid for rank in gang.alive] if gang is not None else []
            keeper.send_signal([pid, *pids] if pid is not None else pids, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    # -- leaving

    def _obey_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.leave())
            signal.signal(signal.SIGUSR1, lambda *_: self._loop.post(self._preempted))

    def _leave(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            log.info("leaving")
            self._loop.cancel("heartbeat")
            self._checking.end()
            self._ranks.leave(partial(self._ranks.searching.finish, self._loop.stop))

    def _displaced(self, life: str) -> None:
        """End at once: another agent is this node now, and its ranks must be the only ones."""
        if not self._is_displaced:
            self._is_displaced = True
            log.error(
                "node %r is another agent's now (life %s, this is %s): its ranks here are killed, and this agent ends",
                self._place.node,
                life,
                self._session.source.life,
            )
            self._leave()


def _spool(folder: Path) -> Spool:
    try:
        return Spool(folder / SPOOL_NAME)
    except OSError as error:
        raise PermanentError(
            f"{folder / SPOOL_NAME} cannot be opened ({error}); signals are kept there until the store has them"
        ) from error


def _resident_bytes(pid: int | None = None) -> int:
    try:
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()[1])
    except OSError:
        # the process is gone
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
