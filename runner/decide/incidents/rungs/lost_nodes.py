"""A node that leaves service for an incident: a probe found it dead, or a rung puts another in its place."""

from runner.decide.decision import Decision
from runner.decide.incidents.conditions import has_lasting_sign, sure_cause
from runner.decide.nodes.hardware import record_hardware_fault
from runner.decide.state.cluster_state import Incident, Node
from runner.facts.messages import records as r
from runner.facts.messages.records_checks import TargetedCheckWanted


def lose_node(decision: Decision, incident: Incident, node: Node, reason: str) -> None:
    """Take a node out of service; what points at its hardware is held against it."""
    is_probed = incident.condition != "always"
    fault = incident.fault if is_probed else sure_cause(incident) or incident.fault
    name = incident.incident
    if decision.is_in_service(node):
        # One that a probe did not find dead has a live agent: it would be a spare again with its next heartbeat.
        out: r.NodeStateName = "lost" if is_probed else "maintenance"
        decision.move_node(node.node, out, f"{name} {fault}", incident=name)
        if out == "maintenance":
            check_for_cause(decision, incident, node)
        # An agent that hangs says nothing against its hardware.
        if incident.condition == "node_dead" or (not is_probed and has_lasting_sign(incident)):
            record_hardware_fault(
                decision, node, fault=fault, evidence=reason or fault, incident=name
            )


def check_for_cause(decision: Decision, incident: Incident, node: Node) -> None:
    """Have a node that leaves as the culprit checked for the cause, where the cluster wants checks at all."""
    if decision.policy.cluster.wants_checks and node.node not in decision.state.targeted_checks:
        cause = sure_cause(incident) or incident.fault
        decision.add(
            TargetedCheckWanted(
                node=node.node, cause=cause, incident=incident.incident, run=incident.run
            )
        )
