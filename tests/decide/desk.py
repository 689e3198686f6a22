"""A controller to which a test reports, fact by fact."""

from __future__ import annotations

from typing import Any

from runner.decide.controller import Controller
from runner.decide.draft import Policy
from runner.decide.state import State
from runner.facts import records as r
from runner.facts import signals as s
from runner.facts.cluster_spec import ClusterSpec, LocalNodes
from tests.decide.script import runbooks

CLUSTER = ClusterSpec(name="c", state="s", local=LocalNodes(nodes=2, slots=2), checks=())


class Desk:
    """A controller to which agents report in."""

    def __init__(self) -> None:
        self.controller = Controller(Policy(cluster=CLUSTER, runbooks=runbooks()))
        self.sequence = 0
        self.now = 0.0
        self.take(r.SupervisorStarted(holder="h", token=1, version="0", nodes=("n1", "n2")))

    @property
    def state(self) -> State:
        """What is known."""
        return self.controller.state

    def take(self, fact: object) -> list[object]:
        """Take something in, and return what was decided."""
        self.now += 1.0
        self.sequence += 1
        records = self.controller.decide(fact, self.now)
        entry = r.JournalEntry(sequence=self.sequence, now=self.now, input=fact, records=records)
        self.controller.apply(entry)
        return list(records)

    def join(self, node: str, life: str, **fields: Any) -> list[object]:
        """Let an agent ask for a name."""
        given = {"incarnation": 1, "hardware": f"board:{node}", "slots": 2, "address": "", "pid": 1}
        return self.take(s.NodeJoined(node=node, life=life, **{**given, **fields}))

    def settle(self) -> list[object]:
        """Ask what follows until nothing more does, and return all of it."""
        found: list[object] = []
        while records := self.take(r.Settle()):
            found += records
        return found


def kinds(records: list[object]) -> list[str]:
    """Name the kinds of records."""
    return [type(record).__name__ for record in records]
