"""Attention: what people say about an incident or a run, and what happened to an incident since they looked at it."""

from runner.decide.decision import Decision, Reply, refused
from runner.decide.incidents.consent import because, who
from runner.decide.state.cluster_state import Incident, Run
from runner.facts.messages import records_people as p
from runner.facts.messages.requests import AcknowledgeIncident, AddNote, Request
from runner.facts.wording import known_words

# Characters of one note. Chosen.
MAX_NOTE_CHARACTERS = 2000
# Incidents that a refusal names.
MAX_NAMED = 8


def overtaken(decision: Decision, request: Request) -> str:
    """Return what happened to the incident of a request since its sender looked, if that decides anything; "" otherwise."""
    if not request.incident:
        return ""
    incident = decision.state.incidents.get(request.incident)
    if incident is None:
        return _unknown(decision, request.incident)
    if request.seen is None:
        return ""
    name, now = incident.incident, incident.version
    if request.seen > now:
        return f"{name} is at version {now}, not {request.seen}: see `stoker explain {name}`"
    newer = [event for event in incident.events if event.version > request.seen]
    are_all_known = now - request.seen == len(newer)
    if are_all_known and not any(event.decisive for event in newer):
        return ""
    return (
        f"{name} has changed since you looked (version {request.seen}, now {now}): {since(incident, request.seen)}; "
        f"look at `stoker explain {name}`, and ask again if it is still wanted"
    )


def since(incident: Incident, version: int) -> str:
    """Say what happened to an incident after this version."""
    events = [event for event in incident.events if event.version > version]
    missing = incident.version - version - len(events)
    earlier = [f"{missing} more before"] if missing > 0 else []
    return "; ".join([*earlier, *(event.text for event in events)])


def on_note(decision: Decision, request: AddNote) -> Reply:
    """Write a person's words into the journal."""
    text = request.text.strip()
    if not text or len(text) > MAX_NOTE_CHARACTERS:
        what = f"{len(text)} characters" if text else "no text"
        return refused(f"note: {what}; write 1 to {MAX_NOTE_CHARACTERS}")
    incident = decision.state.incidents.get(request.incident)
    run = _run_of(decision, request, incident)
    if request.run and run is None:
        known = [each.spec.name for each in decision.state.runs.values()]
        return refused(f"note: no run {request.run!r}; {known_words(request.run, known)}")
    number = run.run if run is not None else incident.run if incident is not None else None
    decision.add(
        p.NoteAdded(
            text=text,
            by=request.by,
            request=request.id,
            run=number,
            incident=incident.incident if incident is not None else None,
        )
    )
    about = incident.incident if incident is not None else run.spec.name if run is not None else ""
    return Reply("done", f"noted{f' about {about}' if about else ''}", run=number)


def _run_of(decision: Decision, request: AddNote, incident: Incident | None) -> Run | None:
    """Return the newest run with the name or number that a note names, or that of its incident."""
    runs = reversed(decision.state.runs.values())
    if request.run:
        return next((each for each in runs if request.run in (each.spec.name, str(each.run))), None)
    return decision.state.runs.get(incident.run or 0) if incident is not None else None


def on_acknowledge(decision: Decision, request: AcknowledgeIncident) -> Reply:
    """Keep who looks at an incident."""
    incident = decision.state.incidents.get(request.incident)
    if incident is None:
        return refused(_unknown(decision, request.incident))
    name = incident.incident
    # One that Stoker gave up waits for a person, too.
    if not incident.is_live and incident.state != "gave_up":
        return refused(f"{name} is {incident.state} already{because(incident.reason)}")
    if incident.acknowledged_at is not None and incident.acknowledged_by != request.by:
        return refused(f"{who(incident.acknowledged_by)} looks at {name} already")
    decision.add(
        p.IncidentAcknowledged(
            incident=name, by=request.by, reason=request.reason, request=request.id
        )
    )
    return Reply("done", f"{name}: pages about it do not repeat", run=incident.run)


def _unknown(decision: Decision, name: str) -> str:
    known = [each.incident for each in decision.state.incidents.values()][-MAX_NAMED:]
    return f"no incident {name!r}; {known_words(name, known)}"
