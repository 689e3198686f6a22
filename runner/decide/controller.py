"""The controller: two doors around the state.

`decide(input, now)` reads and returns records; `apply(entry)` alone changes. After every input the caller asks `Settle` until
nothing more follows. `wake_at` says when to come back with a `Tick`.
"""

from collections.abc import Callable
from typing import Any

from runner.decide import requests
from runner.decide.decision import Decision, Policy
from runner.decide.incidents import (
    answers,
    diagnosis,
    non_fatal,
    numeric,
    pending_evidence,
    proposals,
)
from runner.decide.nodes import drain, failure_domains, join, lifecycle, probes
from runner.decide.nodes.checks import (
    admission_checks,
    idle_lines,
    start_looks,
    targeted_checks,
    tasks_under_way,
)
from runner.decide.nodes.isolation import driver as isolations
from runner.decide.nodes.predicates import is_current_agent
from runner.decide.placement.allocation import in_order
from runner.decide.runs import (
    attempts,
    checkpoint_trust,
    drift,
    drills,
    read_back,
    reconcile,
    trust_levels,
    verification,
)
from runner.decide.state.apply import apply_entry
from runner.decide.state.cluster_state import LAUNCHED, State
from runner.decide.state.derived import DerivedState
from runner.decide.state.moves import check_moves
from runner.facts import faults
from runner.facts.actions import Action, ActionResult, NodeTask, under_way
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.trials import TrialJudged
from runner.facts.watch import WatchList


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
        self._derived = DerivedState(state, self.policy.cluster)

    def decide(self, fact: object, now: float) -> tuple[object, ...]:
        """Return the records that this input leads to. Changes nothing of the state; unknown kinds lead to nothing."""
        decision = Decision(state=self.state, policy=self.policy, now=now)
        handler = _INPUTS.get(type(fact))
        if handler is not None and self._is_believed(fact):
            handler(decision, fact)
        if type(fact) is r.Settle and not decision.records:
            self._derived.is_settled = True
        check_moves(self.state, decision.records)
        return tuple(decision.records)

    def _is_believed(self, fact: object) -> bool:
        """Whether an input counts: of a displaced agent's signals only NodeJoined does."""
        if not isinstance(fact, s.Signal) or isinstance(fact, s.NodeJoined):
            return True
        return is_current_agent(self.state.nodes.get(fact.node), fact)

    def apply(self, entry: r.JournalEntry) -> None:
        """Apply one journal entry, new or replayed."""
        self._derived.prepare(entry)
        apply_entry(self.state, entry)

    @property
    def is_settled(self) -> bool:
        """Whether nothing follows from the state: a `Settle` led to nothing, and so did all since then."""
        return self._derived.is_settled

    def wake_at(self) -> float | None:
        """Return the earliest time at which something is due that no signal will announce; it may have passed."""
        return self._derived.wake_at()

    def watch(self) -> WatchList:
        """Return what the detectors are to watch now: the same object for as long as it is the same."""
        return self._derived.watch()

    @property
    def has_closed(self) -> bool:
        """Whether the cluster was asked to shut down and nothing is left to do."""
        return lifecycle.has_closed(self.state)


def _settle(decision: Decision, fact: object) -> None:
    """Decide what is overdue, then nodes, then runs; stop after the first that yields records: later ones may depend on them."""
    _tick(decision, fact)
    if not decision.records:
        lifecycle.settle(decision)
    if not decision.records:
        failure_domains.settle(decision)
    if not decision.records:
        isolations.settle(decision)
    if decision.records:
        return
    for run in in_order(reconcile.undecided(decision)):
        reconcile.settle(decision, run)
        if decision.records:
            return
    if not decision.records:
        proposals.settle(decision)
    if not decision.records:
        trust_levels.settle(decision)
    if not decision.records:
        verification.settle(decision)
    if not decision.records:
        targeted_checks.settle(decision)
    if not decision.records:
        lifecycle.settle_closing(decision)


def _tick(decision: Decision, fact: object) -> None:
    """End an action whose deadline has passed, or whose agent has ended: unknown, neither success nor failure.

    One at a time: what follows from it may concern the next, so that is asked about once this one is applied.
    """
    for item in decision.state.actions.values():
        is_overdue = decision.now >= item.issued_at + item.action.deadline_seconds
        if is_overdue or item.orphaned:
            within = f"within {item.action.deadline_seconds:g} s"
            message = f"no outcome {within}" if is_overdue else "its agent ended without an outcome"
            result = ActionResult(id=item.action.id, outcome="unknown", message=message)
            _on_result(decision, result)
            return


def _on_result(decision: Decision, result: ActionResult) -> None:
    item, outcome = decision.state.actions.get(result.id), result.outcome
    # Later results of the same action are history.
    if item is not None:
        detail = dict(result.detail)
        ended = r.ActionEnded(id=result.id, outcome=outcome, message=result.message, detail=detail)
        decision.add(ended)
        consequence = _RESULTS.get(item.action.action)
        if consequence is not None:
            consequence(decision, item.action, result)
    else:
        tasks_under_way.on_late_result(decision, result)


def _on_finding(decision: Decision, finding: faults.Finding) -> None:
    judged_by = faults.fault_kind(finding.fault).judged_by
    # Of Stoker's own failures an operator is notified where they are recorded.
    if judged_by != "self":
        _FINDINGS.get(judged_by, non_fatal.on_finding)(decision, finding)


def _on_lines(decision: Decision, lines_read: s.LinesMatched) -> None:
    """Record lines of a running gang as pending evidence; all others explain a failure."""
    attempt = decision.state.attempt_of(lines_read.attempt)
    if lines_read.ranks_alive and attempt is not None and attempt.state in LAUNCHED:
        pending_evidence.on_pending_lines(decision, lines_read)
    else:
        incident = diagnosis.on_lines_matched(decision, lines_read)
        if incident is not None and incident.is_live:
            answers.on_lines(decision, incident, lines_read)


def _on_task_ended(decision: Decision, action: Action, result: ActionResult) -> None:
    work = action.read(NodeTask)
    task, other = work.task, under_way(result.detail)
    if task == "check" and other is not None and "beside" not in work.args:
        tasks_under_way.defer(decision, work, other)
    elif "isolation" in work.args:
        isolations.on_measured(decision, action, result)
    elif "beside" in work.args:
        start_looks.on_looked(decision, action, result)
    elif "suspect" in work.args:
        targeted_checks.on_checked(decision, action, result)
    elif task == "check":
        admission_checks.on_checked(decision, action, result)
    elif task == "verify":
        verification.on_share_ended(decision, action, result)
    elif task == "conditions":
        drift.on_asked(decision, action, result)
    else:
        drills.on_task_ended(decision, action, result)


_FINDINGS: dict[faults.JudgedBy, Callable[[Decision, faults.Finding], None]] = {
    "probe": probes.on_node_silent,
    "progress": attempts.on_hang,
}

_RESULTS: dict[str, Callable[[Decision, Action, ActionResult], None]] = {
    "prepare_attempt": attempts.on_prepared,
    "probe_node": probes.on_probed,
    "start_agent": lifecycle.on_agent_started,
    "stop_agent": lifecycle.on_agent_stopped,
    "node_task": _on_task_ended,
    "inspect_checkpoint": verification.on_inspected,
    "verify_checkpoint": verification.on_inspected,
    "prune_checkpoints": checkpoint_trust.on_pruned,
}

_INPUTS: dict[type, Callable[[Decision, Any], None]] = {
    r.SupervisorStarted: lifecycle.on_supervisor_started,
    r.Settle: _settle,
    r.Tick: _tick,
    r.HeartbeatStep: attempts.on_heartbeat_step,
    r.StaleMessage: requests.on_stale,
    s.NodeJoined: join.on_node_joined,
    s.NodeLeft: join.on_node_left,
    s.DevicesReleased: probes.on_devices_released,
    s.Notice: drain.on_notice,
    s.RanksStarted: attempts.on_ranks_started,
    s.ConditionsFound: drift.on_conditions,
    faults.LaunchSurveyed: drift.on_surveyed,
    s.LaunchFailed: attempts.on_launch_failed,
    s.RankExited: attempts.on_rank_exited,
    s.RanksTerminated: attempts.on_ranks_gone,
    s.LinesMatched: _on_lines,
    s.KernelLinesMatched: idle_lines.on_kernel_lines,
    s.ReplicasDisagree: non_fatal.on_replicas,
    s.RanksReady: attempts.on_ranks_ready,
    s.Progress: attempts.on_progress,
    TrialJudged: numeric.on_judged,
    faults.GangStillStepping: probes.on_gang_still_stepping,
    faults.GangStartTimed: attempts.on_gang_timed,
    faults.MetricNote: attempts.on_metric_note,
    faults.LrObserved: read_back.on_lr_observed,
    s.SettingsInEffect: read_back.on_settings,
    s.RequestTaken: drills.on_request_taken,
    s.CheckpointSealed: checkpoint_trust.on_checkpoint_sealed,
    s.TaskProgressed: verification.on_progress,
    faults.Finding: _on_finding,
    faults.HeartbeatResumed: probes.on_heartbeat_resumed,
    faults.CorrelatedSilence: probes.on_correlated_silence,
    faults.DomainSilence: probes.on_domain_silence,
    ActionResult: _on_result,
    **dict.fromkeys(requests.HANDLERS, requests.on_request),
}
