"""The ladder: which rung of which runbook answers an incident now, and the records that take it.

Nothing here knows a fault by name: the runbooks say which faults they answer, what to do, how often, and on what evidence.
"""

from collections.abc import Mapping
from typing import Protocol

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents import consent, proposals, trials
from runner.decide.incidents.conditions import (
    applies,
    culprit_node,
    has_lasting_sign,
    sure_cause,
)
from runner.decide.nodes.hardware import quarantine, record_hardware_fault
from runner.decide.state.cluster_state import Attempt, Incident, Node, PagePlace, Run, State
from runner.facts.actions import StartAgent
from runner.facts.faults import awaits_probe, fault_kind
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.specs.runbook import PASSIVE_VERBS, Runbook, Rung, RungVerb

# Seconds before each restart in a row without a new step, where a page states none; the last counts for all later ones. Chosen.
RESTART_DELAYS = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
# Rungs after which the next attempt is planned.
WAITING_VERBS = ("restart", "restart_elsewhere", "swap")


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
    if incident.on_trial:
        trials.take_back(decision, incident)
    taken = r.RungTaken(
        incident=name, runbook=book.name, rung=index, do=rung.do, try_number=tries, reason=reason
    )
    is_approved = decision.approved == name
    decision.add(replace(taken, by=decision.approver) if is_approved else taken)
    # Giving up pages by itself.
    if rung.page and rung.do != "stop":
        cause = sure_cause(incident)
        what = (
            f"{incident.fault} ({cause})" if cause not in ("", incident.fault) else incident.fault
        )
        text = f"{name} {what}: {rung.do}; {reason}".rstrip("; ")
        decision.page(text[:500], run=incident.run, incident=name, to=book.pages)
    if rung.do in WAITING_VERBS:
        _plan_retry(decision, incident, rung, tries=tries)
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
        _lose_node(decision, incident, node, reason)
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

    A page that takes over from another one begins at its top; one that comes back goes on where it was.
    """
    at, tried = incident.rung, incident.tries
    if incident.runbook not in ("", book.name):
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


def delays_of(rung: Rung) -> tuple[float, ...]:
    """Return the seconds before each try of a rung that it states; the last counts for all later ones."""
    given = rung.args.get("wait_seconds", ())
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _plan_retry(decision: Decision, incident: Incident, rung: Rung, *, tries: int) -> None:
    """Let the next attempt wait, and choose other nodes, as the rung says: what fails at once is not tried again at once."""
    run = decision.state.runs.get(incident.run or 0)
    attempt = run.attempt if run is not None else None
    if run is None or attempt is None:
        return
    stated = delays_of(rung)
    delays = stated or (RESTART_DELAYS if rung.do == "restart" else (0.0,))
    # A rung that states none of its own counts every attempt in a row, whatever it failed of.
    advanced = max(run.best_step, attempt.last_step or 0) > attempt.best_before
    is_counted = attempt.state != "ended" and not advanced
    fruitless = 0 if advanced else run.attempts_without_progress + is_counted
    number = tries if stated else max(tries, fruitless)
    seconds = delays[min(number, len(delays)) - 1]
    node = culprit_node(decision.state, incident)
    avoid = (node,) if rung.do == "restart_elsewhere" and node is not None else ()
    is_waiting = run.retry_at is not None or bool(run.avoid)
    if not (seconds or avoid or is_waiting):
        return
    total = sum(delays[min(one, len(delays) - 1)] for one in range(rung.tries))
    in_all = f", of {total:g} s in all" if stated and rung.tries > 1 else ""
    text = f"waits {seconds:g} s before it starts again{in_all}" if seconds else ""
    apart = f"starts elsewhere than on {node}, if it can" if avoid else ""
    decision.add(
        r.RetryPlanned(
            run=run.run,
            at=decision.now + seconds if seconds else None,
            seconds=seconds,
            avoid=avoid,
            incident=incident.incident,
            reason="; ".join(part for part in (text, apart) if part) or "starts again at once",
        )
    )


def _awaits_probe(book: Runbook, incident: Incident) -> bool:
    """Whether a rung further down may apply after a probe: then nothing is done yet."""
    return incident.condition == "always" and any("probe" in rung.when for rung in book.ladder)


def _start_agent(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    if incident.node is None:
        _restart(decision, incident, rung, reason=reason)
        return
    work = StartAgent(node=incident.node)
    decision.issue(work, reason or incident.fault, incident=incident.incident)


def _stop(decision: Decision, incident: Incident, _: Rung, *, reason: str) -> None:
    cause = incident.cause
    line = cause.lines[0] if cause is not None and cause.lines and sure_cause(incident) else ""
    why = "; ".join(part for part in (reason, line) if part)
    give_up(decision, incident, reason=why or f"{incident.fault}: the runbook says stop")


def _quarantine(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    node = decision.state.nodes.get(incident.node or "")
    if node is not None:
        quarantine(decision, node, reason=reason or incident.fault, incident=incident.incident)
    _restart(decision, incident, rung, reason=reason)


def _swap(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    node = decision.state.nodes.get(culprit_node(decision.state, incident) or "")
    if node is not None:
        _lose_node(decision, incident, node, reason)
    _restart(decision, incident, rung, reason=reason)


def _lose_node(decision: Decision, incident: Incident, node: Node, reason: str) -> None:
    is_probed = incident.condition != "always"
    fault = incident.fault if is_probed else sure_cause(incident) or incident.fault
    name = incident.incident
    if decision.is_in_service(node):
        # One that a probe did not find dead has a live agent: it would be a spare again with its next heartbeat.
        out: r.NodeStateName = "lost" if is_probed else "maintenance"
        decision.move_node(node.node, out, f"{name} {fault}", incident=name)
        # An agent that hangs says nothing against its hardware.
        if incident.condition == "node_dead" or (not is_probed and has_lasting_sign(incident)):
            record_hardware_fault(
                decision, node, fault=fault, evidence=reason or fault, incident=name
            )


def _restart(decision: Decision, incident: Incident, _: Rung, *, reason: str) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is not None:
        end_attempt(decision, run, incident=incident, outcome=fault_kind(incident.fault).outcome)


def _hold(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.hold is not None:
        return
    held = p.RunHeld(run=run.run, hold="person", reason=reason, incident=incident.incident)
    decision.add(held)
    _restart(decision, incident, rung, reason=reason)


def _watch(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    """The run goes on."""


def _swap_at_checkpoint(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    node = decision.state.nodes.get(culprit_node(decision.state, incident) or "")
    if node is not None and node.pending_drain is None and decision.is_in_service(node):
        why = f"{incident.incident} {sure_cause(incident) or incident.fault}"
        decision.add(r.NodeDraining(node=node.node, to="maintenance", reason=why))


def _restart_at_checkpoint(
    decision: Decision, incident: Incident, rung: Rung, *, reason: str
) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.attempt is None or "stop" not in run.attempt.requests:
        return
    why = f"{incident.incident} {incident.fault}"
    decision.add(r.RestartWanted(run=run.run, reason=why, incident=incident.incident))


def _rewind(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    # Going back ends an attempt, by a function of this module.
    from runner.decide.incidents.going_back import go_back

    go_back(decision, incident, rung, reason=reason)


class RungHandler(Protocol):
    """What a verb does: adds records to the decision. `rung` has its arguments."""

    def __call__(
        self, decision: Decision, incident: Incident, rung: Rung, /, *, reason: str
    ) -> None:
        """Take the rung."""


# What each rung does; the pages name them (`facts/specs/runbook.py`).
RUNGS: Mapping[RungVerb, RungHandler] = {
    "restart": _restart,
    "swap": _swap,
    "start_agent": _start_agent,
    "quarantine": _quarantine,
    "hold": _hold,
    "stop": _stop,
    "watch": _watch,
    "wait": _watch,
    "restart_elsewhere": _restart,
    "swap_at_checkpoint": _swap_at_checkpoint,
    "restart_at_checkpoint": _restart_at_checkpoint,
    "rewind": _rewind,
}


def give_up(decision: Decision, incident: Incident, *, reason: str) -> None:
    """End the incident without success, and its run with it: everything is kept, and an operator is paged."""
    decision.move_incident(incident, "gave_up", reason)
    run = decision.state.runs.get(incident.run or 0)
    if run is not None and run.is_wanted:
        end_attempt(decision, run, incident=incident, outcome=fault_kind(incident.fault).outcome)
        end_run(decision, run, state="failed", reason=reason, gave_up=incident.incident)
    text = f"{incident.incident} {incident.fault}: gave up: {reason}"
    book = decision.policy.page_for(incident)
    to = book.pages if book is not None else ""
    decision.page(text, run=incident.run, incident=incident.incident, is_new=True, to=to)


def end_run(
    decision: Decision,
    run: Run,
    *,
    state: r.RunStateName,
    reason: str,
    message: str = "",
    gave_up: str | None = None,
) -> None:
    """End a run for good: its other incidents close, and its open requests are answered.

    `message` is for those who asked; `gave_up` is the incident that ended the run, closed already.
    """
    decision.add(r.RunChanged(run=run.run, state=state, reason=reason, incident=gave_up))
    closing = "gave_up" if state == "failed" else "resolved"
    why = "the run was stopped" if state == "stopped" else f"the run {state}"
    for incident in decision.state.live_incidents(run=run.run):
        if incident.on_trial and closing == "resolved":
            trials.on_run_ended(decision, incident, why, is_asked=state == "stopped")
        elif decision.is_live(incident):
            decision.move_incident(incident, closing, why)
    asked = (
        *run.stop_requests,
        *run.settings_requests,
        *(pending.request for pending in run.pending_requests),
    )
    for request_id in dict.fromkeys(asked):
        request = decision.state.requests[request_id]
        is_done = request.request == "stop_run" and state != "failed"
        text = message or f"the run {state}: {reason}"
        decision.answer(request, "done" if is_done else "failed", text)


def end_attempt(
    decision: Decision,
    run: Run,
    *,
    outcome: r.Outcome,
    incident: Incident | None = None,
    reason: str = "",
) -> None:
    """End the run's live attempt now: all its nodes idle by SIGKILL. Nothing to do when it is ending already."""
    attempt = run.attempt
    if attempt is None or attempt.state in ("stopping", "ended"):
        return
    if attempt.state in ("preparing", "prepared"):
        decision.move_attempt(attempt, "ended", reason, outcome="withdrawn")
        return
    name, fault = (incident.incident, incident.fault) if incident else (None, "")
    decision.move_attempt(attempt, "stopping", reason or fault, outcome=outcome, incident=name)
    # Where ranks hang is known only as long as they live.
    stacks_seconds = decision.policy.cluster.stacks_seconds if outcome == "hung" else 0.0
    idle(decision, attempt, stacks_seconds=stacks_seconds)


def idle(
    decision: Decision, attempt: Attempt, *, grace_seconds: float = 0.0, stacks_seconds: float = 0.0
) -> None:
    """Assign every node of an attempt to end its ranks; lost nodes too, should they come back."""
    seconds = {"grace_seconds": grace_seconds, "stacks_seconds": stacks_seconds}
    for name in attempt.nodes:
        if decision.state.nodes[name].attempt == attempt.attempt:
            generation = decision.generation()
            decision.add(r.Assigned(node=name, generation=generation, attempt=None, **seconds))
