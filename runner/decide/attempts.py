"""Attempts: planned, prepared, launched, watched, ended, and planned again.

`settle` is level-triggered: it looks at a run as it stands and says the next thing to do, so that a crash between any two
records is made good by asking again.
"""

from __future__ import annotations

from runner.decide import trust
from runner.decide.blame import fingerprint, strike
from runner.decide.draft import Draft
from runner.decide.fleet import probe
from runner.decide.ladder import end_attempt, end_run, idle
from runner.decide.placement import checkpoint_folder, choose_nodes, is_usable
from runner.decide.state import Attempt, Run
from runner.facts import records as r
from runner.facts.actions import Action, ActionResult
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.signals import (
    LaunchFailed,
    Progress,
    RankExited,
    RanksGone,
    RanksReady,
    RanksStarted,
    SettingsInEffect,
)

EXIT_FINISHED, EXIT_STOPPED, EXIT_REFUSED = 0, 75, 78  # docs/contract.md
MAX_FAILED_PREPARATIONS = 3  # in a row; chosen, not measured
RUNNING = ("launching", "running")

# The attempt's life cycle; ARCHITECTURE.md prints it.
TRANSITIONS: dict[str, tuple[str, ...]] = {
    "preparing": ("prepared", "ended"),
    "prepared": ("launching", "ended"),
    "launching": ("running", "asked", "stopping", "ended"),
    "running": ("asked", "stopping", "ended"),
    "asked": ("asked", "stopping", "ended"),
    "stopping": ("ended",),
    "ended": (),
}


# The run's life cycle.
RUN_TRANSITIONS: dict[str, tuple[str, ...]] = {
    "active": ("waiting", "finished", "stopped", "failed"),
    "waiting": ("active", "waiting", "stopped", "failed"),
    "finished": (),
    "stopped": (),
    "failed": (),
}


# ---- what nodes say -------------------------------------------------------------------------------------------------


def on_ranks_started(draft: Draft, started: RanksStarted) -> None:
    """A node made its assignment true; the attempt runs when all have."""
    attempt = _current(draft, started.attempt, started.epoch)
    if attempt is None or started.node in attempt.launched or started.node not in attempt.nodes:
        return
    draft.add(r.NodeLaunched(node=started.node, attempt=attempt.attempt))
    if attempt.state == "launching" and len(attempt.launched) + 1 == len(attempt.nodes):
        draft.add(
            r.AttemptChanged(attempt=attempt.attempt, state="running", reason="all ranks spawned")
        )


def on_launch_failed(draft: Draft, failed: LaunchFailed) -> None:
    """A node could not start its ranks."""
    attempt = _current(draft, failed.attempt, failed.epoch)
    if attempt is None or attempt.state not in RUNNING:
        return
    mark = fingerprint("launch_failed", stderr_tail=failed.reason)
    evidence = f"{failed.node} could not start its ranks: {failed.reason}"
    run = draft.run_of(attempt.attempt)
    strike(
        draft,
        run,
        attempt,
        fault="launch_failed",
        evidence=evidence,
        node=failed.node,
        fingerprint=mark,
    )


def on_ranks_ready(draft: Draft, ready: RanksReady) -> None:
    """Keep what the ranks understand."""
    if draft.state.attempt_of(ready.attempt) is not None:
        draft.add(
            r.RanksUnderstand(
                attempt=ready.attempt, requests=ready.requests, remedies=ready.remedies
            )
        )


def on_progress(draft: Draft, progress: Progress) -> None:
    """Note the step; incidents whose step is passed are over: the remedy helped."""
    attempt = draft.state.attempt_of(progress.attempt)
    if attempt is None or attempt.state == "ended":
        return
    _advance(draft, attempt, progress.step, loss=progress.loss, timings=dict(progress.timings))


def _advance(
    draft: Draft,
    attempt: Attempt,
    step: int,
    *,
    loss: float | None = None,
    timings: dict[str, float] | None = None,
) -> None:
    if attempt.last_step is not None and step <= attempt.last_step:
        return
    draft.add(r.Advanced(attempt=attempt.attempt, step=step, loss=loss, timings=timings or {}))
    for incident in draft.state.incidents.values():
        proving = incident.state == "proving" and incident.run == attempt.attempt.run
        furthest = max(incident.step or 0, attempt.best_before)
        if proving and incident.attempt != attempt.attempt and step > furthest:
            reason = f"step {step} done, {furthest} had been reached before"
            draft.add(
                r.IncidentChanged(incident=incident.incident, state="resolved", reason=reason)
            )


def on_rank_exited(draft: Draft, exited: RankExited) -> None:
    """A rank ended by itself: the first death decides the first response."""
    attempt = _current(draft, exited.attempt, exited.epoch)
    if attempt is None or exited.rank in attempt.exits:
        return
    if exited.last_step is not None:
        _advance(draft, attempt, exited.last_step)
    draft.add(
        r.RankEnded(
            attempt=attempt.attempt, node=exited.node, rank=exited.rank, exit_code=exited.exit_code
        )
    )
    run = draft.run_of(attempt.attempt)
    if attempt.state == "asked":
        if exited.exit_code not in (EXIT_FINISHED, EXIT_STOPPED):
            reason = f"rank {exited.rank} ended with {_ended_by(exited.exit_code)} while it was asked to stop"
            end_attempt(
                draft, run, incident=None, outcome=attempt.outcome or "stopped", reason=reason
            )
        return
    if attempt.state not in RUNNING or exited.exit_code == EXIT_FINISHED:
        return
    fault = "settings_refused" if exited.exit_code == EXIT_REFUSED else "rank_crash"
    strike(
        draft,
        run,
        attempt,
        fault=fault,
        evidence=_evidence(exited),
        node=exited.node,
        rank=exited.rank,
        step=exited.last_step,
        fingerprint=fingerprint(fault, exit_code=exited.exit_code, stderr_tail=exited.stderr_tail),
    )


def _evidence(exited: RankExited) -> str:
    lines = [line.strip() for line in exited.stderr_tail.splitlines() if line.strip()]
    said = f": {lines[-1][:300]}" if lines else ""
    at = f" after step {exited.last_step}" if exited.last_step is not None else ""
    return f"rank {exited.rank} on {exited.node} ended with {_ended_by(exited.exit_code)}{at}{said}"


def _ended_by(exit_code: int | None) -> str:
    if exit_code is None:
        return "nobody watching (its keeper died)"
    return f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"


def on_ranks_gone(draft: Draft, gone: RanksGone) -> None:
    """A node is clear of an attempt; if nobody had asked for that, the gang is broken."""
    node = draft.state.nodes.get(gone.node)
    if node is None or node.uncleared != gone.attempt:
        return
    attempt = _current(draft, gone.attempt, gone.epoch)
    if attempt is not None and gone.last_step is not None:
        _advance(draft, attempt, gone.last_step)
    if gone.left_behind and node.state not in ("lost", "left"):
        reason = f"ranks {list(gone.left_behind)} outlived SIGKILL"
        draft.add(r.NodeChanged(node=gone.node, state="lost", reason=reason))
        draft.page(f"{gone.node}: {reason}; the node is out until somebody looks")
    draft.add(r.NodeCleared(node=gone.node, attempt=gone.attempt, left_behind=gone.left_behind))
    if attempt is not None and attempt.state in RUNNING and node.attempt == gone.attempt:
        why = "fenced itself: no store, no step" if gone.fenced else "ended its ranks unasked"
        run = draft.run_of(attempt.attempt)
        strike(
            draft,
            run,
            attempt,
            fault="rank_crash",
            evidence=f"{gone.node} {why}",
            node=gone.node,
            step=gone.last_step,
        )


def on_settings(draft: Draft, settings: SettingsInEffect) -> None:
    """Keep what the trainer read back, and answer those who asked for a change with the value in effect."""
    attempt = draft.state.attempt_of(settings.attempt)
    if attempt is None:
        return
    draft.add(
        r.SettingsRead(attempt=settings.attempt, step=settings.step, values=dict(settings.values))
    )
    run = draft.run_of(settings.attempt)
    for request_id in run.settings_requests:
        request = draft.state.requests.get(request_id)
        if request is None or request.state != "open" or run.reconfigured:
            continue
        wrong = _disagreement(attempt.remedies, settings)
        text = f"in effect from step {settings.step + 1} of {settings.attempt}: lr {settings.values.get('lr')}"
        text += (
            f" (peak {settings.values.get('lr_peak')}, factor {settings.values.get('lr_factor')})"
        )
        state: r.RequestStateName = "failed" if wrong else "done"
        message = f"{wrong}; {text}" if wrong else text
        draft.add(
            r.RequestNoted(
                id=request.id,
                request=request.request,
                by=request.by,
                run=run.run,
                state=state,
                message=message,
            )
        )
        if wrong:
            draft.page(f"{settings.attempt}: {message}", run=run.run)


def _disagreement(remedies: dict[str, float], settings: SettingsInEffect) -> str:
    """Compare remedies asked for with settings read back; "" when they agree to 1e-6 (both went through JSON)."""
    for name, wanted in remedies.items():
        read = settings.values.get(name)
        if not isinstance(read, int | float) or abs(read - wanted) > 1e-6 * abs(wanted):
            return f"{name} was to be {wanted:g}, the trainer read back {read}"
    return ""


# ---- findings about a gang ------------------------------------------------------------------------------------------


def on_hang(draft: Draft, finding: Finding) -> None:
    """A stopped rank, or a gang that makes no step."""
    attempt = draft.state.attempt_of(finding.attempt) if finding.attempt else None
    if attempt is None or attempt.state not in (*RUNNING, "asked"):
        return
    strike(
        draft,
        draft.run_of(attempt.attempt),
        attempt,
        fault=finding.fault,
        evidence=finding.evidence,
        node=finding.node,
        rank=finding.rank,
        fingerprint=fingerprint(finding.fault),
        detected_after_seconds=finding.silent_seconds,
    )


# ---- outcomes of actions --------------------------------------------------------------------------------------------


def on_prepared(draft: Draft, action: Action, result: ActionResult) -> None:
    """The checkpoint is verified and the rendezvous chosen; or not."""
    attempt = _current(
        draft, AttemptId.parse(str(action.args["attempt"])), int(action.args["epoch"])
    )
    if attempt is None or attempt.state != "preparing":
        return
    run = draft.run_of(attempt.attempt)
    if result.outcome != "done":
        reason = f"could not be prepared ({result.outcome}): {result.message}"
        draft.add(
            r.AttemptChanged(
                attempt=attempt.attempt, state="ended", outcome="withdrawn", reason=reason
            )
        )
        if run.failed_preparations + 1 >= MAX_FAILED_PREPARATIONS:
            end_run(draft, run, state="failed", reason=reason)
            draft.page(f"run {run.spec.name}: {reason}", run=run.run)
        return
    trust.note_survey(draft, run, result.detail)
    chosen = result.detail.get("chosen") or {}
    draft.add(
        r.AttemptPrepared(
            attempt=attempt.attempt,
            resume=str(chosen.get("path", "")),
            resume_step=int(chosen.get("step", 0)),
            master_address=str(result.detail["address"]),
            master_port=int(result.detail["port"]),
        )
    )


# ---- what follows from the state ------------------------------------------------------------------------------------


def settle(draft: Draft, run: Run) -> None:
    """Say the next thing to do for this run, if anything."""
    if run.state not in ("active", "waiting") and (
        run.attempt is None or run.attempt.state == "ended"
    ):
        return
    attempt = run.attempt
    if attempt is None or attempt.state == "ended":
        _settle_between(draft, run)
    elif attempt.state == "prepared":
        _launch(draft, run, attempt)
    elif attempt.state in (*RUNNING, "asked"):
        _settle_running(draft, run, attempt)
    elif attempt.state == "stopping":
        _settle_stopping(draft, attempt)


def _settle_between(draft: Draft, run: Run) -> None:
    """No attempt lives: end the run as asked, or plan the next attempt."""
    if run.stop_requests or draft.state.closing:
        step = (run.attempt.last_step or run.attempt.resume_step) if run.attempt else 0
        message = f"the run was stopped after step {step}"
        end_run(draft, run, state="stopped", reason="as asked", message=message)
        return
    if _waits_for_nodes(draft, run):
        return
    nodes = choose_nodes(draft.state, run)
    if nodes is None:
        _wait(draft, run)
        return
    if run.state == "waiting":
        draft.add(r.RunChanged(run=run.run, state="active", reason="enough nodes again"))
    before = run.attempt
    if before is None:
        attempt, reason = AttemptId(run.run, 1, 0), "first launch"
    else:
        attempt = before.attempt.reconfigured() if run.reconfigured else before.attempt.restarted()
        reason = f"after {before.attempt} {before.outcome or 'ended'}"
    epoch = draft.epoch()
    draft.add(
        r.AttemptPlanned(
            attempt=attempt, epoch=epoch, nodes=tuple(nodes), reason=reason, incident=run.incident
        )
    )
    args = {
        "attempt": str(attempt),
        "epoch": epoch,
        "folder": checkpoint_folder(draft.policy.cluster, run),
        "refused": trust.refused_paths(run),
        "address": draft.state.nodes[nodes[0]].address,
    }
    draft.issue("prepare_attempt", reason, args=args, run=run.run, incident=run.incident)


def _waits_for_nodes(draft: Draft, run: Run) -> bool:
    """Whether nodes are on their way, or under suspicion, whose answer decides the placement."""
    state = draft.state
    if run.attempt is None:
        return bool(state.open_actions("start_agent")) or any(
            n.state in ("absent", "joining") for n in state.nodes.values()
        )
    pending = [
        state.nodes[name] for name in run.attempt.nodes if state.nodes[name].state == "suspect"
    ]
    return any(
        state.open_actions("probe_node", node=node.node)
        or state.open_actions("start_agent", node=node.node)
        for node in pending
    )


def _wait(draft: Draft, run: Run) -> None:
    usable = [
        node.node for node in draft.state.nodes.values() if is_usable(draft.state, node, run.spec)
    ]
    reason = f"needs {run.spec.nodes} nodes, {len(usable)} usable ({', '.join(usable) or 'none'}); no spare left"
    if run.state != "waiting" or run.reason != reason:
        draft.add(r.RunChanged(run=run.run, state="waiting", reason=reason, incident=run.incident))
        if run.state != "waiting":
            draft.page(f"run {run.spec.name} waits: {reason}", run=run.run, incident=run.incident)


def _launch(draft: Draft, run: Run, attempt: Attempt) -> None:
    """Hand the assignments out, unless a node went away meanwhile or the run is to stop."""
    gone = [
        name
        for name in attempt.nodes
        if not is_usable(draft.state, draft.state.nodes[name], run.spec)
    ]
    if gone or run.stop_requests or draft.state.closing:
        reason = f"no longer usable: {', '.join(gone)}" if gone else "asked to stop"
        draft.add(
            r.AttemptChanged(
                attempt=attempt.attempt, state="ended", outcome="withdrawn", reason=reason
            )
        )
        return
    draft.add(r.AttemptChanged(attempt=attempt.attempt, state="launching", reason=attempt.reason))
    for name in attempt.nodes:
        if draft.state.nodes[name].state != "active":
            draft.add(r.NodeChanged(node=name, state="active", reason=str(attempt.attempt)))
        draft.add(r.Assigned(node=name, epoch=attempt.epoch, attempt=attempt.attempt))
    incident = draft.state.incidents.get(run.incident or "")
    if incident is not None and incident.state in ("open", "acting"):
        draft.add(
            r.IncidentChanged(
                incident=incident.incident, state="proving", reason=f"{attempt.attempt} launched"
            )
        )


def _settle_running(draft: Draft, run: Run, attempt: Attempt) -> None:
    codes = list(attempt.exits.values())
    if len(codes) == run.spec.world_size and all(
        code in (EXIT_FINISHED, EXIT_STOPPED) for code in codes
    ):
        _gang_ended(draft, run, attempt, finished=all(code == EXIT_FINISHED for code in codes))
        return
    wanted: r.Outcome | None = (
        "stopped"
        if run.stop_requests or draft.state.closing
        else "reconfigured"
        if run.reconfigured
        else None
    )
    if attempt.state in RUNNING and wanted is not None and _may_be_asked(attempt, wanted):
        _ask_to_stop(draft, run, attempt, wanted=wanted)
    elif attempt.state in RUNNING:
        _settle_steady(draft, run, attempt)
    elif (
        attempt.state == "asked"
        and draft.now >= (attempt.asked_at or 0.0) + run.spec.stop_grace_seconds
    ):
        reason = f"did not stop within {run.spec.stop_grace_seconds:g} s of being asked"
        end_attempt(draft, run, incident=None, outcome=attempt.outcome or "stopped", reason=reason)


def _settle_steady(draft: Draft, run: Run, attempt: Attempt) -> None:
    """Ranks that report no steps prove a remedy by living on."""
    incident = draft.state.incidents.get(run.incident or "")
    steady = run.has_proved_itself(draft.now)
    if steady and incident is not None and incident.state == "proving":
        reason = (
            f"{attempt.attempt} has been up for {run.spec.steady_seconds:g} s (it reports no steps)"
        )
        draft.add(r.IncidentChanged(incident=incident.incident, state="resolved", reason=reason))


def _gang_ended(draft: Draft, run: Run, attempt: Attempt, *, finished: bool) -> None:
    outcome = "finished" if finished else attempt.outcome or "stopped"
    draft.add(
        r.AttemptChanged(
            attempt=attempt.attempt, state="stopping", outcome=outcome, reason="all ranks ended"
        )
    )
    idle(draft, attempt)
    if finished:
        reason = f"all {run.spec.world_size} ranks ended with 0"
        message = "the run finished before that"
        end_run(draft, run, state="finished", reason=reason, message=message)


def _may_be_asked(attempt: Attempt, wanted: str) -> bool:
    """A change of settings waits until the gang is up and has said what it understands; a stop does not."""
    return wanted == "stopped" or (attempt.state == "running" and bool(attempt.requests))


def _ask_to_stop(draft: Draft, run: Run, attempt: Attempt, *, wanted: r.Outcome) -> None:
    """Ask at a step boundary if the ranks understand that; else SIGTERM, and SIGKILL after the grace."""
    by_channel = "stop" in attempt.requests and attempt.state == "running"
    reason = f"asked to stop ({wanted})"
    state: r.AttemptStateName = "asked" if by_channel else "stopping"
    draft.add(r.AttemptChanged(attempt=attempt.attempt, state=state, outcome=wanted, reason=reason))
    if not by_channel:
        idle(draft, attempt, grace_seconds=run.spec.stop_grace_seconds)
        return
    for name in attempt.nodes:
        args = {"node": name, "task": "ask_ranks", "epoch": attempt.epoch}
        draft.issue(
            "node_task",
            reason,
            args={**args, "args": {"request": "stop", "checkpoint": True}},
            run=run.run,
            deadline_seconds=run.spec.stop_grace_seconds,
        )


def _settle_stopping(draft: Draft, attempt: Attempt) -> None:
    """End the attempt once every node is clear, or lost with the gang confirmed dead (or the hard cap passed)."""
    state, cluster = draft.state, draft.policy.cluster
    since = attempt.stopping_at or draft.now
    uncleared = [
        state.nodes[name]
        for name in attempt.nodes
        if state.nodes[name].uncleared == attempt.attempt
    ]
    may_leave_lost = attempt.dead_rank_seen or draft.now >= since + cluster.hard_cap_seconds
    if all(node.state in ("lost", "left") and may_leave_lost for node in uncleared):
        draft.add(r.AttemptChanged(attempt=attempt.attempt, state="ended"))
        for name in attempt.nodes:
            node = state.nodes[name]
            if node.state == "active" and node.attempt is None and node.uncleared is None:
                draft.add(
                    r.NodeChanged(node=name, state="spare", reason=f"{attempt.attempt} ended")
                )
        return
    for node in uncleared:
        overdue = since + node.grace_seconds + 2 * cluster.kill_wait_seconds
        looked = node.probed_at >= since and draft.now < node.probed_at + cluster.silence_seconds
        if node.state == "active" and draft.now >= overdue and not looked:
            probe(draft, node, reason=f"did not confirm the end of {attempt.attempt}")


def _current(draft: Draft, attempt_id: AttemptId, epoch: int) -> Attempt | None:
    """Return the attempt a signal speaks of if it is the run's newest and of this epoch: others are history."""
    attempt = draft.state.attempt_of(attempt_id)
    return (
        attempt
        if attempt is not None and attempt.epoch == epoch and attempt.state != "ended"
        else None
    )
