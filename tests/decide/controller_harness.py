"""A controller that a test feeds fact by fact."""

from typing import Any

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import Attempt, State
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.requests import StartRun
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.specs.run import RunSpec
from tests.decide.scenario import runbooks

CLUSTER = ClusterSpec(name="c", state="s", local=LocalNodes(nodes=2, slots=2), checks=())


class ControllerHarness:
    """A controller whose agents a test plays."""

    def __init__(self) -> None:
        self.controller = Controller(Policy(cluster=CLUSTER, runbooks=runbooks()))
        self.sequence = 0
        self.now = 0.0
        self.take(r.SupervisorStarted(holder="h", token=1, version="0", nodes=("n1", "n2")))

    @property
    def state(self) -> State:
        """The controller's state."""
        return self.controller.state

    def take(self, fact: object) -> list[object]:
        """Handle one input; return the decided records."""
        self.now += 1.0
        self.sequence += 1
        records = self.controller.decide(fact, self.now)
        entry = r.JournalEntry(sequence=self.sequence, now=self.now, input=fact, records=records)
        self.controller.apply(entry)
        return list(records)

    def join(self, node: str, instance_id: str, **fields: Any) -> list[object]:
        """Let an agent ask to join under a name."""
        given = {"incarnation": 1, "hardware": f"board:{node}", "slots": 2, "address": "", "pid": 1}
        return self.take(s.NodeJoined(node=node, instance_id=instance_id, **{**given, **fields}))

    def settle(self) -> list[object]:
        """Let the controller settle until it decides nothing more; return all its records."""
        found: list[object] = []
        while records := self.take(r.Settle()):
            found += records
        return found


def training_harness(**spec: Any) -> ControllerHarness:
    """Return a harness with one run of two nodes and four ranks, unless `spec` says otherwise, which is up."""
    harness = started_harness(**spec)
    launch(harness)
    return harness


def started_harness(**spec: Any) -> ControllerHarness:
    """Return the same, its first attempt yet to be prepared."""
    harness = ControllerHarness()
    for node in ("n1", "n2"):
        harness.join(node, instance_id=f"agent-{node}", slots=spec.get("ranks_per_node", 2))
    given = {"name": "a", "nodes": 2, "ranks_per_node": 2, "command": ("true",)}
    run = RunSpec(**{**given, "working_directory": "/", **spec})
    harness.take(StartRun(id="q1", by="me", spec=run))
    return harness


def assign(harness: ControllerHarness) -> Attempt:
    """Carry out all actions until the next gang has its assignments; return its attempt."""
    harness.settle()
    for _ in range(3):
        for action in list(harness.state.actions.values()):
            detail = {"port": 29500, "address": "127.0.0.1"}
            harness.take(ActionResult(id=action.action.id, outcome="done", detail=detail))
        harness.settle()
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    return attempt


def launch(harness: ControllerHarness) -> Attempt:
    """Carry out all actions until the next gang is up; return its attempt."""
    attempt = assign(harness)
    for node in attempt.nodes:
        harness.take(ranks_started(attempt, node))
    harness.settle()
    assert attempt.state == "running"
    return attempt


def ranks_started(attempt: Attempt, node: str) -> s.RanksStarted:
    """Make the signal that a node has started its ranks."""
    generation, name = attempt.generation, attempt.attempt
    return s.RanksStarted(node=node, incarnation=1, generation=generation, attempt=name)


def exited(harness: ControllerHarness, *, node: str, rank: int, **fields: Any) -> s.RankExited:
    """Make the signal that a rank of the run's attempt has died."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    given = {"generation": attempt.generation, "attempt": attempt.attempt, "exit_code": 1}
    return s.RankExited(node=node, incarnation=1, rank=rank, **{**given, **fields})


def kinds(records: list[object]) -> list[str]:
    """Name the kinds of records."""
    return [type(record).__name__ for record in records]
