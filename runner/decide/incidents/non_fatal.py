"""Watching: what is found of a gang that goes on, in its numbers, its ranks, the lines of its hardware.

A page whose rung leaves the gang alone (`watch`) asks nothing of the run: the incident governs nothing, and is over when the
finding is, or when the run has passed the step in a later attempt. A page that says anything else is answered as a failure is.
"""

from collections.abc import Collection, Sequence

from runner.decide.decision import Decision
from runner.decide.incidents import diagnosis, numeric
from runner.decide.incidents.attribution import report_failure
from runner.decide.incidents.ladder import next_rung, respond
from runner.decide.state.cluster_state import LAUNCHED, Attempt, Incident, Run
from runner.facts.causes import Cause
from runner.facts.faults import Finding, fault_kind
from runner.facts.matches import Match
from runner.facts.messages import records as r
from runner.facts.messages.signals import ReplicasDisagree
from runner.rootcause.fingerprints import fingerprint

# Pieces of evidence of one non-fatal incident. Chosen.
MAX_EVIDENCE = 6
# Live non-fatal incidents of one attempt. Chosen.
MAX_NON_FATAL = 20


def on_finding(decision: Decision, finding: Finding) -> None:
    """Handle a finding about a gang that goes on."""
    attempt = decision.state.attempt_of(finding.attempt)
    if attempt is None or attempt.state not in LAUNCHED:
        return
    run = decision.run_of(attempt.attempt)
    if fault_kind(finding.fault).on_trial:
        numeric.on_finding(decision, run, attempt, finding)
        return
    known = _known(decision, run, finding)
    if finding.recovered:
        if known is not None:
            decision.move_incident(known, "resolved", finding.evidence)
    elif known is not None:
        _again(decision, known, attempt, finding)
    else:
        open_non_fatal(decision, run, attempt, finding)


def _known(decision: Decision, run: Run, finding: Finding) -> Incident | None:
    """Return the watched incident that a finding belongs to: of the same fault, and of no other rank."""
    alike = decision.state.live_incidents(non_fatal=True, run=run.run, fault=finding.fault)
    same = [incident for incident in alike if _is_same_place(incident, finding)]
    return same[-1] if same else None


def _is_same_place(incident: Incident, finding: Finding) -> bool:
    """Whether both may be about the same; of another attempt only if they name the same, for nodes are swapped."""
    place = (finding.node, finding.rank)
    if incident.attempt != finding.attempt and incident.node is not None:
        return (incident.node, incident.rank) == place or finding.recovered
    return all(
        None in (new, known) or new == known
        for new, known in zip(place, (incident.node, incident.rank), strict=True)
    )


def _again(decision: Decision, known: Incident, attempt: Attempt, finding: Finding) -> None:
    names_more = known.node is None and finding.node is not None
    is_new = known.attempt != attempt.attempt
    if not (names_more or is_new or len(known.evidence) < MAX_EVIDENCE):
        return
    node, rank = (finding.node, finding.rank) if names_more else (None, None)
    name = attempt.attempt if is_new else None
    decision.amend(known, finding.evidence, node=node, rank=rank, attempt=name)


def open_non_fatal(
    decision: Decision,
    run: Run,
    attempt: Attempt,
    finding: Finding,
    *,
    cause: Cause | None = None,
    matches: Sequence[Match] = (),
) -> Incident | None:
    """Open an incident as its page says; None where no page answers, or too many were opened."""
    book = decision.policy.runbook_for(finding.fault)
    candidate = Incident(
        incident="",
        fault=finding.fault,
        run=run.run,
        attempt=attempt.attempt,
        node=finding.node,
        rank=finding.rank,
        non_fatal=True,
        cause=cause,
        matches=list(matches),
    )
    chosen = None if book is None else next_rung(book, decision.state, candidate)
    if book is None or chosen is None:
        return None
    if book.ladder[chosen[0]].ends_gang:
        if attempt.state == "stop_requested":
            # It ends by itself, with a checkpoint.
            return None
        report_failure(decision, finding)
        return None
    if _num_non_fatal(decision, attempt) >= MAX_NON_FATAL:
        return None
    incident = decision.open_incident(
        finding,
        run=run.run,
        fingerprint=fingerprint(finding.fault),
        step=max(run.best_step, attempt.last_step or 0, finding.step or 0),
        non_fatal=True,
    )
    if cause is not None:
        incident = diagnosis.diagnose(decision, incident, cause, matches)
    respond(decision, incident, reason=finding.evidence)
    decision.move_incident(incident, "proving", "the run goes on")
    return incident


def on_replicas(decision: Decision, report: ReplicasDisagree) -> None:
    """Handle the ranks' report that copies differ: it names the rank if one differs, the node if all of them are on one.

    Where several nodes remain, all of them are suspects. The fault began after the last comparison that agreed, if the report says
    which that was.
    """
    attempt = decision.state.attempt_of(report.attempt)
    if attempt is None:
        return
    size = decision.run_of(report.attempt).spec.ranks_per_node
    known = range(size * len(attempt.nodes))
    ranks = [rank for rank in report.ranks if rank in known]
    doubtful = ranks or [rank for rank in report.suspects if rank in known]
    nodes = [attempt.nodes[place] for place in dict.fromkeys(rank // size for rank in doubtful)]
    who = f"ranks {ranks} differ from their peers" if ranks else "the differing rank is unknown"
    if doubtful and not ranks:
        who = f"one of the ranks {doubtful} is wrong, and no majority says which"
    evidence = f"step {report.step}, {report.what}: {who}; {report.detail}".rstrip("; ")
    on_finding(
        decision,
        Finding(
            fault="replicas_disagree",
            evidence=evidence[:300],
            attempt=report.attempt,
            node=nodes[0] if len(nodes) == 1 else None,
            rank=ranks[0] if len(ranks) == 1 else None,
            suspects=tuple(nodes) if len(nodes) > 1 else (),
            step=report.step if report.agreed_step is None else report.agreed_step + 1,
        ),
    )


def _num_non_fatal(decision: Decision, attempt: Attempt) -> int:
    """Count the watched incidents of an attempt that are live, those of this decision among them."""
    known = decision.state.live_incidents(non_fatal=True, attempt=attempt.attempt)
    new = [one for one in decision.records if isinstance(one, r.IncidentOpened) and one.non_fatal]
    return sum(map(decision.is_live, known)) + len(new)


def is_passed(incident: Incident, attempt: Attempt) -> bool:
    """Whether an attempt that has come further than a watched incident shows that it is over.

    What has an onset was in the weights from then on: it must have begun before. What a detector found of a node, and is found in
    hours or minutes, is over when the detector says so, if that node is in the gang again.
    """
    if incident.onset is not None:
        return attempt.resume_step < incident.onset
    return incident.cause is not None or incident.node not in attempt.nodes


def forget(decision: Decision, learned_runs: Collection[int]) -> None:
    """Another supervisor took over. Of runs of which its detectors know nothing, what is still so will be found again."""
    reason = "what was learned of the run is lost; it is reported again if it persists"
    for incident in decision.state.live_incidents(non_fatal=True, cause=None, on_trial=False):
        if incident.run not in learned_runs:
            decision.move_incident(incident, "resolved", reason)


def on_attempt_running(decision: Decision, attempt: Attempt) -> None:
    """Another attempt of a run is up that reports no steps: nothing it does could ever show that an older incident is over."""
    run = decision.run_of(attempt.attempt)
    if run.reports_steps:
        return
    reason = f"{attempt.attempt} has begun; it is found again if it is still so"
    for incident in decision.state.live_incidents(non_fatal=True, run=run.run, on_trial=False):
        if incident.attempt != attempt.attempt:
            decision.move_incident(incident, "resolved", reason)
