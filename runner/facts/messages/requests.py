"""Requests of operators. The client makes the id, so that a request sent twice counts once."""

from typing import Literal

from runner.facts.drills import NodeDrill, RankDrill, SignalDrill
from runner.facts.remedies import RemedyName, RemedyValue
from runner.facts.specs.cluster import CheckLevel
from runner.facts.specs.run import RunSpec
from runner.facts.wire import Value


class Request(Value):
    """The fields of every request. `by`: the operator; `reason`: why, in the operator's words.

    `sent_at`, `expires_at`: Unix seconds by the command's clock; it is refused after the latter. 0: an older command sent it.
    `incident`, `seen`: the incident that the operator looked at, and its version then; None: whichever it is at.
    """

    id: str
    by: str = ""
    reason: str = ""
    sent_at: float = 0.0
    expires_at: float = 0.0
    incident: str = ""
    seen: int | None = None


class StartRun(Request, kind="start_run"):
    """Start a run with this spec; its ranks run as `user`, "" for the agents' own."""

    spec: RunSpec
    user: str = ""
    # It may run with something else than the run of this name before it.
    accepts_drift: bool = False


class StopRun(Request, kind="stop_run"):
    """Stop a run, given by name or number, for good, sealing a checkpoint first if its ranks can."""

    run: str


class PauseRun(Request, kind="pause_run"):
    """End a run's attempt at the next step boundary, with a checkpoint, and start no other until `ResumeRun` or `RestartRun`.

    Its nodes are kept for it, unless `releases_nodes`: then other runs may have them meanwhile.
    """

    run: str
    releases_nodes: bool = False


class ResumeRun(Request, kind="resume_run"):
    """Let a run go on that was paused, or that waits for a person."""

    run: str


class RestartRun(Request, kind="restart_run"):
    """End a run's attempt at the next step boundary, with a checkpoint, and start the next one; a paused run starts at once.

    With `from_step` it ends at once, and goes on from its checkpoint of that step. `accepts_drift`: the next attempt may run with
    other code, packages or variables.
    """

    run: str
    from_step: int | None = None
    accepts_drift: bool = False


class RewindRun(Request, kind="rewind_run"):
    """Go back to the run's newest checkpoint before this step; what was sealed after it is set aside. A paused run stays paused."""

    run: str
    before_step: int


class RevertRemedy(Request, kind="revert_remedy"):
    """Take a remedy (its id, r1) of a run back, from the next attempt on."""

    run: str
    remedy: str


class DecideProposal(Request):
    """The fields of an answer to a proposed action."""

    action: str


class ApproveAction(DecideProposal, kind="approve_action"):
    """Let the daemon take the rung that it proposes."""


class DenyAction(DecideProposal, kind="deny_action"):
    """Refuse the rung that the daemon proposes: its incident is left to people."""


class AddNote(Request, kind="add_note"):
    """Write a text into the journal, about a run or about `incident`."""

    text: str
    run: str = ""


class AcknowledgeIncident(Request, kind="acknowledge_incident"):
    """Say that a person looks at `incident`: pages about it do not repeat."""


class AddRemedy(Request, kind="add_remedy"):
    """Change how a run trains, from its next attempt on. `value`: in the remedy's own unit."""

    run: str
    remedy: RemedyName
    value: RemedyValue


class PinCheckpoint(Request, kind="pin_checkpoint"):
    """Keep the checkpoint of a step until it is unpinned, or, with `remove`, no longer."""

    run: str
    step: int
    remove: bool = False


class Drill(Request, kind="drill"):
    """Inject a real fault. `step`, `steps`, `strength`, `damage`: of the drills by ranks, bounded by `facts/drills.py`."""

    run: str
    fault: NodeDrill | SignalDrill | RankDrill | Literal["ask-ranks"]
    rank: int | None = None
    node: str | None = None
    # Ask-ranks only: where in the step or save the victim rank dies.
    point: str = ""
    step: int | None = None
    steps: int | None = None
    strength: float | None = None
    damage: str = ""


class ShutDown(Request, kind="shut_down"):
    """Stop all runs, end all agents, then the supervisor."""


class SwapNode(Request, kind="swap_node"):
    """Put a spare in a node's place at the next checkpoint; the node goes to `maintenance`. `spare` None: the nearest that fits."""

    node: str
    spare: str | None = None


class NodeRequest(Request):
    """The fields of a request about one node."""

    node: str


class IsolateNodes(Request, kind="isolate_nodes"):
    """Measure idle nodes alone and in pairs, to find which node or path is bad. None named: all idle ones.

    `python`: the interpreter on the nodes that has torch; "": that of a run.
    """

    nodes: tuple[str, ...] = ()
    python: str = ""


class CheckNodes(Request, kind="check_nodes"):
    """Check idle nodes now, at this level ("": the cluster's)."""

    nodes: tuple[str, ...]
    level: CheckLevel = ""


class DrainNode(NodeRequest, kind="drain_node"):
    """Take a node out of service at the next checkpoint, spare or not; it goes to `maintenance` until it is readmitted."""


class QuarantineNode(NodeRequest, kind="quarantine_node"):
    """Take a bad node out: its hardware is refused, under any name, until it is readmitted."""


class ReadmitNode(NodeRequest, kind="readmit_node"):
    """Readmit a node: it is checked, and then a spare. Its earlier faults no longer count."""


class RetireNode(NodeRequest, kind="retire_node"):
    """Take a node out for good: its hardware is refused for ever."""


class Answer(Value, kind="answer"):
    """The answer to a request, or to an agent that may not join: the register `answer/<id>`, or `answer/<instance id>`."""

    id: str
    state: Literal["open", "done", "refused", "failed"]
    message: str = ""
    run: int | None = None
