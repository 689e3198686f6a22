"""Orders: remedies that a rung brings into effect. Each bears the name of its page and its incident, by which it is taken back."""

from runner.decide.decision import Decision
from runner.decide.runs import remedies
from runner.decide.state.cluster_state import Incident, Run
from runner.facts.messages import records as r
from runner.facts.remedies import RemedyValue


def order(
    decision: Decision,
    run: Run,
    incident: Incident,
    *,
    name: str,
    value: RemedyValue,
    reason: str,
) -> str:
    """Order a remedy for an incident; return "", or why it is refused."""
    added = remedies.add(
        decision,
        run,
        name,
        value,
        by=f"page {_page_name(decision, incident)}",
        incident=incident.incident,
        reason=reason[:200],
    )
    return added.refusal


def try_number(decision: Decision) -> int:
    """Return which try of its rung is being taken."""
    taken = [one for one in decision.records if isinstance(one, r.RungTaken)]
    return taken[-1].try_number if taken else 1


def _page_name(decision: Decision, incident: Incident) -> str:
    taken = [one for one in decision.records if isinstance(one, r.RungTaken)]
    return taken[-1].runbook if taken else incident.runbook
