"""Conditions: what a rung of a page may ask of an incident. One table: name, meaning, parameter and predicate. Pure.

docs/runbooks.md is printed from it. To add one: a predicate and its row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from runner.decide.placement.launch_plans import is_usable
from runner.decide.state.cluster_state import GONE, Incident, Run, State
from runner.facts.causes import CulpritKind, Failure
from runner.facts.checkpoints import Trust
from runner.facts.faults import FAULTS, fault_kind
from runner.facts.matches import Scope
from runner.facts.remedies import REMEDIES
from runner.facts.specs.runbook import Parameter, Rung
from runner.rootcause.fingerprints import masked
from runner.rootcause.missing_programs import way_out

# Of a cause, before a page acts by it: a guess by a launcher's line, or a line that no signature knows, has less
# (`rootcause/correlation.py`). Chosen.
LEAST_CONFIDENCE = 0.55

Predicate = Callable[[State, Incident, Any], bool]


class Condition(NamedTuple):
    """What must hold before a rung is taken."""

    meaning: str
    parameter: Parameter
    holds: Predicate


def sure_cause(incident: Incident) -> str:
    """Return the fault that explains an incident well enough to act by it; "" when none does."""
    cause = incident.cause
    return cause.fault if cause is not None and cause.confidence >= LEAST_CONFIDENCE else ""


def culprit_node(state: State, incident: Incident) -> str | None:
    """Return the node that is at fault: what a probe found, else what the cause names, else where the first rank died."""
    cause = incident.cause
    if cause is None or not sure_cause(incident) or incident.condition != "always":
        return incident.node
    if cause.culprit is not None and cause.culprit.kind == "node":
        return cause.culprit.id if cause.culprit.id in state.nodes else incident.node
    return (cause.node if cause.scope in ("gpu", "node") else "") or incident.node


def has_new_culprit(incident: Incident) -> bool:
    """Whether the newest failure is that of another node than the one before, and more than where the first rank died says so."""
    cause = incident.cause
    is_named = incident.condition == "node_dead" or (
        cause is not None and sure_cause(incident) != "" and cause.scope in ("gpu", "node")
    )
    if not is_named or incident.answered in (None, incident.attempt) or len(incident.failures) < 2:
        return False
    before, newest = (failure.node for failure in incident.failures[-2:])
    return None not in (before, newest) and before != newest


def has_lasting_sign(incident: Incident) -> bool:
    """Whether a line of the incident's cause says that it will be the same again."""
    fault = sure_cause(incident) or incident.fault
    return any(match.is_lasting and match.fault == fault for match in incident.matches)


def _names(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _cause(_: State, incident: Incident, given: Any) -> bool:
    return sure_cause(incident) in _names(given)


def _scope(_: State, incident: Incident, given: Any) -> bool:
    cause = incident.cause
    is_sure = cause is not None and sure_cause(incident) != ""
    scope = cause.scope if cause is not None and is_sure else fault_kind(incident.fault).scope
    return scope in _names(given)


def _culprit(_: State, incident: Incident, given: Any) -> bool:
    cause = incident.cause
    kinds: list[str] = (
        [cause.culprit.kind] if cause is not None and cause.culprit is not None else []
    )
    if incident.rank is not None:
        kinds.append("rank")
    if incident.node is not None or incident.suspects:
        kinds.append("node")
    return any(kind in _names(given) for kind in kinds or ["none"])


def _lasting_sign(_: State, incident: Incident, given: Any) -> bool:
    return has_lasting_sign(incident) is given


def _probe(_: State, incident: Incident, given: Any) -> bool:
    return incident.condition in _names(given)


def _newest(incident: Incident) -> tuple[list[Failure], Failure]:
    """Return the earlier failures of an incident, and the newest one."""
    failures = incident.failures or [Failure(attempt=incident.attempt, node=incident.node)]
    return failures[:-1], failures[-1]


def _same_fingerprint(_: State, incident: Incident, given: Any) -> bool:
    return len(_newest(incident)[0]) >= int(given)


def _same_step(_: State, incident: Incident, given: Any) -> bool:
    earlier, newest = _newest(incident)
    same = [one for one in earlier if one.step == newest.step]
    # 0: of an attempt that made none, or reports none, it is not known where it was.
    return bool(newest.step) and len(same) >= int(given)


def _same_node(_: State, incident: Incident, given: Any) -> bool:
    earlier, newest = _newest(incident)
    same = [one for one in earlier if one.node == newest.node]
    return newest.node is not None and len(same) >= int(given)


def _same_checkpoint(_: State, incident: Incident, given: Any) -> bool:
    earlier, newest = _newest(incident)
    same = [one for one in earlier if one.checkpoint == newest.checkpoint]
    return bool(newest.checkpoint) and len(same) >= int(given)


def _older_checkpoint(state: State, incident: Incident, given: Any) -> bool:
    run = state.runs.get(incident.run or 0)
    step = run.attempt.resume_step if run is not None and run.attempt is not None else 0
    is_left = run is not None and any(
        known.step < step and known.trust is not Trust.REFUSED and not run.is_set_aside(known)
        for known in run.checkpoints
    )
    return is_left is given


def _trainer_applies(state: State, incident: Incident, given: Any) -> bool:
    run = state.runs.get(incident.run or 0)
    return run is not None and all(name in run.supported_remedies for name in _names(given))


def _on_nodes(_: State, incident: Incident, given: Any) -> bool:
    nodes = dict.fromkeys(one.node for one in incident.failures if one.node is not None)
    return len(nodes) >= int(given)


def idle_spares(state: State, run: Run) -> list[str]:
    """Return the spares that have passed their checks, that a run fits on, and that it does not have."""
    own = run.attempt.nodes if run.attempt is not None else []
    return [
        node.node
        for node in state.nodes.values()
        if node.state == "spare"
        and not node.unchecked
        and node.node not in own
        and is_usable(state, node, run.spec)
    ]


def _spare_is_idle(state: State, incident: Incident, given: Any) -> bool:
    run = state.runs.get(incident.run or 0)
    return (run is not None and bool(idle_spares(state, run))) is given


def measurable_nodes(state: State, run: Run) -> list[str]:
    """Return the nodes of a run and idle spares, one of each machine: two on one machine would measure each other's load."""
    own = run.attempt.nodes if run.attempt is not None else []
    in_service = [name for name in own if state.nodes[name].state not in GONE]
    spares = [
        node.node
        for node in state.nodes.values()
        if node.state == "spare" and node.pending_drain is None
    ]
    return one_of_each_machine(state, [*in_service, *spares])


def one_of_each_machine(state: State, names: Sequence[str]) -> list[str]:
    """Return the first node of each machine, by its address."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(state.nodes[name].address or name, name)
    return list(first.values())


def _machines(state: State, incident: Incident, given: Any) -> bool:
    run = state.runs.get(incident.run or 0)
    return run is not None and len(measurable_nodes(state, run)) >= int(given)


def _one_machine(state: State, incident: Incident, given: Any) -> bool:
    run = state.runs.get(incident.run or 0)
    return (run is not None and len(measurable_nodes(state, run)) < 2) is given


def way_out_of(incident: Incident) -> str:
    """Return what to do about a program, a script or a module that is not there; "" where no line says so."""
    lines = (*incident.evidence, *(match.text for match in incident.matches))
    return next((text for text in map(way_out, lines) if text), "")


def _program_missing(_: State, incident: Incident, given: Any) -> bool:
    return (way_out_of(incident) != "") is given


def _made_no_step(_: State, incident: Incident, given: Any) -> bool:
    return (not _newest(incident)[1].steps_made) is given


def _never_stepped(state: State, incident: Incident, given: Any) -> bool:
    run = state.runs.get(incident.run or 0)
    if run is None or run.attempt is None:
        return given is False
    configuration = run.attempt.attempt.configuration
    return (run.best_step == 0 or 0 < run.stepped_configuration < configuration) is given


def _ranks_share_traceback(_: State, incident: Incident, given: Any) -> bool:
    fault = sure_cause(incident)
    ranks: dict[str, dict[int, None]] = {}
    for match in incident.matches:
        if match.fault == fault and match.rank is not None:
            ranks.setdefault(masked(match.text), {})[match.rank] = None
    return any(len(of_text) >= int(given) for of_text in ranks.values())


def _gang_died(_: State, incident: Incident, given: Any) -> bool:
    return (not incident.non_fatal) is given


_FLAG, _COUNT = Parameter("flag"), Parameter("count")

CONDITIONS: Mapping[str, Condition] = {
    "cause": Condition(
        "the cause that the lines name, surely enough to act by, is one of these faults",
        Parameter("names", tuple(FAULTS), "a fault"),
        _cause,
    ),
    "scope": Condition(
        "what is at fault, by the cause, else by the fault itself",
        Parameter("names", get_args(Scope)),
        _scope,
    ),
    "culprit": Condition(
        "what is named as culprit; `none`: neither a rank nor a GPU nor a node is",
        Parameter("names", (*get_args(CulpritKind), "none")),
        _culprit,
    ),
    "lasting_sign": Condition(
        "a line says that it will be the same again on this hardware, or with these settings",
        _FLAG,
        _lasting_sign,
    ),
    "probe": Condition(
        "what a probe found: only the agent is gone, or the node is",
        Parameter("names", ("agent_only", "node_dead")),
        _probe,
    ),
    "same_fingerprint": Condition(
        "so many earlier attempts failed in the same way, without a new step since",
        _COUNT,
        _same_fingerprint,
    ),
    "same_step": Condition(
        "of these, so many failed after the same step as the newest", _COUNT, _same_step
    ),
    "same_node": Condition(
        "of these, so many failed on the same node as the newest", _COUNT, _same_node
    ),
    "same_checkpoint": Condition(
        "of these, so many had resumed from the same checkpoint as the newest",
        _COUNT,
        _same_checkpoint,
    ),
    "older_checkpoint": Condition(
        "there is an older checkpoint than the one that the attempt had resumed from",
        _FLAG,
        _older_checkpoint,
    ),
    "trainer_applies": Condition(
        "the run's trainer applies these remedies: its hello names them, or its command has their placeholders",
        Parameter("names", tuple(REMEDIES)),
        _trainer_applies,
    ),
    "on_nodes": Condition("it happened on so many different nodes", _COUNT, _on_nodes),
    "spare_is_idle": Condition(
        "a spare that passed its checks, and that the run fits on, has nothing to do",
        _FLAG,
        _spare_is_idle,
    ),
    "machines": Condition(
        "the run's nodes and idle spares are on so many different machines", _COUNT, _machines
    ),
    "one_machine": Condition(
        "the run's nodes and idle spares are all on one machine", _FLAG, _one_machine
    ),
    "program_missing": Condition(
        "a line says that the program, the script or a module is not there",
        _FLAG,
        _program_missing,
    ),
    "made_no_step": Condition("the attempt that failed had made no step", _FLAG, _made_no_step),
    "never_stepped": Condition(
        "no attempt with the run's present settings has made a step", _FLAG, _never_stepped
    ),
    "ranks_share_traceback": Condition(
        "so many ranks ended with the same line", _COUNT, _ranks_share_traceback
    ),
    "gang_died": Condition(
        "the incident ended the gang; `false`: the run goes on with it", _FLAG, _gang_died
    ),
}


def applies(rung: Rung, state: State, incident: Incident) -> bool:
    """Whether all conditions of a rung hold."""
    return all(CONDITIONS[name].holds(state, incident, given) for name, given in rung.when.items())
