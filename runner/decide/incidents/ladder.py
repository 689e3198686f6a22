"""The ladder: which rung of which runbook answers an incident now, and the records that take it.

Nothing here knows a fault by name: the runbooks say which faults they answer, what to do, how often, and on what evidence.
"""

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents import consent, proposals, trials
from runner.decide.incidents.conditions import applies, has_new_culprit, sure_cause
from runner.decide.incidents.rungs.lost_nodes import lose_node
from runner.decide.incidents.rungs.retries import WAITING_VERBS, plan_retry
from runner.decide.incidents.rungs.table import RUNGS
from runner.decide.runs.endings import end_attempt, give_up
from runner.decide.state.cluster_state import Attempt, Incident, PagePlace, Run, State
from runner.facts.actions import StartAgent
from runner.facts.faults import awaits_probe, fault_kind
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.specs.runbook import PASSIVE_VERBS, Runbook


def respond(decision: Decision, incident: Incident, *, reason: str = "") -> None:
    """Take the next rung for this incident (or give up when there is none)."""
    book = decision.policy.page_for(incident)
    if book is None:
        if not holds_back(decision, incident, reason):
            give_up(decision, incident, reason=f"no runbook answers {incident.fault!r}")
        return
    chosen = next_rung(book, decision.state, incident)
    if chosen is None and incident.on_trial:
        trials.on_ladder_ended(decision, incident, book, reason)
        return
    if chosen is None:
        if not _awaits_probe(book, incident) and not holds_back(decision, incident, reason):
            tried = f"every rung of {book.name} was tried; {reason}".rstrip("; ")
            give_up(decision, incident, reason=tried)
        return
    index, tries = chosen
    rung, name = book.ladder[index], incident.incident
    if rung.do not in PASSIVE_VERBS and (
        holds_back(decision, incident, reason)
        or _proposes(decision, book, incident, chosen, reason=reason)
    ):
        return
    if incident.on_trial or (book.name, index) != (incident.runbook, incident.rung):
        trials.take_back(decision, incident)
    taken = r.RungTaken(
        incident=name, runbook=book.name, rung=index, do=rung.do, try_number=tries, reason=reason
    )
    is_approved = decision.approved == name
    decision.add(replace(taken, by=decision.approver) if is_approved else taken)
    # Giving up pages by itself.
    is_paged = rung.page or decision.policy.cluster.pages.every_rung
    if is_paged and rung.do != "stop":
        cause = sure_cause(incident)
        what = (
            f"{incident.fault} ({cause})" if cause not in ("", incident.fault) else incident.fault
        )
        text = f"{name} {what}: {rung.do}; {reason}".rstrip("; ")
        decision.page(text[:500], run=incident.run, incident=name, to=book.pages)
    if rung.do in WAITING_VERBS:
        plan_retry(decision, incident, rung, tries=tries)
    RUNGS[rung.do](decision, incident, rung, reason=reason)
    if incident.on_trial:
        trials.on_rung(decision, incident, rung)


def holds_back(decision: Decision, incident: Incident, reason: str) -> bool:
    """Whether the ladder waits for a person. What has died is ended all the same, and nothing else is done."""
    refusal = consent.refusal(decision, incident)
    run = decision.state.runs.get(incident.run or 0)
    if refusal is None or run is None:
        return False
    _suspend(decision, run, incident, refusal, reason)
    return True


def _suspend(
    decision: Decision, run: Run, incident: Incident, refusal: consent.Refusal, reason: str
) -> None:
    name = incident.incident
    is_again = run.suspended.get(name) == refusal.needs_person
    if not is_again:
        decision.add(
            p.LadderSuspended(
                incident=name,
                run=run.run,
                reason=refusal.why,
                needs_person=refusal.needs_person,
            )
        )
        if refusal.needs_person:
            text = f"{name} {incident.fault} waits for a person: {refusal.why}; {reason}"
            decision.page(text[:500], run=run.run, incident=name, is_new=True)
    node = decision.state.nodes.get(incident.node or "")
    if incident.condition == "agent_only" and (refusal.needs_person or not is_again):
        # Ranks go on without an agent; a request is carried out by one.
        if node is not None and not refusal.needs_person:
            decision.issue(StartAgent(node=node.node), reason, incident=incident.incident)
        return
    if node is not None and incident.condition != "always":
        lose_node(decision, incident, node, reason)
    outcome = fault_kind(incident.fault).outcome
    if not _is_dead(incident) or (refusal.needs_person and outcome == "hung"):
        # A person may want to look at a gang that hangs.
        return
    end_attempt(decision, run, incident=incident, outcome=outcome)
    if refusal.needs_person:
        hold_for_person(decision, run, incident, refusal.why)


def hold_for_person(decision: Decision, run: Run, incident: Incident, why: str) -> None:
    """Start no attempt until a person lets the run go on; its nodes are kept for it."""
    if run.hold is None:
        name = incident.incident
        reason = f"{name} {incident.fault}: {why}"
        decision.add(p.RunHeld(run=run.run, hold="person", reason=reason, incident=name))


def _proposes(
    decision: Decision,
    book: Runbook,
    incident: Incident,
    chosen: tuple[int, int],
    *,
    reason: str,
) -> bool:
    """Whether a rung waits for `stoker approve`; a gang that is dead meanwhile is ended, and its nodes are kept."""
    run = decision.state.runs.get(incident.run or 0)
    rung = book.ladder[chosen[0]]
    if run is None or not proposals.needs_approval(decision, run, book, rung, incident):
        return False
    action = proposals.propose(decision, run, book, incident, chosen, reason=reason)
    if _is_dead(incident):
        outcome = fault_kind(incident.fault).outcome
        end_attempt(decision, run, incident=incident, outcome=outcome)
        hold_for_person(decision, run, incident, f"`stoker approve {action}`, or deny it")
    return True


def _is_dead(incident: Incident) -> bool:
    """Whether the gang cannot go on: of a silent node only a probe knows."""
    awaited = awaits_probe(incident.fault) and incident.condition == "always"
    return fault_kind(incident.fault).is_fatal and not awaited


def go_on(decision: Decision, run: Run, attempt: Attempt) -> None:
    """Answer incidents whose ladders waited for a person's request, which is done; those of an earlier gang ended with it."""
    for name in run.suspended:
        incident = decision.state.incidents[name]
        is_current = incident.non_fatal or incident.attempt == attempt.attempt
        if is_current and consent.refusal(decision, incident) is None:
            respond(decision, incident, reason="the ladder waited for a person")
            taken = any(isinstance(one, r.RungTaken) for one in decision.records)
            if taken and incident.non_fatal and not incident.on_trial:
                decision.move_incident(incident, "proving", "the run goes on")
            return


def next_rung(book: Runbook, state: State, incident: Incident) -> tuple[int, int] | None:
    """Return (rung index, try number) of what to do next, or None when nothing on the page applies (any more).

    A page that takes over from another one begins at its top; one that comes back goes on where it was. What was tried against one
    culprit says nothing about another one: with that, the page begins again (`max_attempts_without_progress` stays above it).
    """
    at, tried = incident.rung, incident.tries
    if has_new_culprit(incident):
        at, tried = -1, 0
    elif incident.runbook not in ("", book.name):
        before = incident.earlier_pages.get(book.name, PagePlace())
        at, tried = before.rung, before.tries
    for index in range(max(at, 0), len(book.ladder)):
        rung = book.ladder[index]
        if not applies(rung, state, incident):
            continue
        tries = tried + 1 if index == at else 1
        if tries <= rung.tries:
            return index, tries
    return None


def _awaits_probe(book: Runbook, incident: Incident) -> bool:
    """Whether a rung further down may apply after a probe: then nothing is done yet."""
    return incident.condition == "always" and any("probe" in rung.when for rung in book.ladder)
