"""A run in virtual time by its heartbeats: heavy-tailed steps, saves, evaluations, compiles; crashes; lost heartbeats.

Nothing is reported that an agent would not report; between two signs a heartbeat comes often enough
that no node counts as silent, and right before each sign, when a finding is most likely. Medians
are those of real runs where they are published. Tails are chosen: one step in two thousand is slow
by a factor whose tail falls with the power 2, and so are one in twenty saves, evaluations and
starts. What run.yaml sets exceeds everything between two steps, as its user must see to.
"""

import math
import random
from dataclasses import dataclass, field

from runner.detect.detector import NodeSilence
from runner.detect.progress import GangProgress
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

DAY = 86_400.0
NODES = ("n1", "n2")
# of a cluster with few heartbeats: this test has fewer of them to play
SILENCE_SECONDS = 60.0
# between two heartbeats of a node, in a gap; less than the heartbeat timeout
HEARTBEAT_SECONDS = 55.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What a run does and how long that takes: medians, in seconds. A start loads and compiles; a compile may come again."""

    step_seconds: float
    save_seconds: float
    save_steps: int
    evaluation_seconds: float
    evaluation_steps: int
    load_seconds: float = 120.0
    compile_seconds: float = 120.0
    progress_limit: float = 1800.0
    start_limit: float = 3600.0
    # "steps": of evaluations and saves it gives no notice; "lines": it writes, and reports nothing
    reports: str = "phases"
    # mean; 1,024 GPUs
    crash_seconds: float = 7.9 * 3600
    compiles_a_day: float = 2.0
    # of one node's heartbeats, 10 to 300 s
    outages_a_day: float = 4.0
    new_supervisors_a_day: float = 0.2


@dataclass(slots=True)
class VirtualRun:
    """Plays a run and gathers findings, each with its time. Times are seconds of its own clock."""

    habits: Habits
    chance: random.Random
    now: float = 0.0
    findings: list[tuple[float, Finding]] = field(default_factory=list)
    num_gaps: int = 0
    longest_seconds: float = 0.0
    step: int = 0
    writes: int = 0
    wrote_since: float = 0.0
    wrote_at: float = 0.0
    longest_silent: float = 0.0
    attempt: AttemptId = field(default_factory=lambda: AttemptId(1, 1, 0))
    phase: str = "start"
    has_stepped: bool = False
    detector: GangProgress = field(
        default_factory=lambda: GangProgress(NodeSilence(SILENCE_SECONDS))
    )
    watch: WatchList = field(default_factory=lambda: WatchList(nodes=NODES, attempts=()))
    # node -> until when its heartbeats are lost
    unreachable_until: dict[str, float] = field(default_factory=dict)
    heartbeats: dict[str, Heartbeat] = field(default_factory=dict)

    # ---- what the supervisor sees

    def launch(self) -> None:
        """Begin another attempt; its nodes take a while to start their ranks."""
        self.attempt, self.phase = self.attempt.restarted(), "start"
        self.writes, self.longest_silent, self.has_stepped = 0, 0.0, False
        self.look(None)
        self.now += self.chance.uniform(5.0, 60.0)
        self.look(self.now)
        self.report(*NODES)

    def look(self, since: float | None) -> None:
        """Watch the attempt."""
        watched = WatchedAttempt(
            attempt=self.attempt,
            nodes=NODES,
            since=since,
            start_seconds=self.habits.start_limit,
            progress_seconds=self.habits.progress_limit,
            has_stepped=self.has_stepped and self.habits.reports != "lines",
            reports_steps=self.has_stepped and self.habits.reports != "lines",
        )
        self.watch = WatchList(nodes=NODES, attempts=(watched,))
        self.record(self.detector.tick(self.watch, self.now))

    def report(self, *nodes: str) -> None:
        """Let nodes report their state, as a sign makes them do."""
        lines = self.habits.reports == "lines"
        for node in nodes:
            self.heartbeats[node] = Heartbeat(
                node=node,
                incarnation=1,
                attempt=self.attempt,
                ranks_alive=(0, 1),
                phases={} if lines else {"0": self.phase},
                last_step=self.step if self.has_stepped and not lines else None,
                num_writes=self.writes,
                writing_seconds=self.wrote_at - self.wrote_since if self.writes else 0.0,
                longest_gap_seconds=self.longest_silent,
            )
            self.repeat_heartbeat(node)

    def repeat_heartbeat(self, node: str) -> None:
        """Send a node's last heartbeat once more."""
        if self.now >= self.unreachable_until.get(node, 0.0):
            self.record(self.detector.on_heartbeat(self.heartbeats[node], self.watch, self.now))

    def record(self, found: list[Finding]) -> None:
        """Record findings with their time."""
        self.findings += [(self.now, finding) for finding in found]

    def replace_supervisor(self) -> None:
        """Let another supervisor take over, which has learned nothing."""
        since = self.watch.attempts[0].since
        self.detector = GangProgress(NodeSilence(SILENCE_SECONDS))
        self.look(since)

    # ---- what the run does

    def gap(self, seconds: float) -> None:
        """Let time pass without a sign of progress; heartbeats come all the while."""
        self.num_gaps += 1
        self.longest_seconds = max(self.longest_seconds, seconds)
        num_heartbeats = math.ceil(seconds / HEARTBEAT_SECONDS)
        until = self.now + seconds
        # The last heartbeat comes right before the sign: no limit is nearer to being passed.
        for left in reversed(range(num_heartbeats)):
            self.now = until - left * HEARTBEAT_SECONDS
            for node in NODES:
                self.repeat_heartbeat(node)
            self.record(self.detector.tick(self.watch, self.now))
        self.now = until

    def sign(self, phase: str) -> None:
        """Show progress: a step is done, or another phase begins, or a line is written."""
        if self.writes:
            self.longest_silent = max(self.longest_silent, self.now - self.wrote_at)
        else:
            self.wrote_since = self.now
        # The same step reported by the other node, too, is no news; another phase is.
        nodes = NODES if phase != self.phase else NODES[:1]
        self.writes, self.wrote_at, self.phase = self.writes + 1, self.now, phase
        self.report(*nodes)

    def train_step(self, seconds: float) -> None:
        """Make a step."""
        self.gap(seconds)
        self.step, self.has_stepped = self.step + 1, True
        self.sign("step")

    def pause(self, phase: str, seconds: float) -> None:
        """Save or evaluate: announced, or not."""
        if self.habits.reports == "phases":
            self.sign(phase)
        self.gap(seconds)
        if self.habits.reports != "steps":
            self.sign("step")

    def start(self) -> None:
        """Load, compile, and make the first step."""
        habits = self.habits
        load = self.tailed(habits.load_seconds, 0.5, 0.5 * habits.start_limit)
        self.train_step(load + self.compile_seconds())

    def compile_seconds(self) -> float:
        """Draw how long a compile takes: it is work, not waiting, so it has no tail."""
        return self.habits.compile_seconds * self.chance.lognormvariate(0.0, 0.3)

    def play(self, days: float) -> None:
        """Live for so long, through one attempt after the other."""
        chance, habits = self.chance, self.habits
        end = self.now + days * DAY
        while self.now < end:
            self.launch()
            self.start()
            dies_at = self.now + chance.expovariate(1 / habits.crash_seconds)
            while self.now < min(dies_at, end):
                self.happen()
            # a spare, or the queue
            self.now += chance.uniform(10.0, 768.0)

    def happen(self) -> None:
        """Make the next step, and what it brings with it."""
        chance, habits = self.chance, self.habits
        per_step = habits.step_seconds / DAY
        limit = habits.progress_limit
        if chance.random() < habits.outages_a_day * per_step:
            self.unreachable_until[chance.choice(NODES)] = self.now + chance.uniform(10.0, 300.0)
        if chance.random() < habits.new_supervisors_a_day * per_step:
            self.replace_supervisor()
        if chance.random() < habits.compiles_a_day * per_step:
            self.train_step(habits.step_seconds + self.compile_seconds())
        elif chance.random() < 1 / 2000:
            slow = 1.3 * chance.paretovariate(2.0)
            self.train_step(min(0.3 * limit, habits.step_seconds * slow))
        else:
            self.train_step(habits.step_seconds * chance.lognormvariate(0.0, 0.05))
        if self.step % habits.save_steps == 0:
            self.pause("checkpoint", self.tailed(habits.save_seconds, 0.4, 0.3 * limit))
        if self.step % habits.evaluation_steps == 0:
            self.pause("evaluate", self.tailed(habits.evaluation_seconds, 0.3, 0.3 * limit))

    def tailed(self, median: float, sigma: float, limit: float) -> float:
        """Draw a time: lognormal, one in twenty with a tail of the power 2, and never more than `limit`."""
        seconds = median * self.chance.lognormvariate(0.0, sigma)
        if self.chance.random() < 0.05:
            seconds *= self.chance.paretovariate(2.0)
        return min(seconds, limit)
