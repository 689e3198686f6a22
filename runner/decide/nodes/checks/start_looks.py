"""Looks beside a start: a node that is new to a run is checked at the passive level while its ranks start.

What it passed earlier lets it start at once, but a spare may have gone bad since. The start does not wait for the look; one that
fails ends the attempt, and another node takes the place.
"""

from runner.decide.decision import Decision
from runner.decide.incidents.attribution import report_failure
from runner.decide.nodes.checks import admission_checks, check_results
from runner.decide.nodes.hardware import may_quarantine, record_hardware_fault
from runner.decide.state.cluster_state import LAUNCHED, Attempt, Node
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.specs.check_levels import BUDGET_SECONDS, LEVELS

# A check that passed so shortly before needs no look; chosen.
FRESH_SECONDS = 300.0
# Of the level's budget: the machine is busy with the start. Chosen, not measured.
SLOWER = 3.0


def begin(decision: Decision, attempt: Attempt) -> None:
    """Have the nodes looked at that are new to the run, where the cluster has a level of checks."""
    if not decision.policy.cluster.check_level:
        return
    for name in attempt.newcomers:
        if _is_fresh(decision, decision.state.nodes[name]):
            continue
        args = {**admission_checks.args_of(decision, LEVELS[0]), "beside": str(attempt.attempt)}
        decision.issue(
            NodeTask(node=name, task="check", args=args),
            f"look at {name} while {attempt.attempt} starts",
            run=attempt.attempt.run,
            deadline_seconds=SLOWER * BUDGET_SECONDS[LEVELS[0]],
        )


def _is_fresh(decision: Decision, node: Node) -> bool:
    checked = node.checked
    has_passed = checked is not None and checked.outcome == "PASS"
    return has_passed and checked is not None and decision.now - checked.at <= FRESH_SECONDS


def on_looked(decision: Decision, action: Action, result: ActionResult) -> None:
    """End an attempt whose start goes on with a node that failed; what is weak or unknown ends nothing."""
    work = action.read(NodeTask)
    attempt = decision.state.attempt_of(AttemptId.parse(str(work.args["beside"])))
    node = decision.state.nodes.get(work.node)
    found = check_results.read(result)
    if attempt is None or attempt.state not in LAUNCHED or node is None:
        return
    if found.outcome != "FAIL" or found.is_weak or node.attempt != attempt.attempt:
        return
    evidence = f"{node.node} failed checks as its ranks started: {admission_checks.summary(result)}"
    if not may_quarantine(decision):
        decision.page(
            f"{evidence}; it goes on with its ranks, since others were quarantined without a person already: "
            f"`stoker swap {node.node}` takes it out",
            run=attempt.attempt.run,
        )
        return
    finding = Finding(
        fault="node_unfit", evidence=evidence, node=node.node, attempt=attempt.attempt
    )
    report_failure(decision, finding, mark=f"node_unfit:{node.node}")
    record_hardware_fault(decision, node, fault="node_unfit", evidence=evidence)
