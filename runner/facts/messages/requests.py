"""Requests of operators. The client makes the id, so that a request sent twice counts once."""

from __future__ import annotations

from typing import Literal

from runner.facts.remedies import RemedyName
from runner.facts.specs.run import RunSpec
from runner.facts.wire import Value


class Request(Value):
    """The fields of every request. `by`: the operator."""

    id: str
    by: str = ""


class StartRun(Request, kind="start_run"):
    """Start a run with this spec."""

    spec: RunSpec
    # Whose ranks they will be; "": the agents'.
    user: str = ""


class StopRun(Request, kind="stop_run"):
    """Stop a run for good, sealing a checkpoint first if its ranks can."""

    # Name or number.
    run: str


class AddRemedy(Request, kind="add_remedy"):
    """Change how a run trains, from its next attempt on. `value`: in the remedy's own unit."""

    run: str
    remedy: RemedyName
    value: float


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


class DrainNode(Request, kind="drain_node"):
    """Take a node out of service at the next checkpoint, spare or not; it goes to `maintenance` until it is readmitted."""

    node: str
    reason: str = ""


class QuarantineNode(Request, kind="quarantine_node"):
    """Take a bad node out: its hardware is refused, under any name, until it is readmitted."""

    node: str
    reason: str = ""


class ReadmitNode(Request, kind="readmit_node"):
    """Readmit a node: it is checked, and then a spare. Its earlier faults no longer count."""

    node: str
    reason: str = ""


class RetireNode(Request, kind="retire_node"):
    """Take a node out for good: its hardware is refused for ever."""

    node: str
    reason: str = ""


class Answer(Value, kind="answer"):
    """The answer to a request: the register `answer/<id>`."""

    id: str
    state: Literal["open", "done", "refused", "failed"]
    message: str = ""
    run: int | None = None
