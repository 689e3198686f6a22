"""The account of one run: which second of it was spent on what. The ledger feeds it; see there for the definitions.

At any moment the run is in exactly one *phase*, and a phase ends where the next begins, so that the phases cover the run's
time without gap or overlap. One phase is `step`; its seconds are split into productive ones and rework by the marks of the
attempts. All others are lost seconds under the phase's own name.
"""

from typing import Literal, get_args

from msgspec import field

from runner.facts.ids import AttemptId
from runner.facts.wire import MutableValue
from runner.history.run_counters import RunCounters
from runner.history.step_marks import StepMarks

Cause = Literal[
    "initial_start",
    "waiting",
    "paused",
    "detect",
    "stop",
    "prepare",
    "start",
    "rework",
    "requested",
    "finish",
    "unreported",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)
# The newest, whose marks are kept as they are where books are bounded; chosen.
FINE_ATTEMPTS = 32
Phase = Cause | Literal["step"]
# Phases between two attempts, those of a run that waits, and outcomes that a person or a notice asked for.
_IDLE: tuple[Phase, ...] = ("waiting", "paused")
_RESTING: tuple[Phase, ...] = ("prepare", "start", "initial_start", "requested", *_IDLE)
_REQUESTED = ("stopped", "reconfigured", "moved", "rewound", "paused", "restarted", None)


class IncidentAccounting(MutableValue):
    """What one incident cost. Seconds; None: not known, or not yet.

    `failed_at`: when it was opened, or last failed again, `failed_after_seconds` after the last good sign.
    """

    incident: str
    fault: str
    # The fault that was diagnosed as its cause; "": none.
    cause: str = ""
    run: int | None = None
    attempt: AttemptId | None = None
    opened_at: float = 0.0
    failed_at: float = 0.0
    failed_after_seconds: float = 0.0
    detected_after_seconds: float | None = None
    recovered_after_seconds: float | None = None
    closed_at: float | None = None
    steps_lost: int | None = None
    stopped_attempt: bool = False
    # The run goes on with it: the end of an attempt is not attributed to it.
    non_fatal: bool = False


class AttemptAccounting(MutableValue):
    """One attempt, the `number`-th (from 0) of its run: where it came from, and its marks."""

    attempt: AttemptId
    number: int
    planned_at: float
    # Steps it inherited from its parent; None until that is known.
    base: int | None = None
    parent: AttemptId | None = None
    # Productive seconds of the whole chain of parents, up to `base`.
    inherited_seconds: float = 0.0
    marks: StepMarks = field(default_factory=StepMarks)
    # A later attempt builds on it: its marks are final.
    inherited_from: bool = False
    ended_at: float | None = None

    @property
    def num_made(self) -> int:
        """Return how many steps it made, as far as it is known where it began."""
        return 0 if self.base is None else max(0, self.marks.reached - self.base)


class Interruptions(MutableValue):
    """What the interruptions of a run cost, each from the last contributing step before it to the first step after it.

    Seconds, without those for which a person paused the run. `lost_squares`: the sum of the squares of what each cost.
    """

    count: int = 0
    lost_seconds: float = 0.0
    lost_squares: float = 0.0
    first_start_seconds: float = 0.0
    # Lost when the last attempt with a step made its first; None before any did.
    lost_before: float | None = None

    def stepped(self, lost: float) -> None:
        """An attempt made its first step; `lost`: seconds that were lost until then, all in all."""
        if self.lost_before is None:
            self.first_start_seconds = lost
        else:
            cost = max(0.0, lost - self.lost_before)
            self.count += 1
            self.lost_seconds += cost
            self.lost_squares += cost**2
        self.lost_before = lost


class RunAccounting(MutableValue):
    """One run. Public methods are events, each with the controller's `now`; they bear any order and never raise.

    `totals` has the seconds of finished phases, `stepped_seconds` those of `step`. `checkpoints`: path -> the attempt that made it.
    `unsettled`: incidents that stopped an attempt, before the next has a base.
    """

    run: int
    name: str
    admitted_at: float
    ended_at: float | None = None
    phase: Phase = "initial_start"
    since: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)
    stepped_seconds: float = 0.0
    # Ranks run, and no step of this attempt is known yet.
    ran_since: float | None = None
    # The part of `totals` in which ranks ran so.
    ran_seconds: dict[str, float] = field(default_factory=dict)
    attempts: dict[AttemptId, AttemptAccounting] = field(default_factory=dict)
    # Oldest attempts that are not in `attempts` any more.
    num_put_away: int = 0
    lost_steps_put_away: int = 0
    current: AttemptId | None = None
    # The attempt whose end is the run's state now.
    head: AttemptId | None = None
    checkpoints: dict[str, AttemptId] = field(default_factory=dict)
    # When each was recorded first; of those that an earlier release recorded, nothing.
    checkpoint_times: dict[str, float] = field(default_factory=dict)
    counters: RunCounters = field(default_factory=RunCounters)
    # What ended the attempt before the next launch: an incident, or in words.
    stopped_by: str = ""
    unsettled: list[str] = field(default_factory=list)
    waiting: bool = False
    paused: bool = False
    requested: bool = False
    initial: bool = True
    # Its ranks know the contract, or some step is known.
    reports_steps: bool = False
    stepped: bool = False
    stopped: AttemptId | None = None
    # Furthest step of the attempts stopped since the last base.
    stopped_reached: int = 0
    interruptions: Interruptions = field(default_factory=Interruptions)

    @property
    def num_attempts(self) -> int:
        """Return how many attempts there were."""
        return self.num_put_away + len(self.attempts)

    def put_away(self, keep: int) -> None:
        """Keep the newest attempts, and those that a known checkpoint comes from; of all but the last, only rough marks.

        No figure of the run changes by it; `contributing` then begins with the oldest attempt that is kept.
        """
        if len(self.attempts) > FINE_ATTEMPTS:
            self.attempts[list(self.attempts)[-1 - FINE_ATTEMPTS]].marks.roughen()
        if len(self.attempts) <= keep:
            return
        needed = [*self.checkpoints.values(), self.head, self.current, self.stopped]
        lost = self.lost_steps()
        for attempt in list(self.attempts)[: len(self.attempts) - keep]:
            if attempt not in needed:
                del self.attempts[attempt]
                self.num_put_away += 1
        self.lost_steps_put_away += lost - self.lost_steps()

    # ---- events ---------------------------------------------------------------------------------------------------

    def changed(self, now: float, state: str) -> None:
        """The run moved in its life cycle; the first end counts."""
        if self.ended_at is not None:
            return
        self.waiting, self.paused = state in ("waiting", "paused"), state == "paused"
        if state in ("finished", "stopped", "failed"):
            if self.phase == "step":
                self._split(now, now, now, "finish" if state == "finished" else "stop")
            self._move(now, self.phase)
            self.ended_at = now
        elif self.waiting and self.phase in _RESTING:
            self._move(now, self._idle())
        elif not self.waiting and self.phase in _IDLE:
            self._move(now, self._resting())

    def planned(self, now: float, attempt: AttemptId) -> None:
        """A new attempt exists."""
        if self.ended_at is not None or attempt in self.attempts:
            return
        if self.phase == "step":
            self._split(now, now, now, self._resting())
        number = self.num_attempts
        self.attempts[attempt] = AttemptAccounting(attempt=attempt, number=number, planned_at=now)
        self.current = attempt
        self.waiting = self.paused = False
        if self.phase in _IDLE:
            self._move(now, self._resting())

    def prepared(self, attempt: AttemptId, resume: str, resume_step: int) -> list[tuple[str, int]]:
        """The attempt's checkpoint is chosen; returns the incidents settled by that, with the steps each cost.

        Without a checkpoint of ours nothing is known yet: a script may resume from files of its own.
        """
        account = self.attempts.get(attempt)
        if account is None or account.base is not None or attempt != self.current:
            return []
        if self.ended_at is not None or not (resume or resume_step):
            return []
        parent = self.checkpoints.get(resume) or self._maker(resume)
        parent = parent or self._latest_past(account, resume_step)
        return self._build_on(account, parent, resume_step)

    def advanced(self, now: float, attempt: AttemptId, step: int) -> list[tuple[str, int]]:
        """The attempt finished `step`; returns incidents settled by that, as `prepared` does."""
        account = self.attempts.get(attempt)
        if account is None or self.ended_at is not None:
            return []
        self.reports_steps = self.stepped = True
        if attempt != self.current or account.marks.closed_at is not None:
            self.reached(attempt, step)
            return []
        settled: list[tuple[str, int]] = []
        if account.base is None:
            parent = self._latest_past(account, step - 1)
            settled = self._build_on(account, parent, max(0, step - 1))
        is_first = self.phase != "step"
        if is_first:
            self._move(now, "step")
            self.requested = self.initial = False
        made = account.num_made
        account.marks.add(now, step)
        if is_first:
            paused = self.totals.get("paused", 0.0)
            lost = now - self.admitted_at - self.productive_seconds(now) - paused
            self.interruptions.stepped(lost)
        self.counters.steps += account.num_made - made
        if is_first:
            self.counters.on_first_step(self.stepped_seconds - self.productive_seconds(now))
        return settled

    def late_mark(self, at: float, attempt: AttemptId, step: int) -> None:
        """Note when a step was done of an attempt that has stopped since, where only later news tells of it."""
        account = self.attempts.get(attempt)
        if account is not None and not account.inherited_from:
            account.marks.add_late(at, step)

    def not_before(self, at: float) -> float:
        """Return a time that is noted late, no earlier than what was noted since."""
        account = self._attempt(self.current)
        marked = account.marks.times[-1:] if account is not None else []
        return max([at, self.since, *marked])

    def reached(self, attempt: AttemptId, step: int | None) -> None:
        """Record how far the attempt got by an exit or a checkpoint, not by a mark."""
        account = self.attempts.get(attempt)
        if account is not None and step is not None and not account.inherited_from:
            made = account.num_made
            account.marks.reach(step)
            self.counters.steps += account.num_made - made
            if attempt == self.stopped:
                self.stopped_reached = max(self.stopped_reached, account.marks.reached)

    def checkpointed(self, path: str, attempt: AttemptId, step: int) -> None:
        """There is a checkpoint that an attempt made."""
        self.checkpoints[path] = attempt
        self.reached(attempt, step)
        self.attempts[attempt].marks.add_checkpoint(step)

    def launching(self, now: float, attempt: AttemptId) -> None:
        """Its nodes are assigned to start ranks."""
        if attempt == self.current and self.phase == "prepare":
            self._move(now, "start")

    def would_reach(self, attempt: AttemptId, step: int | None) -> bool:
        """Say whether `reached` would change anything."""
        account = self.attempts.get(attempt)
        return account is not None and step is not None and step > account.marks.reached

    def running(self, now: float, attempt: AttemptId) -> None:
        """All its ranks are spawned."""
        if attempt == self.current and self.phase in ("initial_start", "prepare", "start"):
            self.ran_since = now if self.ran_since is None else self.ran_since

    def stopping(
        self,
        now: float,
        attempt: AttemptId,
        outcome: str | None,
        incident: IncidentAccounting | None,
    ) -> None:
        """The attempt makes no more steps: it finished, a person asked, or `incident` broke it."""
        account = self.attempts.get(attempt)
        if account is None or attempt != self.current or self.ended_at is not None:
            return
        if account.marks.closed_at is not None:
            return
        if outcome == "withdrawn":
            # It never had a rank: whatever went on goes on.
            account.marks.close(now)
            return
        self.requested = False
        if outcome == "finished":
            self._split(now, now, now, "finish")
        elif incident is None and outcome in _REQUESTED:
            self._split(now, now, now, "requested")
            self.requested = True
        else:
            self.counters.begin_recovery()
            failed = now if incident is None else incident.failed_at
            noticed = 0.0 if incident is None else incident.failed_after_seconds
            self._split(now, failed - noticed, failed, "stop")
        self.initial = False
        self.stopped_by = incident.incident if incident is not None else _words(outcome)
        self.stopped = attempt
        self.stopped_reached = max(self.stopped_reached, account.marks.reached)
        if incident is not None and incident.incident not in self.unsettled:
            incident.stopped_attempt = True
            incident.recovered_after_seconds = None
            self.unsettled.append(incident.incident)

    def ended(self, now: float, attempt: AttemptId) -> None:
        """No rank of the attempt is left."""
        account = self.attempts.get(attempt)
        if account is None or account.ended_at is not None:
            return
        account.ended_at = now
        is_resting = self.ended_at is None and self.phase in ("stop", "requested")
        if attempt == self.stopped and is_resting:
            self._move(now, self._idle() if self.waiting else self._resting())

    # ---- figures --------------------------------------------------------------------------------------------------

    def productive_seconds(self, now: float) -> float:
        """Seconds spent on steps that are part of the state as it is now; the step in progress counts as one of them."""
        head = self._attempt(self.head)
        if head is None:
            return 0.0
        if self.phase == "step" and self.head == self.current and self.ended_at is None:
            return head.inherited_seconds + head.marks.stepping_seconds(now)
        return head.inherited_seconds + head.marks.seconds_until(head.marks.reached)

    def lost_seconds(self, now: float) -> dict[str, float]:
        """Seconds by cause, only those above zero.

        What does not grow now is a sum of the same numbers at each call, so that a counter made of it never falls by a rounding.
        """
        end = now if self.ended_at is None else self.ended_at
        totals, phase = dict(self.totals), self.phase
        is_growing = self.ended_at is None and phase != "step"
        if is_growing:
            totals[phase] = totals.get(phase, 0.0) + end - self.since
        totals["rework"] = self._rework_seconds(end)
        if not self.reports_steps:
            for known, seconds in self.ran_seconds.items():
                totals[known] -= seconds
            totals["unreported"] = sum(self.ran_seconds.values())
            if is_growing and self.ran_since is not None:
                before = self.totals.get(phase, 0.0) - self.ran_seconds.get(phase, 0.0)
                totals[phase] = before + self.ran_since - self.since
                totals["unreported"] += end - self.ran_since
        return {cause: totals[cause] for cause in CAUSES if totals.get(cause, 0.0) > 0.0}

    def _rework_seconds(self, end: float) -> float:
        head = self._attempt(self.head)
        if self.phase != "step" or self.ended_at is not None:
            return max(0.0, self.stepped_seconds - self.productive_seconds(end))
        if head is not None and self.head == self.current:
            # All of the present phase is productive.
            return max(0.0, self.stepped_seconds - head.inherited_seconds)
        return max(0.0, self.stepped_seconds + end - self.since - self.productive_seconds(end))

    def contributing(self) -> dict[AttemptId, tuple[int, int]]:
        """First and last step of each attempt that is part of the state now; attempts that add nothing are left out."""
        ranges: dict[AttemptId, tuple[int, int]] = {}
        account = self._attempt(self.head)
        last = account.marks.reached if account is not None else 0
        while account is not None:
            base = account.base or 0
            if last > base:
                ranges[account.attempt] = (base + 1, last)
            # A script may take up at a step older than its parent's first.
            last = min(last, base)
            account = self._attempt(account.parent)
        return dict(reversed(ranges.items()))

    def lost_steps(self) -> int:
        """Return how many steps were made that are not part of the state now, those of attempts that are put away included."""
        every = self.attempts.values()
        made = sum(max(0, each.marks.reached - (each.base or 0)) for each in every)
        kept = sum(last - first + 1 for first, last in self.contributing().values())
        return self.lost_steps_put_away + made - kept

    def keep_counters(self, now: float) -> None:
        """Hold what the counters are at least, before an event may classify seconds again."""
        end = now if self.ended_at is None else self.ended_at
        self.counters.keep(self.marked_seconds(end), self.lost_seconds(end))

    def marked_seconds(self, now: float) -> float:
        """Return the productive seconds without those of the step in progress: what comes after the last mark may be a hang."""
        head = self._attempt(self.head)
        if head is None or self.phase != "step" or self.head != self.current:
            return self.productive_seconds(now)
        marks = head.marks
        return head.inherited_seconds + (marks.times[-1] - marks.times[0] if marks.times else 0.0)

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _attempt(self, attempt: AttemptId | None) -> AttemptAccounting | None:
        return None if attempt is None else self.attempts.get(attempt)

    def _idle(self) -> Phase:
        return "paused" if self.paused else "waiting"

    def _resting(self) -> Phase:
        if self.requested:
            return "requested"
        return "initial_start" if self.initial else "prepare"

    def _move(self, now: float, phase: Phase) -> None:
        """End the phase at `now` and enter `phase`."""
        if self.phase == "step":
            self.stepped_seconds += now - self.since
        else:
            self.totals[self.phase] = self.totals.get(self.phase, 0.0) + now - self.since
            self.counters.spend(self.phase, now - self.since)
            if self.ran_since is not None:
                ran = self.ran_seconds.get(self.phase, 0.0)
                self.ran_seconds[self.phase] = ran + now - max(self.ran_since, self.since)
        self.ran_since = None
        self.phase, self.since = phase, now

    def _split(self, now: float, fault_at: float, opened_at: float, then: Phase) -> None:
        """End the phase in which the fault occurred: up to `fault_at` it went on, then `detect`, from `opened_at` on `then`.

        Steps are known to have gone on until the last mark at least, whatever the incident's own times say.
        """
        floor = self.since
        marks = self.attempts[self.current].marks if self.current is not None else StepMarks()
        if self.phase == "step" and marks.times:
            floor = marks.times[-1]
            if then in ("finish", "requested") and marks.reached <= marks.steps[-1]:
                # The tail went into ending, not into a step.
                fault_at = opened_at = floor
        fault_at = min(now, max(floor, fault_at))
        opened_at = min(now, max(fault_at, opened_at))
        marks.close(fault_at)
        self._move(fault_at, "detect")
        self._move(opened_at, then)

    def _build_on(
        self, account: AttemptAccounting, parent: AttemptId | None, base: int
    ) -> list[tuple[str, int]]:
        """`account` continues from step `base` of `parent`: whatever came after that is overwritten."""
        account.base = base
        account.marks.reach(base)
        self.counters.steps += account.num_made
        source = self._attempt(parent) if base > 0 else None
        if source is not None and source.number < account.number:
            self.reached(source.attempt, base)
            source.inherited_from = True
            account.parent = source.attempt
            account.inherited_seconds = source.inherited_seconds + source.marks.seconds_until(base)
        self.head = account.attempt
        # When several attempts broke before one had a base, the steps were lost with the first of them.
        lost = max(0, self.stopped_reached - base)
        settled = [(name, 0 if index else lost) for index, name in enumerate(self.unsettled)]
        self.unsettled, self.stopped_reached = [], base
        return settled

    def _maker(self, resume: str) -> AttemptId | None:
        """Read the attempt out of a checkpoint folder's name, `<attempt>-<step>`."""
        try:
            maker = AttemptId.parse(resume.rstrip("/").rpartition("/")[2].rpartition("-")[0])
        except ValueError:
            return None
        return maker if maker in self.attempts else None

    def _latest_past(self, account: AttemptAccounting, step: int) -> AttemptId | None:
        """The latest attempt before `account` that had got as far as `step`."""
        for attempt, other in reversed(self.attempts.items()):
            if other.number < account.number and other.marks.reached >= step > 0:
                return attempt
        return None


def _words(outcome: str | None) -> str:
    return "requested" if outcome in _REQUESTED else str(outcome)
