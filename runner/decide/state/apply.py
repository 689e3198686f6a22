"""Apply: the one place where the controller's state changes, one small function per kind of record.

Recovery is calling these again in the same order. So nothing here decides, and nothing here may fail on a record that an
earlier release wrote. What concerns nodes is in `apply_nodes`, incidents in `apply_incidents`, and so on.
"""

from collections.abc import Callable
from typing import Any

from runner.decide.nodes.predicates import is_current_agent
from runner.decide.runs import resumes
from runner.decide.state.apply_checkpoints import OF_CHECKPOINTS, follow_line
from runner.decide.state.apply_drift import OF_DRIFT, note_known
from runner.decide.state.apply_incidents import OF_INCIDENTS
from runner.decide.state.apply_isolations import OF_ISOLATIONS
from runner.decide.state.apply_nodes import OF_NODES
from runner.decide.state.apply_people import OF_PEOPLE, apply_pending, counted
from runner.decide.state.check_outcomes import merged
from runner.decide.state.cluster_state import (
    MAX_CHECK_MESSAGE,
    MAX_INSTANCE_IDS_KEPT,
    MAX_METRIC_NOTES,
    MAX_REFUSED_JOINS_KEPT,
    MAX_REQUEST_IDS_KEPT,
    MAX_REQUESTS_KEPT,
    Attempt,
    CheckOutcome,
    OpenAction,
    Run,
    Source,
    State,
    shared_fields,
)
from runner.facts.actions import Action, NodeTask, ProbeNode, under_way
from runner.facts.messages import records as r
from runner.facts.messages.signals import NodeJoined, Signal
from runner.facts.messages.store_rollback import CountersRaised
from runner.facts.remedies.applied import AppliedRemedy
from runner.history.applied_remedies import RemedyRecord, fold_remedy, in_effect


def apply_entry(state: State, entry: r.JournalEntry) -> None:
    """Apply a whole journal entry: its records, the clock and the inbox cursor."""
    # A take-over without a snapshot comes here for every entry there ever was. Tables of types: `isinstance` of a value's class
    # takes as long as to look up and call a function.
    fact = entry.input
    if entry.now > state.now:
        state.now = entry.now
    state.sequence = entry.sequence
    if entry.stream and entry.cursor > state.cursors.get(entry.stream, -1):
        state.cursors[entry.stream] = entry.cursor
    if (apply_first := _INPUTS_BEFORE_RECORDS.get(type(fact))) is not None:
        apply_first(state, fact)
    for record in entry.records:
        _APPLY[type(record)](state, record)
    if isinstance(fact, Signal):
        _update_source(state, fact)
    if (apply_last := _INPUTS_AFTER_RECORDS.get(type(fact))) is not None:
        apply_last(state, fact)


def _supervisor_started(state: State, started: r.SupervisorStarted) -> None:
    state.count("supervisor_starts")
    state.receiving_since = state.now
    provided = frozenset(started.nodes)
    for node in state.nodes.values():
        node.provided = node.node in provided
    # The new supervisor performs them again, each with its whole deadline.
    for item in state.actions.values():
        item.issued_at = state.now


def _update_source(state: State, signal: Signal) -> None:
    """Record a node's newest signal. A displaced agent's signals must not make the current agent's look stale."""
    if signal.sequence > 0 and is_current_agent(state.nodes.get(signal.node), signal):
        source = state.sources.get(signal.node)
        if source is None:
            source = state.sources[signal.node] = Source()
        source.incarnation, source.sequence = signal.incarnation, signal.sequence
        if source.instance_id != signal.instance_id:
            past = [*source.past_instance_ids, source.instance_id]
            source.past_instance_ids = [each for each in past if each][-MAX_INSTANCE_IDS_KEPT:]
            source.instance_id = signal.instance_id


def _record_refused_join(state: State, joined: NodeJoined) -> None:
    """Record a join that registered no agent: put back into the store, it must not do so later."""
    node, known = state.nodes.get(joined.node), state.refused_joins
    if joined.instance_id and (node is None or node.instance_id != joined.instance_id):
        known[joined.instance_id] = max(joined.sequence, known.pop(joined.instance_id, 0))
        if len(known) > MAX_REFUSED_JOINS_KEPT:
            del known[next(iter(known))]


def _stale_message(state: State, stale: r.StaleMessage) -> None:
    if isinstance(stale.message, NodeJoined):
        _record_refused_join(state, stale.message)


def apply_record(state: State, record: object) -> None:
    """Change `state` as `record` says, at `state.now`."""
    _APPLY[type(record)](state, record)


def _paused(state: State, paused: r.SupervisorPaused) -> None:
    """Extend deadlines by a time in which the supervisor could receive no answer."""
    state.receiving_since = state.now
    for item in state.actions.values():
        item.issued_at = min(state.now, item.issued_at + paused.seconds)
    for run in state.runs.values():
        attempt = run.attempt
        if attempt is not None and attempt.stop_requested_at is not None:
            attempt.stop_requested_at = min(state.now, attempt.stop_requested_at + paused.seconds)


def _run_admitted(state: State, record: r.RunAdmitted) -> None:
    state.runs[record.run] = Run(**shared_fields(record, Run), admitted_at=state.now)
    state.next_run = max(state.next_run, record.run + 1)


def _run_changed(state: State, record: r.RunChanged) -> None:
    run = state.runs[record.run]
    run.state, run.reason = record.state, record.reason
    if record.state in ("finished", "stopped", "failed"):
        run.ended_at = state.now


def _attempt_planned(state: State, record: r.AttemptPlanned) -> None:
    run = state.runs[record.attempt.run]
    before = run.attempt
    run.attempt = Attempt(
        **{**shared_fields(record, Attempt), "nodes": list(record.nodes)},
        planned_at=state.now,
        best_before=run.best_step,
        remedies=run.remedies,
        checks_checkpoints=before is not None and before.checks_checkpoints,
        newcomers=[name for name in record.nodes if before is None or name not in before.nodes],
    )
    note_known(run, run.attempt)
    if before is not None:
        resumes.note_earlier(state, run.attempt, before)
    run.num_attempts += 1
    run.reconfigured = run.skips_attempt_ids = False
    run.retry_at, run.retry_reason, run.avoid, run.restart_reason = None, "", [], ""
    state.next_generation = max(state.next_generation, record.generation + 1)
    state.count("attempts")


def _retry_planned(state: State, record: r.RetryPlanned) -> None:
    run = state.runs[record.run]
    run.retry_at, run.retry_reason = record.at, record.reason
    run.avoid = list(record.avoid)


def _restart_wanted(state: State, record: r.RestartWanted) -> None:
    state.runs[record.run].restart_reason = record.reason


def _attempt_prepared(state: State, record: r.AttemptPrepared) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is None:
        return
    attempt.resume, attempt.resume_step = record.resume, record.resume_step
    attempt.master_address, attempt.master_port = record.master_address, record.master_port
    attempt.state = "prepared"
    run = state.runs[record.attempt.run]
    run.failed_preparations = 0
    follow_line(run, record)


def _attempt_changed(state: State, record: r.AttemptChanged) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is None:
        return
    attempt.state = record.state
    attempt.reason = record.reason or attempt.reason
    attempt.outcome = record.outcome or attempt.outcome
    attempt.incident = record.incident or attempt.incident
    if record.state == "launching":
        attempt.launched_at = state.now
        # The next attempt is the answer, whether a person or the ladder asked for it.
        run = state.runs[record.attempt.run]
        run.suspended.pop(run.incident or "", None)
    elif record.state == "running":
        attempt.started_at = state.now
    elif record.state == "stopping" and attempt.stopping_at is None:
        attempt.stopping_at = state.now
    elif record.state == "stop_requested":
        attempt.stop_requested_at = state.now
    elif record.state == "ended":
        _attempt_ended(state, attempt, failed=record.failed)


def _attempt_ended(state: State, attempt: Attempt, *, failed: bool) -> None:
    run = state.runs[attempt.attempt.run]
    if attempt.outcome in ("crashed", "hung", "lost"):
        advanced = attempt.last_step is not None and attempt.last_step > attempt.best_before
        progressed = advanced or run.has_proved_itself(state.now)
        run.attempts_without_progress = 0 if progressed else run.attempts_without_progress + 1
    elif failed:
        run.failed_preparations += 1


def _node_launched(state: State, record: r.NodeLaunched) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is not None and record.node not in attempt.launched:
        attempt.launched[record.node] = record.not_forked_reason
        if record.not_forked_reason and not attempt.not_forked_reason:
            attempt.not_forked_reason = f"{record.node}: {record.not_forked_reason}"


def _ranks_understand(state: State, record: r.RankCapabilitiesRecorded) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.requests, attempt.understood_remedies = list(record.requests), list(record.remedies)
        attempt.checks_checkpoints, attempt.drills = record.checks_checkpoints, list(record.drills)
        run = state.runs[record.attempt.run]
        run.has_reported, run.understood_remedies = True, list(record.remedies)


def _rank_ended(state: State, record: r.RankEnded) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.exit_codes.setdefault(record.rank, record.exit_code)
        attempt.dead_rank_seen = True


def _is_newer(record: r.StepsAdvanced, attempt: Attempt) -> bool:
    """Whether a step is the attempt's furthest; one that ranks report replaces what they printed."""
    is_first_report = attempt.printed_by is not None and record.printed_by is None
    return attempt.last_step is None or record.step > attempt.last_step or is_first_report


def _advanced(state: State, record: r.StepsAdvanced) -> None:
    run = state.runs[record.attempt.run]
    attempt = state.attempt_of(record.attempt)
    if attempt is not None and _is_newer(record, attempt):
        if attempt.first_step_at is None:
            attempt.first_step_at = state.now
        at = state.now if record.at is None else record.at
        attempt.last_step, attempt.last_step_at = record.step, at
        attempt.printed_by = record.printed_by
    if not run.was_left(record.attempt):
        run.best_step = max(run.best_step, record.step)
    run.stepped_configuration = max(run.stepped_configuration, record.attempt.configuration)
    run.has_reported, run.prints_steps = True, record.printed_by is not None
    if record.loss is not None:
        run.first_loss = record.loss if run.first_loss is None else run.first_loss
        run.last_loss = record.loss


def _start_timed(state: State, record: r.StartTimed) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.start = dict(record.slowest)


def _settings_read(state: State, record: r.SettingsRead) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.settings = record.values


def _action_renewed(state: State, record: r.ActionRenewed) -> None:
    if record.id in state.actions:
        state.actions[record.id].issued_at = state.now


def _metric_note(state: State, record: r.MetricNoteAdded) -> None:
    run = state.runs[record.attempt.run]
    run.metric_notes = [*run.metric_notes, record][-MAX_METRIC_NOTES:]


def _rate_read(state: State, record: r.RateRead) -> None:
    state.runs[record.attempt.run].rate_read = record


def _remedy_changed(state: State, record: RemedyRecord) -> None:
    run = state.runs[record.run]
    if run.remedies and not run.applied_remedies:
        # From a snapshot of an earlier release, which kept the composed ones only.
        run.applied_remedies = [
            AppliedRemedy(id=f"r{number}", name=name, value=value)
            for number, (name, value) in enumerate(run.remedies.items(), 1)
        ]
    run.applied_remedies = fold_remedy(run.applied_remedies, record, state.now)
    if isinstance(record, r.RemedyChecked):
        return
    run.remedies, run.reconfigured = in_effect(run.applied_remedies), True
    if record.request is not None:
        run.settings_requests.append(record.request)


def _action_issued(state: State, record: r.ActionIssued) -> None:
    state.actions[record.action.id] = OpenAction(action=record.action, issued_at=state.now)
    state.next_action += 1
    if record.action.action == ProbeNode.kind:
        state.nodes[record.action.read(ProbeNode).node].probed_at = state.now
    state.count(f"actions_{record.action.action}")


def _action_ended(state: State, record: r.ActionEnded) -> None:
    ended, is_reachable = state.end_action(record.id), bool(record.detail.get("reachable"))
    if ended is not None and ended.action.action == ProbeNode.kind:
        node = state.nodes[ended.action.read(ProbeNode).node]
        node.unreachable = 0 if is_reachable else node.unreachable + 1
        if is_reachable and record.detail.get("agent") == "dead":
            node.ended = True
            state.orphan_tasks(node.node)
    elif ended is not None and _is_admission(ended.action):
        node, outcome = state.nodes[ended.action.read(NodeTask).node], record.detail.get("outcome")
        level = str(ended.action.read(NodeTask).args.get("level", ""))
        if outcome:
            groups = node.check_outcomes
            node.check_outcomes = merged(groups, record.detail, at=state.now, level=level)
            if ended.issued_at >= node.check_wanted_at:
                node.check_wanted = ""
        if outcome or (node.state == "checking" and under_way(record.detail) is None):
            # Those of a spare that gave way to ranks say nothing.
            node.checked = CheckOutcome(
                at=state.now, outcome=str(outcome or ""), message=record.message[:MAX_CHECK_MESSAGE]
            )
    state.count(f"actions_{record.outcome}")


def _is_admission(action: Action) -> bool:
    """Whether an action checks a node for service, and measures it for nothing else."""
    if action.args.get("task") != "check":
        return False
    args = action.read(NodeTask).args
    return "isolation" not in args and "suspect" not in args


def _request_recorded(state: State, record: r.RequestRecorded) -> None:
    state.requests[record.id] = record
    _remember_request(state, record)
    run = state.runs.get(record.run or 0)
    if run is not None:
        if record.request == "stop_run" and record.state == "open":
            run.stop_requests.append(record.id)
        elif record.state != "open":
            run.stop_requests = [id_ for id_ in run.stop_requests if id_ != record.id]
            run.settings_requests = [id_ for id_ in run.settings_requests if id_ != record.id]
        apply_pending(state, run, record)
    answered = [id_ for id_, status in state.requests.items() if status.state != "open"]
    for id_ in answered[: max(0, len(state.requests) - MAX_REQUESTS_KEPT)]:
        del state.requests[id_]


def _remember_request(state: State, record: r.RequestRecorded) -> None:
    """Remember the newest requests by id, all others by the time of the newest: none is processed twice, by whatever clock.

    A time that is still to come is not one to refuse others by: a clock that was off sent that request.
    """
    ids = state.request_ids
    ids.setdefault(record.id, record.sent_at)
    if len(ids) > MAX_REQUEST_IDS_KEPT:
        sent_at = ids.pop(min(ids, key=ids.__getitem__))
        if sent_at <= state.now:
            state.other_requests_until = max(state.other_requests_until, sent_at)


def _decision_failed(state: State, record: r.DecisionFailed) -> None:
    state.decision_failures += 1


def _closing(state: State, record: r.ClusterClosing) -> None:
    state.closing, state.closing_request = True, record.request


def _numbers_raised(state: State, record: CountersRaised) -> None:
    state.next_generation = max(state.next_generation, record.next_generation)
    state.next_run = max(state.next_run, record.next_run)
    for stream, number in record.cursors.items():
        state.cursors[stream] = min(number, state.cursors.get(stream, 0))
    for run in state.runs.values():
        run.skips_attempt_ids = True
    state.count("stores_accepted")


def _opened(state: State, record: r.ClusterReopened) -> None:
    state.closing, state.closing_request = False, ""


_BY_KIND: dict[type, Callable[[State, Any], None]] = {
    **OF_NODES,
    **OF_INCIDENTS,
    **OF_CHECKPOINTS,
    **OF_PEOPLE,
    **OF_DRIFT,
    **OF_ISOLATIONS,
    r.RunAdmitted: _run_admitted,
    r.RunChanged: _run_changed,
    r.AttemptPlanned: _attempt_planned,
    r.RetryPlanned: _retry_planned,
    r.RestartWanted: _restart_wanted,
    r.AttemptPrepared: _attempt_prepared,
    r.AttemptChanged: _attempt_changed,
    r.NodeLaunched: _node_launched,
    r.RankCapabilitiesRecorded: _ranks_understand,
    r.RankEnded: _rank_ended,
    r.StepsAdvanced: _advanced,
    r.StartTimed: _start_timed,
    r.SettingsRead: _settings_read,
    r.ActionRenewed: _action_renewed,
    r.RateRead: _rate_read,
    r.MetricNoteAdded: _metric_note,
    r.RemedyAdded: _remedy_changed,
    r.RemedyReverted: _remedy_changed,
    r.RemedyChecked: _remedy_changed,
    r.ActionIssued: _action_issued,
    r.ActionEnded: _action_ended,
    r.RequestRecorded: _request_recorded,
    r.DecisionFailed: _decision_failed,
    CountersRaised: _numbers_raised,
    r.ClusterClosing: _closing,
    r.ClusterReopened: _opened,
}
_APPLY = {kind: counted(kind, apply) for kind, apply in _BY_KIND.items()}
_INPUTS_BEFORE_RECORDS: dict[type, Callable[[State, Any], None]] = {
    r.SupervisorStarted: _supervisor_started,
    r.SupervisorPaused: _paused,
}
_INPUTS_AFTER_RECORDS: dict[type, Callable[[State, Any], None]] = {
    NodeJoined: _record_refused_join,
    r.StaleMessage: _stale_message,
}
