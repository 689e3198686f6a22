"""The core of a watch: controller, detectors and ledger of a supervisor, in memory, in mode `off`, with one node that does nothing.

Every action that is decided is answered here: what prepares a launch succeeds, for the run's owner launches it; all else fails.
"""

import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from runner.act.registers import Registers
from runner.agent.ranks.gang import LocalGang
from runner.decide.controller import Controller
from runner.decide.state.cluster_state import Run
from runner.errors import StoreUnavailable
from runner.facts import actions, wire
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL, LEASE, assignment_register
from runner.facts.watch import StepsWanted
from runner.journal.journal import Journal
from runner.steps import StepMerger, StepRow
from runner.store.memory.store import MemoryStore
from runner.supervisor.decision_loop import SUPERVISOR_STALL, DecisionLoop, LoopEnv
from runner.supervisor.decisions import policy_of
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder
from runner.supervisor.step_history import steps_around

# A process that was stopped or starved for longer has missed what happened, so no deadline passes in that time; chosen.
STALL_SECONDS = 2.0
# Entries of the journal after which older ones are dropped: no other process reads them. Chosen.
KEPT_ENTRIES = 1000
# Steps of a run's history, for what follows a restart; chosen.
KEPT_STEPS = 20_000
# As long as a setting may be: what watch-only waits for is up to others.
LONG_SECONDS = 366 * 24 * 3600.0
# Of the requests that stand for what the run's own people did.
OWNER = "its owner"
_INSTANCE = "watch"

_LOG = logging.getLogger("stoker")


def cluster_of(name: str) -> ClusterSpec:
    """Return the cluster of a watch: one node, no checks, nothing that is done by itself."""
    return ClusterSpec(
        name=name,
        state="",
        local=LocalNodes(nodes=0),
        checks=(),
        mode="off",
        spares_low=0,
        kernel_log="",
        stacks_seconds=0.0,
        diagnose_seconds=0.0,
        kill_wait_seconds=3600.0,
        hard_cap_seconds=LONG_SECONDS,
        action_deadline_seconds=LONG_SECONDS,
    )


def node_name() -> str:
    """Return what this machine is called."""
    return socket.gethostname().partition(".")[0] or "localhost"


class WatchCore(LoopEnv):
    """Decides about what is observed. One thread calls it; times are Unix seconds that never run back."""

    def __init__(self, name: str, *, node: str = "") -> None:
        """`name`: of the runs. `node`: default: this machine's name."""
        self.node = node or node_name()
        self.cluster = cluster_of(name)
        self._clock_base = time.time() - time.monotonic()
        self._store = MemoryStore()
        self._lease = self._store.acquire_lease(
            LEASE, f"{self.node}:{os.getpid()}", ttl_seconds=1e9
        )
        self._controller = Controller(policy_of(self.cluster))
        journal, registers = Journal(self._store, self._lease), Registers(self.cluster)
        self._loop = DecisionLoop(self._controller, journal, registers, self)
        self._heartbeats = LastHeartbeats()
        self._outcomes: deque[actions.ActionResult] = deque()
        self._assignment: Assignment | None = None
        # The newest steps of each run, and what detectors have asked for of them.
        self._merger, self._steps = StepMerger(), dict[int, deque[StepRow]]()
        self._wanted: deque[StepsWanted] = deque()
        self._num_requests = 0
        self._trimmed = 0
        self._judged_at = self.now()
        # The newest run, and the ranks of it that are observed.
        self.run = 0
        self.gang: LocalGang | None = None
        # What people are paged about.
        self.on_page: Callable[[str], None] = lambda text: None
        token = self._lease.token
        self._loop.take_over(r.SupervisorStarted(holder="watch", token=token, version="watch"))
        self.signal(
            s.NodeJoined(
                **self.header(),
                hardware=f"watched:{self.node}",
                slots=2**20,
                address="",
                pid=os.getpid(),
            )
        )

    # ---- what is observed ------------------------------------------------------------------------

    def header(self) -> Mapping[str, Any]:
        """Return the source of a signal."""
        return {"node": self.node, "incarnation": 1, "instance_id": _INSTANCE}

    def signal(self, fact: object) -> None:
        """Decide on a signal, a request or a finding, and on what follows."""
        self._loop.process(fact)
        self._settle()

    def heartbeat(self, heartbeat: s.Heartbeat) -> None:
        """Let the detectors judge a heartbeat."""
        now = self.now()
        self._heartbeats.record(heartbeat, now)
        self._merger.add(heartbeat, now)
        for run, rows in self._merger.take().items():
            self._steps.setdefault(run, deque(maxlen=KEPT_STEPS)).extend(rows)
        self._loop.refresh()
        self._recall()
        for finding in self._loop.detectors.on_heartbeat(heartbeat, now):
            self.signal(finding)

    def idle_heartbeat(self) -> None:
        """Report that the node is there and has no ranks."""
        generation = self._assignment.generation if self._assignment is not None else 0
        self.heartbeat(s.Heartbeat(**self.header(), generation=generation))

    def judge(self) -> None:
        """Run the detectors and what is due. Call it about once a second."""
        now = self.now()
        stalled_seconds = now - self._judged_at
        if stalled_seconds > STALL_SECONDS:
            self._loop.execute(self._loop.pause(stalled_seconds, SUPERVISOR_STALL))
        self._judged_at = now
        self._loop.judge(self.now, may_tick=lambda: True)
        self._settle()
        self._forget_entries()

    def begin_run(self, spec: RunSpec) -> None:
        """Admit a run; it is planned at once, and launched by what `launched` observes."""
        self.end_run()
        self.signal(q.StartRun(id=self._request_id(), by=OWNER, spec=spec))
        self.run = max(self._controller.state.runs)

    def end_run(self) -> None:
        """Stop the newest run, if it has not ended; its ranks, if any, are not looked at any more."""
        if self.is_wanted:
            self.signal(q.StopRun(id=self._request_id(), by=OWNER, run=str(self.run)))
            self.gone()

    def launched(self, pids: Mapping[int, int], now: float) -> LocalGang | None:
        """Note that the ranks of the next attempt (rank -> pid; 0: not known) run; None: none is planned.

        `now`: monotonic seconds, as in all that the gang is given.
        """
        run = self.state_of_run
        if run.hold is not None:
            self.signal(q.ResumeRun(id=self._request_id(), by=OWNER, run=str(self.run)))
        elif run.attempt is not None and run.attempt.state in ("running", "stopping", "ended"):
            self.signal(q.RestartRun(id=self._request_id(), by=OWNER, run=str(self.run)))
        assignment = self._assignment
        if assignment is None or assignment.plan is None:
            return None
        stopped_seconds = self.cluster.stopped_seconds
        self.gang = LocalGang(
            assignment, pids, self.header, now, stopped_seconds=stopped_seconds, spawned_at=None
        )
        self.signal(self.gang.started())
        return self.gang

    def gone(self) -> None:
        """Note that no rank of the gang is left."""
        gang, self.gang = self.gang, None
        if gang is not None:
            step = gang.furthest_step
            self.signal(
                s.RanksTerminated(**gang.header(), generation=gang.generation, last_step=step)
            )

    # ---- what was decided ------------------------------------------------------------------------

    @property
    def state_of_run(self) -> Run:
        """The newest run; only to be read."""
        return self._controller.state.runs[self.run]

    @property
    def is_wanted(self) -> bool:
        """Whether there is a run that has not ended."""
        return self.run > 0 and self.state_of_run.is_wanted

    @property
    def controller(self) -> Controller:
        """The controller; only to be read."""
        return self._controller

    def status(self) -> ClusterStatus:
        """Return the state for display."""
        state, ledger, now = self._controller.state, self._loop.log.ledger, self.now()
        builder = StatusBuilder(state, self.cluster, ledger, self._heartbeats, now)
        return builder.status(now, {"wall": time.time(), "holder": "watch"})

    def _recall(self) -> None:
        """Hand the detectors the past steps that they have asked for."""
        while self._wanted:
            wanted = self._wanted.popleft()
            past = steps_around(wanted, list(self._steps.get(wanted.attempt.run, ())))
            for finding in self._loop.detectors.recall(wanted, past):
                self.signal(finding)

    def _settle(self) -> None:
        """Process the outcomes of actions, and what follows from them."""
        while self._outcomes:
            self._loop.process(self._outcomes.popleft())

    def _forget_entries(self) -> None:
        through = self._loop.log.durable_sequence - KEPT_ENTRIES
        if through > self._trimmed + KEPT_ENTRIES:
            self._store.trim(JOURNAL, through, fence=self._lease)
            self._trimmed = through

    def _request_id(self) -> str:
        self._num_requests += 1
        return f"q{self._num_requests}"

    # ---- where the decision loop runs ------------------------------------------------------------

    def now(self) -> float:
        """Return the controller's time."""
        return self._clock_base + time.monotonic()

    def submit(self, action: actions.Action) -> None:
        """Answer an action instead of carrying it out."""
        result = actions.ActionResult(
            id=action.id, outcome="failed", message="watch-only acts on nothing"
        )
        if action.action == actions.PrepareAttempt.kind:
            detail: dict[str, object] = {"chosen": None, "refused": [], "address": "", "port": 1}
            result = actions.ActionResult(id=action.id, outcome="done", detail=detail)
        elif action.action == actions.PageOperator.kind:
            self.on_page(action.reason)
            result = actions.ActionResult(id=action.id, outcome="done")
        self._outcomes.append(result)

    def put_many(self, values: Mapping[str, bytes]) -> None:
        """Keep what the node is to run."""
        self._store.put_many(values, fence=self._lease)
        mine = values.get(assignment_register(self.node))
        if mine is not None:
            self._assignment = wire.decode(mine)

    def probe_store(self) -> None:
        """The store is in this process."""

    def wait_for_store(self, error: StoreUnavailable) -> float:
        """Never needed: the store is in this process."""
        raise error

    def recall_steps(self, wanted: StepsWanted) -> None:
        """Note what is asked for: it is handed over with the next heartbeat."""
        self._wanted.append(wanted)

    def on_executed(self) -> None:
        """Nothing more follows."""

    def on_unwritten(self, error: StoreUnavailable) -> None:
        """Never needed: the store is in this process."""
        raise error
