"""The agent: reads its node's assignment, reconciles the node with it, and reports what it observes.

One owner thread (`EventLoop`) holds all state. The two threads of the `StoreClient` talk to the
store and only post. Blocking file system calls run on short-lived threads that post.
"""

from __future__ import annotations

import collections
import logging
import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from runner.agent import notices, tasks
from runner.agent.checks import hardware_parts
from runner.agent.checks.check_task import CheckRunner
from runner.agent.config import AgentConfig
from runner.agent.event_loop import LATE_SECONDS, EventLoop
from runner.agent.fence import Fence
from runner.agent.identity import Identity, Unwritable
from runner.agent.launch.devices import Devices
from runner.agent.notices import Announcement, Notices
from runner.agent.ranks import rank_resources
from runner.agent.reconcile import Reconciler
from runner.agent.transport.session import AgentInstance, AgentSession, new_instance_id
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
from runner.keeper import procfs
from runner.signer import load_signer
from runner.store.protocol import Store

log = logging.getLogger("stoker.agent")

# Between two durable progress signals; chosen.
PROGRESS_MARK_SECONDS = 5.0
# For the store to acknowledge the last signals.
FLUSH_SECONDS = 5.0
# Answers kept for tasks that arrive twice; chosen.
MAX_TASKS_REMEMBERED = 256
# Characters of why there is no warm process, or of why a message was refused.
MAX_SHOWN = 300
# Classes of malformed messages that are counted apart; chosen.
MAX_MALFORMED_CLASSES = 100
SPOOL_NAME = "outbox.jsonl"
# Exit code of a displaced agent: a restart would not help (EX_NOPERM of sysexits.h).
DISPLACED = 77


class Agent:
    """One instance of a node's agent. Raises UserError when the node has one already, PermanentError when it cannot work.

    The store client calls the `on_...` methods on its threads; they only post.
    """

    def __init__(
        self,
        store: Store,
        config: AgentConfig,
        *,
        progress_mark_seconds: float = PROGRESS_MARK_SECONDS,
    ) -> None:
        self._config = config
        self._progress_mark_seconds = progress_mark_seconds
        self._identity = Identity(config.node, config.folder)
        self._loop = EventLoop(self._on_stall)
        gpus = Devices(config.node, self._loop, lambda: None, folder=config.device_files).uuids
        self._hardware = hardware_parts.find(
            config.folder, shares_machine=config.shares_machine, gpus=gpus, root=config.machine
        )
        self._store_client = StoreClient(store)
        self._session = AgentSession(
            self._store_client,
            AgentInstance(
                node=config.node,
                incarnation=self._identity.incarnation,
                instance_id=new_instance_id(),
                task_cursor=self._identity.task_cursor,
            ),
            self,
            signer=load_signer(config.cluster.token_file),
            rejoin_seconds=config.cluster.heartbeat_timeout_seconds,
            spool=_spool(config.folder),
        )
        emitter = SignalEmitter(
            next_header=self._session.next_header, emit=self._emit, heartbeat=self._send_heartbeat
        )
        self._ranks = Reconciler(config, self._identity, self._loop, emitter=emitter)
        cluster = config.cluster
        self._check_runner = CheckRunner(config.folder, self._loop, self._answer)
        self._notices = Notices(
            notices.notice_path(cluster.notice_file, node=config.node, folder=config.folder),
            on_notice=self._announce,
            on_malformed=self._report_malformed,
        )
        self._fence = Fence(
            fence_seconds=cluster.fence_seconds, hard_cap_seconds=cluster.hard_cap_seconds
        )
        self._resumed_at = time.monotonic()
        # The newest confirmation of the assignment that was requested.
        self._confirm_request = 0
        # Tasks read before the first confirmation are older than this instance.
        self._is_confirmed = False
        self._answers: collections.OrderedDict[str, ActionResult] = collections.OrderedDict()
        self._num_malformed: collections.Counter[str] = collections.Counter()
        # Whether the timer for the next poll of the ranks is set.
        self._is_polling = False
        self._is_leaving = False
        self._is_displaced = False

    def run(self) -> int:
        """Serve until asked to leave; return the exit code."""
        self._install_signal_handlers()
        waiting = self._session.waiting
        state = self._ranks.begin()
        self._session.join(self._joined(), time.monotonic())
        self._ranks.report_adopted(state, waiting)
        self._session.start()
        self._store_client.start()
        self._tick()
        self._loop.run()
        self._session.unsubscribe()
        if not self._is_displaced:
            self._emit(NodeLeft(**self._session.next_header()))
        if not self._session.flush(FLUSH_SECONDS):
            log.warning(
                "the store has not acknowledged %d signals; the next agent sends them",
                len(self._session.waiting),
            )
        self._store_client.close()
        self._session.close()
        self._ranks.log_search.close()
        self._loop.close()
        self._identity.close()
        return DISPLACED if self._is_displaced else 0

    def leave(self) -> None:
        """Have `run` end ranks and keeper and return. Callable from any thread and from signal handlers."""
        self._loop.post(self._leave)

    # -- in

    def on_assignment(self, assignment: Assignment) -> None:
        """Post an assignment."""
        self._loop.post(partial(self._on_assignment, assignment))

    def on_task(self, task: Task, number: int) -> None:
        """Post a task."""
        self._loop.post(partial(self._on_task, task, number))

    def on_confirmed(self, request: int) -> None:
        """Post that the register was read after this request."""
        self._loop.post(partial(self._on_confirmed, request))

    def on_malformed(self, reason: str) -> None:
        """Post why a message was refused."""
        self._loop.post(partial(self._report_malformed, reason))

    def on_acknowledged(self, facts: list[object]) -> None:
        """Post the exits that the store has, so that the keeper drops them."""
        exits = [fact for fact in facts if isinstance(fact, RankExited)]
        if exits:
            self._loop.post(partial(self._ranks.acknowledge, exits))

    def on_displaced(self, instance_id: str) -> None:
        """Post that another agent instance owns this node."""
        self._loop.post(partial(self._on_displaced, instance_id))

    def _on_assignment(self, assignment: Assignment) -> None:
        if assignment.node != self._config.node:
            self._report_malformed(
                f"assignment of node {assignment.node!r} in the register of {self._config.node!r}"
            )
            return
        self._ranks.assign(assignment, is_mine=self._session.is_mine(assignment))

    def _on_confirmed(self, request: int) -> None:
        if request >= self._confirm_request:
            self._is_confirmed = True
            self._ranks.is_sure = True
            self._ranks.reconcile()

    def _on_stall(self, seconds: float) -> None:
        """Read the assignment again after the agent was stopped: it may have changed, and tasks may be overdue."""
        log.warning("the agent was stopped for %.1f s; it reads its assignment again", seconds)
        self._resumed_at = time.monotonic()
        self._ranks.is_sure = False
        self._confirm_request = self._session.confirm()

    # -- out

    def _emit(self, fact: object) -> None:
        try:
            self._session.emit(fact)
        except WireError as error:
            self._report_malformed(str(error))

    def _report_malformed(self, reason: str) -> None:
        """Emit a refused message, once for each class: the first word of the reason."""
        name, reason = reason.partition(" ")[0], reason[:MAX_SHOWN]
        if self._num_malformed[name] or len(self._num_malformed) < MAX_MALFORMED_CLASSES:
            self._num_malformed[name] += 1
        if self._num_malformed[name] == 1:
            log.warning("refused (further ones of this class are not logged): %s", reason)
            self._session.emit(MalformedMessage(**self._session.next_header(), reason=reason))

    def _joined(self) -> NodeJoined:
        gang = self._ranks.gang
        return NodeJoined(
            **self._session.next_header(),
            hardware=self._hardware.hardware,
            parts=self._hardware.parts,
            slots=self._config.slots,
            address=self._config.address,
            pid=os.getpid(),
            generation=gang.generation if gang is not None else self._identity.generation,
            attempt=gang.attempt if gang is not None else None,
            ranks_alive=tuple(rank.rank for rank in gang.alive) if gang is not None else (),
        )

    def _join_again(self, now: float) -> None:
        """Repeat the join that no assignment answered, and the ranks' signals, which may have been refused until now."""
        self._session.join(self._joined(), now)
        self._ranks.report_again()

    def _tick(self) -> None:
        """Do the work of one heartbeat: poll the ranks, send, bound output files, fence if the store is lost."""
        now = time.monotonic()
        self._loop.at("heartbeat", now + self._config.cluster.heartbeat_seconds, self._tick)
        gang = self._ranks.gang
        if gang is not None:
            gang.poll(now, stopped_seconds=self._config.cluster.stopped_seconds)
            for fact in gang.poll_progress(now, every_seconds=self._progress_mark_seconds):
                self._emit(fact)
            if pids := gang.ranks_to_measure(now):
                self._loop.in_background(partial(rank_resources.measure, pids), gang.on_measured)
        self._notices.poll()
        if self._session.wants_join(now):
            self._join_again(now)
        self._send_heartbeat()
        self._ranks.bound_outputs()
        self._ranks.keeper.resume()
        if gang is not None:
            reason = self._fence.verdict(
                now,
                lost_since=self._session.lost_since(now),
                progress_at=gang.progress_at,
                resumed_at=self._resumed_at,
            )
            if reason:
                self._ranks.fence(reason)

    def _poll_ranks(self) -> None:
        """Poll the ranks several times a second while there are any; send urgent changes at once."""
        gang = self._ranks.gang
        self._is_polling = gang is not None
        if gang is not None:
            stopped_seconds = self._config.cluster.stopped_seconds
            again_at = gang.poll(time.monotonic(), stopped_seconds=stopped_seconds)
            self._loop.at("look", again_at, self._poll_ranks)
            if gang.heartbeat_due:
                self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        gang = self._ranks.gang
        if gang is not None and not self._is_polling:
            self._poll_ranks()
        resident_bytes = _resident_bytes()
        if gang is None:
            heartbeat = Heartbeat(
                **self._session.next_header(),
                generation=self._identity.generation,
                agent_resident_bytes=resident_bytes,
            )
        else:
            stopped_seconds = self._config.cluster.stopped_seconds
            heartbeat = gang.heartbeat(
                time.monotonic(), stopped_seconds=stopped_seconds, resident_bytes=resident_bytes
            )
        preloader = self._ranks.preloader
        if preloader.is_wanted:
            resident_bytes = _resident_bytes(preloader.pid) if preloader.pid else 0
            heartbeat = replace(
                heartbeat,
                warm=preloader.status[:MAX_SHOWN],
                warm_resident_bytes=resident_bytes,
                warm_versions=preloader.versions,
            )
        self._session.heartbeat(heartbeat)

    def _announce(self, announced: Announcement) -> None:
        log.warning("%s announced: %s", announced.kind, announced.reason or "no reason given")
        self._emit(
            Notice(
                **self._session.next_header(),
                notice=announced.kind,
                reason=announced.reason,
                deadline_seconds=announced.deadline_seconds,
            )
        )

    def _on_preemption(self) -> None:
        """Announce SIGUSR1, a scheduler's warning of preemption (Slurm: `--signal=USR1@SECONDS`)."""
        self._announce(Announcement("preemption", "SIGUSR1 to the agent"))

    # -- tasks

    def _on_task(self, task: Task, number: int) -> None:
        answered = self._answers.get(task.id)
        if answered is not None:
            self._emit(answered)
            return
        since_resumed = time.monotonic() - self._resumed_at
        gang = self._ranks.gang
        reason = tasks.refusal(
            task,
            node=self._config.node,
            instance_id=self._session.instance.instance_id,
            generation=self._identity.generation,
            gang_generation=gang.generation if gang is not None else None,
            has_waited=not self._is_confirmed or self._has_just_resumed(since_resumed),
        )
        try:
            self._identity.record_task(number)
        except Unwritable as error:
            # A later instance would do it again.
            if task.task in tasks.ONCE:
                reason = reason or str(error)
        if reason:
            self._answer(tasks.result(task, "failed", reason))
        else:
            self._do(task)

    def _do(self, task: Task) -> None:
        gang = self._ranks.gang
        if task.task == "check":
            self._check_runner.begin(task)
        elif task.task == "leave":
            # NodeLeft is the answer.
            self._leave()
        elif task.task == "drill" and task.args.get("fault") in tasks.AGENT_DRILLS:
            self._run_agent_drill(task)
        elif gang is not None:
            ranks = self._ranks
            self._answer(tasks.perform(task, gang, ranks.channels, ranks.signal_rank))

    def _has_just_resumed(self, since_resumed: float) -> bool:
        return self._confirm_request > 0 and since_resumed < LATE_SECONDS

    def _answer(self, answer: ActionResult) -> None:
        self._answers[answer.id] = answer
        while len(self._answers) > MAX_TASKS_REMEMBERED:
            self._answers.popitem(last=False)
        self._emit(answer)

    def _run_agent_drill(self, task: Task) -> None:
        """End this agent as a real fault would, once the answer is in the store."""
        fault = task.args["fault"]
        log.warning("drill %s", fault)
        self._answer(tasks.result(task, "done", str(fault)))
        self._session.flush(FLUSH_SECONDS)
        if fault == "kill-node":
            gang, pid = self._ranks.gang, self._ranks.keeper.pid
            pids = [rank.pid for rank in gang.alive] if gang is not None else []
            procfs.send_signal([pid, *pids] if pid is not None else pids, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    # -- leaving

    def _install_signal_handlers(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.leave())
            signal.signal(signal.SIGUSR1, lambda *_: self._loop.post(self._on_preemption))

    def _leave(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            log.info("leaving")
            self._loop.cancel("heartbeat")
            self._check_runner.end()
            self._ranks.leave(partial(self._ranks.log_search.finish, self._loop.stop))

    def _on_displaced(self, instance_id: str) -> None:
        """End at once: another agent owns this node now, and only its ranks may run."""
        if not self._is_displaced:
            self._is_displaced = True
            log.error(
                "node %r belongs to another agent now (%s, this is %s): this agent kills its ranks and ends",
                self._config.node,
                instance_id,
                self._session.instance.instance_id,
            )
            self._leave()


def _spool(folder: Path) -> Spool:
    try:
        return Spool(folder / SPOOL_NAME)
    except OSError as error:
        raise PermanentError(
            f"{folder / SPOOL_NAME} cannot be opened ({error}); it holds signals until the store has them"
        ) from error


def _resident_bytes(pid: int | None = None) -> int:
    try:
        pages = int(Path(f"/proc/{pid or 'self'}/statm").read_bytes().split()[1])
    except OSError:
        # The process is gone.
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
