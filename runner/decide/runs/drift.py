"""Drift: an attempt runs with other code, packages, variables or data than the ones before it, and no person approved of that.

Nodes find out while their ranks start, so that no launch waits. The one with rank 0 reports what it has found, all others a digest
of each part; of those that differ some are asked for all of it. An attempt that differs, on whatever node, is ended, and its run
waits for a person.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from runner.decide.decision import Decision
from runner.decide.incidents.attribution import report_failure
from runner.decide.state.cluster_state import RUNNING, Attempt, Run
from runner.facts import launch_conditions
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.faults import Finding, LaunchSurveyed, PartVariant
from runner.facts.messages import records_drift as d
from runner.facts.messages import signals as s
from runner.facts.messages.requests import Request
from runner.facts.wording import join_words

# Nodes of one attempt that are asked for all that they run with; others that differ are named. Chosen.
MAX_ASKED = 4
# Nodes that are named of those that differ alike. Chosen.
MAX_NAMED = 8


class _Differing(NamedTuple):
    part: str
    variant: PartVariant


def on_conditions(decision: Decision, found: s.ConditionsFound) -> None:
    """Record what an attempt runs with on a node; end it if that is not what the run is known to run with."""
    attempt = decision.state.attempt_of(found.attempt)
    if attempt is None or attempt.state == "ended" or found.node not in attempt.nodes:
        return
    run, now = decision.run_of(attempt.attempt), found.conditions
    differing = _differences(run, now)
    decision.add(
        d.ConditionsRecorded(
            attempt=attempt.attempt,
            node=found.node,
            conditions=now,
            differences=differing,
            is_approved=attempt.accepts_drift,
        )
    )
    if differing and not attempt.accepts_drift:
        _refuse(decision, run, attempt, found.node, join_words(differing))


def _differences(run: Run, now: launch_conditions.LaunchConditions) -> tuple[str, ...]:
    if run.conditions is None:
        return ()
    approved = [
        part
        for part, digest in launch_conditions.digests(now).items()
        if digest in run.approved_digests.get(part, ())
    ]
    return launch_conditions.differences(run.conditions, launch_conditions.leave_out(now, approved))


def _refuse(decision: Decision, run: Run, attempt: Attempt, node: str, what: str) -> None:
    if attempt.state not in RUNNING:
        return
    alike = attempt.asked_conditions.get(node, "")
    where = f"{node}, as on {alike}," if alike else node
    evidence = (
        f"{attempt.attempt} on {where} is not the same run: {what}; put it back and "
        f"`stoker restart {run.spec.name}`, or approve it: `stoker restart {run.spec.name} --accept-drift`"
    )
    is_alone = node != attempt.nodes[0] and not alike
    finding = Finding(
        fault="configuration_drift",
        evidence=evidence,
        attempt=attempt.attempt,
        node=node if is_alone else None,
    )
    # Each refused attempt is an incident of its own, with what differed then.
    report_failure(decision, finding, mark=f"{finding.fault}:{attempt.attempt}")


def on_surveyed(decision: Decision, surveyed: LaunchSurveyed) -> None:
    """Compare the nodes of a gang by their digests; ask some of those that differ for the values."""
    attempt = decision.state.attempt_of(surveyed.attempt)
    if attempt is None or attempt.state not in RUNNING:
        return
    found = {part: sorted(one.digest for one in each) for part, each in surveyed.parts.items()}
    if found == attempt.compared:
        # A supervisor that took over has gathered them once more.
        return
    run = decision.run_of(attempt.attempt)
    differing = list(_differing(run, surveyed.parts))
    approved: dict[str, tuple[str, ...]] = {}
    asked: dict[str, str] = {}
    if attempt.accepts_drift:
        for part, variant in differing:
            approved[part] = (*approved.get(part, ()), variant.digest)
    else:
        asked = _to_ask(run, attempt, surveyed.parts, differing)
    decision.add(
        d.NodesCompared(
            attempt=attempt.attempt,
            digests={part: tuple(each) for part, each in found.items()},
            differences=tuple(
                f"{part} of {_named(variant.nodes, variant.num_nodes)}"
                for part, variant in differing
            ),
            asked=asked,
            approved=approved,
            missing=surveyed.missing,
            num_missing=surveyed.num_missing,
        )
    )
    for node in asked:
        work = NodeTask(node=node, task="conditions", generation=attempt.generation)
        reason = f"{node} does not run with what the run is known to run with: in what it differs"
        decision.issue(work, reason, run=run.run)


def _differing(run: Run, parts: Mapping[str, Sequence[PartVariant]]) -> Iterator[_Differing]:
    """Yield what is on some nodes neither what the run is known to run with nor approved."""
    known = launch_conditions.digests(run.conditions) if run.conditions is not None else {}
    for part, variants in parts.items():
        first = variants[0].digest if variants else ""
        counting = (known.get(part, first), *run.approved_digests.get(part, ()))
        for variant in variants:
            if variant.digest not in counting:
                yield _Differing(part, variant)


def _to_ask(
    run: Run,
    attempt: Attempt,
    parts: Mapping[str, Sequence[PartVariant]],
    differing: Sequence[_Differing],
) -> dict[str, str]:
    """Return which nodes to ask for the values, and for each of them the nodes like it."""
    known = launch_conditions.digests(run.conditions) if run.conditions is not None else {}
    asked: dict[str, str] = {}
    for part, variant in differing:
        first = parts[part][0].nodes[0]
        if part not in known and first != attempt.nodes[0]:
            # The node with rank 0, which reports unasked, does not know this part.
            asked.setdefault(first, "")
        asked.setdefault(variant.nodes[0], _named(variant.nodes[1:], variant.num_nodes - 1))
    new = [node for node in asked if node not in attempt.asked_conditions]
    return {node: asked[node] for node in new[: MAX_ASKED - len(attempt.asked_conditions)]}


def _named(nodes: Sequence[str], num_nodes: int) -> str:
    shown = nodes[:MAX_NAMED]
    more = num_nodes - len(shown)
    return " and ".join(part for part in (", ".join(shown), f"{more} more" if more else "") if part)


def on_asked(decision: Decision, action: Action, result: ActionResult) -> None:
    """End an attempt whose node does not say how it differs: that it does is known. The answer of others came before this."""
    work = action.read(NodeTask)
    run = decision.state.runs.get(action.run or 0)
    attempt = run.attempt if run is not None else None
    if run is None or attempt is None or attempt.generation != work.generation:
        return
    if result.outcome != "done" and work.node in attempt.asked_conditions:
        what = f"it has another digest, and its values are not known ({result.message})"
        _refuse(decision, run, attempt, work.node, what)


def accept(decision: Decision, run: int, request: Request) -> None:
    """Let what the next attempt runs with, on each of its nodes, count from then on."""
    accepted = d.DriftAccepted(run=run, by=request.by, request=request.id, reason=request.reason)
    decision.add(accepted)


def carry_over(decision: Decision, run: Run, before: Run) -> None:
    """Compare a run with the one that it goes on from."""
    if before.conditions is not None:
        decision.add(d.ConditionsKept(run=run.run, before=before.run))
