"""What people say to proposals: an approved rung is taken at once, a denied one never, and its incident is left to people."""

from runner.decide.decision import Decision, Reply, refused
from runner.decide.incidents.consent import because, who
from runner.decide.incidents.ladder import next_rung, respond
from runner.decide.runs import holds
from runner.decide.state.cluster_state import Incident, Run
from runner.decide.state.people import Proposal
from runner.facts.messages import records_people as p
from runner.facts.messages.records_trials import TrialEnded
from runner.facts.messages.requests import ApproveAction, DecideProposal, DenyAction
from runner.facts.wording import known_words


def on_approve(decision: Decision, request: ApproveAction) -> Reply:
    """Take the rung that was proposed, if it is still the next one."""
    proposal, problem = _find(decision, request)
    if proposal is None:
        return refused(problem)
    incident = decision.state.incidents.get(proposal.incident)
    run = decision.state.runs[proposal.run]
    problem = _overtaken(decision, proposal, incident) or holds.start_problem(
        decision, run, request
    )
    if problem or incident is None:
        return Reply("refused", f"{proposal.action}: {problem}", run=run.run)
    _decide(decision, proposal, request, "issued")
    decision.approved, decision.approver = incident.incident, who(request.by)
    holds.let_go_on(decision, run, request)
    respond(decision, incident, reason=f"{who(request.by)} approved it{because(request.reason)}")
    return _taken(decision, proposal, run)


def _taken(decision: Decision, proposal: Proposal, run: Run) -> Reply:
    """Say what came of the rung: it may find that it cannot be done."""
    ended = [x for x in decision.records if isinstance(x, TrialEnded)]
    if ended:
        text = f"{proposal.action}: {ended[-1].evidence}; the ladder goes on"
        return Reply("failed", text, run=run.run)
    text = f"{proposal.action}: {proposal.text} for {proposal.incident} of run {run.spec.name}"
    return Reply("done", text, run=run.run)


def on_deny(decision: Decision, request: DenyAction) -> Reply:
    """Refuse what was proposed: nothing changes, and the incident is left to people."""
    proposal, problem = _find(decision, request)
    if proposal is None:
        return refused(problem)
    _decide(decision, proposal, request, "denied")
    name = decision.state.runs[proposal.run].spec.name
    text = (
        f"{proposal.action} is denied; {proposal.incident} is left to you: `stoker rewind {name}`, `restart`, `lr` or `stop`; "
        "nothing is done about it by itself"
    )
    return Reply("done", text, run=proposal.run)


def _find(decision: Decision, request: DecideProposal) -> tuple[Proposal | None, str]:
    """Return the open proposal that a request names, or why there is none."""
    proposals = decision.state.proposals
    known = proposals.get(request.action)
    if known is None:
        names = [one.action for one in proposals.values() if one.state == "proposed"]
        listed = known_words(request.action, names, label="proposed")
        return None, f"no action {request.action!r} is proposed; {listed}"
    if known.state == "proposed":
        return known, ""
    ago = decision.now - (known.decided_at or decision.now)
    if known.state == "expired":
        return None, f"{known.action} has expired {ago:.0f} s ago{because(known.why)}"
    what = "approved" if known.state == "issued" else "denied"
    return None, f"{who(known.by)} {what} {known.action} {ago:.0f} s ago{because(known.why)}"


def _overtaken(decision: Decision, proposal: Proposal, incident: Incident | None) -> str:
    """Return why the rung is no longer the next one; "" when it is."""
    if incident is None or not incident.is_live:
        return f"{proposal.incident} is over"
    book = decision.policy.page_for(incident)
    chosen = next_rung(book, decision.state, incident) if book is not None else None
    if book is None or chosen is None:
        return f"no rung is left for {proposal.incident}"
    if (book.name, *chosen) != (proposal.runbook, proposal.rung, proposal.try_number):
        do = book.ladder[chosen[0]].do
        return f"overtaken: the next rung of {proposal.incident} is {do} of page {book.name} now"
    return ""


def _decide(
    decision: Decision, proposal: Proposal, request: DecideProposal, state: p.ProposalState
) -> None:
    decision.add(
        p.ProposalDecided(
            action=proposal.action,
            run=proposal.run,
            incident=proposal.incident,
            state=state,
            by=request.by,
            reason=request.reason,
            request=request.id,
        )
    )
