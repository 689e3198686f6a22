"""Runs: what is to be done next about each.

`settle` is level-triggered: it looks at a run and says the next thing to do, so that a crash between any two records is made
good by asking again. What nodes say of an attempt is in `attempts`.
"""

import math
from collections.abc import Iterator

from runner.decide.decision import Decision
from runner.decide.incidents import answers, numeric, pending_evidence
from runner.decide.incidents.attribution import stop_if_spent
from runner.decide.incidents.ladder import go_on
from runner.decide.incidents.trials import awaits_rung
from runner.decide.nodes import lifecycle
from runner.decide.nodes.checks import start_looks
from runner.decide.nodes.isolation import driver as isolations
from runner.decide.nodes.probes import probe
from runner.decide.placement.allocation import (
    Allocation,
    called,
    choose_nodes,
    holders_of_nodes,
    listed,
)
from runner.decide.placement.launch_plans import (
    checkpoint_folder,
    is_usable,
    output_folder,
    saves_folder,
)
from runner.decide.runs import checkpoint_trust, holds, trust_levels
from runner.decide.runs.attempts import (
    EXIT_FINISHED,
    EXIT_STOPPED,
    fail_overdue_launch,
    launch_limit,
)
from runner.decide.runs.endings import end_attempt, end_run, idle
from runner.decide.state.cluster_state import GONE, LAUNCHED, RUNNING, Attempt, Run
from runner.facts.actions import PrepareAttempt
from runner.facts.checkpoints import Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.specs.placeholders import remedies_of_command
from runner.facts.wording import counted

# How reasons end that may pass by themselves, soon.
CHECKED, STARTED, NEEDED = "being checked", "being started", "may need now"


def undecided(decision: Decision) -> Iterator[Run]:
    """Yield the runs of which `settle` may have something to say: asked after every input, of hundreds of them."""
    is_calm, cluster = not (decision.state.closing or decision.leaving), decision.policy.cluster
    for run in decision.state.runs.values():
        attempt = run.attempt
        if not (
            is_calm
            and attempt is not None
            and attempt.state in RUNNING
            and decision.now < launch_limit(decision.state, cluster, run)
            and not attempt.exit_codes
            and run.incident is None
            and not awaits_rung(decision.state.incidents.get(run.trial_incident or ""))
            and attempt.judge_at is None
            and not run.stop_requests
            and not run.reconfigured
            and run.hold is None
            and not run.pending_requests
            and not run.suspended
            and not run.restart_reason
        ):
            yield run


def settle(decision: Decision, run: Run) -> None:
    """Decide the next thing to do for this run, if anything."""
    if not run.is_alive:
        return
    holds.settle_requests(decision, run)
    if decision.records:
        return
    answers.settle(decision, run)
    if decision.records:
        return
    attempt = run.attempt
    if attempt is None or attempt.state == "ended":
        _settle_between(decision, run)
    elif attempt.state == "prepared":
        _launch(decision, run, attempt)
    elif attempt.state in LAUNCHED:
        _settle_running(decision, run, attempt)
    elif attempt.state == "stopping":
        _settle_stopping(decision, attempt)


def _settle_between(decision: Decision, run: Run) -> None:
    """No attempt is under way: end the run as requested, or plan the next attempt."""
    if run.stop_requests or decision.state.closing:
        step = (run.attempt.last_step or run.attempt.resume_step) if run.attempt else 0
        message = f"the run was stopped after step {step}"
        end_run(decision, run, state="stopped", reason="as asked", message=message)
        return
    if run.hold is not None:
        holds.settle_hold(decision, run, run.hold)
        return
    is_early = run.retry_at is not None and decision.now < run.retry_at
    if is_early or answers.is_awaited(decision, run) or _needs_nodes(decision, run):
        return
    if (isolation := isolations.awaited(decision.state, run)) is not None:
        reason = f"isolation {isolation.isolation}: which of its nodes is bad is {CHECKED}"
        if (run.state, run.reason) != ("waiting", reason):
            changed = r.RunChanged(
                run=run.run, state="waiting", reason=reason, incident=run.incident
            )
            decision.add(changed)
        return
    trust_levels.judge_death(decision, run)
    if not decision.records:
        stop_if_spent(decision, run)
    if decision.records:
        return
    choice = choose_nodes(decision.state, run, decision.policy.cluster.domains)
    if choice.nodes is None and lifecycle.revive(decision, reason=f"{called(run)} waits for nodes"):
        return
    if choice.nodes is None:
        _wait(decision, run, choice)
    elif run.attempt is None and _are_checked(decision):
        # All of them may be had in a moment.
        return
    elif choice.withdraw:
        reason = f"its nodes are needed by {called(run)}"
        for other in choice.withdraw:
            decision.move_attempt(other, "ended", reason, outcome="withdrawn")
    else:
        _plan(decision, run, choice.nodes)


def _plan(decision: Decision, run: Run, nodes: list[str]) -> None:
    if run.state != "active":
        decision.add(r.RunChanged(run=run.run, state="active", reason="enough nodes again"))
    attempt, reason = AttemptId(run.run, 1, 0), "first launch"
    if (before := run.attempt) is not None:
        is_changed = run.reconfigured or run.skips_attempt_ids
        attempt = before.attempt.reconfigured() if is_changed else before.attempt.restarted()
        reason = f"after {before.attempt} {before.outcome or 'ended'}"
    cluster, generation, incident = decision.policy.cluster, decision.generation(), run.incident
    planned = r.AttemptPlanned(
        attempt=attempt, generation=generation, nodes=tuple(nodes), reason=reason, incident=incident
    )
    decision.add(planned)
    prepare = PrepareAttempt(
        attempt=str(attempt),
        generation=generation,
        folder=checkpoint_folder(cluster, run),
        output=output_folder(cluster, run, attempt),
        refused=checkpoint_trust.refused_paths(decision, run),
        address=decision.state.nodes[nodes[0]].address,
        run_name=run.spec.name,
        uncoded=checkpoint_trust.uncoded_names(decision, run),
        verified=checkpoint_trust.verified_stamps(decision, run),
        newest_first=checkpoint_trust.takes_newest(run),
        set_aside=checkpoint_trust.set_aside(decision, run),
        saves=saves_folder(cluster, run) or None,
        checkpoint_format=run.spec.checkpoint_format or None,
    )
    decision.issue(prepare, reason, run=run.run, incident=incident)


def _needs_nodes(decision: Decision, run: Run) -> bool:
    """Whether nodes are on their way, or under suspicion, whose answer decides the placement."""
    state = decision.state
    if run.attempt is None:
        return bool(state.open_actions("start_agent")) or any(
            n.state in ("absent", "joining") for n in state.nodes.values()
        )
    return any(
        state.is_open("probe_node", name) or state.is_open("start_agent", name)
        for name in run.attempt.nodes
        if state.nodes[name].state == "suspect"
    )


def _are_checked(decision: Decision) -> bool:
    """Whether nodes are being checked that should soon have passed; one that is tried again is not waited for."""
    nodes = decision.state.nodes.values()
    return any(node.state == "checking" and not node.check_tries for node in nodes)


def _wait(decision: Decision, run: Run, choice: Allocation) -> None:
    nodes = decision.state.nodes.values()
    checked = [node.node for node in nodes if node.state == "checking"]
    started = [node.node for node in nodes if node.state in ("absent", "joining") and node.provided]
    parts = [
        f"needs {counted(run.spec.nodes, 'node')}, {len(choice.usable)} usable ({listed(choice.usable) or 'none'})",
        holders_of_nodes(decision.state, run),
        (f"{_are(checked)} {CHECKED}" if checked else "")
        or (f"{_are(started)} {STARTED}" if started else "")
        or _reserved_for_others(choice)
        or _no_spare(decision),
    ]
    reason, incident = "; ".join(part for part in parts if part), run.incident
    before = run.reason if run.state == "waiting" else None
    if before is not None and (
        before == reason or (before.endswith(CHECKED) and reason.endswith(CHECKED))
    ):
        return
    decision.add(r.RunChanged(run=run.run, state="waiting", reason=reason, incident=incident))
    passing = (CHECKED, STARTED, NEEDED)
    if not reason.endswith(passing) and (before is None or before.endswith(passing)):
        text = f"run {run.spec.name} waits: {reason}"
        decision.page(text, run=run.run, incident=incident, is_urgent=True)


def _no_spare(decision: Decision) -> str:
    """Name the nodes that are out of service until a person takes one back."""
    out = [
        node.node
        for node in decision.state.nodes.values()
        if node.state in ("quarantined", "maintenance") or (node.state == "lost" and node.provided)
    ]
    way = f": {_are(out)} out of service; `stoker readmit {out[0]}` takes it back" if out else ""
    return f"no spare left{way}"


def _reserved_for_others(choice: Allocation) -> str:
    """Name the runs for which spares are reserved that this run would take."""
    if not choice.reserved:
        return ""
    others = {other.run: called(other) for other in choice.reserved.values()}
    return f"{_are(list(choice.reserved))} what {listed(list(others.values()))} {NEEDED}"


def _are(nodes: list[str]) -> str:
    return f"{listed(nodes)} {'is' if len(nodes) == 1 else 'are'}"


def _launch(decision: Decision, run: Run, attempt: Attempt) -> None:
    """Hand the assignments out, unless a node went away meanwhile or the run is to stop."""
    gone = [
        name
        for name in attempt.nodes
        if not is_usable(decision.state, decision.state.nodes[name], run.spec)
    ]
    if gone or run.stop_requests or run.hold is not None or decision.state.closing:
        reason = f"no longer usable: {', '.join(gone)}" if gone else "asked to stop"
        decision.move_attempt(attempt, "ended", reason, outcome="withdrawn")
        return
    resumes_from = checkpoint_trust.find(run, attempt.resume)
    if resumes_from is not None and resumes_from.trust is Trust.REFUSED:
        # A node has read it since the survey chose it.
        reason = f"the checkpoint of step {resumes_from.step} is refused: {resumes_from.reason}"
        decision.move_attempt(attempt, "ended", reason, outcome="withdrawn")
        return
    decision.move_attempt(attempt, "launching", attempt.reason)
    for name in attempt.nodes:
        if decision.state.nodes[name].state != "active":
            decision.move_node(name, "active", str(attempt.attempt))
        decision.add(r.Assigned(node=name, generation=attempt.generation, attempt=attempt.attempt))
    incident = decision.state.incidents.get(run.incident or "")
    if incident is not None and incident.state in ("open", "acting"):
        decision.move_incident(incident, "proving", f"{attempt.attempt} launched")
    start_looks.begin(decision, attempt)
    numeric.on_launched(decision, run, attempt)


def _settle_running(decision: Decision, run: Run, attempt: Attempt) -> None:
    codes = list(attempt.exit_codes.values())
    has_ended = all(code in (EXIT_FINISHED, EXIT_STOPPED) for code in codes)
    if len(codes) == run.spec.world_size and has_ended:
        _gang_ended(decision, run, attempt, finished=all(code == EXIT_FINISHED for code in codes))
        return
    if decision.now >= _by_time(decision, attempt):
        reason = "a node had to go before its ranks had stopped"
        end_attempt(decision, run, outcome=attempt.outcome or "moved", reason=reason)
        return
    pending_evidence.settle(decision, run, attempt)
    if not decision.records:
        numeric.settle(decision, run, attempt)
    if not decision.records:
        go_on(decision, run, attempt)
    if decision.records:
        return
    wanted = _wanted_end(decision, run, attempt)
    if decision.now >= launch_limit(decision.state, decision.policy.cluster, run):
        fail_overdue_launch(decision, run, attempt)
        return
    if attempt.state in RUNNING and wanted is not None and _may_be_asked(run, attempt, wanted):
        _ask_to_stop(decision, run, attempt, wanted=wanted)
    elif attempt.state in RUNNING:
        _settle_steady(decision, run, attempt)
    elif decision.now >= (attempt.stop_requested_at or 0.0) + run.spec.stop_grace_seconds:
        reason = f"did not stop within {run.spec.stop_grace_seconds:g} s of being asked"
        end_attempt(decision, run, outcome=attempt.outcome or "stopped", reason=reason)


def _wanted_end(decision: Decision, run: Run, attempt: Attempt) -> r.Outcome | None:
    """Return how the attempt is to end, if it is."""
    if run.stop_requests or decision.state.closing:
        return "stopped"
    if any(node.node in attempt.nodes for node in decision.leaving):
        return "moved"
    if (asked := holds.wanted_end(run, attempt)) is not None:
        return asked
    if run.restart_reason and not run.reconfigured:
        return "restarted"
    return "reconfigured" if run.reconfigured else None


def _by_time(decision: Decision, attempt: Attempt) -> float:
    """Return when the first of the attempt's leaving nodes goes in any case; infinity: whenever it is done."""
    leaving = [node.pending_drain for node in decision.leaving if node.node in attempt.nodes]
    times = [way.by_time for way in leaving if way is not None and way.by_time is not None]
    return min(times, default=math.inf)


def _settle_steady(decision: Decision, run: Run, attempt: Attempt) -> None:
    """Ranks that report no steps prove a remedy by living on."""
    incident = decision.state.incidents.get(run.incident or "")
    is_proving = incident is not None and incident.state == "proving"
    if incident is not None and is_proving and run.has_proved_itself(decision.now):
        up = f"{attempt.attempt} has been up for {run.spec.steady_seconds:g} s"
        decision.move_incident(incident, "resolved", f"{up} (it reports no steps)")


def _gang_ended(decision: Decision, run: Run, attempt: Attempt, *, finished: bool) -> None:
    outcome = "finished" if finished else attempt.outcome or "stopped"
    decision.move_attempt(attempt, "stopping", "all ranks ended", outcome=outcome)
    idle(decision, attempt)
    if finished:
        num = run.spec.world_size
        reason = f"all {num} ranks ended with 0" if num > 1 else "its only rank ended with 0"
        message = "the run finished before that"
        end_run(decision, run, state="finished", reason=reason, message=message)


def _may_be_asked(run: Run, attempt: Attempt, wanted: str) -> bool:
    """A change of settings waits until the gang is up and its hello is in, if it sends one; a stop does not."""
    is_ready = bool(attempt.requests) or bool(remedies_of_command(run.spec.command))
    return wanted != "reconfigured" or (attempt.state == "running" and is_ready)


def _ask_to_stop(decision: Decision, run: Run, attempt: Attempt, *, wanted: r.Outcome) -> None:
    """Ask at a step boundary if the ranks understand that; else SIGTERM, and SIGKILL after the grace."""
    by_channel = "stop" in attempt.requests and attempt.state == "running"
    reason = f"asked to stop ({wanted})"
    state: r.AttemptStateName = "stop_requested" if by_channel else "stopping"
    decision.move_attempt(attempt, state, reason, outcome=wanted)
    grace_seconds = run.spec.stop_grace_seconds
    if by_channel:
        args = {"request": "stop", "checkpoint": True}
        decision.ask_ranks(attempt, args, reason, deadline_seconds=grace_seconds)
    else:
        left_seconds = max(0.0, _by_time(decision, attempt) - decision.now)
        idle(decision, attempt, grace_seconds=min(grace_seconds, left_seconds))


def _settle_stopping(decision: Decision, attempt: Attempt) -> None:
    """End the attempt once every node is clear, or lost with the gang confirmed dead (or the hard cap passed)."""
    state, cluster = decision.state, decision.policy.cluster
    since = attempt.stopping_at or decision.now
    nodes, ending = state.nodes, attempt.attempt
    ranks_may_run = [nodes[name] for name in attempt.nodes if nodes[name].ranks_may_run == ending]
    may_leave_lost = attempt.dead_rank_seen or decision.now >= since + cluster.hard_cap_seconds
    if all(node.state in GONE and may_leave_lost for node in ranks_may_run):
        decision.move_attempt(attempt, "ended")
        for name in attempt.nodes:
            node = state.nodes[name]
            if node.state == "active" and node.attempt is None and node.ranks_may_run is None:
                decision.move_node(name, "spare", f"{attempt.attempt} ended")
        return
    if decision.now < since + 2 * cluster.kill_wait_seconds:
        # No node can be overdue yet; this runs after each signal of a large gang.
        return
    for node in ranks_may_run:
        overdue = since + node.grace_seconds + node.stacks_seconds + 2 * cluster.kill_wait_seconds
        probe_again_at = node.probed_at + cluster.heartbeat_timeout_seconds
        looked = node.probed_at >= since and decision.now < probe_again_at
        answers = node.state == "active" or node.devices_busy
        if answers and decision.now >= overdue and not looked:
            probe(decision, node, reason=f"did not confirm the end of {attempt.attempt}")
