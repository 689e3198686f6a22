"""How long all nodes of a fleet take to be checked at each level, by the supervisor's own controller in virtual time.

The model: N nodes join at once, each on a machine of its own. Each check takes the whole budget of its level, which is more than a
sound node takes, and each answer is a PASS. No more than 64 nodes are checked at a time, so the goal is N / 64 budgets.
"""

import argparse
import heapq
import math
import sys
from collections.abc import Sequence

from bench.report import Report
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.nodes.checks.admission_checks import MAX_AT_ONCE
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages.signals import NodeJoined
from runner.facts.specs.check_levels import BUDGET_SECONDS, LEVELS, Level
from runner.facts.specs.cluster import ClusterSpec

SIZES = (1, 64, 128, 256, 512, 1024)


def take(controller: Controller, fact: object, now: float) -> list[r.ActionIssued]:
    """Handle an input and settle, as the decision log does; return what was issued."""
    issued: list[r.ActionIssued] = []
    while True:
        records = controller.decide(fact, now)
        sequence = controller.state.sequence + 1
        controller.apply(r.JournalEntry(sequence=sequence, now=now, input=fact, records=records))
        issued += [each for each in records if isinstance(each, r.ActionIssued)]
        if not records:
            return issued
        fact = r.Settle()


def seconds_of(num_nodes: int, level: Level) -> tuple[float, int]:
    """Return when the last node has become a spare, and how many nodes were checked at once at most."""
    controller = Controller(Policy(cluster=ClusterSpec(name="c", check_level=level)))
    # When a check ends, and its action.
    running: list[tuple[float, str]] = []
    most, now = 0, 0.0

    def start(issued: Sequence[r.ActionIssued]) -> None:
        nonlocal most
        for each in issued:
            if each.action.args.get("task") == "check":
                heapq.heappush(running, (now + BUDGET_SECONDS[level], each.action.id))
        most = max(most, len(running))

    for number in range(num_nodes):
        joined = NodeJoined(
            node=f"n{number}",
            incarnation=1,
            sequence=1,
            instance_id=f"i{number}",
            hardware=f"board:{number}",
            parts=(f"board:{number}",),
            slots=8,
            address=f"10.0.{number // 250}.{number % 250}",
            pid=1,
        )
        start(take(controller, joined, now))
    detail = {"outcome": "PASS", "checks": [{"check": "clock", "outcome": "PASS"}]}
    while running:
        now, name = heapq.heappop(running)
        answer = ActionResult(id=name, outcome="done", message="PASS", detail=detail)
        start(take(controller, answer, now))
    states = {node.state for node in controller.state.nodes.values()}
    return (now if states == {"spare"} else math.inf), most


def main() -> int:
    """Measure each level for each size; return 1 if a fleet took longer than its rounds."""
    parser = argparse.ArgumentParser(prog="python -m bench.check_levels", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="N")
    given = parser.parse_args()
    report = Report(
        "Seconds of virtual time until N nodes that join at once are checked",
        f"the controller decides, {MAX_AT_ONCE} nodes at a time; each check takes the whole budget of its level; limit: "
        f"one budget for each {MAX_AT_ONCE} nodes or part of them",
    )
    for num_nodes in given.sizes:
        for level in LEVELS:
            found, most = seconds_of(num_nodes, level)
            rounds = math.ceil(num_nodes / MAX_AT_ONCE)
            name = f"{num_nodes} nodes at level {level}, {most} at once"
            report.figure(name, found, "s", at_most=rounds * BUDGET_SECONDS[level])
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
