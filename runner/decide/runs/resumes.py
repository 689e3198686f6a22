"""Which attempt another one is compared with when it resumed: the resume check (`detect/resume/check.py`) needs it.

An attempt that did not go on as the run had before is no measure for the next: that is compared with the one before it.
"""

from collections.abc import Mapping, Sequence

from runner.decide.state.cluster_state import Attempt, Incident, Run, State
from runner.facts.watch import Resumed

MISMATCH = "resume_mismatch"


def note_earlier(state: State, attempt: Attempt, before: Attempt) -> None:
    """Note in a new attempt the last one that made a step, and what its remedies were; `apply` calls it."""
    is_measure = before.last_step is not None and not any(
        incident.fault == MISMATCH and incident.attempt == before.attempt
        for incident in state.incidents.values()
    )
    attempt.stepped_before = before.attempt if is_measure else before.stepped_before
    attempt.remedies_before = before.remedies if is_measure else before.remedies_before


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
    attempts = [one.attempt for one in earlier if one.fault == MISMATCH]
    return Resumed(
        step=attempt.resume_step,
        before=attempt.stepped_before,
        remedies=attempt.remedies,
        remedies_before=attempt.remedies_before,
        sick_from=min((step for step in onsets if step > attempt.resume_step), default=None),
        mismatched=tuple(one for one in attempts if one is not None),
    )
