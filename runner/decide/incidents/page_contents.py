"""What a page says: made when it leaves, from the state as the page's own decision has left it. Pure.

Log lines in it are text from outside: they are made harmless and short here, whatever forwards the page.
"""

import re

from runner.decide.decision import Policy
from runner.decide.incidents.conditions import culprit_node, sure_cause
from runner.decide.incidents.ladder import next_rung
from runner.decide.incidents.proposals import open_proposal
from runner.decide.state.cluster_state import Incident, Run, State
from runner.facts.actions import Action, OperatorPage, PageOperator
from runner.facts.specs.runbook import VERBS
from runner.facts.wording import printable

# Of each line, and of them in one page; chosen: a telephone shows no more.
MAX_LINE_CHARACTERS, MAX_LINES = 240, 4
MAX_TEXT_CHARACTERS = 600
# A message that names a command names the one that helps.
_COMMAND = re.compile(r"`(stoker [^`\n]{1,200})`")


def page_content(state: State, policy: Policy, action: Action) -> OperatorPage:
    """Return what a page says: its run, incident, cause and evidence, what Stoker does next, and the command that helps."""
    asked = action.read(PageOperator)
    incident, run = state.incidents.get(action.incident or ""), state.runs.get(action.run or 0)
    text = printable(asked.message, MAX_TEXT_CHARACTERS)
    named = _COMMAND.search(asked.message)
    about = incident.incident if incident is not None else ""
    return OperatorPage(
        text=text,
        cause=_cause(state, incident, is_urgent=bool(asked.urgent)) or text,
        to=asked.to or "",
        urgent=bool(asked.urgent),
        run=run.spec.name if run is not None else "",
        incident=about,
        fault=(sure_cause(incident) or incident.fault) if incident is not None else "",
        place=_place(incident) if incident is not None else "",
        evidence=_evidence(incident) if incident is not None else (),
        next=_next(state, policy, incident, run),
        command=printable(named[1], MAX_LINE_CHARACTERS) if named else _command(incident, run),
    )


def asks_for_a_person(state: State, incident: str) -> bool:
    """Whether pages about an incident repeat: it is not over, and no person has acknowledged it."""
    known = state.incidents.get(incident)
    if known is None or known.acknowledged_at is not None:
        return False
    return known.is_live or known.state == "gave_up"


def _cause(state: State, incident: Incident | None, *, is_urgent: bool) -> str:
    """Return what an incident has in common with others of one cause; "" where the text of the page says it."""
    if incident is None or is_urgent:
        return ""
    name = culprit_node(state, incident)
    node = state.nodes.get(name or "")
    if node is None:
        return incident.incident
    return f"{sure_cause(incident) or incident.fault} {node.domain_down or node.node}"


def _place(incident: Incident) -> str:
    rank = f"rank {incident.rank}" if incident.rank is not None else ""
    return " ".join(part for part in (incident.node or "", rank) if part)


def _evidence(incident: Incident) -> tuple[str, ...]:
    lines = incident.cause.lines if incident.cause is not None else ()
    found = [printable(line, MAX_LINE_CHARACTERS) for line in (*lines, *incident.evidence)]
    return tuple(dict.fromkeys(line for line in found if line))[:MAX_LINES]


def _next(state: State, policy: Policy, incident: Incident | None, run: Run | None) -> str:
    """Say what Stoker does by itself from here on; "" where no incident and no run say it."""
    if incident is not None and incident.state == "gave_up":
        return "nothing: it gave up; checkpoints and logs are kept"
    if run is not None and run.hold is not None:
        return "nothing until a person lets the run go on"
    if incident is not None and open_proposal(state, incident) is not None:
        return "nothing until a person decides on what it proposes"
    if run is not None and run.state == "waiting":
        return "it starts the run as soon as there are nodes for it"
    if incident is None or not incident.is_live:
        return ""
    done = incident.rungs_taken[-1] if incident.rungs_taken else ""
    meaning = VERBS[done].meaning.partition(". ")[0].rstrip(".") if done in VERBS else ""
    now = f"{done} ({meaning[:1].lower()}{meaning[1:]}); " if meaning else ""
    book = policy.page_for(incident)
    following = next_rung(book, state, incident) if book is not None else None
    if book is None or following is None:
        return f"{now}then nothing more"
    return f"{now}if that does not help: {book.ladder[following[0]].do}"


def _command(incident: Incident | None, run: Run | None) -> str:
    if run is not None and run.hold is not None:
        return f"stoker resume {run.spec.name}"
    if incident is not None:
        return f"stoker explain {incident.incident}"
    return f"stoker story --run {run.spec.name}" if run is not None else "stoker status"
