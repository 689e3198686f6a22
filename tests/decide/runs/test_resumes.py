"""With which attempt one that resumed is compared: the last that made a step and went on as it should."""

from runner.decide.runs.resumes import (
    incidents_with_onset,
    note_earlier,
    note_mismatch,
    resumed,
)
from runner.decide.state.cluster_state import Attempt, Incident, Run, State
from runner.facts.checkpoints import LinePart
from runner.facts.ids import AttemptId
from runner.facts.specs.run import RunSpec

ONE, TWO, THREE = (AttemptId(1, 1, restart) for restart in range(3))


def attempt(name: AttemptId, *, last_step: int | None = 90, **fields: object) -> Attempt:
    """Make an attempt that resumed at step 80."""
    plain = {"generation": 1, "nodes": ["n1"], "resume_step": 80, "last_step": last_step}
    return Attempt(attempt=name, **{**plain, **fields})  # type: ignore[arg-type]


def incident(name: str, fault: str, of: AttemptId, onset: int | None) -> Incident:
    """Make an incident of run 1."""
    return Incident(incident=name, fault=fault, run=1, attempt=of, onset=onset)


def test_an_attempt_without_a_step_or_that_went_wrong_is_no_measure() -> None:
    """The one before it is, with its own remedies."""
    state = State(runs={1: Run(run=1, spec=RunSpec(name="a", command=("x",), nodes=1))})
    first = attempt(ONE, remedies={"lr_factor": 0.9})
    second, third = attempt(TWO, last_step=None), attempt(THREE)
    note_earlier(state, second, first)
    note_earlier(state, third, second)
    assert (third.stepped_before, third.remedies_before) == (ONE, {"lr_factor": 0.9})
    second.last_step = 85
    note_earlier(state, third, second)
    assert (third.stepped_before, third.remedies_before) == (TWO, {})
    note_mismatch(state, incident("i1", "resume_mismatch", TWO, 81))
    note_earlier(state, third, second)
    assert (third.stepped_before, third.remedies_before) == (ONE, {"lr_factor": 0.9})


def test_a_checkpoint_of_an_attempt_that_went_wrong_is_followed_by_its_own_steps() -> None:
    """The next is compared with them, by that attempt's remedies, until one in order has made steps after it; or with none."""
    run = Run(run=1, spec=RunSpec(name="a", command=("x",), nodes=1), mismatched=[TWO])
    state = State(runs={1: run})
    first, second = attempt(ONE), attempt(TWO, remedies={"lr_factor": 0.9})
    third, fourth = attempt(THREE), attempt(AttemptId(1, 1, 3))
    note_earlier(state, second, first)
    note_earlier(state, third, second)
    note_earlier(state, fourth, third)

    def measure(of: Attempt, *line: AttemptId) -> tuple[object, ...]:
        run.line = [LinePart(attempt=one, last_step=90) for one in line]
        run.line.append(LinePart(attempt=of.attempt))
        found = resumed(run, of, ())
        assert found is not None
        return found.before, found.remedies_before, found.mismatched

    assert measure(third, ONE, TWO) == (TWO, {"lr_factor": 0.9}, ())
    assert measure(third, ONE) == (ONE, {}, (TWO,))
    assert measure(fourth, ONE, TWO) == (THREE, {}, ())
    assert measure(fourth, ONE) == (THREE, {}, (TWO,))


def test_sick_steps_are_those_that_are_made_again() -> None:
    """The first onset after the checkpoint counts, but none of the attempt itself, nor a mismatch's."""
    run = Run(run=1, spec=RunSpec(name="a", command=("x",), nodes=1))
    found = [
        incident("i1", "divergence", ONE, 70),
        incident("i2", "loss_spike", ONE, 95),
        incident("i3", "divergence", TWO, 88),
        incident("i4", "nan_loss", THREE, 83),
        incident("i5", "resume_mismatch", TWO, 81),
        incident("i6", "rank_crash", TWO, None),
    ]
    state = State(runs={1: run}, incidents={one.incident: one for one in found})
    for one in found:
        note_mismatch(state, one)
    some = incidents_with_onset(state)[1]
    assert len(some) == 5
    last = attempt(THREE, stepped_before=ONE, remedies={"clip": 0.5})
    where = resumed(run, last, some)
    assert where is not None
    assert (where.step, where.before, where.sick_from, where.mismatched) == (80, ONE, 88, (TWO,))
    assert where.remedies == {"clip": 0.5}
    assert resumed(run, attempt(THREE), some) is None
    assert resumed(run, attempt(THREE, resume_step=0, stepped_before=ONE), some) is None
