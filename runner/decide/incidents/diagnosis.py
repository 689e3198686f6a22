"""Diagnosis: log lines name the cause of an incident. It amends the incident; the first response does not wait for it."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Attempt, Incident, PendingEvidence, State
from runner.facts.causes import Cause, Verdict
from runner.facts.ids import AttemptId
from runner.facts.matches import DEEP, ECHOES, LoggedStep, Match
from runner.facts.messages import records as r
from runner.facts.messages.signals import LinesMatched
from runner.rootcause.correlation import correlate
from runner.rootcause.relevance import DEFAULT_TIMEOUT_SECONDS, PRECURSOR_SLACK_SECONDS
from runner.rootcause.templates import last_alike

# Characters. Chosen.
MAX_TEMPLATE = 300
# How long a line may explain a failure that follows it. Chosen.
FRESH_SECONDS = 120.0
# The same, of a line about what collectives wait for: as long as one waits.
PRECURSOR_SECONDS = DEFAULT_TIMEOUT_SECONDS + PRECURSOR_SLACK_SECONDS
# Below it a cause is not recorded, unless it has a template to recognise it by. Chosen.
LEAST_CONFIDENCE = 0.5


def on_lines_matched(decision: Decision, lines_read: LinesMatched) -> Incident | None:
    """Judge the lines of one node together with those of the nodes that spoke before it; return the incident as it will look."""
    incident = _incident_of(decision.state, lines_read.attempt)
    if incident is None or not lines_read.matches:
        return incident
    # The node is the one that sent the line, whatever the line says. Every node has files of the same names.
    known_places = {place_of(match) for match in incident.matches}
    new = tuple(
        match
        for match in (replace(match, node=lines_read.node) for match in lines_read.matches)
        if not is_echo(match, incident) and place_of(match) not in known_places
    )
    steps = [replace(step, file=f"{lines_read.node} {step.file}") for step in lines_read.steps]
    verdict = verdict_on([*incident.matches, *new], steps)
    known = incident.cause
    if verdict is None or (is_same(cause := verdict.cause, known) and incident.matches):
        return incident
    # Of one that is closed the lines are gone: an echo that comes late is judged without them.
    if incident.is_live or known is None or cause.confidence > known.confidence:
        return diagnose(decision, incident, cause, new)
    return incident


def _incident_of(state: State, attempt: AttemptId) -> Incident | None:
    """Return the newest fatal incident of an attempt, closed or not."""
    newest_first = reversed(state.incidents.values())
    return next((i for i in newest_first if i.attempt == attempt and not i.non_fatal), None)


def diagnose(
    decision: Decision, incident: Incident, cause: Cause, matches: Sequence[Match]
) -> Incident:
    """Write the cause down; return the incident as it will look.

    An unknown cause is recognised if an incident before had the same, or one that is alike.
    """
    if cause.template:
        known = {
            other.incident: other.cause.template
            for other in decision.state.incidents.values()
            if other.cause is not None and other.cause.template and other is not incident
        }
        cause = replace(cause, seen_in=last_alike(cause.template, known))
    record = r.IncidentDiagnosed(incident=incident.incident, cause=cause, matches=tuple(matches))
    return decision.diagnose(incident, record)


def place_of(match: Match) -> tuple[str, str, int, str, str]:
    """Identify a line, for it may be reported twice. A truncated file counts its lines from 1 again, so the text is part of it."""
    return match.node, match.file, match.line, match.signature, match.text[:100]


def is_echo(match: Match, incident: Incident) -> bool:
    """Whether other ranks only lost their peer: that explains nothing, for which rank died first is known.

    Of a node that a probe found dead, only lines of its own hardware say more than the probe.
    """
    if incident.condition == "node_dead":
        return match.layer not in DEEP or match.node != incident.node
    if match.layer not in ECHOES:
        return False
    # An error that no signature knows may be the cause although its rank is reaped after another of its node.
    is_of_peer = match.layer != "other" and None not in (match.rank, incident.rank)
    is_elsewhere = incident.node not in (None, match.node)
    return is_elsewhere or (is_of_peer and match.rank != incident.rank)


def verdict_on(matches: Sequence[Match], steps: Sequence[LoggedStep] = ()) -> Verdict | None:
    """Judge lines of several nodes together; None: they do not say enough."""
    placed = [replace(match, file=f"{match.node} {match.file}") for match in matches]
    try:
        verdicts = correlate(placed, steps)
    except Exception:  # noqa: BLE001 - lines are hostile text, and diagnosis must never prevent an action
        return None
    if not verdicts:
        return None
    cause = verdicts[0].cause
    if cause.confidence < LEAST_CONFIDENCE and not cause.template:
        return None
    lines = cause.lines + lost_before(verdicts[0].evidence)
    cause = replace(cause, template=cause.template[:MAX_TEMPLATE], lines=lines)
    return replace(verdicts[0], cause=cause)


def lost_before(evidence: Iterable[Match]) -> tuple[str, ...]:
    """Say of each log of the evidence that lost bytes how many: a line before those shown may be the cause."""
    lost: dict[str, int] = {}
    for match in evidence:
        lost[match.file] = max(match.lost_bytes, lost.get(match.file, 0))
    return tuple(
        f"{file}: {num_bytes} bytes of this log were lost, for it was truncated before they were read"
        for file, num_bytes in lost.items()
        if num_bytes
    )


def is_same(cause: Cause, known: Cause | None) -> bool:
    """Whether a cause is what is known already."""
    return known is not None and replace(known, seen_in="") == cause


def explain(decision: Decision, attempt: Attempt, incident: Incident, *, reached: int) -> Incident:
    """Diagnose a failure by the pending lines that may explain it; return the incident as it will look."""
    lines = [
        kept.match
        for kept in attempt.pending_evidence
        if _may_explain(kept, incident, reached=reached, now=decision.now)
    ]
    verdict = verdict_on(lines)
    is_known = bool(incident.matches) or not lines
    if verdict is None or (is_same(cause := verdict.cause, incident.cause) and is_known):
        return incident
    diagnosed = diagnose(decision, incident, cause, lines)
    about = {"attempt": attempt.attempt, "node": cause.node}
    for known in decision.state.live_incidents(non_fatal=True, **about):
        if known.cause is not None and decision.is_live(known):
            decision.move_incident(known, "resolved", f"{incident.incident} came of it")
    return diagnosed


def _may_explain(kept: PendingEvidence, incident: Incident, *, reached: int, now: float) -> bool:
    """Whether a line may explain a failure: it is recent, or of lasting hardware trouble where the first rank died."""
    if is_echo(kept.match, incident):
        return False
    if kept.match.warrants_incident and kept.match.is_lasting and incident.node == kept.match.node:
        return True
    lived_on = kept.step is not None and reached > kept.step + 1
    # A collective that waits for a link or a device fails when its time is up.
    is_precursor = kept.match.role == "interrupted" or kept.match.layer in DEEP
    limit = PRECURSOR_SECONDS if is_precursor else FRESH_SECONDS
    return not lived_on and now - kept.at <= limit
