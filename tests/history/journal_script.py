"""A journal written by hand: `Script` turns lines such as `at(3, advanced(...))` into entries with numbers and times."""

from runner.facts.checkpoints import Checkpoint, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages.records import (
    AttemptChanged,
    AttemptPlanned,
    AttemptPrepared,
    AttemptStateName,
    CheckpointRecorded,
    IncidentChanged,
    IncidentOpened,
    JournalEntry,
    Outcome,
    RunAdmitted,
    RunChanged,
    RunStateName,
    Settle,
    StepsAdvanced,
)
from runner.facts.specs.run import RunSpec

ONE, TWO, THREE = AttemptId(1, 1, 0), AttemptId(1, 1, 1), AttemptId(1, 1, 2)


class Script:
    """Entries in the order they are written. Times are seconds after `start`."""

    def __init__(self, *, start: float = 1_700_000_000.0) -> None:
        self.start = start
        self.entries: list[JournalEntry] = []

    def at(self, seconds: float, *records: object, input: object | None = None) -> "Script":  # noqa: A002 - the field's name
        """Write one entry."""
        self.entries.append(
            JournalEntry(
                sequence=len(self.entries) + 1,
                now=self.start + seconds,
                input=Settle() if input is None else input,
                records=records,
            )
        )
        return self


def admitted(run: int = 1, name: str = "tiny") -> RunAdmitted:
    """Admit a run."""
    return RunAdmitted(run=run, spec=RunSpec(name=name, command=("train",), nodes=2))


def run_is(state: RunStateName, reason: str = "", *, run: int = 1) -> RunChanged:
    """Move the run to a state."""
    return RunChanged(run=run, state=state, reason=reason)


def planned(
    attempt: AttemptId, *, nodes: tuple[str, ...] = ("n1", "n2"), incident: str | None = None
) -> AttemptPlanned:
    """Plan an attempt."""
    return AttemptPlanned(
        attempt=attempt,
        generation=attempt.restart + 1,
        nodes=nodes,
        reason="first attempt" if incident is None else f"after {incident}",
        incident=incident,
    )


def prepared(
    attempt: AttemptId, *, resume_step: int = 0, maker: AttemptId | None = None
) -> AttemptPrepared:
    """Choose its checkpoint, named after the attempt that made it, as checkpoints are."""
    resume = f"/ckpt/{maker}-{resume_step:08d}" if maker is not None else ""
    return AttemptPrepared(
        attempt=attempt,
        resume=resume,
        resume_step=resume_step,
        master_address="127.0.0.1",
        master_port=29500,
    )


def attempt_is(
    attempt: AttemptId,
    state: AttemptStateName,
    *,
    outcome: Outcome | None = None,
    incident: str | None = None,
) -> AttemptChanged:
    """Move the attempt to a state."""
    return AttemptChanged(attempt=attempt, state=state, outcome=outcome, incident=incident)


def opened(
    incident: str,
    attempt: AttemptId | None,
    *,
    after: float | None = None,
    fault: str = "rank_crash",
) -> IncidentOpened:
    """Open an incident, `after` seconds after the last good sign."""
    return IncidentOpened(
        incident=incident,
        fault=fault,
        evidence="rank 1 on n1 was killed by SIGKILL",
        run=1,
        attempt=attempt,
        node="n1",
        rank=1,
        detected_after_seconds=after,
    )


def resolved(incident: str) -> IncidentChanged:
    """Resolve the incident."""
    return IncidentChanged(incident=incident, state="resolved", reason="new step reached")


def advanced(
    attempt: AttemptId, step: int, *, at: float | None = None, **timings: float
) -> StepsAdvanced:
    """Let the attempt reach a step. `at`: by when, if before."""
    loss = 5.0 - step / 100
    return StepsAdvanced(attempt=attempt, step=step, loss=loss, timings=timings, at=at)


def checkpoint(attempt: AttemptId, step: int, trust: Trust = Trust.INTACT) -> CheckpointRecorded:
    """Record a checkpoint."""
    path = f"/ckpt/{attempt}-{step:08d}"
    return CheckpointRecorded(
        run=attempt.run, checkpoint=Checkpoint(step=step, attempt=attempt, path=path, trust=trust)
    )


def crash_and_restart() -> Script:
    """A run of 100 steps, one a second, that loses a rank after step 50 and resumes from step 40.

    10 s to the first step; marks every 10 steps; the rank dies at 60 s, seen at 60.5 s; gang gone at 61 s, ordered to start
    again at 63 s, first step (41) at 70 s, last step (100) at 129 s, finished at 131 s.
    """
    script = Script()
    script.at(0, admitted()).at(0, planned(ONE)).at(1, prepared(ONE)).at(
        1, attempt_is(ONE, "launching")
    )
    script.at(2, attempt_is(ONE, "running")).at(10, advanced(ONE, 1))
    for step in range(11, 52, 10):
        script.at(9 + step, advanced(ONE, step))
    script.at(50, checkpoint(ONE, 40))
    script.at(
        60.5,
        opened("i1", ONE, after=0.5),
        attempt_is(ONE, "stopping", outcome="crashed", incident="i1"),
    )
    script.at(61, attempt_is(ONE, "ended", outcome="crashed"), planned(TWO, incident="i1"))
    script.at(62, prepared(TWO, resume_step=40, maker=ONE)).at(63, attempt_is(TWO, "launching"))
    script.at(64, attempt_is(TWO, "running")).at(70, advanced(TWO, 41))
    script.at(80, advanced(TWO, 51), resolved("i1")).at(129, advanced(TWO, 100))
    script.at(131, attempt_is(TWO, "ended", outcome="finished"), run_is("finished"))
    return script
