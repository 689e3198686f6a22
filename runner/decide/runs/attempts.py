"""Attempts: how signals of nodes and outcomes of actions change them. `reconcile` decides what is done next."""

import math

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents import non_fatal
from runner.decide.incidents.attribution import report_failure
from runner.decide.incidents.hangs import amend_with_missing_ranks, own_rank_stacks
from runner.decide.nodes.hardware import record_hardware_fault
from runner.decide.placement.allocation import listed
from runner.decide.placement.launch_plans import output_folder
from runner.decide.runs import checkpoint_trust, read_back, trust_levels
from runner.decide.runs.endings import end_attempt, end_run
from runner.decide.state.cluster_state import (
    GONE,
    LAUNCHED,
    RUNNING,
    Attempt,
    Run,
    State,
    shared_fields,
)
from runner.facts.actions import Action, ActionResult, PrepareAttempt
from runner.facts.contract import EXIT_CHECKPOINT_REFUSED
from runner.facts.faults import Finding, GangStartTimed, MetricNote, fault_kind
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.specs.cluster import ClusterSpec
from runner.rootcause.error_output import root_error
from runner.rootcause.fingerprints import fingerprint

# docs/contract.md
EXIT_FINISHED, EXIT_STOPPED, EXIT_REFUSED = 0, 75, 78
# SIGKILL and SIGTERM.
KILLED = (-9, -15)
# In a row; chosen, not measured.
MAX_FAILED_PREPARATIONS = 3
# Notes of one fault in an attempt. Chosen, not measured.
MAX_NOTES_ALIKE = 3
# Steps that come sooner after a hang was found may have been made before it; chosen.
LATE_STEP_SECONDS = 3.0


def on_ranks_started(decision: Decision, started: s.RanksStarted) -> None:
    """A node made its assignment true; the attempt runs when all have."""
    attempt = _current(decision, started.attempt, started.generation)
    if attempt is None or started.node in attempt.launched or started.node not in attempt.nodes:
        return
    not_forked_reason = started.not_forked_reason[: s.MAX_NOT_FORKED_REASON]
    node, name = started.node, attempt.attempt
    decision.add(r.NodeLaunched(node=node, attempt=name, not_forked_reason=not_forked_reason))
    if attempt.state == "launching" and len(attempt.launched) + 1 == len(attempt.nodes):
        decision.move_attempt(attempt, "running", "all ranks spawned")
        non_fatal.on_attempt_running(decision, attempt)
        read_back.on_attempt_running(decision, attempt)


def on_launch_failed(decision: Decision, failed: s.LaunchFailed) -> None:
    """A node could not start its ranks; one whose devices are busy takes none until they are released."""
    attempt = _current(decision, failed.attempt, failed.generation)
    node = decision.state.nodes.get(failed.node)
    if failed.devices_busy and attempt is not None and node is not None and node.state == "active":
        decision.move_node(failed.node, "suspect", failed.reason, devices_busy=True)
        record_hardware_fault(decision, node, fault="devices_busy", evidence=failed.reason)
    if attempt is None or attempt.state not in RUNNING:
        return
    fault = "devices_busy" if failed.devices_busy else "launch_failed"
    # The list of held devices differs between nodes and between two examinations of one node.
    mark = fingerprint(fault, stderr_tail="" if failed.devices_busy else failed.reason)
    evidence = f"{failed.node} could not start its ranks: {failed.reason}"
    finding = Finding(fault=fault, evidence=evidence, attempt=failed.attempt, node=failed.node)
    report_failure(decision, finding, mark=mark)


def launch_limit(state: State, cluster: ClusterSpec, run: Run) -> float:
    """Return when the run's launch is overdue, in seconds on the controller's clock; infinity: never, or nothing is launched.

    A node may wait for its devices, and for imports, which are part of a start.
    No node could report that while no supervisor received signals.
    """
    attempt, start_seconds = run.attempt, run.spec.start_seconds
    if attempt is None or attempt.state != "launching" or not start_seconds:
        return math.inf
    since = max(attempt.launched_at or 0.0, state.receiving_since)
    return since + cluster.device_release_seconds + start_seconds


def fail_overdue_launch(decision: Decision, run: Run, attempt: Attempt) -> None:
    """End a launch in which nodes neither started their ranks nor reported why.

    They are out until they have passed their checks, unless most nodes are like them: then it is something that they share.
    """
    missing = [name for name in attempt.nodes if name not in attempt.launched]
    seconds = decision.now - (attempt.launched_at or decision.now)
    evidence = f"{listed(missing)} started no ranks for {seconds:.0f} s and reported no reason"
    are_at_fault = 2 * len(missing) <= len(attempt.nodes)
    for node in [decision.state.nodes[name] for name in missing if are_at_fault]:
        if node.state == "active":
            decision.move_node(node.node, "lost", evidence)
            record_hardware_fault(decision, node, fault="launch_failed", evidence=evidence)
    finding = Finding(
        fault="launch_failed",
        evidence=evidence,
        attempt=attempt.attempt,
        node=missing[0] if are_at_fault else None,
    )
    mark = fingerprint("launch_failed", stderr_tail="overdue")
    report_failure(decision, finding, mark=mark)


def on_ranks_ready(decision: Decision, ready: s.RanksReady) -> None:
    """Keep what the ranks understand."""
    if decision.state.attempt_of(ready.attempt) is not None:
        decision.add(
            r.RankCapabilitiesRecorded(
                attempt=ready.attempt,
                requests=ready.requests,
                remedies=ready.remedies,
                checks_checkpoints=ready.checks_checkpoints,
                drills=ready.drills,
            )
        )


def on_progress(decision: Decision, progress: s.Progress) -> None:
    """Note the step; incidents whose step is passed are over: the remedy helped.

    Of printed steps, those of the lowest rank count, and none where ranks report steps. They may be read after the attempt's end.
    """
    attempt, rank = decision.state.attempt_of(progress.attempt), progress.printed_by
    if attempt is None and rank is not None and progress.attempt.run in decision.state.runs:
        # The next one is planned already.
        decision.add(r.StepsAdvanced(attempt=progress.attempt, step=progress.step, printed_by=rank))
    if attempt is None or (attempt.state == "ended" and rank is None):
        return
    if rank is not None and not _counts(attempt, rank):
        return
    mark = r.StepsAdvanced(
        attempt=attempt.attempt,
        step=progress.step,
        loss=progress.loss,
        timings=dict(progress.timings),
        printed_by=rank,
        tokens=progress.tokens,
        num_skipped=progress.num_skipped,
    )
    _advance(decision, attempt, mark)


def on_heartbeat_step(decision: Decision, seen: r.HeartbeatStep) -> None:
    """Note the furthest step of a silent node's ranks; of printed steps, those of the rank that counts so far."""
    attempt = decision.state.attempt_of(seen.attempt)
    if attempt is None or attempt.last_step is None or attempt.state == "ended":
        return
    rank = attempt.printed_by
    if seen.is_printed:
        size = decision.run_of(attempt.attempt).spec.ranks_per_node
        if rank is None or attempt.nodes[rank // size] != seen.node:
            return
    printed_by = rank if seen.is_printed else None
    mark = r.StepsAdvanced(
        attempt=attempt.attempt, step=seen.step, printed_by=printed_by, at=seen.at
    )
    _advance(decision, attempt, mark)


def _counts(attempt: Attempt, rank: int) -> bool:
    """Whether the steps that a rank prints are those of the attempt."""
    if attempt.last_step is None:
        return True
    return attempt.printed_by is not None and rank <= attempt.printed_by


def _last_mark(
    decision: Decision, attempt: Attempt, ended: s.RankExited | s.RanksTerminated
) -> r.StepsAdvanced:
    age = ended.last_step_age_seconds
    return r.StepsAdvanced(
        attempt=attempt.attempt,
        step=ended.last_step or 0,
        printed_by=attempt.printed_by,
        at=None if age is None else decision.now - max(0.0, age),
    )


def _advance(decision: Decision, attempt: Attempt, mark: r.StepsAdvanced) -> None:
    step = mark.step
    # Steps that ranks report replace those that they printed.
    is_first_report = attempt.printed_by is not None and mark.printed_by is None
    if attempt.last_step is not None and step <= attempt.last_step and not is_first_report:
        return
    decision.add(mark)
    if attempt.state == "ended":
        return
    run = decision.run_of(attempt.attempt)
    trust_levels.on_steps(decision, run, attempt, step)
    _resolve_hang(decision, run, attempt, step)
    for incident in decision.state.live_incidents(state="proving", run=attempt.attempt.run):
        if incident.on_trial or (incident.non_fatal and not non_fatal.is_passed(incident, attempt)):
            continue
        furthest = max(incident.step or 0, attempt.best_before)
        if incident.attempt != attempt.attempt and step > furthest:
            reason = f"step {step} done, {furthest} had been reached before"
            decision.move_incident(incident, "resolved", reason)


def _resolve_hang(decision: Decision, run: Run, attempt: Attempt, step: int) -> None:
    """Close the incident of a gang that was left to people as it hung, and makes steps again."""
    known = decision.state.incidents.get(run.incident or "")
    if known is None or not known.is_live or known.incident not in run.suspended:
        return
    is_of_gang = known.attempt == attempt.attempt and attempt.state in RUNNING
    is_hang = fault_kind(known.fault).outcome == "hung"
    is_late = decision.now >= known.opened_at + LATE_STEP_SECONDS
    if is_of_gang and is_hang and is_late and step > (known.step or 0):
        decision.move_incident(known, "resolved", f"step {step} done: the gang goes on by itself")


def on_gang_timed(decision: Decision, timed: GangStartTimed) -> None:
    """Keep which rank was slowest in each phase of the start."""
    attempt = decision.state.attempt_of(timed.attempt)
    if attempt is not None and not attempt.start and timed.slowest:
        decision.add(r.StartTimed(attempt=timed.attempt, slowest=dict(timed.slowest)))


def on_metric_note(decision: Decision, note: MetricNote) -> None:
    """Keep what the run's numbers show, a few times an attempt."""
    attempt = decision.state.attempt_of(note.attempt)
    if attempt is None:
        return
    known = decision.run_of(note.attempt).metric_notes
    if sum((x.attempt, x.fault) == (note.attempt, note.fault) for x in known) < MAX_NOTES_ALIKE:
        decision.add(r.MetricNoteAdded(**shared_fields(note, r.MetricNoteAdded)))


def on_rank_exited(decision: Decision, exited: s.RankExited) -> None:
    """A rank ended by itself: the first death decides the first response."""
    attempt = _current(decision, exited.attempt, exited.generation)
    if attempt is None or exited.rank in attempt.exit_codes:
        return
    if exited.last_step is not None:
        _advance(decision, attempt, _last_mark(decision, attempt, exited))
    decision.add(
        r.RankEnded(
            attempt=attempt.attempt, node=exited.node, rank=exited.rank, exit_code=exited.exit_code
        )
    )
    run = decision.run_of(attempt.attempt)
    refuses = _refuses_checkpoint(attempt, exited)
    if refuses:
        checkpoint_trust.refuse(decision, run, attempt.resume, _evidence(exited))
    if attempt.state == "stop_requested":
        if exited.exit_code not in (EXIT_FINISHED, EXIT_STOPPED):
            how = _ended_by(exited)
            reason = f"rank {exited.rank} ended with {how} while it was asked to stop"
            end_attempt(decision, run, outcome=attempt.outcome or "stopped", reason=reason)
        return
    if attempt.state not in RUNNING or exited.exit_code == EXIT_FINISHED:
        return
    if refuses:
        _report_refusal(decision, attempt, exited)
        return
    fault = "settings_refused" if exited.exit_code == EXIT_REFUSED else "rank_crash"
    finding = Finding(
        fault=fault,
        evidence=_evidence(exited),
        attempt=exited.attempt,
        node=exited.node,
        rank=exited.rank,
    )
    mark = fingerprint(fault, exit_code=exited.exit_code, stderr_tail=exited.stderr_tail)
    has_words = fault_kind(fault).is_symptom and _has_words(exited)
    report_failure(decision, finding, mark=mark, reached=exited.last_step, has_words=has_words)


def _has_words(exited: s.RankExited) -> bool:
    """Whether a rank may have written why it ended. One that was killed had no time to."""
    is_lost = exited.exit_code is None and not exited.unobserved
    is_killed = is_lost or exited.exit_code in KILLED
    return bool(exited.stderr_tail.strip()) and not is_killed


def _refuses_checkpoint(attempt: Attempt, exited: s.RankExited) -> bool:
    """Whether a rank found damage in what it was to resume from. One that has made steps since did not: it had loaded it."""
    done = max(attempt.last_step or 0, exited.last_step or 0)
    is_code = exited.exit_code == EXIT_CHECKPOINT_REFUSED
    return is_code and bool(attempt.resume) and done <= attempt.resume_step


def _report_refusal(decision: Decision, attempt: Attempt, exited: s.RankExited) -> None:
    """End the gang. No rank or node is at fault, and each folder is a failure of its own: the next attempt takes another."""
    fault, evidence = "checkpoint_refused", _evidence(exited)
    finding = Finding(fault=fault, evidence=evidence, attempt=attempt.attempt)
    folder = attempt.resume.rstrip("/").rpartition("/")[2]
    report_failure(decision, finding, mark=f"{fault}:{folder}")


def _evidence(exited: s.RankExited) -> str:
    error = root_error(exited.stderr_tail)
    last = f": {error.line[:300]}" if error is not None else ""
    at = f" after step {exited.last_step}" if exited.last_step is not None else ""
    return f"rank {exited.rank} on {exited.node} ended with {_ended_by(exited)}{at}{last}"


def _ended_by(exited: s.RankExited) -> str:
    code = exited.exit_code
    if code is None:
        return exited.unobserved or "no observer (its keeper died)"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def on_ranks_gone(decision: Decision, gone: s.RanksTerminated) -> None:
    """A node is clear of an attempt; if it was not asked to be, the gang is broken."""
    node = decision.state.nodes.get(gone.node)
    if node is None or node.ranks_may_run != gone.attempt:
        return
    attempt = _current(decision, gone.attempt, gone.generation)
    if attempt is not None and gone.last_step is not None:
        _advance(decision, attempt, _last_mark(decision, attempt, gone))
    if gone.left_behind and node.state not in GONE:
        reason = f"ranks {list(gone.left_behind)} outlived SIGKILL"
        decision.move_node(gone.node, "lost", reason)
        decision.page(f"{gone.node}: {reason}; the node is out until an operator looks")
        record_hardware_fault(decision, node, fault="rank_outlived_sigkill", evidence=reason)
    stacks = own_rank_stacks(decision, attempt, gone) if attempt is not None else ()
    cleared = r.NodeCleared(node=gone.node, attempt=gone.attempt, left_behind=gone.left_behind)
    decision.add(replace(cleared, rank_stacks=stacks))
    if attempt is None:
        return
    if gone.num_stacks:
        _record_stacks(decision, attempt)
    amend_with_missing_ranks(decision, attempt, gone.node, stacks)
    if attempt.state in RUNNING and node.attempt == gone.attempt:
        why = "fenced itself: no store, no step" if gone.fenced else "ended its ranks unasked"
        fault, evidence = "rank_crash", f"{gone.node} {why}"
        finding = Finding(fault=fault, evidence=evidence, attempt=gone.attempt, node=gone.node)
        report_failure(decision, finding, reached=gone.last_step)


def _record_stacks(decision: Decision, attempt: Attempt) -> None:
    """Record once where the stacks of ranks that hung are; how many of each node is in the nodes' own words."""
    incident = decision.state.incidents.get(attempt.incident or "")
    run = decision.run_of(attempt.attempt)
    evidence = f"stacks in {output_folder(decision.policy.cluster, run, attempt.attempt)}/stacks"
    if incident is not None and evidence not in incident.evidence:
        decision.amend(incident, evidence)


def on_hang(decision: Decision, finding: Finding) -> None:
    """A stopped rank, or a gang that makes no step."""
    attempt = decision.state.attempt_of(finding.attempt)
    if attempt is not None and attempt.state in LAUNCHED:
        report_failure(decision, finding)


def on_prepared(decision: Decision, action: Action, result: ActionResult) -> None:
    """The checkpoint is verified and the rendezvous chosen; or not."""
    work = action.read(PrepareAttempt)
    attempt = _current(decision, AttemptId.parse(work.attempt), work.generation)
    if attempt is None or attempt.state != "preparing":
        return
    run = decision.run_of(attempt.attempt)
    if result.outcome != "done" or "port" not in result.detail:
        reason = f"could not be prepared ({result.outcome}): {result.message}"
        decision.move_attempt(attempt, "ended", reason, outcome="withdrawn", failed=True)
        if run.failed_preparations + 1 >= MAX_FAILED_PREPARATIONS:
            end_run(decision, run, state="failed", reason=reason)
            decision.page(f"run {run.spec.name}: {reason}", run=run.run)
        return
    checkpoint_trust.record_survey(decision, run, result.detail)
    chosen = result.detail.get("chosen") or {}
    decision.add(
        r.AttemptPrepared(
            attempt=attempt.attempt,
            resume=str(chosen.get("path", "")),
            resume_step=int(chosen.get("step", 0)),
            master_address=str(result.detail["address"]),
            master_port=int(result.detail["port"]),
            unverified=bool(chosen.get("unverified")),
        )
    )


def _current(decision: Decision, attempt_id: AttemptId, generation: int) -> Attempt | None:
    """Return the attempt of a signal if it is the run's newest and of this generation: others are history."""
    attempt = decision.state.attempt_of(attempt_id)
    if attempt is None or attempt.generation != generation or attempt.state == "ended":
        return None
    return attempt
