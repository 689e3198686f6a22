"""The rung that goes back: from a checkpoint before the onset, with other data, another learning rate or other hardware.

All of a rung is done or nothing: what cannot be done, or is out of a ladder's bounds, is refused before anything is, and the next
rung follows. What a rung has changed bears its incident's name, and is taken back if its trial says that it did not help.
"""

from typing import Any, NamedTuple

from runner.decide.decision import Decision
from runner.decide.incidents import trials
from runner.decide.incidents.rungs.orders import order, try_number
from runner.decide.nodes.hardware import record_hardware_fault
from runner.decide.runs import remedies
from runner.decide.runs.rewind import best_before_step, rewind
from runner.decide.state.cluster_state import Incident, Run
from runner.facts.checkpoints import Checkpoint, Trust
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
        else f"there is no checkpoint before step {_onset(run, incident)}"
    )
    changes: list[Change] = []
    if checkpoint is not None:
        changes, problem = _changes(decision, run, incident, rung, checkpoint)
    if not problem and rung.args.get("other_hardware") and _culprit(decision, incident) is None:
        problem = "no node in service is named as culprit"
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
    culprit = _culprit(decision, incident)
    if rung.args.get("other_hardware") and culprit is not None:
        why = f"{incident.fault}: its steps are made again on other hardware"
        decision.move_node(culprit, "lost", why, incident=incident.incident)


def _onset(run: Run, incident: Incident) -> int:
    """Return the first step that was not as it should be; at the earliest the one after the run's start."""
    return max(1, incident.onset or incident.step or run.best_step)


def _checkpoint(run: Run, incident: Incident, rung: Rung) -> Checkpoint | None:
    """Return the checkpoint to go back to: so far before the onset as the rung says, or else the nearest to that before the onset.

    Of those, the newest that is trusted most.
    """
    onset = _onset(run, incident)
    wanted = max(1, onset - int(rung.args.get("before", 0)))
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
    first = remedies.data_position(run, first_step)
    return [Change(SkipSteps.name, ((first, first + length - 1),))]


def _rates(run: Run, rung: Rung, try_number: int) -> list[Change]:
    """Return the learning rate of a rung: each further try of a factor multiplies it again."""
    factor: Any = rung.args.get("lr_factor")
    if rung.args.get("lr") == "reference":
        return [Change(LrPeak.name, run.spec.reference_lr)]
    return [Change(LrFactor.name, float(factor) ** try_number)] if factor is not None else []


def _culprit(decision: Decision, incident: Incident) -> str | None:
    """Return the node that an incident names, if it serves."""
    node = decision.state.nodes.get(incident.node or "")
    return node.node if node is not None and decision.is_in_service(node) else None


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
