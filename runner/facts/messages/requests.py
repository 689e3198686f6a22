"""Requests of operators. The client makes the id, so that a request sent twice counts once."""

from typing import Literal

from runner.facts.remedies import RemedyName, RemedyValue
from runner.facts.specs.run import RunSpec
from runner.facts.wire import Value


class Request(Value):
    """The fields of every request. `by`: the operator. `sent_at`: Unix seconds by the command's clock; 0: an older one sent it."""

    id: str
    by: str = ""
    sent_at: float = 0.0


class StartRun(Request, kind="start_run"):
    """Start a run with this spec; its ranks run as `user`, "" for the agents' own."""

    spec: RunSpec
    user: str = ""


class StopRun(Request, kind="stop_run"):
    """Stop a run, given by name or number, for good, sealing a checkpoint first if its ranks can."""

    run: str


class AddRemedy(Request, kind="add_remedy"):
    """Change how a run trains, from its next attempt on. `value`: in the remedy's own unit."""

    run: str
    remedy: RemedyName
    value: RemedyValue


class Drill(Request, kind="drill"):
    """Inject a real fault."""

    run: str
    fault: Literal["kill-rank", "stop-rank", "kill-node", "kill-agent", "ask-ranks"]
    rank: int | None = None
    node: str | None = None
    # Ask-ranks only: where in the step or save the victim rank dies.
    point: str = ""


class ShutDown(Request, kind="shut_down"):
    """Stop all runs, end all agents, then the supervisor."""


class SwapNode(Request, kind="swap_node"):
    """Put a spare in a node's place at the next checkpoint; the node goes to `maintenance`. `spare` None: the nearest that fits."""

    node: str
    spare: str | None = None
    reason: str = ""


class NodeRequest(Request):
    """The fields of a request about one node."""

    node: str
    reason: str = ""


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
