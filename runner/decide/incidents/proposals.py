"""Proposals: in mode `advise` a rung that changes how a run trains is an action that waits for `stoker approve` or `deny`.

Unanswered, nothing changes. One proposal for each incident at a time; it expires when its incident is over, or its ladder has gone
on. `answers_to_proposals` handles what people say to it.
"""

from collections.abc import Iterator

from runner.decide.decision import Decision
from runner.decide.incidents.consent import mode_of
from runner.decide.state.cluster_state import Incident, Run, State
from runner.decide.state.people import Proposal
from runner.facts.messages import records_people as p
from runner.facts.specs.runbook import NUMERIC_VERBS, Runbook, Rung


def needs_approval(
    decision: Decision, run: Run, book: Runbook, rung: Rung, incident: Incident
) -> bool:
    """Whether a rung changes how the run trains, and the mode leaves that to a person who has not approved it."""
    is_approved = decision.approved == incident.incident
    is_numeric = rung.do in NUMERIC_VERBS
    return is_numeric and not is_approved and mode_of(decision.policy, run, book) == "advise"


def propose(
    decision: Decision,
    run: Run,
    book: Runbook,
    incident: Incident,
    chosen: tuple[int, int],
    *,
    reason: str,
) -> str:
    """Propose a rung, unless it is proposed already; page once. Return the action's id."""
    index, tries = chosen
    known = open_proposal(decision.state, incident)
    place = (book.name, index, tries)
    if known is not None and (known.runbook, known.rung, known.try_number) == place:
        return known.action
    if known is not None:
        expire(decision, known, f"its ladder is at another rung now: {reason}")
    rung, name = book.ladder[index], incident.incident
    args = ", ".join(f"{key} {value}" for key, value in rung.args.items())
    text = f"{rung.do}{f' ({args})' if args else ''}"
    action = decision.propose(
        incident,
        run.run,
        runbook=book.name,
        rung=index,
        do=rung.do,
        try_number=tries,
        text=text,
        reason=reason,
    )
    ask = f"`stoker approve {action}` or `stoker deny {action}`"
    message = f"{name} {incident.fault}: {action} proposes {text}; {ask}; {reason}"
    decision.page(message[:500], run=run.run, incident=name, is_new=True)
    return action


def open_proposal(state: State, incident: Incident) -> Proposal | None:
    """Return what is proposed for an incident and not decided."""
    return next((one for one in _open(state) if one.incident == incident.incident), None)


def _open(state: State) -> Iterator[Proposal]:
    return (one for one in state.proposals.values() if one.state == "proposed")


def expire(decision: Decision, proposal: Proposal, why: str) -> None:
    """Write down that a proposal is overtaken."""
    decision.add(
        p.ProposalDecided(
            action=proposal.action,
            run=proposal.run,
            incident=proposal.incident,
            state="expired",
            reason=why,
        )
    )


def settle(decision: Decision) -> None:
    """Let proposals expire whose incident is over."""
    for proposal in _open(decision.state):
        incident = decision.state.incidents.get(proposal.incident)
        if incident is None or not incident.is_live:
            state = incident.state if incident is not None else "over"
            expire(decision, proposal, f"{proposal.incident} is {state}")
