"""The end of an isolation: bad nodes leave, the others serve again, and people read what was found."""

from collections import Counter

from runner.decide.decision import Decision
from runner.decide.nodes.hardware import may_quarantine, quarantine, record_hardware_fault
from runner.decide.state.cluster_state import Node
from runner.decide.state.isolation import Isolation
from runner.facts.messages import records as r
from runner.facts.messages.isolation import IsolationJudged, Judged, JudgedNode
from runner.facts.wording import join_words

# Characters of a verdict in reasons and pages. Chosen.
MAX_TEXT = 500


def conclude(decision: Decision, isolation: Isolation, judged: Judged) -> None:
    """Judge an isolation: at most as many nodes as may be quarantined without a person are held to be bad hardware.

    One that has left service meanwhile is not blamed: it could not answer.
    """
    decision.add(IsolationJudged(isolation=isolation.isolation, judged=judged))
    bad = {each.node: each for each in judged.nodes if each.verdict == "bad"}
    for name, incarnation in isolation.participants.items():
        node = decision.state.nodes[name]
        if name in bad and decision.is_in_service(node):
            _take_out(decision, isolation, node, bad[name])
        elif node.state == "checking" and node.incarnation == incarnation:
            # One whose agent is another meanwhile has yet to pass its checks.
            decision.move_node(name, "spare", f"isolation {isolation.isolation} is over")
    _keep_apart(decision, isolation, judged)
    text = judged.text
    incident = decision.state.incidents.get(isolation.incident or "")
    if incident is not None and incident.is_live:
        decision.amend(
            incident,
            f"isolation {isolation.isolation}: {text}"[:MAX_TEXT],
            **({"node": next(iter(bad))} if bad else {}),
        )
    request = decision.state.requests.get(isolation.request or "")
    if request is not None and request.state == "open":
        is_done = bool(judged.nodes)
        decision.answer(request, "done" if is_done else "failed", text[:MAX_TEXT])
    if bad or judged.paths or judged.domains:
        decision.page(
            f"isolation {isolation.isolation} ({isolation.reason}): {text}"[:MAX_TEXT],
            run=isolation.run,
            incident=isolation.incident,
            is_new=True,
        )


def _keep_apart(decision: Decision, isolation: Isolation, judged: Judged) -> None:
    """Let the run's next attempt do without one end of each bad path, if it can: of the ends, the one with most bad paths."""
    run = decision.state.runs.get(isolation.run or 0)
    left = [each.nodes for each in judged.paths if each.verdict == "bad"]
    avoid: list[str] = []
    while left:
        num_paths = Counter(node for nodes in left for node in nodes)
        worst = max(num_paths, key=num_paths.__getitem__)
        avoid.append(worst)
        left = [nodes for nodes in left if worst not in nodes]
    if run is not None and run.is_wanted and avoid:
        decision.add(
            r.RetryPlanned(
                run=run.run,
                avoid=tuple(avoid),
                incident=isolation.incident,
                reason=f"starts elsewhere than on {join_words(avoid)}, if it can: bad paths lead there",
            )
        )


def _take_out(decision: Decision, isolation: Isolation, node: Node, found: JudgedNode) -> None:
    name = isolation.isolation
    evidence = f"isolation {name}: its {found.part} is bad: {found.reason}"[:MAX_TEXT]
    if may_quarantine(decision):
        quarantine(decision, node, reason=evidence, incident=isolation.incident)
    else:
        # Out by its name alone: so many at once are more likely to have something else in common.
        decision.move_node(node.node, "quarantined", evidence, incident=isolation.incident)
    record_hardware_fault(
        decision, node, fault="node_unfit", evidence=evidence, incident=isolation.incident
    )
