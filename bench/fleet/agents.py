"""Simulates agents: `python -m bench.fleet.agents CLUSTER.yaml FIRST COUNT`. Their sessions are real, their ranks are not.

Each agent joins, passes its checks, sends heartbeats (all that an agent of eight ranks of the built-in trainer reports: steps,
seconds of compute, resources of ranks, start times), and carries out its assignments at once. Orders come as lines of JSON on stdin
(`kill`, `fail`, `fail_silently`, `hang`, `stop`), events go out as lines of JSON on stdout, with the time on the monotonic clock,
which all processes of a machine share.
"""

import json
import math
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from runner.agent.ranks import rank_resources
from runner.agent.ranks.aggregates import MEDIANS_SECONDS
from runner.agent.rare_field import RareField
from runner.agent.transport.session import AgentInstance, AgentSession, new_instance_id
from runner.agent.transport.store_client import StoreClient
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.messages.signals import (
    Heartbeat,
    LinesMatched,
    NodeJoined,
    Progress,
    RankCompute,
    RankExited,
    RankResources,
    RanksStarted,
    RanksTerminated,
    StartPhase,
    StepRecord,
)
from runner.facts.specs.cluster import ClusterSpec
from runner.load.specs import load_cluster
from runner.signer import signer_of
from runner.store.registry import open_store

# One session that waits for the store delays no more than these. Chosen, not measured.
SESSIONS_PER_CLIENT = 50
# As real agents report progress.
PROGRESS_SECONDS = 5.0
# Between two checks for heartbeats that are due; chosen: a fiftieth of a heartbeat.
TICK_SECONDS = 0.02
SLOTS = 8
FIRST_PID = 1000
WARM: dict[str, Any] = {"warm": "ready", "warm_resident_bytes": 400_000_000}
# How a rank may be lost.
LOSSES: dict[str, dict[str, Any]] = {
    "kill": {},
    "fail": {"stderr_tail": "Error: made up", "is_log_read": True},
    "fail_silently": {"stderr_tail": "Error: made up"},
}
VERSIONS = {"python": "3.11.2", "torch": "2.13.0", "deepspeed": "0.19.8"}


def emit(**fields: Any) -> None:
    """Write one line for the measuring process."""
    sys.stdout.write(json.dumps({**fields, "at": time.monotonic()}) + "\n")
    sys.stdout.flush()


def _step(plan: LaunchPlan, step: int) -> StepRecord:
    """Return the aggregated step report of the built-in trainer's ranks; numbers jitter, so that detectors have work."""
    jitter = 0.01 * ((step * 7919) % 13 - 6)
    return StepRecord(
        step=step,
        loss=2.5 + jitter,
        grad_norm=0.7 + jitter,
        lr=1e-4,
        loss_scale=65536.0,
        tokens_per_second=1e5,
        model_tflops_per_second=150.0,
        mfu_ratio=0.48,
        compute_seconds_max=0.71,
        compute_seconds_max_rank=plan.ranks[-1],
        step_seconds_max=1.0,
        local_grad_norm_max=0.9 + jitter,
        local_grad_norm_max_rank=plan.ranks[0],
        num_nonfinite=0,
        data_wait_seconds_max=0.001,
        peak_memory_bytes_max=70_000_000_000,
    )


def _start(plan: LaunchPlan) -> dict[str, StartPhase]:
    return {
        phase: StartPhase(seconds=seconds, rank=plan.ranks[0])
        for phase, seconds in (("import", 0.1), ("rendezvous", 1.5), ("model", 4.0), ("load", 20.0))
    }


Inbox = queue.SimpleQueue[Any]


class FakeAgent:
    """One agent. The owner's thread calls `heartbeat` and `handle`; the client's threads post into `inbox`.

    `open_session`: returns the session of an instance, which calls back this agent.
    """

    def __init__(
        self, node: str, inbox: "Inbox", open_session: Callable[[AgentInstance, "FakeAgent"], Any]
    ) -> None:
        self.node, self.inbox = node, inbox
        instance = AgentInstance(node=node, incarnation=1, instance_id=new_instance_id())
        self.session = open_session(instance, self)
        self.plan: LaunchPlan | None = None
        self.generation = self.step = self.resume_step = 0
        self.started_at = self.marked_at = 0.0
        self.computed_at = self.held_at = 0.0
        self.is_unresponsive = False
        self.rare_versions, self.rare_phases = RareField[str](), RareField[StartPhase]()

    def start(self) -> None:
        """Join."""
        self.session.start()
        self.session.join(self._joined(), time.monotonic())

    # ---- once a heartbeat

    def heartbeat(self, now: float) -> None:
        """Send the heartbeat that is due."""
        if self.is_unresponsive:
            return
        if self.session.wants_join(now):
            self.session.join(self._joined(), now)
        plan = self.plan
        stamp = {
            **self.session.next_header(),
            "sent_at": time.time(),
            "generation": self.generation,
            "agent_resident_bytes": 50_000_000,
            "warm_versions": self.rare_versions.pop_due(VERSIONS, now),
            **WARM,
        }
        if plan is None:
            self.session.outbox.put_heartbeat(Heartbeat(**stamp))
            return
        last_reported = self.step
        self.step = max(self.step, self.resume_step + int(now - self.started_at))
        has_stepped = self.step > self.resume_step
        self.session.outbox.put_heartbeat(
            Heartbeat(
                **stamp,
                attempt=plan.attempt,
                ranks_alive=tuple(plan.ranks),
                phases={str(rank): "step" for rank in plan.ranks},
                steps=(_step(plan, self.step),) if self.step > last_reported else (),
                last_step=self.step or None,
                start_phases=self.rare_phases.pop_due(_start(plan) if has_stepped else {}, now),
                rank_computes=self._computed(plan, now) if has_stepped else (),
                **(self._held(plan, now) if has_stepped else {}),
            )
        )
        if plan.node_rank == 0 and has_stepped and now >= self.marked_at + PROGRESS_SECONDS:
            self.marked_at = now
            mark = Progress(
                **self.session.next_header(), attempt=plan.attempt, step=self.step, loss=2.5
            )
            self.session.outbox.put(mark)

    def _computed(self, plan: LaunchPlan, now: float) -> tuple[RankCompute, ...]:
        """Return what steps cost, when an agent would report it."""
        if now < self.computed_at + MEDIANS_SECONDS:
            return ()
        self.computed_at = now
        return tuple(
            RankCompute(rank=rank, seconds=0.7 + 0.001 * (rank % 7), stage=rank % 4)
            for rank in plan.ranks
        )

    def _held(self, plan: LaunchPlan, now: float) -> dict[str, Any]:
        """Return the resources of ranks, when an agent would report them."""
        if now < self.held_at + rank_resources.SAMPLE_SECONDS:
            return {}
        self.held_at = now
        resources = tuple(
            RankResources(
                rank=rank,
                memory_bytes=4_000_000_000 + 4096 * rank,
                descriptors=80,
                descriptors_limit=1024,
            )
            for rank in plan.ranks
        )
        return {"rank_resources": resources, "memory_free_bytes": 500_000_000_000}

    # ---- what comes in

    def on_assignment(self, assignment: Assignment) -> None:
        """Queue it for the owner's thread."""
        self.inbox.put((self, assignment))

    def on_task(self, task: Task, number: int) -> None:
        """Queue it for the owner's thread."""
        self.inbox.put((self, task))

    def on_confirmed(self, request: int) -> None:
        """Ignore it: nothing waits for it."""

    def on_malformed(self, reason: str) -> None:
        """Report a bug of this benchmark: nothing sends malformed messages."""
        emit(what="malformed", node=self.node, reason=reason)

    def on_acknowledged(self, facts: list[object]) -> None:
        """Report when the store had the signals that lead to decisions."""
        for fact in facts:
            if isinstance(fact, RankExited | LinesMatched | RanksTerminated | RanksStarted):
                emit(what=type(fact).__name__, node=self.node, attempt=str(fact.attempt))

    def on_displaced(self, instance_id: str) -> None:
        """Report a bug of this benchmark: no other agent has this name."""
        emit(what="displaced", node=self.node, reason=instance_id)

    def handle(self, message: Assignment | Task) -> None:
        """Carry out an assignment, or answer a task."""
        if isinstance(message, Task):
            is_check = message.task == "check"
            detail: dict[str, Any] = {"outcome": "PASS", "checks": []} if is_check else {}
            self.session.outbox.put(ActionResult(id=message.id, outcome="done", detail=detail))
        elif (
            self.session.is_mine(message)
            and message.generation >= self.generation
            and not self.is_unresponsive
        ):
            self._assigned(message)

    def _assigned(self, assignment: Assignment) -> None:
        plan, before = assignment.plan, self.plan
        if plan is not None and (before is None or before.attempt != plan.attempt):
            self.plan, self.generation = plan, assignment.generation
            # As if there were a checkpoint of each step; another node of the gang may have been one step ahead.
            self.resume_step, self.marked_at = self.step + 1 if self.step else 0, -math.inf
            self.started_at = self.computed_at = self.held_at = time.monotonic()
            pids = {str(rank): FIRST_PID + rank for rank in plan.ranks}
            stamp = self.session.next_header()
            self.session.outbox.put(
                RanksStarted(**stamp, generation=self.generation, attempt=plan.attempt, pids=pids)
            )
        elif plan is None and before is not None and assignment.attempt is not None:
            gone = RanksTerminated(
                **self.session.next_header(),
                generation=self.generation,
                attempt=before.attempt,
                last_step=self.step or None,
            )
            self.plan, self.generation = None, assignment.generation
            self.session.outbox.put(gone)

    def lose_rank(self, *, stderr_tail: str = "", is_log_read: bool = False) -> None:
        """Lose a rank: by SIGKILL, or by an error that it wrote; `is_log_read`: the node's reader reports on it at once."""
        plan = self.plan
        if plan is None:
            emit(what="no rank to lose", node=self.node)
            return
        of_launch: dict[str, Any] = {"generation": self.generation, "attempt": plan.attempt}
        exited = RankExited(
            **self.session.next_header(),
            **of_launch,
            rank=plan.ranks[0],
            exit_code=1 if stderr_tail else -signal.SIGKILL,
            last_step=self.step or None,
            stderr_tail=stderr_tail,
        )
        self.session.outbox.put(exited)
        if is_log_read:
            read = LinesMatched(**self.session.next_header(), **of_launch, is_last=True)
            self.session.outbox.put(read)

    def _joined(self) -> NodeJoined:
        number = self.node[1:]
        return NodeJoined(
            **self.session.next_header(),
            hardware=f"board:fleet-{number}",
            parts=(f"board:fleet-{number}",),
            slots=SLOTS,
            address="127.0.0.1",
            pid=FIRST_PID,
        )


class Fleet:
    """The agents of this process, and the thread that owns them."""

    _num_sessions = 0

    def __init__(self, cluster: ClusterSpec, first: int, count: int) -> None:
        self.cluster, self.inbox = cluster, Inbox()
        self.store, self.signer = open_store(cluster), signer_of(cluster)
        self._clients: list[StoreClient] = []
        names = [f"n{number}" for number in range(first, first + count)]
        self.agents = {name: FakeAgent(name, self.inbox, self.open_session) for name in names}

    def open_session(self, instance: AgentInstance, agent: FakeAgent) -> Any:
        """Return a session of its own for an agent, as real agents have."""
        if not self._clients or self._num_sessions == SESSIONS_PER_CLIENT:
            # A handle of its own: what wakes one reader need not wake the others.
            self._clients.append(StoreClient(open_store(self.cluster)))
            self._num_sessions = 0
        self._num_sessions += 1
        return AgentSession(
            self._clients[-1],
            instance,
            agent,
            signer=self.signer,
            rejoin_seconds=self.cluster.heartbeat_timeout_seconds,
        )

    def start(self) -> None:
        """Begin to send and to receive."""
        for client in self._clients:
            client.start()

    def flush(self) -> None:
        """Send what agents have put out; sessions do that by themselves."""

    def run(self) -> None:
        """Play until requested to stop."""
        for agent in self.agents.values():
            agent.start()
        self.start()
        threading.Thread(target=self._listen, daemon=True).start()
        agents, every = list(self.agents.values()), self.cluster.heartbeat_seconds
        begun, spoken = time.monotonic(), 0
        while True:
            now = time.monotonic()
            # Evenly over the second, as agents that were started one by one; those that are late send now.
            due = int((now - begun) / every * len(agents))
            spoken = max(spoken, due - len(agents))
            for index in range(spoken, due):
                agents[index % len(agents)].heartbeat(now)
            spoken = due
            self.flush()
            try:
                event = self.inbox.get(timeout=TICK_SECONDS)
            except queue.Empty:
                continue
            if not self._handle(event):
                return
            while not self.inbox.empty():
                if not self._handle(self.inbox.get()):
                    return
            self.flush()

    def _handle(self, event: Any) -> bool:
        """Handle a message or an order; return False to stop."""
        if isinstance(event, tuple):
            agent, message = event
            agent.handle(message)
        elif event["do"] == "stop":
            return False
        elif event["do"] in LOSSES:
            self.agents[event["node"]].lose_rank(**LOSSES[event["do"]])
        elif event["do"] == "hang":
            self.agents[event["node"]].is_unresponsive = True
            emit(what="hung", node=event["node"])
        return True

    def _listen(self) -> None:
        for line in sys.stdin:
            self.inbox.put(json.loads(line))
        self.inbox.put({"do": "stop"})


def main(new_fleet: Callable[[ClusterSpec, int, int], Fleet], path: str, *numbers: str) -> None:
    """Play agents n<first>, n<first+1>, ... until stdin ends or has the line stop."""
    first, count = map(int, numbers)
    fleet = new_fleet(load_cluster(path), first, count)
    with closing(fleet.store):
        emit(what="begun", count=count)
        fleet.run()


if __name__ == "__main__":
    main(Fleet, *sys.argv[1:])
