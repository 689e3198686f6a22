"""The rung that goes back: from a checkpoint before the onset, with other data, another learning rate or other hardware.

All of a rung is done or nothing: what cannot be done, or is out of a ladder's bounds, is refused before anything is, and the next
rung follows. What a rung has changed bears its incident's name, and is taken back if its trial says that it did not help.
"""

from typing import Any, NamedTuple

from runner.decide.decision import Decision
from runner.decide.incidents import trials
from runner.decide.incidents.conditions import idle_spares
from runner.decide.incidents.rungs.orders import order, try_number
from runner.decide.nodes.hardware import record_hardware_fault
from runner.decide.runs import remedies
from runner.decide.runs.rewind import best_before_step, rewind
from runner.decide.state.cluster_state import Incident, Run
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.messages import records as r
from runner.facts.remedies import REMEDIES, LrFactor, LrPeak, RemedyValue, SkipSteps
from runner.facts.specs.runbook import Rung

# The first of them for which the run has a checkpoint: a young run has none that is proven.
PREFERRED = (Trust.PROVEN, Trust.HEALTHY, Trust.FINITE, Trust.INTACT, Trust.COMMITTED)


class Change(NamedTuple):
    """A remedy that a rung orders."""

    name: str
    value: RemedyValue


def go_back(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    """Take the rung, or write down why it cannot be taken."""
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.attempt is None:
        return
    checkpoint = _checkpoint(run, incident, rung)
    problem = (
        ""
        if checkpoint is not None
        else f"there is no checkpoint before step {_onset(run, incident)}{_with_scale(rung)}"
    )
    changes: list[Change] = []
    if checkpoint is not None:
        changes, problem = _changes(decision, run, incident, rung, checkpoint)
    leaving = _leaving(decision, incident, rung)
    problem = problem or _hardware_problem(decision, run, rung, leaving)
    if not problem and checkpoint is not None:
        why = f"{incident.incident} {incident.fault}: {reason}"[:300]
        at = checkpoint.step + 1
        least = checkpoint.trust
        problem = rewind(decision, run, before_step=at, least=least, reason=why, incident=incident)
    if problem:
        trials.give_up_rung(decision, incident, f"{rung.do}: {problem}")
        return
    for change in changes:
        refusal = order(
            decision, run, incident, name=change.name, value=change.value, reason=reason
        )
        if refusal:
            # It has had too many.
            decision.amend(incident, refusal)
    # Unknown is not healthy: without checks a person says when it may come back.
    out: r.NodeStateName = "checking" if decision.policy.cluster.wants_checks else "maintenance"
    for node in leaving:
        why = f"{incident.fault}: its steps are made again without it"
        decision.move_node(node, out, why, incident=incident.incident)


def _with_scale(rung: Rung) -> str:
    least = rung.args.get("scale_at_least")
    if least is None:
        return ""
    return f" with a loss scale of {least:g} or more, after which the activation norms fell"


def _onset(run: Run, incident: Incident) -> int:
    """Return the first step that was not as it should be; at the earliest the one after the run's start."""
    return max(1, incident.onset or incident.step or run.best_step)


def _checkpoint(run: Run, incident: Incident, rung: Rung) -> Checkpoint | None:
    """Return the checkpoint to go back to: so far before the onset as the rung says, or else the nearest to that before the onset.

    Of those, the newest that is trusted most.
    """
    onset = _onset(run, incident)
    wanted = max(1, onset - int(rung.args.get("before", 0)))
    if "scale_at_least" in rung.args:
        return _newest_with_scale(run, wanted, least=float(rung.args["scale_at_least"]))
    for least in PREFERRED:
        found = best_before_step(run, wanted, least)
        if found is not None:
            return found
    later = [
        one
        for one in run.checkpoints
        if one.step < onset and one.trust in PREFERRED and not run.is_set_aside(one)
    ]
    return later[0] if later else None


def _newest_with_scale(run: Run, before_step: int, *, least: float) -> Checkpoint | None:
    """Return the newest checkpoint that was sealed with such a loss scale, and after which the activation norms fell.

    OPT-175B's rule for the checkpoint to go back to. What was not reported is not known to be so; norms that nothing reports are
    not asked for.
    """
    known = [one for one in run.checkpoints if one.trust in PREFERRED and not run.is_set_aside(one)]
    for place, one in reversed(list(enumerate(known))):
        later = known[place + 1] if place + 1 < len(known) else None
        norm, after = one.activation_norm, later.activation_norm if later is not None else None
        has_fallen = norm is None or (after is not None and after < norm)
        has_scale = one.loss_scale is not None and one.loss_scale >= least
        if one.step < before_step and has_scale and has_fallen:
            return one
    return None


def _changes(
    decision: Decision, run: Run, incident: Incident, rung: Rung, checkpoint: Checkpoint
) -> tuple[list[Change], str]:
    """Return the remedies of a rung, and why one of them may not be had; "" when all may."""
    wanted = [*_skipped(run, incident, rung, checkpoint), *_rates(run, rung, try_number(decision))]
    if rung.args.get("lr") == "reference" and not run.spec.reference_lr:
        return [], f"run.yaml of {run.spec.name!r} gives no reference_lr"
    for name, value in wanted:
        kind = REMEDIES[name]
        problem = remedies.problem(run, kind, value, resume_step=checkpoint.step)
        problem = problem or remedies.automatic_problem(run, kind, value)
        if problem:
            return [], problem
    return wanted, ""


def _skipped(run: Run, incident: Incident, rung: Rung, checkpoint: Checkpoint) -> list[Change]:
    """Return the data around the onset that is left out: from `before` steps ahead of it on, as far as `skip` says."""
    length = int(rung.args.get("skip", 0))
    if not length:
        return []
    first_step = max(checkpoint.step + 1, _onset(run, incident) - int(rung.args.get("before", 0)))
    # What an earlier rung left out is taken back: the onset's data is where it was before.
    first = remedies.data_position(run, first_step, without=incident.incident)
    return [Change(SkipSteps.name, ((first, first + length - 1),))]


def _rates(run: Run, rung: Rung, try_number: int) -> list[Change]:
    """Return the learning rate of a rung: each further try of a factor multiplies it again."""
    factor: Any = rung.args.get("lr_factor")
    if rung.args.get("lr") == "reference":
        return [Change(LrPeak.name, run.spec.reference_lr)]
    return [Change(LrFactor.name, float(factor) ** try_number)] if factor is not None else []


def _leaving(decision: Decision, incident: Incident, rung: Rung) -> list[str]:
    """Return the nodes in service that a rung takes out: the one that is named, else all that are suspect."""
    if not (rung.args.get("other_hardware") or rung.args.get("test_suspects")):
        return []
    names = (incident.node,) if incident.node is not None else incident.suspects
    nodes = [decision.state.nodes[name] for name in names if name in decision.state.nodes]
    return [node.node for node in nodes if decision.is_in_service(node)]


def _hardware_problem(decision: Decision, run: Run, rung: Rung, leaving: list[str]) -> str:
    """Return why nodes cannot be left out; "" when they can, or none is to be."""
    if not (rung.args.get("other_hardware") or rung.args.get("test_suspects")):
        return ""
    if not leaving:
        return "no node in service is named as culprit"
    if rung.args.get("test_suspects") and not decision.policy.cluster.wants_checks:
        return f"`checks` in cluster.yaml names none that {' and '.join(leaving)} could pass"
    num_idle = len(idle_spares(decision.state, run))
    if rung.args.get("other_hardware") and num_idle < len(leaving):
        return f"{' and '.join(leaving)} would leave, and {num_idle} checked spares are idle"
    return ""


def attribute_to_hardware(decision: Decision, incident: Incident) -> None:
    """Hold a fault that was gone on other hardware against the hardware that it was on."""
    book = decision.policy.page_for(incident)
    node = decision.state.nodes.get(incident.node or "")
    if book is None or node is None or not 0 <= incident.rung < len(book.ladder):
        return
    if incident.runbook == book.name and book.ladder[incident.rung].args.get("other_hardware"):
        evidence = "; ".join((incident.evidence[0], "gone on other hardware"))
        name, fault = incident.incident, incident.fault
        record_hardware_fault(decision, node, fault=fault, evidence=evidence, incident=name)
