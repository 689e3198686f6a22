"""Rungs for gangs that die in the same way again and again: leave the data of that step out, or resume from an older checkpoint.

The gang is dead: both restart it, and a step beyond the furthest one shows that it helped. What a ladder may leave out, and whether
the trainer can, is checked as for any remedy; where it is refused the restart happens without it.
"""

from runner.decide.decision import Decision
from runner.decide.incidents.rungs.orders import order, try_number
from runner.decide.runs import remedies
from runner.decide.runs.endings import end_attempt
from runner.decide.runs.rewind import rewind
from runner.decide.state.cluster_state import Incident, Run
from runner.facts.checkpoints import Trust
from runner.facts.faults import fault_kind
from runner.facts.remedies import SkipSteps
from runner.facts.specs.runbook import Rung


def skip_data(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    """Restart without the data of the step after the last one that was done."""
    run = decision.state.runs.get(incident.run or 0)
    if run is None:
        return
    failed = incident.failures[-1].step if incident.failures else None
    if failed is not None:
        _leave_out(decision, run, incident, rung, step=failed + 1)
    end_attempt(decision, run, incident=incident, outcome=fault_kind(incident.fault).outcome)


def _leave_out(decision: Decision, run: Run, incident: Incident, rung: Rung, *, step: int) -> None:
    """Order the remedy: what an earlier try has left out stays so, and `step` reads what follows it."""
    first = remedies.data_position(run, step)
    length = num_skipped(rung, try_number(decision))
    refusal = order(
        decision,
        run,
        incident,
        name=SkipSteps.name,
        value=((first, first + length - 1),),
        reason=f"step {step} fails again and again",
    )
    if refusal:
        decision.amend(incident, f"no data is left out: {refusal}")


def num_skipped(rung: Rung, try_number: int) -> int:
    """Return how many data steps a try leaves out; the last number that the rung states counts for all later ones."""
    given = rung.args.get("steps", 1)
    counts = tuple(given) if isinstance(given, list | tuple) else (given,)
    return int(counts[min(try_number, len(counts)) - 1])


def resume_from_older(decision: Decision, incident: Incident, rung: Rung, *, reason: str) -> None:
    """Restart from the checkpoint before the one that failed; the same one, if there is no older."""
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.attempt is None:
        return
    outcome = fault_kind(incident.fault).outcome
    why = f"{incident.incident} {incident.fault}: {reason}"[:300]
    problem = rewind(
        decision,
        run,
        before_step=run.attempt.resume_step,
        least=Trust.COMMITTED,
        reason=why,
        incident=incident,
        outcome=outcome,
    )
    if problem:
        decision.amend(incident, f"{rung.do}: {problem}")
        end_attempt(decision, run, incident=incident, outcome=outcome)
