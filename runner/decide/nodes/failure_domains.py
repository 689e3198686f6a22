"""Failure domains: if the nodes of a rack, switch or power supply are silent at the same time, the domain is suspected, not a node.

Its nodes are probed like any silent node. A dead one is `lost` with its domain: no hardware fault, no quarantine. Nodes
whose heartbeats resume come back like other lost nodes; one that stays silent long after the first is suspected as usual.
"""

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents.ladder import respond
from runner.decide.nodes.predicates import is_suspect, is_up, live_attempt
from runner.decide.runs.endings import end_attempt
from runner.decide.state.cluster_state import GONE, LAUNCHED, Incident, Node, State
from runner.facts.faults import DomainSilence, Finding
from runner.facts.messages import records as r
from runner.facts.wording import counted

FAULT = "domain_silent"
# From the first heartbeat of a domain's node for the others to follow: machines boot at different speeds, and take minutes.
# Chosen, not measured.
BACK_SECONDS = 600.0


def on_domain_silence(decision: Decision, silence: DomainSilence) -> list[Node]:
    """Record a silent domain as one incident; return its nodes that are to be probed."""
    state = decision.state
    domain = f"{silence.domain} {silence.name}"
    known = [state.nodes[name] for name in silence.nodes if name in state.nodes]
    silent = [node for node in known if node.state not in (*GONE, "absent")]
    before = state.domains_down.get(domain, [])
    if all(node.node in before and node.state == "suspect" for node in silent):
        return []
    names = [node.node for node in silent]
    evidence = f"{domain}: {len(names)} nodes fell silent together, for {silence.silent_seconds:.1f} s at most"
    incident = _incident_of(state, domain)
    if incident is None:
        incident = decision.open_incident(
            Finding(fault=FAULT, evidence=evidence, silent_seconds=silence.silent_seconds),
            fingerprint=f"{FAULT}:{domain}",
        )
    else:
        decision.amend(incident, evidence)
    _record(decision, domain, incident, nodes=tuple(dict.fromkeys((*before, *names))))
    for node in silent:
        if node.state != "suspect" or node.devices_busy:
            decision.move_node(node.node, "suspect", evidence)
    return silent


def domain_of(state: State, node: Node) -> str:
    """Return the domain of this node that is down; "" if none is."""
    return next((name for name, nodes in state.domains_down.items() if node.node in nodes), "")


def give_up(decision: Decision, node: Node, *, evidence: str) -> bool:
    """Give up a dead node with its domain, and end the gang it served; False if no domain of it is down."""
    domain = domain_of(decision.state, node)
    if not domain:
        return False
    incident = _incident_of(decision.state, domain)
    name = incident.incident if incident is not None else None
    if incident is not None:
        decision.amend(incident, evidence)
        if incident.state == "open":
            count = counted(len(decision.state.domains_down[domain]), "node")
            down = (
                f"{domain} is down, with {count}; suspecting the domain, not its nodes ({evidence})"
            )
            respond(decision, replace(incident, condition="node_dead"), reason=down)
    reason = f"{domain} is down"
    decision.move_node(node.node, "lost", reason, incident=name, domain=domain)
    for known in decision.state.live_incidents(fault="node_silent", node=node.node):
        decision.move_incident(known, "resolved", reason)
    attempt = live_attempt(decision, node)
    if attempt is not None and attempt.state in LAUNCHED:
        if incident is not None:
            ended = f"{attempt.attempt} has lost {node.node} with it"
            decision.amend(incident, ended, attempt=attempt.attempt)
        run, outcome = decision.run_of(attempt.attempt), attempt.outcome or "lost"
        end_attempt(decision, run, incident=incident, outcome=outcome, reason=reason)
    return True


def settle(decision: Decision) -> None:
    """Record that a domain comes back, and close it once it is back; nodes still silent then are suspected as usual."""
    state = decision.state
    for domain, names in state.domains_down.items():
        nodes = [state.nodes[name] for name in names]
        away = [node for node in nodes if _is_away(node, domain)]
        since = state.domains_recovering.get(domain)
        if not away:
            reason = "its nodes send heartbeats again, or are out for other reasons"
            _close(decision, domain, reason=reason)
        elif since is not None and decision.now >= since + BACK_SECONDS:
            reason = f"{domain} has been back for {BACK_SECONDS:g} s"
            names_away = ", ".join(node.node for node in away)
            _close(decision, domain, reason=f"{reason}; still away: {names_away}")
            for node in away:
                decision.move_node(node.node, "suspect", f"{reason}, no heartbeat from {node.node}")
        elif since is None and any(node not in away and is_up(node) for node in nodes):
            incident = _incident_of(state, domain)
            _record(decision, domain, incident, nodes=tuple(names), back=True)


def recovery_deadlines(state: State) -> list[float]:
    """Return the deadlines of domains that are coming back."""
    return [since + BACK_SECONDS for since in state.domains_recovering.values()]


def _is_away(node: Node, domain: str) -> bool:
    """Whether a node is still missing from its silent domain: given up with it, or still suspected."""
    return is_suspect(node) or (node.state == "lost" and node.domain_down == domain)


def _close(decision: Decision, domain: str, *, reason: str) -> None:
    incident = _incident_of(decision.state, domain)
    _record(decision, domain, incident)
    if incident is not None:
        decision.move_incident(incident, "resolved", reason)


def _record(
    decision: Decision,
    domain: str,
    incident: Incident | None,
    *,
    nodes: tuple[str, ...] = (),
    back: bool = False,
) -> None:
    kind, _, name = domain.partition(" ")
    about = incident.incident if incident is not None else None
    decision.add(
        r.DomainStateRecorded(domain=kind, name=name, nodes=nodes, incident=about, back=back)
    )


def _incident_of(state: State, domain: str) -> Incident | None:
    return next(state.live_incidents(fault=FAULT, fingerprint=f"{FAULT}:{domain}"), None)
