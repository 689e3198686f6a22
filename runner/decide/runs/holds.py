"""Holds: people pause a run, let it go on, and start it again; or it waits for one of them.

Level-triggered, as all of `reconcile`: a request is kept until it is answered (`Run.pending_requests`), and a hold until a person
ends it. Until a request is done, the run's ladder waits (`incidents/consent`), and of two people the second is told what the first
asked for.
"""

from runner.decide.decision import Decision, Reply, refused
from runner.decide.incidents.consent import because, who
from runner.decide.placement.launch_plans import checkpoint_folder
from runner.decide.runs import drift, remedies
from runner.decide.runs.rewind import best_before_step, rewind
from runner.decide.state.cluster_state import LAUNCHED, Attempt, Run
from runner.decide.state.people import Hold, PendingRequest
from runner.facts.checkpoints import Trust
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages.requests import (
    PauseRun,
    Request,
    RestartRun,
    ResumeRun,
    RevertRemedy,
    RewindRun,
)
from runner.facts.wording import join_words

# Requests that are done once an attempt runs.
STARTS = ("resume_run", "restart_run", "rewind_run")


def when_ranks_end(run: Run) -> str:
    """Say when and how the ranks of a run that is to stop will end: those that ignore the contract get SIGTERM."""
    attempt = run.attempt
    if attempt is None or attempt.state in ("preparing", "prepared", "stopping", "ended"):
        return "now"
    if "stop" in attempt.requests:
        return "at the next step boundary"
    return f"by SIGTERM; its ranks have {run.spec.stop_grace_seconds:g} s to end"


def hold_in_words(hold: Hold) -> str:
    """Say who holds a run, and why."""
    if hold.hold == "paused":
        return f"paused by {who(hold.by)}{because(hold.reason)}"
    return f"waits for a person{because(hold.reason)}"


def overlap(decision: Decision, run: Run, request: Request) -> str:
    """Return what another person is changing about the run; "" when none is, or that was the same person."""
    for pending in run.pending_requests:
        if pending.by != request.by:
            seconds = decision.now - pending.since
            return (
                f"{who(pending.by)} asked for {pending.kind.replace('_', ' ')} ({pending.request}) {seconds:.0f} s before"
                f"{because(pending.reason)}; it is not done yet: talk to them, or ask again when it is"
            )
    return ""


def on_pause(decision: Decision, request: PauseRun, run: Run) -> Reply:
    """Hold a run from its next step boundary on. It comes before whatever else was asked for."""
    if not run.is_wanted:
        return refused(f"run {run.spec.name!r} is {run.state} already")
    if run.stop_requests:
        return refused(f"run {run.spec.name!r} is being stopped")
    hold = run.hold
    if hold is not None and hold.hold == "paused":
        return refused(f"run {run.spec.name!r} is {hold_in_words(hold)}")
    _withdraw(decision, run, f"{who(request.by)} paused the run{because(request.reason)}")
    decision.add(
        p.RunHeld(
            run=run.run,
            hold="paused",
            reason=request.reason,
            by=request.by,
            request=request.id,
            releases_nodes=request.releases_nodes,
        )
    )
    nodes = "released" if request.releases_nodes else "kept for it"
    return Reply("open", f"pausing {when_ranks_end(run)}; its nodes are {nodes}")


def on_resume(decision: Decision, request: ResumeRun, run: Run) -> Reply:
    """Let a held run go on."""
    if run.hold is None:
        if problem := overlap(decision, run, request):
            return refused(problem)
        return refused(f"run {run.spec.name!r} is {run.state}, not paused; it needs no resume")
    _end_hold(decision, run, request)
    has_folder = bool(checkpoint_folder(decision.policy.cluster, run))
    start = "from its newest trusted checkpoint" if has_folder else "as its script resumes"
    return Reply("open", f"run {run.spec.name!r} goes on, {start}")


def on_restart(decision: Decision, request: RestartRun, run: Run) -> Reply:
    """Start a run again, from a checkpoint that its ranks write now if they can, or from the one that is named."""
    reply = _restarted(decision, request, run)
    if request.accepts_drift and reply.state != "refused":
        drift.accept(decision, run.run, request)
    return reply


def _restarted(decision: Decision, request: RestartRun, run: Run) -> Reply:
    if problem := start_problem(decision, run, request):
        return refused(problem)
    if request.from_step is not None:
        return _restart_from(decision, request, run, request.from_step)
    attempt = run.attempt
    if run.hold is not None:
        _end_hold(decision, run, request)
    elif (attempt is None or attempt.state not in LAUNCHED) and run.retry_at is None:
        name = attempt.attempt if attempt is not None else "the first attempt"
        return Reply("done", f"it is being started already, after {name}")
    return Reply("open", f"ending the attempt {when_ranks_end(run)}, then starting the next")


def _restart_from(decision: Decision, request: RestartRun, run: Run, step: int) -> Reply:
    found = best_before_step(run, step + 1, Trust.COMMITTED)
    if found is None or found.step != step:
        kept = [
            f"step {known.step}"
            for known in reversed(run.checkpoints)
            if known.trust is not Trust.REFUSED and not run.is_set_aside(known)
        ]
        there = f"there are {join_words(kept, most=8)}" if kept else "there is none to go on from"
        return refused(f"run {run.spec.name!r} has no checkpoint of step {step}; {there}")
    if problem := _go_back(decision, run, request, step + 1):
        return refused(problem)
    if run.hold is not None:
        _end_hold(decision, run, request)
    return Reply("open", f"going back to the checkpoint of step {step}, now")


def on_rewind(decision: Decision, request: RewindRun, run: Run) -> Reply:
    """Go back to a checkpoint before a step; a paused run stays paused."""
    problem = start_problem(decision, run, request) or _go_back(
        decision, run, request, request.before_step
    )
    if problem:
        return refused(problem)
    step = best_before_step(run, request.before_step, Trust.COMMITTED)
    to = f"the checkpoint of step {step.step if step is not None else 0}"
    if run.hold is not None and run.hold.hold == "paused":
        return Reply("done", f"it goes on from {to}; the run stays paused")
    let_go_on(decision, run, request)
    return Reply("open", f"going back to {to}, now")


def _go_back(decision: Decision, run: Run, request: Request, before_step: int) -> str:
    """Set newer checkpoints aside, and end the attempt; return why not. A person may take any checkpoint that is not refused."""
    return rewind(
        decision,
        run,
        before_step=before_step,
        least=Trust.COMMITTED,
        reason=f"{who(request.by)} asked for it{because(request.reason)}",
        request=request.id,
    )


def on_revert(decision: Decision, request: RevertRemedy, run: Run) -> Reply:
    """Take a remedy back; answered with what the trainer reads back then."""
    problem = start_problem(decision, run, request) or remedies.revert(
        decision,
        run,
        request.remedy,
        by=request.by,
        reason=request.reason,
        request=request.id,
    )
    if problem:
        return refused(problem)
    return Reply("open", f"{request.remedy} is out from the next attempt on, which starts now")


def start_problem(decision: Decision, run: Run, request: Request) -> str:
    """Return why a person cannot change now how a run goes on; "" when that is possible."""
    if not run.is_wanted:
        return f"run {run.spec.name!r} is {run.state} already"
    if run.stop_requests:
        return f"run {run.spec.name!r} is being stopped"
    return overlap(decision, run, request)


def let_go_on(decision: Decision, run: Run, request: Request) -> None:
    """End the hold of a run that waits for a person; one that is paused stays so."""
    if run.hold is not None and run.hold.hold == "person":
        _end_hold(decision, run, request)


def _end_hold(decision: Decision, run: Run, request: Request) -> None:
    words = f"{who(request.by)} let it go on{because(request.reason)}"
    _withdraw(decision, run, words, kinds=("pause_run",))
    decision.add(p.HoldEnded(run=run.run, reason=request.reason, by=request.by, request=request.id))
    if run.state != "active":
        decision.add(r.RunChanged(run=run.run, state="active", reason=words))


def _withdraw(
    decision: Decision,
    run: Run,
    why: str,
    *,
    kinds: tuple[str, ...] = ("pause_run", *STARTS),
) -> None:
    """Answer open requests that are overtaken."""
    for pending in run.pending_requests:
        if pending.kind in kinds:
            _answer(decision, pending, "failed", f"overtaken: {why}")


def _answer(
    decision: Decision, pending: PendingRequest, state: r.RequestStateName, message: str
) -> None:
    asked = decision.state.requests.get(pending.request)
    if asked is not None and asked.state == "open":
        decision.answer(asked, state, message)


def wanted_end(run: Run, attempt: Attempt) -> r.Outcome | None:
    """Return how people want this attempt to end, if they do."""
    if run.hold is not None and run.hold.hold == "paused":
        return "paused"
    asked = any(
        pending.kind == "restart_run" and pending.after == attempt.attempt
        for pending in run.pending_requests
    )
    return "restarted" if asked else None


def settle_requests(decision: Decision, run: Run) -> None:
    """Answer requests that are done, or have failed."""
    attempt = run.attempt
    if attempt is None:
        return
    for pending in run.pending_requests:
        if pending.kind not in STARTS:
            continue
        is_new = attempt.attempt != pending.after
        if attempt.state == "running" and (is_new or pending.kind == "resume_run"):
            is_ours = attempt.resume or checkpoint_folder(decision.policy.cluster, run)
            begin = f"from step {attempt.resume_step}" if is_ours else "as its script resumes"
            _answer(decision, pending, "done", f"{attempt.attempt} runs, {begin}")
        elif is_new and attempt.state in ("stopping", "ended") and attempt.launched_at is not None:
            ended = f"{attempt.attempt} did not come up{because(attempt.reason)}"
            _answer(
                decision, pending, "failed", f"{ended}; its incident is answered as its page says"
            )


def settle_hold(decision: Decision, run: Run, hold: Hold) -> None:
    """No attempt is under way, and none is to start: say so, once, and answer those who wanted it."""
    state: r.RunStateName = "paused" if hold.hold == "paused" else "waiting"
    reason = hold_in_words(hold)
    if (run.state, run.reason) != (state, reason):
        decision.add(r.RunChanged(run=run.run, state=state, reason=reason, incident=hold.incident))
    attempt = run.attempt
    step = (attempt.last_step or attempt.resume_step) if attempt is not None else 0
    nodes = "released" if hold.releases_nodes else "kept for it"
    text = f"paused after step {step}, its nodes are {nodes}; `stoker resume {run.spec.name}` lets it go on"
    for pending in run.pending_requests:
        if pending.kind == "pause_run":
            _answer(decision, pending, "done", text)
