"""Limits learned from the run itself: hangs are found sooner than by the fixed limit, and what is only slow is left alone."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from runner.detect.detector import NodeSilence
from runner.detect.learned_timeout import RULES, LearnedTimeout
from runner.detect.progress import GangProgress
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

# of start and progress, as in run.yaml by default
CAP = 600.0
FLOOR = RULES["step"].floor_seconds


class Track:
    """A gang whose nodes send heartbeats every second, and its detector. `script`: ranks that report nothing."""

    def __init__(
        self, *, script: bool = False, nodes: tuple[str, ...] = ("n1",), cap_seconds: float = CAP
    ) -> None:
        self.progress = GangProgress(NodeSilence(5.0))
        self.script, self.nodes, self.cap_seconds = script, nodes, cap_seconds
        self.now, self.attempt, self.incarnation = 0.0, AttemptId(1, 1, 0), 1
        self.alive: tuple[int, ...] = (0, 1)
        self.found: list[Finding] = []
        self.launch()

    def launch(self, *, is_up: bool = True) -> None:
        """Begin a new attempt; all its nodes have started their ranks unless it `is_up` only later."""
        self.step, self.writes = 0, 0
        self.writing_seconds, self.longest_gap_seconds = 0.0, 1.0
        self.attempt = self.attempt.restarted()
        watched = WatchedAttempt(
            attempt=self.attempt,
            nodes=self.nodes,
            since=self.now if is_up else None,
            start_seconds=self.cap_seconds,
            progress_seconds=self.cap_seconds,
        )
        self.look_at(watched)

    def come_up(self) -> None:
        """Let the last node have started its ranks."""
        self.look_at(replace(self.watch.attempts[0], since=self.now))

    def look_at(self, watched: WatchedAttempt) -> None:
        """Set the attempt to watch."""
        self.watch = WatchList(nodes=self.nodes, attempts=(watched,))
        self.tick()

    def replace_supervisor(
        self, *, reports_steps: bool = False, has_stepped: bool = False, is_ending: bool = False
    ) -> None:
        """Let another supervisor take over, which knows this of the attempt."""
        self.progress = GangProgress(NodeSilence(5.0))
        watched = self.watch.attempts[0]
        self.look_at(
            replace(
                watched, reports_steps=reports_steps, has_stepped=has_stepped, is_ending=is_ending
            )
        )

    def tick(self) -> None:
        """Tick, and collect what is found."""
        self.found += self.progress.tick(self.watch, self.now)

    def heartbeat(self, phase: str, *, silent: tuple[str, ...] = ()) -> None:
        """Let a second pass, with heartbeats of all nodes except the silent ones."""
        self.now += 1.0
        for node in self.nodes:
            if node not in silent:
                heartbeat = Heartbeat(
                    node=node,
                    incarnation=self.incarnation,
                    attempt=self.attempt,
                    ranks_alive=self.alive,
                    phases={} if self.script or not phase else {"0": phase, "1": phase},
                    last_step=self.step if self.step and not self.script else None,
                    num_writes=self.writes if self.script else 0,
                    writing_seconds=self.writing_seconds if self.script else 0.0,
                    longest_gap_seconds=self.longest_gap_seconds if self.script else 0.0,
                )
                self.found += self.progress.on_heartbeat(heartbeat, self.watch, self.now)
        self.tick()

    def work(self, seconds: int, *, every: int = 1, phase: str = "step") -> None:
        """Make a step (write, if a script) every so many seconds."""
        for second in range(1, seconds + 1):
            if second % every == 0:
                self.step += 1
                self.writes += 3
                self.writing_seconds += every
            self.heartbeat(phase)

    def wait(self, seconds: int, phase: str = "step", *, silent: tuple[str, ...] = ()) -> None:
        """Send heartbeats, and make no progress."""
        for _ in range(seconds):
            self.heartbeat(phase, silent=silent)

    def until_found(self, phase: str = "step") -> int:
        """Make no progress until something is found; return the seconds that took."""
        assert self.found == []
        for second in range(1, int(CAP) + 10):
            self.heartbeat(phase)
            if self.found:
                return second
        raise AssertionError("nothing was found")


def announcing(**fields: object) -> Track:
    """Return a run that started in 5 s and has gone on for 17 minutes, with five checkpoints of 3 s and evaluations of 20 s."""
    track = Track(**fields)  # type: ignore[arg-type]
    track.wait(5, "start")
    for _ in range(5):
        track.work(160)
        track.wait(3, "checkpoint")
        track.work(10)
        track.wait(20, "evaluate")
    track.work(5)
    assert track.found == []
    return track


def test_steps_that_cease_are_found_by_the_learned_limit() -> None:
    """After ten minutes of steps a second long, a hang is found at the floor; the evidence gives the reason."""
    track = announcing()
    assert track.until_found() == FLOOR
    (found,) = track.found
    assert (found.fault, found.silent_seconds) == ("no_progress", FLOOR)
    assert "in phase step" in found.evidence
    assert "limit 60 s, learned: the longest of" in found.evidence
    track.wait(700)
    assert len(track.found) == 1


def test_slow_steps_have_a_longer_limit() -> None:
    """The limit is ten times the longest step seen, once it was watched for ten times as long."""
    track = announcing()
    track.work(3000, every=30)
    assert track.until_found() == pytest.approx(300, abs=5)


def test_what_was_compiled_may_be_compiled_again() -> None:
    """A step in the midst of quick ones may take twice as long as the start did, and no longer."""
    track = Track()
    track.wait(100, "start")
    for _ in range(6):
        track.work(500)
        track.wait(3, "checkpoint")
    track.work(5)
    track.wait(190)
    track.work(1)
    assert track.found == []
    track = Track()
    track.wait(100, "start")
    for _ in range(6):
        track.work(500)
        track.wait(3, "checkpoint")
    track.work(5)
    assert track.until_found() == pytest.approx(200, abs=5)


def test_a_phase_never_seen_has_the_fixed_limit() -> None:
    """A first evaluation may take as long as run.yaml allows, in a run that gave notice of its checkpoints alone."""
    track = Track()
    track.wait(5, "start")
    for _ in range(4):
        track.work(120)
        track.wait(3, "checkpoint")
    track.work(5)
    assert track.until_found("evaluate") == CAP
    assert "limit 600 s, set in run.yaml" in track.found[0].evidence


def test_durations_of_an_earlier_attempt_are_known_in_the_next() -> None:
    """Evaluations of 80 s, seen before a restart, let one of 300 s pass after it; steps keep their own limit."""
    track = announcing()
    for _ in range(3):
        track.wait(80, "evaluate")
        track.work(10)
    track.launch()
    track.wait(5, "start")
    track.work(10)
    track.wait(300, "evaluate")
    track.work(1)
    assert track.found == []
    assert track.until_found() == FLOOR


def test_ranks_that_give_no_notice_get_as_long_as_they_have_worked() -> None:
    """Steps without phases: an evaluation of 250 s after 300 s is no hang; the next limit includes it."""
    track = Track()
    track.wait(5, "")
    track.work(300, phase="")
    track.wait(250, "")
    track.work(100, phase="")
    assert track.found == []
    assert track.until_found("") == CAP


def test_a_false_alarm_is_not_raised_again_at_the_same_place() -> None:
    """A run killed in an unannounced evaluation gets through it in its next attempt."""
    track = Track()
    track.wait(5, "")
    track.work(80, phase="")
    assert 60 <= track.until_found("") <= 90
    track.found.clear()
    for _ in range(2):
        track.launch()
        track.wait(5, "")
        track.work(80, phase="")
        track.wait(300, "")
        track.work(20, phase="")
    assert track.found == []


def test_a_script_that_falls_silent_is_found_by_the_pace_of_its_lines() -> None:
    """A script without the contract, 200 s of lines, then nothing: found after as long again."""
    track = Track(script=True)
    track.wait(30, "")
    track.work(200)
    assert track.until_found() == pytest.approx(200, abs=3)
    assert track.found[0].evidence.startswith("nothing written by the ranks of 1.1.1 for")


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(lambda track: track.wait(5000), id="nothing written at all"),
        pytest.param(lambda track: (track.work(15), track.wait(5000)), id="a start that is quiet"),
        pytest.param(lambda track: (track.work(800, every=90), track.wait(5000)), id="rare lines"),
    ],
)
def test_a_script_is_held_to_no_limit_without_evidence(quiet: Callable[[Track], object]) -> None:
    """Lines that are too few, too rare, or only of the start, prove nothing about a silence that follows."""
    track = Track(script=True)
    quiet(track)
    assert track.found == []


def test_what_an_attempt_prints_before_it_loads_is_no_pace() -> None:
    """After a restart, a few lines and a long silence are a start, though lines came every second before."""
    track = Track(script=True)
    track.work(300)
    track.launch()
    track.work(8)
    track.wait(590)
    assert track.found == []


@pytest.mark.parametrize("script", [False, True])
def test_zero_switches_every_limit_off(script: bool) -> None:
    """`progress_seconds: 0` means never, for any learned limit."""
    track = Track(script=script, cap_seconds=0.0)
    track.work(800)
    track.wait(3)
    track.work(300)
    track.wait(5000)
    assert track.found == []


def test_the_fixed_limit_is_the_highest() -> None:
    """A script is held to `progress_seconds`, if that is less than what would be learned."""
    track = Track(script=True, cap_seconds=15.0)
    track.work(100)
    assert track.until_found() == 15


def test_a_pause_of_the_supervisor_neither_teaches_nor_counts() -> None:
    """A pause of 200 s of the supervisor makes no finding, and no longer limit."""
    track = announcing()
    track.wait(2)
    track.now += 200.0
    track.progress.shift(200.0)
    track.work(30)
    track.now += 200.0
    track.progress.shift(200.0)
    assert track.found == []
    assert track.until_found() == pytest.approx(FLOOR, abs=1)


def test_a_node_without_heartbeats_proves_nothing_about_its_ranks() -> None:
    """While one of two nodes is unreachable no learned limit passes; when it is back, its steps are a sign."""
    track = announcing(nodes=("n1", "n2"))
    track.wait(300, silent=("n2",))
    assert track.found == []
    track.work(3)
    assert track.until_found() == FLOOR


def test_a_restart_of_the_agent_is_no_gap() -> None:
    """Ranks adopted by a new agent are not judged by what the old one could not report."""
    track = announcing()
    track.now += 200.0
    track.incarnation = 2
    track.wait(50)
    assert track.found == []


def test_a_gang_that_is_ending_is_left_to_the_fixed_limit() -> None:
    """One rank has ended: how long the others take to follow was never seen."""
    track = announcing()
    track.alive = (0,)
    assert track.until_found() == CAP


def test_a_silent_script_of_which_a_rank_has_ended_is_held_to_the_fixed_limit() -> None:
    """Rank 0 ended with 0 and rank 1 hangs: found `progress_seconds` later, not by what the lines taught, and without a doubt."""
    track = Track(script=True)
    track.work(200)
    track.wait(30)
    track.alive = (1,)
    track.wait(1)
    assert track.until_found() == CAP
    assert "limit 600 s, set in run.yaml, since a rank has ended" in track.found[0].evidence
    track.found.clear()
    track.launch()
    track.alive = (0, 1)
    track.work(200)
    assert track.until_found() == pytest.approx(200, abs=3)


def test_a_script_that_never_wrote_regularly_may_end_as_slowly_as_it_likes() -> None:
    """A rank that works on for hours when its peer has ended is left alone, if nothing is known of its pace."""
    track = Track(script=True)
    track.work(8)
    track.alive = (1,)
    track.wait(5000)
    assert track.found == []


def test_a_supervisor_that_comes_later_knows_that_a_rank_has_ended() -> None:
    """It did not see the end, so the watch list carries it: what is left of the gang has until the fixed limit."""
    track = Track(script=True)
    track.work(200)
    track.alive = (1,)
    track.wait(1)
    track.replace_supervisor(is_ending=True)
    assert track.until_found() == pytest.approx(CAP, abs=1)


def test_waiting_for_the_other_nodes_is_no_gap() -> None:
    """Ranks that report, on a node that is up early, wait for longer than a start may take: no hang, and no start yet."""
    track = Track()
    for _ in range(3):
        track.launch(is_up=False)
        track.wait(700, "start")
        track.come_up()
        track.wait(70, "start")
        track.work(20)
    assert track.found == []
    track.launch(is_up=False)
    track.wait(700, "start")
    track.come_up()
    assert track.until_found("start") == CAP


def test_the_limit_of_a_start_is_learned_from_when_all_are_up() -> None:
    """A dozen starts of 18 s, each after a wait of 100 s, make the limit that starts of 18 s make."""
    track = Track()
    for _ in range(12):
        track.launch(is_up=False)
        track.wait(100, "start")
        track.come_up()
        track.wait(17, "start")
        track.work(20)
    track.launch(is_up=False)
    track.wait(300, "start")
    track.come_up()
    assert track.until_found("start") == RULES["start"].floor_seconds
    assert "the longest of 12 was 18.0 s" in track.found[0].evidence


def test_lines_of_ranks_that_wait_for_other_nodes_are_no_pace() -> None:
    """A script writes a line, waits 300 s for the other nodes' ranks, then writes every second: its silence is found.

    That holds for a supervisor, too, that takes over meanwhile and has the wait from the agent.
    """
    track = Track(script=True)
    track.launch(is_up=False)
    track.work(1)
    track.wait(300)
    track.longest_gap_seconds = 301.0
    track.work(1)
    track.replace_supervisor()
    track.work(1)
    track.come_up()
    track.work(200)
    assert track.until_found() == pytest.approx(200, abs=3)


def test_a_step_that_is_reported_before_all_nodes_are_up_begins_no_limit() -> None:
    """Ranks may name the step they go on from; waiting for others after that is neither a gap nor time at work."""
    track = Track()
    track.wait(5, "")
    track.work(200, phase="")
    track.launch(is_up=False)
    track.work(1, phase="")
    track.wait(700, "")
    track.come_up()
    track.work(80, phase="")
    assert track.found == []
    assert 60 <= track.until_found("") <= 90


def test_ranks_that_hang_before_their_first_report_are_found_in_a_run_that_has_reported() -> None:
    """An earlier attempt reported steps; this one's ranks are alive and report nothing."""
    track = announcing()
    track.launch()
    assert track.until_found("") == CAP
    assert "limit 600 s, set in run.yaml" in track.found[0].evidence


def test_a_new_supervisor_holds_ranks_that_report_steps_to_their_start_limit() -> None:
    """It knows no step of this attempt, and the run's ranks report steps: the limit runs from when all were up."""
    track = Track()
    track.wait(100, "")
    track.replace_supervisor(reports_steps=True)
    assert track.until_found("") == CAP - 100


def test_a_new_supervisor_waits_for_the_gangs_first_step_report() -> None:
    """A gang at work for an hour is not found for its start, before or after its nodes' heartbeats."""
    track = Track(nodes=("n1", "n2"))
    track.work(3600)
    for has_stepped in (True, False):
        track.replace_supervisor(reports_steps=True, has_stepped=has_stepped)
        track.tick()
        track.work(5)
        assert track.found == []
    assert track.until_found() == CAP


def test_ranks_adopted_by_a_new_agent_under_a_new_supervisor_are_not_taken_for_a_start() -> None:
    """Neither knows the last step, but the journal knows that there was one: the next has `progress_seconds`."""
    track = Track()
    track.work(3600)
    track.step = 0
    track.replace_supervisor(reports_steps=True, has_stepped=True)
    track.wait(500, "")
    assert track.found == []
    track.wait(int(CAP) - 500, "")
    assert [found.silent_seconds for found in track.found] == [CAP]


def test_a_supervisor_that_comes_later_does_not_learn_from_before() -> None:
    """A gang launched long ago has made no progress for an unknown time at its first heartbeat."""
    track = Track()
    track.progress = GangProgress()
    track.now = 5000.0
    track.tick()
    track.found.clear()
    track.work(700, phase="step")
    track.wait(2, "checkpoint")
    track.work(700)
    assert (
        track.until_found() == CAP
        # no start of it was seen, so what a compile takes is not known
    )
    track.found.clear()
    track.launch()
    track.wait(5, "start")
    track.work(10)
    assert track.until_found() == FLOOR


def test_a_doubted_limit_needs_more_evidence() -> None:
    """After it ended an attempt a limit counts again only once three times as much was watched."""
    pace = LearnedTimeout(rule=RULES["step"])
    for _ in range(600):
        pace.add(1.0)
    assert pace.limit(CAP) is not None
    pace.doubt()
    for _ in range(1199):
        pace.add(1.0)
    assert pace.limit(CAP) is None
    pace.add(1.0)
    assert pace.limit(CAP) is not None


def test_a_script_that_fell_silent_before_a_new_supervisor_came_is_found_by_it() -> None:
    """What the agent saw of its lines is enough: they were regular, and have ceased."""
    track = Track(script=True)
    track.progress = GangProgress(NodeSilence(5.0))
    track.now = 5000.0
    track.tick()
    quiet = Heartbeat(
        node="n1",
        incarnation=1,
        attempt=track.attempt,
        ranks_alive=(0, 1),
        num_writes=80,
        writing_seconds=90.0,
        longest_gap_seconds=2.0,
    )
    for second in range(89):
        assert track.progress.on_heartbeat(quiet, track.watch, track.now + second) == []
    assert track.progress.on_heartbeat(quiet, track.watch, track.now + 90) != []
