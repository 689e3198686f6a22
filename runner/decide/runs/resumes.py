"""Which attempt another one is compared with when it resumed: the resume check (`detect/resume/check.py`) needs it.

An attempt that did not go on as the run had before is no measure for the next: that is compared with the one before it. Where
the next goes on from a checkpoint of such an attempt, that one's later steps follow from the same weights, and are the measure.
"""

from collections.abc import Mapping, Sequence

from runner.decide.state.cluster_state import Attempt, Incident, Run, State
from runner.facts.watch import Resumed

MISMATCH = "resume_mismatch"
# Attempts in a row that are no measure, of which the remedies are kept; and of a run that are known to be none. Chosen.
MAX_PASSED_OVER = 8
MAX_MISMATCHED = 32


def note_earlier(state: State, attempt: Attempt, before: Attempt) -> None:
    """Note in a new attempt the last one that made a step, and what its remedies were; `apply` calls it."""
    mismatched = state.runs[attempt.attempt.run].mismatched
    is_measure = before.last_step is not None and before.attempt not in mismatched
    attempt.stepped_before = before.attempt if is_measure else before.stepped_before
    attempt.remedies_before = before.remedies if is_measure else before.remedies_before
    if not is_measure:
        passed_over = {**before.passed_over, str(before.attempt): before.remedies}
        attempt.passed_over = dict(list(passed_over.items())[-MAX_PASSED_OVER:])


def note_mismatch(state: State, incident: Incident) -> None:
    """Note of which attempt an incident says that it did not go on as the run had before; `apply` calls it."""
    run, attempt = state.runs.get(incident.run or 0), incident.attempt
    if incident.fault != MISMATCH or run is None or attempt is None or attempt in run.mismatched:
        return
    run.mismatched = [*run.mismatched, attempt][-MAX_MISMATCHED:]


def incidents_with_onset(state: State) -> Mapping[int, Sequence[Incident]]:
    """Return the incidents of each run that have an onset."""
    found: dict[int, list[Incident]] = {}
    for incident in state.incidents.values():
        if incident.run is not None and incident.onset is not None:
            found.setdefault(incident.run, []).append(incident)
    return found


def resumed(run: Run, attempt: Attempt, incidents: Sequence[Incident]) -> Resumed | None:
    """Return what an attempt resumed from, given the incidents of its run that have an onset; None: from nothing."""
    if not attempt.resume_step or attempt.stepped_before is None:
        return None
    earlier = [one for one in incidents if one.attempt != attempt.attempt]
    onsets = [one.onset for one in earlier if one.fault != MISMATCH and one.onset is not None]
    line = [part.attempt for part in run.line if part.attempt != attempt.attempt]
    before, remedies_before = attempt.stepped_before, attempt.remedies_before
    if line and line[-1] > before and str(line[-1]) in attempt.passed_over:
        before, remedies_before = line[-1], attempt.passed_over[str(line[-1])]
    return Resumed(
        step=attempt.resume_step,
        before=before,
        remedies=attempt.remedies,
        remedies_before=remedies_before,
        sick_from=min((step for step in onsets if step > attempt.resume_step), default=None),
        mismatched=tuple(
            one for one in run.mismatched if one not in line and one != attempt.attempt
        ),
    )
