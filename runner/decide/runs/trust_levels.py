"""The levels above intact, in one place. N is `proven_steps` of the run.

- *finite*: a node has looked at all floating-point tensors of all its files, and none holds a NaN or an infinity that is not legal
  (`checkpoints/finite`).
- *healthy*: finite, and no incident that is in the weights was live with an onset at or before its step when it was sealed, when it
  was verified, or at any time since. One that is found so once is in doubt for good, however the incident ends.
- *proven*: healthy, and the run has made N steps that follow from it (`Run.line`), the last N in a row without such an incident. An
  onset that is found later, at or before its step + N, takes that away until N steps were made again.
- *refused*: damaged, not finite, or two attempts that resumed from it died before their first step, unless it is the last one.

An incident is in the weights if a trial of the run's steps ends it (`FaultKind.on_trial`), or replicas disagree. An infrastructure
incident resumes from the newest that is finite, healthy or not: which of them to leave is for the ladder of a numeric one to say,
by a rewind to the newest proven before the onset.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.runs import checkpoint_trust
from runner.decide.state.cluster_state import Attempt, Incident, Run
from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.messages.records_checkpoints import CheckpointJudged

# Deaths before the first step after which a checkpoint is not tried again: the first may have another cause. From the issue.
MAX_DEATHS = 2
# What such a death may be: a node that is gone says nothing of what it loaded.
_DEATHS = ("crashed", "hung")
# Of causes that say it was not what the ranks loaded.
_ELSEWHERE = ("node", "gpu", "fabric", "storage", "scheduler")


def onsets(decision: Decision, run: Run) -> Iterator[Incident]:
    """Yield the incidents that are in the weights of a run now."""
    for incident in decision.state.live_incidents(run=run.run):
        if incident.is_in_weights and decision.is_live(incident):
            yield incident


def settle(decision: Decision) -> None:
    """Take from checkpoints what an onset takes from them, whenever either of them was found."""
    for incident in decision.state.live_incidents():
        run = decision.state.runs.get(incident.run or 0)
        if run is None or incident.onset is None or not incident.is_in_weights:
            continue
        for known in run.checkpoints:
            if known.trust is not Trust.REFUSED and not run.is_set_aside(known):
                _doubt(decision, run, known, incident, onset=incident.onset)


def _doubt(
    decision: Decision, run: Run, known: Checkpoint, incident: Incident, *, onset: int
) -> None:
    what = f"{incident.incident} {incident.fault} from step {onset} on"
    judged = CheckpointJudged(run=run.run, path=known.path, step=known.step, reason=what)
    if known.step >= onset and not known.doubt:
        trust = Trust.FINITE if known.is_at_least(Trust.HEALTHY) else None
        decision.add(replace(judged, trust=trust, doubt=what))
    elif known.trust is Trust.PROVEN and onset <= known.step + run.spec.proven_steps:
        decision.add(replace(judged, trust=Trust.HEALTHY))


def level_when_finite(decision: Decision, run: Run, known: Checkpoint) -> Trust:
    """Return how far a checkpoint is trusted that has just been found finite."""
    is_sick = any((incident.onset or 0) <= known.step for incident in onsets(decision, run))
    if known.doubt or is_sick:
        return Trust.FINITE
    return known.trust if known.is_at_least(Trust.HEALTHY) else Trust.HEALTHY


def on_steps(decision: Decision, run: Run, attempt: Attempt, step: int) -> None:
    """Take what N steps prove: those of this attempt, which has just made `step`."""
    if run.was_left(attempt.attempt):
        return
    until = step - run.spec.proven_steps
    proven = [
        known
        for known in run.checkpoints
        if known.trust is Trust.HEALTHY
        and until >= max(known.step, run.clean_since)
        and run.is_on_line(known)
        and not run.is_set_aside(known)
    ]
    if not proven or any(onsets(decision, run)):
        return
    for known in proven:
        reason = f"step {step} was made after it"
        decision.add(
            CheckpointJudged(
                run=run.run, path=known.path, step=known.step, trust=Trust.PROVEN, reason=reason
            )
        )


def judge_death(decision: Decision, run: Run) -> None:
    """Judge what the run's last attempt resumed from by how it ended; what is judged so far is recorded in the checkpoint."""
    attempt = run.attempt
    known = checkpoint_trust.find(run, attempt.resume) if attempt is not None else None
    if attempt is None or known is None or attempt.attempt in known.died:
        return
    made_steps = (attempt.last_step or 0) > attempt.resume_step
    judged = CheckpointJudged(run=run.run, path=known.path, step=known.step)
    if made_steps and known.died:
        decision.add(replace(judged, died=(), reason=f"{attempt.attempt} made steps from it"))
    elif (
        not made_steps and known.trust is not Trust.REFUSED and _may_be_its_fault(decision, attempt)
    ):
        died = (*known.died, attempt.attempt)
        others = [c for c in run.checkpoints if c.path != known.path and _is_left(run, c)]
        if len(died) >= MAX_DEATHS and others:
            names = " and ".join(died[-MAX_DEATHS:])
            words = f"{names} resumed from it and died before their first step"
            checkpoint_trust.refuse(decision, run, known.path, words, died=died)
        else:
            reason = f"{attempt.attempt} resumed from it and died before its first step"
            decision.add(replace(judged, died=died, reason=reason))


def _is_left(run: Run, known: Checkpoint) -> bool:
    return known.trust is not Trust.REFUSED and not run.is_set_aside(known)


def _may_be_its_fault(decision: Decision, attempt: Attempt) -> bool:
    """Whether an attempt that made no step may have died of what it loaded: all its ranks were up, and nothing else is known."""
    if attempt.outcome not in _DEATHS or attempt.up_since is None:
        return False
    incident = decision.state.incidents.get(attempt.incident or "")
    cause = incident.cause if incident is not None else None
    return cause is None or cause.scope not in _ELSEWHERE
