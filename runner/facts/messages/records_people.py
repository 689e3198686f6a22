"""Records of what people want: a run is held, an incident acknowledged, a ladder waits for a person."""

from typing import Literal

from runner.facts.wire import Value

# "paused": a person asked for it; "person": the run cannot go on without one.
HoldKind = Literal["paused", "person"]


class RunHeld(Value, kind="run_held"):
    """No attempt of this run starts until a person lets it go on; its nodes are kept for it, unless `releases_nodes`."""

    run: int
    hold: HoldKind
    reason: str = ""
    by: str = ""
    request: str = ""
    incident: str | None = None
    releases_nodes: bool = False


class HoldEnded(Value, kind="hold_ended"):
    """A run may go on. Attempts that failed before count no longer."""

    run: int
    reason: str = ""
    by: str = ""
    request: str = ""


class NoteAdded(Value, kind="note_added"):
    """A person's words about a run or an incident."""

    text: str
    by: str = ""
    request: str = ""
    run: int | None = None
    incident: str | None = None


class IncidentAcknowledged(Value, kind="incident_acknowledged"):
    """A person looks at the incident: pages about it do not repeat."""

    incident: str
    by: str = ""
    reason: str = ""
    request: str = ""


class LadderSuspended(Value, kind="ladder_suspended"):
    """The ladder would take a rung, and waits: for a person's request about the run, or (`needs_person`) for a person."""

    incident: str
    reason: str
    run: int
    needs_person: bool = False


# "denied": by a person; "expired": its incident is over, or its ladder has gone on.
ProposalState = Literal["proposed", "issued", "denied", "expired"]


class ActionProposed(Value, kind="action_proposed"):
    """A rung that waits for `stoker approve` or `deny`: until then nothing changes. `action`: an id as those of all actions."""

    action: str
    run: int
    incident: str
    runbook: str
    rung: int
    do: str
    try_number: int
    text: str
    reason: str = ""


class ProposalDecided(Value, kind="proposal_decided"):
    """A proposed action is taken, denied by a person, or overtaken."""

    action: str
    run: int
    incident: str
    state: ProposalState
    by: str = ""
    reason: str = ""
    request: str = ""
