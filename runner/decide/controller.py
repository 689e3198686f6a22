"""The controller: two doors around the state.

`decide(input, now)` reads and returns records; `apply(entry)` alone changes. After every input the caller asks `Settle` until
nothing more follows. `wake_at` says when to come back with a `Tick`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from runner.decide import (
    attempts,
    checking,
    domains,
    fleet,
    joining,
    probing,
    requests,
    runs,
    service,
    trust,
)
from runner.decide.apply import apply_entry
from runner.decide.choice import in_order
from runner.decide.draft import Draft, Policy
from runner.decide.nodes import has_left
from runner.decide.pool import STEADY
from runner.decide.state import GONE, Attempt, Run, State
from runner.facts import records as r
from runner.facts import signals as s
from runner.facts.actions import Action, ActionResult
from runner.facts.faults import (
    DomainSilence,
    Finding,
    GangAdvances,
    GangTimed,
    MassSilence,
    NodeHeard,
)
from runner.facts.ids import AttemptId
from runner.facts.requests import (
    ChangeLr,
    DrainNode,
    Drill,
    QuarantineNode,
    ReadmitNode,
    RetireNode,
    ShutDown,
    StartRun,
    StopRun,
    SwapNode,
)
from runner.facts.watch import Watch, WatchedAttempt

WATCHED = (
    "joining",
    "checking",
    "spare",
    "active",
    "suspect",
)  # states of nodes that must be heard


# What of a gang may change while it is watched: see `WatchedAttempt`.
_Changing = tuple[float | None, bool, bool, bool, bool]


class Controller:
    """The durable state of a cluster and the decisions about it. Pure: no clock, no I/O."""

    def __init__(self, policy: Policy, state: State | None = None) -> None:
        self.policy = policy
        self.state = state or State()

    @property
    def state(self) -> State:
        """All that is known; changed by `apply` alone, or replaced whole."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        # What follows from the state as it is, worked out at most once between two entries: None until it is asked for.
        self._watch: Watch | None = None
        self._watched_before = Watch()
        self._gangs_before: dict[int, tuple[AttemptId, _Changing, WatchedAttempt]] = {}
        self._wakes: tuple[float | None] | None = None
        self._is_settled = False

    def decide(self, fact: object, now: float) -> tuple[object, ...]:
        """Return the records that this input leads to. Changes nothing; unknown kinds lead to nothing."""
        draft = Draft(state=self.state, policy=self.policy, now=now)
        handler = _INPUTS.get(type(fact))
        if handler is not None and not self._is_anothers(fact):
            handler(draft, fact)
        if type(fact) is r.Settle and not draft.records:
            self._is_settled = True
        return tuple(draft.records)

    def _is_anothers(self, fact: object) -> bool:
        """Whether this is the word of an agent that is not the node's: only its wish to join leads to anything."""
        if not isinstance(fact, s.Signal) or isinstance(fact, s.NodeJoined):
            return False
        node = self.state.nodes.get(fact.node)
        return node is not None and bool(fact.life and node.life) and node.life != fact.life

    def apply(self, entry: r.JournalEntry) -> None:
        """Apply one journal entry, new or replayed."""
        if not (self._is_settled and self._leads_to_nothing(entry)):
            self._watch = self._wakes = None
            self._is_settled = False
        apply_entry(self.state, entry)

    @property
    def is_settled(self) -> bool:
        """Whether nothing follows from the state: it was asked, and what came since then leads to nothing.

        Hundreds of runs mark their progress again and again, and gangs of thousands of nodes end; looking at every node and run
        each time would be most of the work.
        """
        return self._is_settled

    def _leads_to_nothing(self, entry: r.JournalEntry) -> bool:
        """Whether an entry says, before anything falls due, no more than that gangs go on: nobody waits for that.

        Gangs that step have made more steps; a gang that ends has one node less to wait for, and others still.
        """
        if not isinstance(entry.input, s.Progress | s.RanksGone):
            return False
        for record in entry.records:
            if type(record) is r.Advanced:
                attempt = self.state.attempt_of(record.attempt)
                if attempt is None or attempt.last_step is None:
                    return False
            elif type(record) is not r.NodeCleared or not self._waits_for_more(record):
                return False
        wake_at = self.wake_at()
        return wake_at is None or entry.now < wake_at

    def _waits_for_more(self, cleared: r.NodeCleared) -> bool:
        """Whether nodes are left that an attempt which ends has to wait for, and nobody wants this one."""
        attempt, nodes = self.state.attempt_of(cleared.attempt), self.state.nodes
        node = nodes[cleared.node]
        if attempt is None or attempt.state != "stopping" or node.leaving or node.state != "active":
            return False
        if any(
            run.run != attempt.attempt.run and _wants_nodes(run) for run in self.state.runs.values()
        ):
            return False
        return any(
            name != cleared.node
            and nodes[name].uncleared == cleared.attempt
            and nodes[name].state not in GONE
            for name in reversed(attempt.nodes)
        )

    def wake_at(self) -> float | None:
        """Return the earliest time at which something is due that no signal will announce; it may have passed."""
        if self._wakes is None:
            self._wakes = (self._work_out_wake_at(),)
        return self._wakes[0]

    def watch(self) -> Watch:
        """Return what the detectors are to watch now: the same object for as long as the state is the same.

        Where only runs have changed, its nodes and their lives are the same objects as before.
        """
        if self._watch is None:
            watch, before = self._work_out_watch(), self._watched_before
            if watch.nodes == before.nodes and watch.lives == before.lives:
                watch = replace(watch, nodes=before.nodes, lives=before.lives)
            self._watch = self._watched_before = watch
        return self._watch

    def _work_out_wake_at(self) -> float | None:
        times: list[float] = []
        cluster = self.policy.cluster
        for run in self.state.runs.values():
            attempt = run.attempt
            if attempt is None:
                continue
            if attempt.state == "stopping":
                since = attempt.stopping_at or 0.0
                times.append(since + cluster.hard_cap_seconds)
                times += [
                    self.state.nodes[name].probed_at + cluster.silence_seconds
                    for name in attempt.nodes
                ]
                for node in (self.state.nodes[name] for name in attempt.nodes):
                    delay_seconds = node.grace_seconds + node.stacks_seconds
                    times.append(since + delay_seconds + 2 * cluster.kill_wait_seconds)
            elif attempt.state == "launching":
                limit = attempts.launch_limit(self.state, cluster, run)
                times += [limit] if limit < math.inf else []
            elif attempt.state == "running" and run.incident is not None:
                if attempt.up_since is not None:
                    times.append(attempt.up_since + run.spec.steady_seconds)
            elif attempt.state == "asked":
                times.append((attempt.asked_at or 0.0) + run.spec.stop_grace_seconds)
        for node in self.state.nodes.values():
            if probing.is_in_doubt(node):
                times.append(probing.look_again_at(node, cluster))
            if node.leaving is not None and node.leaving.by_time is not None:
                times.append(node.leaving.by_time)
        times += domains.back_until(self.state)
        # What the state itself leads to was settled when it came to `now`. An overdue action still waits for a Tick.
        due = [time for time in times if time > self.state.now]
        due += [
            item.issued_at + item.action.deadline_seconds for item in self.state.actions.values()
        ]
        return min(due, default=None)

    def _work_out_watch(self) -> Watch:
        nodes, lost, left, lives = [], [], [], {}
        for node in self.state.nodes.values():
            if node.state in WATCHED:
                nodes.append(node.node)
            # A new supervisor's detectors never found the suspects silent; so they, too, are named as worth a word.
            if node.state in ("lost", "suspect"):
                lost.append(node.node)
            elif node.state == "left":
                left.append(node.node)
            if node.life:
                lives[node.node] = node.life
        watched = [
            self._watched(run, run.attempt)
            for run in self.state.runs.values()
            if run.attempt is not None and run.attempt.state in ("launching", "running", "asked")
        ]
        return Watch(
            nodes=tuple(nodes),
            lost=tuple(lost),
            left=tuple(left),
            lives=lives,
            domains=self.policy.cluster.domains,
            attempts=tuple(watched),
        )

    def _watched(self, run: Run, attempt: Attempt) -> WatchedAttempt:
        """Return what there is to watch of a gang: the same as before, if it is."""
        before = self._gangs_before.get(run.run)
        has_stepped, is_ending = attempt.last_step is not None, bool(attempt.exits)
        changing = (
            *(attempt.up_since, run.reports_steps),
            *(has_stepped, is_ending, bool(attempt.start)),
        )
        if before is not None and before[0] == attempt.attempt and before[1] == changing:
            return before[2]
        watched = WatchedAttempt(
            attempt=attempt.attempt,
            nodes=tuple(attempt.nodes),
            since=attempt.up_since,
            start_seconds=run.spec.start_seconds,
            progress_seconds=run.spec.progress_seconds,
            speaks=run.reports_steps,
            has_stepped=has_stepped,
            is_ending=is_ending,
            is_timed=bool(attempt.start),
        )
        self._gangs_before[run.run] = (attempt.attempt, changing, watched)
        return watched

    @property
    def has_closed(self) -> bool:
        """Whether the cluster was asked to shut down and nothing is left to do."""
        state = self.state
        left = all(has_left(node) for node in state.nodes.values())
        return (
            state.closing
            and left
            and not state.actions
            and all(q.state != "open" for q in state.requests.values())
        )


def _wants_nodes(run: Run) -> bool:
    """Whether a run is between two attempts, so that a node which comes free may be what it waits for."""
    has_them = run.attempt is not None and run.attempt.state in (*STEADY, "stopping")
    return run.state in ("active", "waiting") and not has_them


def _settle(draft: Draft, fact: object) -> None:
    """Ask in turn what is overdue, fleet and runs, and stop at the first that has something to say: later ones may depend on it."""
    _tick(draft, fact)
    if not draft.records:
        fleet.settle(draft)
    if not draft.records:
        domains.settle(draft)
    if draft.records:
        return
    for run in in_order(runs.unsettled(draft)):
        runs.settle(draft, run)
        if draft.records:
            return
    if not draft.records:
        fleet.settle_closing(draft)


def _tick(draft: Draft, fact: object) -> None:
    """End an action whose deadline has passed: unknown, neither success nor failure.

    One at a time: what follows from it may concern the next, so that is asked about once this one is applied.
    """
    for item in draft.state.actions.values():
        if draft.now >= item.issued_at + item.action.deadline_seconds:
            message = f"no outcome within {item.action.deadline_seconds:g} s"
            _end_action(
                draft,
                item.action,
                ActionResult(id=item.action.id, outcome="unknown", message=message),
            )
            return


def _on_result(draft: Draft, result: ActionResult) -> None:
    item = draft.state.actions.get(result.id)
    if item is not None:  # later results of the same action are history
        _end_action(draft, item.action, result)


def _end_action(draft: Draft, action: Action, result: ActionResult) -> None:
    draft.add(
        r.ActionEnded(
            id=action.id, outcome=result.outcome, message=result.message, detail=dict(result.detail)
        )
    )
    consequence = _RESULTS.get(action.action)
    if consequence is not None:
        consequence(draft, action, result)


def _on_finding(draft: Draft, finding: Finding) -> None:
    if finding.fault == "node_silent":
        probing.on_node_silent(draft, finding)
    elif finding.fault in ("rank_stopped", "no_progress"):
        attempts.on_hang(draft, finding)


def _on_task_ended(draft: Draft, action: Action, result: ActionResult) -> None:
    if action.args.get("task") == "check":
        checking.on_checked(draft, action, result)
    else:
        requests.on_task_ended(draft, action, result)


_RESULTS: dict[str, Callable[[Draft, Action, ActionResult], None]] = {
    "prepare_attempt": attempts.on_prepared,
    "probe_node": probing.on_probed,
    "start_agent": fleet.on_agent_started,
    "stop_agent": fleet.on_agent_stopped,
    "node_task": _on_task_ended,
    "verify_checkpoint": trust.on_verified,
    "prune_checkpoints": trust.on_pruned,
}

_INPUTS: dict[type, Callable[[Draft, Any], None]] = {
    r.SupervisorStarted: fleet.on_supervisor_started,
    r.Settle: _settle,
    r.Tick: _tick,
    s.NodeJoined: joining.on_node_joined,
    s.NodeLeft: joining.on_node_left,
    s.DevicesReleased: probing.on_devices_released,
    s.Notice: service.on_notice,
    s.RanksStarted: attempts.on_ranks_started,
    s.LaunchFailed: attempts.on_launch_failed,
    s.RankExited: attempts.on_rank_exited,
    s.RanksGone: attempts.on_ranks_gone,
    s.RanksReady: attempts.on_ranks_ready,
    s.Progress: attempts.on_progress,
    GangAdvances: probing.on_gang_advances,
    GangTimed: attempts.on_gang_timed,
    s.SettingsInEffect: attempts.on_settings,
    s.CheckpointSealed: trust.on_checkpoint_sealed,
    Finding: _on_finding,
    NodeHeard: probing.on_node_heard,
    MassSilence: probing.on_mass_silence,
    DomainSilence: probing.on_domain_silence,
    ActionResult: _on_result,
    StartRun: requests.on_request,
    StopRun: requests.on_request,
    ChangeLr: requests.on_request,
    Drill: requests.on_request,
    ShutDown: requests.on_request,
    SwapNode: requests.on_request,
    DrainNode: requests.on_request,
    QuarantineNode: requests.on_request,
    ReadmitNode: requests.on_request,
    RetireNode: requests.on_request,
}
