"""Lines of the kernel's log of a node without ranks: a spare whose hardware fails is found before it is needed.

A lasting sign of the node's own hardware takes it out of service, as failed checks do. Any other sign that would open an incident
while ranks run has the node checked once it is idle.
"""

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents import diagnosis
from runner.decide.nodes.checks import admission_checks
from runner.facts.messages.records_checks import CheckWanted
from runner.facts.messages.signals import KernelLinesMatched

# Of its own; what it shares with others (storage, a fabric) is the fault of none of them.
OWN = ("gpu", "node")
# Characters of a line in a reason; chosen.
MAX_TEXT = 300


def on_kernel_lines(decision: Decision, lines_read: KernelLinesMatched) -> None:
    """Judge the lines of one node. One that serves by now, without ranks yet, is checked once it is idle again."""
    node = decision.state.nodes.get(lines_read.node)
    if node is None or node.state not in ("spare", "checking", "active"):
        return
    lines = [
        replace(match, node=node.node) for match in lines_read.matches if match.warrants_incident
    ]
    verdict = diagnosis.verdict_on(lines)
    if verdict is None:
        return
    first = verdict.evidence[0]
    evidence = f"{verdict.cause.fault}: {first.text}"[:MAX_TEXT]
    is_own = first.is_lasting and verdict.cause.scope in OWN
    if is_own and node.state != "active":
        admission_checks.found_unfit(
            decision, node, f"{node.node} has a lasting fault without ranks: {evidence}"
        )
    elif not node.check_wanted:
        decision.add(CheckWanted(node=node.node, reason=f"its kernel reports {evidence}"))
