"""Requests: what people ask for is checked, answered at once or when it has taken effect, and never done twice."""

from collections.abc import Callable
from typing import Any

from runner.decide.decision import Decision, Reply, refused
from runner.decide.incidents import answers_to_proposals, attention
from runner.decide.nodes import drain
from runner.decide.nodes.checks import requested_checks
from runner.decide.nodes.isolation import driver as isolations
from runner.decide.placement.launch_plans import checkpoint_folder, run_folder
from runner.decide.placement.topology import describe_torn_groups
from runner.decide.runs import checkpoint_trust, drift, drills, holds, remedies
from runner.decide.state.cluster_state import GONE, Run, shared_fields
from runner.facts.messages import records as r
from runner.facts.messages.requests import (
    AcknowledgeIncident,
    AddNote,
    AddRemedy,
    ApproveAction,
    CheckNodes,
    DenyAction,
    Drill,
    IsolateNodes,
    PauseRun,
    PinCheckpoint,
    Request,
    RestartRun,
    ResumeRun,
    RevertRemedy,
    RewindRun,
    ShutDown,
    StartRun,
    StopRun,
)
from runner.facts.messages.signals import NodeJoined
from runner.facts.remedies import remedies_text
from runner.facts.wire import kind_of
from runner.facts.wording import known_words

# Requests about a live run.
RunRequest = (
    StopRun
    | AddRemedy
    | Drill
    | PinCheckpoint
    | PauseRun
    | ResumeRun
    | RestartRun
    | RewindRun
    | RevertRemedy
)


def on_request(decision: Decision, request: Request) -> None:
    """Answer a request; one whose id is known already is not done again."""
    if request.id in decision.state.requests:
        return
    if decision.state.closing and not isinstance(request, ShutDown):
        reply = refused("the cluster is shutting down")
    elif problem := attention.overtaken(decision, request):
        reply = refused(problem)
    else:
        reply = HANDLERS[type(request)](decision, request)
    _record(decision, request, reply)


def _record(decision: Decision, request: Request, reply: Reply) -> None:
    """Record a request's first answer; what a person does about a run is an event of the incident that governs it."""
    known = shared_fields(request, r.RequestRecorded)
    run = decision.state.runs.get(reply.run or 0)
    known["incident"] = request.incident or (run.incident if run is not None else None) or ""
    decision.add(r.RequestRecorded(request=kind_of(request), **{**known, **reply._asdict()}))


def on_stale(decision: Decision, stale: r.StaleMessage) -> None:
    """Refuse a request or an agent's join that is not fresh, with the reason."""
    message = stale.message
    if isinstance(message, Request):
        _record(decision, message, refused(stale.reason))
    elif isinstance(message, NodeJoined):
        refusal = shared_fields(message, r.JoinRefused)
        decision.add(r.JoinRefused(reason=stale.reason, **refusal))


def _shut_down(decision: Decision, request: ShutDown) -> Reply:
    decision.add(r.ClusterClosing(by=request.by, request=request.id))
    return Reply("open", "stopping runs, then agents")


def _start_run(decision: Decision, request: StartRun) -> Reply:
    spec, state, cluster = request.spec, decision.state, decision.policy.cluster
    twin = next((run for run in _live_runs(decision) if run.spec.name == spec.name), None)
    if twin is not None:
        return _start_twin(decision, request, twin)
    # Slots of a node that has not joined yet are those of the cluster's settings.
    slots_of = {node.node: node.slots or cluster.local.slots for node in state.nodes.values()}
    fits = [
        node
        for node in state.nodes.values()
        if node.state not in GONE and slots_of[node.node] >= spec.ranks_per_node
    ]
    if len(fits) < spec.nodes:
        slots = max(slots_of.values(), default=0)
        return refused(
            f"nodes x ranks_per_node: {spec.nodes} x {spec.ranks_per_node} asked for, but only {len(fits)} of "
            f"{len(state.nodes)} nodes are there with enough slots (largest node: {slots}); ask for less or add nodes"
        )
    admitted = Run(run=state.next_run, spec=spec, user=request.user)
    decision.add(r.RunAdmitted(run=admitted.run, spec=spec, user=request.user))
    text = f"run {admitted.run}; files in {run_folder(cluster, admitted)}"
    text += _carry_over(decision, admitted, accepts_drift=request.accepts_drift)
    if request.accepts_drift:
        drift.accept(decision, admitted.run, request)
    torn = describe_torn_groups(spec)
    text += f"; {torn}" if torn else ""
    return Reply("done", text, run=admitted.run)


def _start_twin(decision: Decision, request: StartRun, twin: Run) -> Reply:
    """Answer a start under the name of a live run: the same run goes on; another one has to wait for the name."""
    name = f"name: {request.spec.name!r} is run {twin.run}, which is"
    if twin.stop_requests:
        return Reply("refused", f"{name} being stopped; start it when that has ended", run=twin.run)
    if (twin.spec, twin.user) == (request.spec, request.user):
        if request.accepts_drift:
            drift.accept(decision, twin.run, request)
            holds.let_go_on(decision, twin, request)
        folder = run_folder(decision.policy.cluster, twin)
        return Reply("done", f"run {twin.run} goes on; files in {folder}", run=twin.run)
    return refused(
        f"{name} {twin.state}, with other settings; stop it first (`stoker stop {twin.spec.name}`) or choose another name "
        "(`name` in run.yaml, `--name` of a command)"
    )


def _carry_over(decision: Decision, run: Run, *, accepts_drift: bool) -> str:
    """Keep remedies and conditions of the run whose checkpoints this one goes on from: neither changes silently."""
    folder = checkpoint_folder(decision.policy.cluster, run)
    before = [
        known
        for known in decision.state.runs.values()
        if folder and checkpoint_folder(decision.policy.cluster, known) == folder
    ]
    if before and not accepts_drift:
        drift.carry_over(decision, run, before[-1])
    if not before or not before[-1].remedies:
        return ""
    kept = remedies_text(remedies.carry_over(decision, run, before[-1]))
    return f"; goes on from run {before[-1].run}, with its {kept}"


def _live_runs(decision: Decision) -> list[Run]:
    return [run for run in decision.state.runs.values() if run.is_alive]


def _of_run(handle: Callable[[Decision, Any, Run], Reply]) -> Callable[[Decision, Any], Reply]:
    """Let a handler of requests about a live run, by name or number, get that run; without one, refuse."""

    def on_run_request(decision: Decision, request: RunRequest) -> Reply:
        runs, name = _live_runs(decision), request.run
        run = next((run for run in runs if name in (run.spec.name, str(run.run))), None)
        if run is None:
            known = known_words(name, [run.spec.name for run in runs], label="live runs")
            return refused(f"no live run {name!r}; {known}")
        return handle(decision, request, run)._replace(run=run.run)

    return on_run_request


def _stop_run(_decision: Decision, _request: StopRun, run: Run) -> Reply:
    if not run.is_wanted:
        # Its ranks are still being ended.
        return Reply("done", f"the run has {run.state} already")
    return Reply("open", f"stopping {holds.when_ranks_end(run)}")


def _add_remedy(decision: Decision, request: AddRemedy, run: Run) -> Reply:
    if problem := holds.overlap(decision, run, request):
        return refused(problem)
    by, reason = request.by, request.reason
    added = remedies.add(
        decision, run, request.remedy, request.value, by=by, request=request.id, reason=reason
    )
    if added.refusal:
        return refused(added.refusal)
    text = "will be in effect after a checkpoint and a relaunch; answered with the value read back"
    return Reply("open", text)


HANDLERS: dict[type[Request], Callable[[Decision, Any], Reply]] = {
    StartRun: _start_run,
    StopRun: _of_run(_stop_run),
    AddRemedy: _of_run(_add_remedy),
    Drill: _of_run(drills.on_drill),
    PinCheckpoint: _of_run(checkpoint_trust.on_pin),
    PauseRun: _of_run(holds.on_pause),
    ResumeRun: _of_run(holds.on_resume),
    RestartRun: _of_run(holds.on_restart),
    RewindRun: _of_run(holds.on_rewind),
    RevertRemedy: _of_run(holds.on_revert),
    ApproveAction: answers_to_proposals.on_approve,
    DenyAction: answers_to_proposals.on_deny,
    AddNote: attention.on_note,
    AcknowledgeIncident: attention.on_acknowledge,
    ShutDown: _shut_down,
    CheckNodes: requested_checks.on_request,
    IsolateNodes: isolations.on_request,
    **dict.fromkeys(drain.NODE_REQUESTS, drain.on_node_request),
}
