"""The state's part about people: what holds a run, what they asked for, what happened to an incident since they looked."""

from runner.facts.ids import AttemptId
from runner.facts.messages.records_people import HoldKind, ProposalState
from runner.facts.wire import Value

# Of one incident: what an answer to a person who looked at it names. Chosen.
MAX_EVENTS_KEPT = 12
MAX_EVENT_CHARACTERS = 160
# Proposals, those that are decided too.
MAX_PROPOSALS_KEPT = 100
# Over which `per_day` of a page counts.
DAY_SECONDS = 86400.0


class Hold(Value):
    """Why no attempt of a run starts: a person paused it, or it waits for one."""

    hold: HoldKind
    since: float
    reason: str = ""
    by: str = ""
    request: str = ""
    incident: str | None = None
    releases_nodes: bool = False


class PendingRequest(Value):
    """A person's open request to change how a run goes on. `after`: the attempt at which it was made, which it ends, if any."""

    request: str
    kind: str
    since: float
    by: str = ""
    reason: str = ""
    after: AttemptId | None = None


class IncidentEvent(Value):
    """Something that happened to an incident, which made it this version. `decisive`: more than evidence or words."""

    version: int
    at: float
    text: str
    decisive: bool = False


class Proposal(Value):
    """A rung that waits for a person, or what became of it."""

    action: str
    run: int
    incident: str
    runbook: str
    rung: int
    do: str
    try_number: int
    text: str
    since: float
    reason: str = ""
    state: ProposalState = "proposed"
    by: str = ""
    why: str = ""
    decided_at: float | None = None
