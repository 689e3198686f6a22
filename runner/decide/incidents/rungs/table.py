"""The table of verbs, and those that are a few lines: restart, swap, quarantine, hold, stop, and what waits for a checkpoint."""

from collections.abc import Mapping
from typing import Protocol

from runner.decide.decision import Decision
from runner.decide.incidents.conditions import (
    culprit_node,
    measurable_nodes,
    sure_cause,
    way_out_of,
)
from runner.decide.incidents.rungs.crash_loops import resume_from_older, skip_data
from runner.decide.incidents.rungs.going_back import go_back
from runner.decide.incidents.rungs.lost_nodes import check_for_cause, lose_node
from runner.decide.nodes.hardware import quarantine
from runner.decide.nodes.isolation import driver as isolations
from runner.decide.runs.endings import end_attempt, give_up
from runner.decide.state.cluster_state import Incident
from runner.facts.actions import StartAgent
from runner.facts.faults import fault_kind
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.specs.runbook import Rung, RungVerb


def _start_agent(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    if incident.node is None:
        _restart(decision, incident, rung, reason=reason)
        return
    work = StartAgent(node=incident.node)
    decision.issue(work, reason or incident.fault, incident=incident.incident)


def _stop(decision: Decision, incident: Incident, _: Rung, *, reason: str) -> None:
    cause = incident.cause
    line = cause.lines[0] if cause is not None and cause.lines and sure_cause(incident) else ""
    # Where nothing was tried, the reason is how the rank ended, mostly by this line.
    is_known = line.partition(": ")[2] in reason
    parts = (reason, "" if is_known else line, way_out_of(incident))
    why = "; ".join(part for part in parts if part)
    give_up(decision, incident, reason=why or f"{incident.fault}: the runbook says stop")


def _quarantine(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    node = decision.state.nodes.get(incident.node or "")
    if node is not None:
        quarantine(decision, node, reason=reason or incident.fault, incident=incident.incident)
    _restart(decision, incident, rung, reason=reason)


def _swap(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    node = decision.state.nodes.get(culprit_node(decision.state, incident) or "")
    if node is not None:
        lose_node(decision, incident, node, reason)
    _restart(decision, incident, rung, reason=reason)


def _restart(decision: Decision, incident: Incident, _: Rung, *, reason: str) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is not None:
        end_attempt(decision, run, incident=incident, outcome=fault_kind(incident.fault).outcome)


def _hold(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.hold is not None:
        return
    held = p.RunHeld(run=run.run, hold="person", reason=reason, incident=incident.incident)
    decision.add(held)
    _restart(decision, incident, rung, reason=reason)


def _watch(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    """The run goes on."""


def _swap_at_checkpoint(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    node = decision.state.nodes.get(culprit_node(decision.state, incident) or "")
    if node is not None and node.pending_drain is None and decision.is_in_service(node):
        why = f"{incident.incident} {sure_cause(incident) or incident.fault}"
        decision.add(r.NodeDraining(node=node.node, to="maintenance", reason=why))
        check_for_cause(decision, incident, node)


def _restart_at_checkpoint(
    decision: Decision, incident: Incident, rung: Rung, *, reason: str
) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.attempt is None or "stop" not in run.attempt.requests:
        return
    why = f"{incident.incident} {incident.fault}"
    decision.add(r.RestartWanted(run=run.run, reason=why, incident=incident.incident))


def _isolate(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    run = decision.state.runs.get(incident.run or 0)
    if run is not None:
        isolations.want(
            decision,
            measurable_nodes(decision.state, run),
            reason=f"{incident.incident} {sure_cause(incident) or incident.fault}",
            run=run.run,
            incident=incident.incident,
        )
    _restart(decision, incident, rung, reason=reason)


class RungHandler(Protocol):
    """What a verb does: adds records to the decision. `rung` has its arguments."""

    def __call__(
        self, decision: Decision, incident: Incident, rung: Rung, /, *, reason: str
    ) -> None:
        """Take the rung."""


# What each rung does; the pages name them (`facts/specs/runbook.py`).
RUNGS: Mapping[RungVerb, RungHandler] = {
    "restart": _restart,
    "swap": _swap,
    "start_agent": _start_agent,
    "quarantine": _quarantine,
    "hold": _hold,
    "stop": _stop,
    "watch": _watch,
    "wait": _watch,
    "restart_elsewhere": _restart,
    "swap_at_checkpoint": _swap_at_checkpoint,
    "restart_at_checkpoint": _restart_at_checkpoint,
    "rewind": go_back,
    "isolate": _isolate,
    "skip_data": skip_data,
    "older_checkpoint": resume_from_older,
}
