"""Trials that are watched: the verdict comes once, across nodes, attempts and supervisors."""

from msgspec.structs import replace

from runner.detect.trials import DUMPED_SAMPLES, Trials
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.trials import MetricLevel, Trajectory, Trial, TrialJudged
from runner.facts.watch import WatchedAttempt, WatchList

FIRST = AttemptId(1, 2, 0)
LEVEL = MetricLevel(level=1.0, spread=0.01)
BEFORE = Trajectory(first_step=40, last_step=99, num_samples=60, loss=LEVEL, sick_loss=9.0)
TRIAL = Trial(
    incident="i1", fault="loss_spike", attempt=FIRST, after_step=100, steps=20, before=BEFORE
)


class Watched:
    """A detector, and the gang of two nodes that it follows; the second has the loss."""

    def __init__(self, *trials: Trial) -> None:
        self.detector = Trials()
        self.attempt = FIRST
        self.trials = trials or (TRIAL,)
        self.look()

    def look(self) -> None:
        """Make another watch list."""
        watched = WatchedAttempt(
            attempt=self.attempt,
            nodes=("n1", "n2"),
            since=0.0,
            start_seconds=60.0,
            progress_seconds=60.0,
            trials=self.trials,
        )
        self.watch = WatchList(attempts=(watched,))

    def steps(self, first: int, last: int, loss: float) -> list[TrialJudged]:
        """Let both nodes report steps."""
        found: list[TrialJudged] = []
        for step in range(first, last + 1):
            for node, shown in (("n1", None), ("n2", loss)):
                record = StepRecord(step=step, loss=shown, grad_norm=1.0)
                heartbeat = Heartbeat(
                    node=node, incarnation=1, attempt=self.attempt, steps=(record,)
                )
                found += self.detector.on_heartbeat(heartbeat, self.watch, float(step))
        return found


def test_a_verdict_comes_once_and_of_steps_past_the_onset_alone() -> None:
    """Steps that are done again before the onset do not count, whatever their loss."""
    watched = Watched()
    assert watched.steps(80, 100, 9.0) == []
    assert watched.steps(101, 119, 2.7) == []
    (verdict,) = watched.steps(120, 120, 2.7)
    assert (verdict.incident, verdict.step, verdict.verdict) == ("i1", 120, "helped")
    assert verdict.attempt == FIRST
    assert watched.steps(121, 140, 9.0) == []


def test_a_trial_goes_on_in_the_next_attempt() -> None:
    """Hardware fails in the middle: steps done again replace those before, and no verdict comes of the crash."""
    watched = Watched()
    assert watched.steps(101, 115, 9.0) == []
    watched.attempt = FIRST.restarted()
    watched.look()
    assert watched.steps(105, 119, 2.7) == []
    (verdict,) = watched.steps(120, 120, 2.7)
    assert (verdict.verdict, verdict.attempt) == ("helped", FIRST.restarted())


def test_another_rung_begins_with_no_steps() -> None:
    """The steps of the trial before say nothing about the next one, of the same incident."""
    watched = Watched()
    assert watched.steps(101, 119, 9.0) == []
    watched.attempt = FIRST.reconfigured()
    watched.trials = (replace(TRIAL, attempt=watched.attempt),)
    watched.look()
    assert watched.steps(101, 119, 2.7) == []
    (verdict,) = watched.steps(120, 120, 2.7)
    assert verdict.verdict == "helped"


def test_the_next_supervisor_goes_on_with_the_steps_so_far() -> None:
    """What is dumped is small, and all that the verdict needs; a verdict that was lost comes again."""
    watched = Watched()
    watched.steps(101, 112, 2.7)
    dumped = wire.to_plain(watched.detector.dump(1, 0.0))
    assert len(wire.encode_value(dumped)) < 4096
    watched.detector = Trials()
    watched.detector.load(1, dumped, 0.0)
    (verdict,) = watched.steps(113, 120, 2.7)
    assert (verdict.verdict, verdict.step) == ("helped", 120)
    assert "10 samples" in verdict.evidence
    again = Trials()
    again.load(1, wire.to_plain(watched.detector.dump(1, 0.0)), 0.0)
    watched.detector = again
    assert len(watched.steps(121, 121, 2.7)) == 1


def test_a_dump_is_bounded_whatever_the_trial() -> None:
    """A trial of thousands of steps keeps its newest."""
    watched = Watched(replace(TRIAL, steps=5000))
    watched.steps(101, 1400, 2.7)
    dumped = wire.to_plain(watched.detector.dump(1, 0.0))
    assert len(dumped["trials"][0]["steps"]) == DUMPED_SAMPLES
    assert watched.detector.dump(2, 0.0) is None


def test_trials_that_are_watched_no_more_are_forgotten() -> None:
    """Those of a run between two attempts are kept."""
    watched = Watched()
    watched.steps(101, 105, 2.7)
    watched.watch = WatchList()
    watched.detector.on_heartbeat(Heartbeat(node="n1", incarnation=1), watched.watch, 0.0)
    assert watched.detector.dump(1, 0.0) is not None
    watched.trials = ()
    watched.look()
    watched.steps(106, 106, 2.7)
    assert watched.detector.dump(1, 0.0) is None
