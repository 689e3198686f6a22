"""The agent: reads its node's assignment, reconciles the node with it, and reports what it observes.

One owner thread (`EventLoop`) holds all state; all other threads only post to it.
"""

import collections
import logging
import os
import signal
import threading
import time
from dataclasses import asdict
from functools import partial
from typing import Any

from msgspec.structs import replace

from runner.agent import tasks
from runner.agent.checks import hardware_parts
from runner.agent.checks.check_task import CheckRunner
from runner.agent.checks.pair_task import PairRunner
from runner.agent.checks.task_program import TaskProgram
from runner.agent.config import AgentConfig
from runner.agent.event_loop import LATE_SECONDS, EventLoop
from runner.agent.fence import Fence
from runner.agent.folders import Folders
from runner.agent.identity import Identity, Unwritable
from runner.agent.notices import Announcement, Notices
from runner.agent.ranks import output_files, rank_resources
from runner.agent.ranks.gang import LocalGang
from runner.agent.rare_field import RareField
from runner.agent.reconcile import Reconciler
from runner.agent.transport.outbox import Spool
from runner.agent.transport.session import (
    AgentInstance,
    AgentSession,
    SignalEmitter,
    new_instance_id,
)
from runner.agent.transport.store_client import StoreClient
from runner.agent.verification.verify_task import VerifyRunner
from runner.errors import WireError
from runner.facts.actions import ActionResult
from runner.facts.messages import signals
from runner.facts.messages.assignments import Assignment, Task
from runner.keeper import procfs
from runner.signer import load_signer
from runner.store.protocol import Store

log = logging.getLogger("stoker.agent")

# Chosen, not measured.
PROGRESS_INTERVAL_SECONDS = 5.0
FLUSH_SECONDS = 5.0
MAX_ANSWERS_REMEMBERED = 256
MAX_REASON_CHARACTERS = 300
MAX_MALFORMED_CLASSES = 100

SPOOL_NAME = "outbox.jsonl"
# Exit code of a displaced agent: a restart would not help (EX_NOPERM of sysexits.h).
DISPLACED = 77


class Agent:
    """One instance of a node's agent. Raises UserError when the node has one already, PermanentError when it cannot work."""

    def __init__(self, store: Store, config: AgentConfig) -> None:
        cluster = config.cluster
        self._config = config
        self._identity = Identity(config.node, config.folder)
        self._loop = EventLoop(self._on_stall)
        self._folders = Folders(self._loop)
        self._store_client = StoreClient(store)
        self._session = AgentSession(
            self._store_client,
            AgentInstance(
                node=config.node,
                incarnation=self._identity.state.incarnation,
                instance_id=new_instance_id(),
                task_cursor=self._identity.state.task_cursor,
            ),
            self,
            signer=load_signer(cluster.token_file),
            rejoin_seconds=cluster.heartbeat_timeout_seconds,
            spool=Spool(config.folder / SPOOL_NAME),
            post=self._loop.post,
        )
        emitter = SignalEmitter(
            next_header=self._session.next_header, emit=self._emit, heartbeat=self._send_heartbeat
        )
        self._ranks = Reconciler(
            config, self._identity, self._loop, folders=self._folders, emitter=emitter
        )
        self._hardware = hardware_parts.find(
            config.folder,
            shares_machine=config.shares_machine,
            gpus=self._ranks.devices.uuids,
            root=config.machine,
        )
        self._task_program = TaskProgram(config.folder, self._loop, self._answer)
        self._check_runner = CheckRunner(
            self._task_program,
            num_ranks=config.ranks_to_check,
            python=config.python,
            shortage_serves=config.is_made_up,
            limits=config.cluster.check_limits,
        )
        self._pair_runner = PairRunner(
            self._task_program,
            python=config.python,
            shares_machine=config.shares_machine,
            most_foreign_percent=config.cluster.check_limits.get("collectives.foreign_cpu"),
        )
        self._verify_runner = VerifyRunner(
            folder=config.folder, loop=self._loop, emitter=emitter, answer=self._answer
        )
        self._notices = Notices(
            config.notice_path, on_notice=self._announce, on_malformed=self.on_malformed
        )
        self._fence = Fence(
            fence_seconds=cluster.fence_seconds, hard_cap_seconds=cluster.hard_cap_seconds
        )
        self._resumed_at = time.monotonic()
        self._newest_confirm_request = 0
        # Tasks read before the first confirmation are older than this instance.
        self._is_confirmed = False
        self._rare_versions = RareField[str]()
        self._answers: collections.OrderedDict[str, ActionResult] = collections.OrderedDict()
        self._num_malformed: collections.Counter[str] = collections.Counter()
        self._is_polling = False
        self._is_leaving = False
        self._leaves_for_good = False
        self._is_displaced = False

    def run(self) -> int:
        """Serve until asked to leave; return the exit code."""
        self._install_signal_handlers()
        waiting = self._session.outbox.waiting
        state = self._ranks.begin()
        self._session.join(self._joined(), time.monotonic())
        self._ranks.report_adopted(state, waiting)
        answered = [fact.id for fact in waiting if isinstance(fact, ActionResult)]
        earlier_answers = self._verify_runner.resume(answered)
        self._answers.update({answer.id: answer for answer in earlier_answers})
        self._session.start()
        self._store_client.start()
        self._tick()
        self._loop.run()
        self._session.unsubscribe()
        if not self._is_displaced:
            self._emit(signals.NodeLeft(**self._session.next_header()))
        if not self._session.outbox.flush(FLUSH_SECONDS):
            log.warning(
                "the store has not acknowledged %d signals; the next agent sends them",
                len(self._session.outbox.waiting),
            )
        self._store_client.close()
        self._session.close()
        self._ranks.log_search.close()
        self._ranks.save_sealer.close()
        self._folders.close()
        self._loop.close()
        self._identity.close()
        return DISPLACED if self._is_displaced else 0

    def leave(self) -> None:
        """Have `run` end ranks and keeper and return. Callable from any thread and from signal handlers."""
        self._loop.post(self._leave)

    def on_assignment(self, assignment: Assignment) -> None:
        """Reconcile the ranks with it, unless it is another node's."""
        if assignment.node != self._config.node:
            self.on_malformed(
                f"assignment of node {assignment.node!r} in the register of {self._config.node!r}"
            )
            return
        if assignment.plan is not None:
            self._task_program.give_way()
        self._ranks.assign(assignment, is_mine=self._session.is_mine(assignment))

    def on_confirmed(self, request: int) -> None:
        """Start ranks again, since the register holds no newer assignment."""
        if request >= self._newest_confirm_request:
            self._is_confirmed = True
            self._ranks.is_sure = True
            self._ranks.reconcile()

    def on_acknowledged(self, facts: list[object]) -> None:
        """Have the keeper drop the exits that the store has."""
        self._ranks.acknowledge([fact for fact in facts if isinstance(fact, signals.RankExited)])

    def on_displaced(self, instance_id: str) -> None:
        """End at once: another agent owns this node now, and only its ranks may run."""
        if not self._is_displaced:
            self._is_displaced = self._leaves_for_good = True
            log.error(
                "node %r belongs to another agent now (%s, this is %s): this agent kills its ranks and ends",
                self._config.node,
                instance_id,
                self._session.instance.instance_id,
            )
            self._leave()

    def on_malformed(self, reason: str) -> None:
        """Emit a refused message, once for each class: the first word of the reason."""
        name, reason = reason.partition(" ")[0], reason[:MAX_REASON_CHARACTERS]
        if self._num_malformed[name] or len(self._num_malformed) < MAX_MALFORMED_CLASSES:
            self._num_malformed[name] += 1
        if self._num_malformed[name] == 1:
            log.warning("refused (further ones of this class are not logged): %s", reason)
            self._session.outbox.put(
                signals.MalformedMessage(**self._session.next_header(), reason=reason)
            )

    def _on_stall(self, seconds: float) -> None:
        """Read the assignment again after the agent was stopped: it may have changed, and tasks may be overdue."""
        log.warning("the agent was stopped for %.1f s; it reads its assignment again", seconds)
        self._resumed_at = time.monotonic()
        self._ranks.is_sure = False
        self._newest_confirm_request = self._session.confirm()

    def _emit(self, fact: object) -> None:
        try:
            self._session.outbox.put(fact)
        except WireError as error:
            self.on_malformed(str(error))

    def _joined(self) -> signals.NodeJoined:
        gang = self._ranks.gang
        return signals.NodeJoined(
            **self._session.next_header(),
            hardware=self._hardware.hardware,
            parts=self._hardware.parts,
            slots=self._config.slots,
            address=self._config.address,
            pid=os.getpid(),
            generation=gang.generation if gang is not None else self._identity.state.generation,
            attempt=gang.attempt if gang is not None else None,
            ranks_alive=tuple(rank.rank for rank in gang.alive) if gang is not None else (),
        )

    def _tick(self) -> None:
        """Do the work of one heartbeat: poll the ranks, send, bound output files, fence if the store is lost."""
        now = time.monotonic()
        self._loop.at("heartbeat", now + self._config.cluster.heartbeat_seconds, self._tick)
        gang = self._ranks.gang
        if gang is not None:
            gang.poll(now)
            for fact in gang.poll_progress(now, every_seconds=PROGRESS_INTERVAL_SECONDS):
                self._emit(fact)
            if pids := gang.ranks_to_measure(now):
                self._loop.in_background(partial(rank_resources.measure, pids), gang.on_measured)
            for folder in gang.folders_to_probe(now):
                self._folders.poll(folder, partial(os.statvfs, folder), lambda *_: None)
        notices = self._notices
        if self._config.cluster.notice_file:
            self._folders.poll(str(notices.path.parent), notices.read, notices.on_read)
        else:
            notices.poll()
        if self._session.wants_join(now):
            self._session.join(self._joined(), now)
            self._ranks.report_again()
        self._send_heartbeat()
        self._ranks.bound_outputs()
        self._ranks.keeper.resume()
        if gang is not None:
            reason = self._fence.verdict(
                now,
                lost_since=self._session.outbox.lost_since(now),
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
            now = time.monotonic()
            self._loop.at("look", gang.poll(now), self._poll_ranks)
            if gang.wants_outputs(now):
                self._poll_outputs(gang, now)
            if gang.heartbeat_due:
                self._send_heartbeat()

    def _poll_outputs(self, gang: LocalGang, asked_at: float) -> None:
        folder, ranks = gang.plan.output_folder, gang.plan.ranks

        def on_read(stats: tuple[tuple[int, int], ...] | None, _: Exception | None) -> None:
            if stats is not None:
                gang.on_outputs(asked_at, stats, now=time.monotonic())

        self._folders.poll(folder, partial(output_files.stats, folder, ranks), on_read)

    def _send_heartbeat(self) -> None:
        gang, preloader = self._ranks.gang, self._ranks.preloader
        if gang is not None and not self._is_polling:
            self._poll_ranks()
        if gang is not None:
            now = time.monotonic()
            conditions = self._ranks.conditions.pop_due(gang, now)
            heartbeat = replace(gang.heartbeat(now), conditions=conditions)
        else:
            generation = self._identity.state.generation
            heartbeat = signals.Heartbeat(**self._session.next_header(), generation=generation)
        warm: dict[str, Any] = {}
        if preloader.is_wanted:
            warm = {
                "warm": preloader.status[:MAX_REASON_CHARACTERS],
                "warm_resident_bytes": _resident_bytes(preloader.pid) if preloader.pid else 0,
                "warm_versions": self._rare_versions.pop_due(preloader.versions, time.monotonic()),
            }
        self._session.outbox.put_heartbeat(
            replace(
                heartbeat,
                sent_at=time.time(),
                agent_resident_bytes=_resident_bytes(),
                hung_folders=self._folders.hung(),
                **warm,
            )
        )

    def _announce(self, announced: Announcement) -> None:
        log.warning("%s announced: %s", announced.notice, announced.reason or "no reason given")
        self._emit(signals.Notice(**self._session.next_header(), **asdict(announced)))

    def on_task(self, task: Task, number: int) -> None:
        """Do a task, unless it is refused, and answer it; one that comes twice is answered only."""
        answered = self._answers.get(task.id)
        if answered is not None:
            self._emit(answered)
            return
        has_stalled = self._newest_confirm_request > 0
        has_just_resumed = has_stalled and time.monotonic() - self._resumed_at < LATE_SECONDS
        gang = self._ranks.gang
        reason = tasks.refusal(
            task,
            node=self._config.node,
            instance_id=self._session.instance.instance_id,
            generation=self._identity.state.generation,
            gang_generation=gang.generation if gang is not None else None,
            has_waited=not self._is_confirmed or has_just_resumed,
        )
        if task.task == "verify" and not reason:
            # On disk before the task counts as handled: a later instance goes on with it.
            self._verify_runner.begin(task)
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
        # One to verify has begun already.
        if task.task == "check":
            self._check_runner.begin(task)
        elif task.task == "measure":
            if self._ranks.is_launching:
                reason = "ranks are to start here"
                self._answer(tasks.result(task, "failed", reason))
            else:
                self._pair_runner.begin(task)
        elif task.task == "leave":
            # NodeLeft is the answer.
            self._leaves_for_good = True
            self._leave()
        elif task.task == "drill" and task.args.get("fault") in tasks.AGENT_DRILLS:
            self._run_agent_drill(task)
        elif gang is not None and task.task == "conditions":
            self._answer(self._ranks.conditions.answer(task, gang))
        elif gang is not None and task.task != "verify":
            ranks = self._ranks
            self._answer(tasks.perform(task, gang, ranks.channels, ranks.signal_rank))

    def _answer(self, answer: ActionResult) -> None:
        self._answers[answer.id] = answer
        if len(self._answers) > MAX_ANSWERS_REMEMBERED:
            self._answers.popitem(last=False)
        self._emit(answer)

    def _run_agent_drill(self, task: Task) -> None:
        """End this agent as a real fault would, once the answer is in the store."""
        fault = task.args["fault"]
        log.warning("drill %s", fault)
        self._answer(tasks.result(task, "done", str(fault)))
        self._session.outbox.flush(FLUSH_SECONDS)
        if fault == "kill-node":
            gang, keeper = self._ranks.gang, self._ranks.keeper.link
            pids = [keeper.pid] if keeper is not None else []
            pids += [rank.pid for rank in gang.alive] if gang is not None else []
            procfs.send_signal(pids, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _install_signal_handlers(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.leave())
            # A scheduler's warning of preemption (Slurm: `--signal=USR1@SECONDS`).
            preemption = Announcement("preemption", "SIGUSR1 to the agent")
            announce = partial(self._announce, preemption)
            signal.signal(signal.SIGUSR1, lambda *_: self._loop.post(announce))

    def _leave(self) -> None:
        if not self._is_leaving:
            self._is_leaving = True
            log.info("leaving")
            self._loop.cancel("heartbeat")
            self._task_program.end()
            self._verify_runner.end(for_good=self._leaves_for_good)
            self._ranks.leave(partial(self._ranks.log_search.finish, self._loop.stop))


def _resident_bytes(pid: int | None = None) -> int:
    fields = procfs.read_bytes(f"/proc/{pid or 'self'}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if fields else 0
