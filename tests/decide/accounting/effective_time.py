"""Where the time of a run went, told from its journal by another way than the ledger's: what each second was, looked up.

The ledger walks through the entries and moves a run from phase to phase. Here `RunHistory` keeps when what happened, and nothing
else. `label` says of any moment what the run did then; the seconds between two moments at which something happened are those of
the moment between them. It uses nothing of `runner.history`.
"""

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field

from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.signals import RankExited, RanksTerminated

ENDS = ("finished", "stopped", "failed")
ON_REQUEST = ("stopped", "reconfigured", "moved", "rewound", "paused", "restarted", None)


@dataclass(kw_only=True)
class AttemptHistory:
    """One attempt: when it was planned, launched, closed and gone, its marks, and how it was closed."""

    attempt: AttemptId
    planned_at: float
    launched_at: float = float("inf")
    running_at: float = float("inf")
    marks: list[tuple[float, int]] = field(default_factory=list)
    base: int | None = None
    parent: "AttemptHistory | None" = None
    # Step -> known when; past the last mark an exit or a checkpoint may show more.
    reached: int = 0
    is_final: bool = False
    closed_at: float = float("inf")
    fault_at: float = float("inf")
    seen_at: float = float("inf")
    gone_at: float = float("inf")
    # What follows its end: "stop", "requested" or "finish".
    then: str = ""

    @property
    def first(self) -> float:
        """When its first step was done."""
        return self.marks[0][0] if self.marks else float("inf")

    def done_at(self, step: int) -> float:
        """When a step was done, by the marks around it."""
        times, steps = [at for at, _ in self.marks], [number for _, number in self.marks]
        if step <= steps[0]:
            return times[0]
        if step > steps[-1]:
            if self.fault_at == float("inf") or self.reached <= steps[-1]:
                return times[-1]
            share = min(1.0, (step - steps[-1]) / (self.reached - steps[-1]))
            return times[-1] + share * (self.fault_at - times[-1])
        right = max(1, bisect_right(steps, step - 1))
        (t0, s0), (t1, s1) = self.marks[right - 1], self.marks[right]
        return t0 + (t1 - t0) * (step - s0) / (s1 - s0)

    def productive(self, step: int) -> float:
        """Seconds that it and those it descends from spent on the steps up to `step`."""
        inherited = self.parent.productive(self.base or 0) if self.parent is not None else 0.0
        own = self.done_at(step) - self.first if self.marks else 0.0
        return inherited + own


class RunHistory:
    """What the entries so far say of one run."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.admitted_at = self.ended_at = float("inf")
        self.states: list[tuple[float, str]] = []
        self.attempts: list[AttemptHistory] = []
        self.reports = False
        self._opened: dict[str, tuple[float, float, AttemptId | None, bool]] = {}
        self._closed: set[str] = set()
        self._makers: dict[str, AttemptHistory] = {}

    def read(self, entry: r.JournalEntry) -> None:
        """Keep when what happened, of one more entry."""
        for fact in (entry.input, *entry.records):
            self._read(fact, entry.now)

    # ---- reading ------------------------------------------------------------------------------------------------------

    def _of(self, attempt: AttemptId | None) -> AttemptHistory | None:
        return next((one for one in self.attempts if one.attempt == attempt), None)

    def _read(self, fact: object, now: float) -> None:
        attempt = getattr(fact, "attempt", None)
        one = self._of(attempt) if isinstance(attempt, AttemptId) else None
        match fact:
            case r.RunAdmitted(run=self.run):
                self.admitted_at = now
            case r.RunChanged(run=self.run):
                self.states.append((now, fact.state))
                if fact.state in ENDS and self.ended_at == float("inf"):
                    self.ended_at = now
            case r.AttemptPlanned() if fact.attempt.run == self.run:
                self.attempts.append(AttemptHistory(attempt=fact.attempt, planned_at=now))
            case r.IncidentOpened() | r.IncidentAmended() | r.IncidentChanged():
                self._read_incident(fact, now)
            case r.CheckpointRecorded(run=self.run):
                maker = self._of(fact.checkpoint.attempt)
                if maker is not None:
                    self._makers[fact.checkpoint.path] = maker
                    self._reach(maker, fact.checkpoint.step)
            case RankExited() | RanksTerminated() if one is not None and fact.last_step is not None:
                self._reach(one, fact.last_step)
            case r.RankCapabilitiesRecorded() if one is not None:
                self.reports = True
            case r.AttemptPrepared() if one is not None and (fact.resume or fact.resume_step):
                self._build(one, fact.resume_step, self._makers.get(fact.resume))
            case r.StepsAdvanced() if one is not None:
                self._step(one, fact.step, now)
            case r.AttemptChanged() if one is not None:
                self._change(one, fact, now)

    def _read_incident(
        self, fact: r.IncidentOpened | r.IncidentAmended | r.IncidentChanged, now: float
    ) -> None:
        match fact:
            case r.IncidentOpened():
                late = fact.detected_after_seconds or 0.0
                self._opened[fact.incident] = (now, late, fact.attempt, fact.non_fatal)
            case r.IncidentAmended() if fact.attempt is not None and fact.incident in self._opened:
                is_non_fatal = self._opened[fact.incident][3]
                self._opened[fact.incident] = (now, 0.0, fact.attempt, is_non_fatal)
            case r.IncidentChanged(state="resolved" | "gave_up"):
                self._closed.add(fact.incident)

    def _reach(self, one: AttemptHistory, step: int) -> None:
        if not one.is_final:
            one.reached = max(one.reached, step)

    def _build(self, one: AttemptHistory, base: int, maker: AttemptHistory | None) -> None:
        if one.base is not None or one is not self.attempts[-1]:
            return
        earlier = self.attempts[: self.attempts.index(one)]
        if maker is None:
            maker = next((one for one in reversed(earlier) if one.reached >= base > 0), None)
        one.base, one.reached = base, max(one.reached, base)
        if base > 0 and maker in earlier:
            one.parent, maker.is_final = maker, True

    def _step(self, one: AttemptHistory, step: int, now: float) -> None:
        self.reports = True
        if one is not self.attempts[-1] or one.closed_at != float("inf"):
            self._reach(one, step)
            return
        if one.base is None:
            self._build(one, max(0, step - 1), None)
        if not one.marks or step > one.marks[-1][1]:
            one.marks.append((now, step))
            one.reached = max(one.reached, step)

    def _change(self, one: AttemptHistory, change: r.AttemptChanged, now: float) -> None:
        if change.state == "launching":
            one.launched_at = now
        elif change.state == "running":
            one.running_at = now
        elif change.state in ("stopping", "ended"):
            if one.closed_at == float("inf") and one is self.attempts[-1]:
                self._close(one, change, now)
            if change.state == "ended":
                one.gone_at = min(one.gone_at, now)

    def _close(self, one: AttemptHistory, change: r.AttemptChanged, now: float) -> None:
        if change.outcome == "withdrawn":
            self.attempts.remove(one)
            return
        incident = change.incident or next(
            (
                name
                for name, (_, _, attempt, non_fatal) in reversed(self._opened.items())
                if attempt == one.attempt and not non_fatal and name not in self._closed
            ),
            None,
        )
        fault_at = seen_at = now
        if change.outcome == "finished":
            one.then = "finish"
        elif incident is None and change.outcome in ON_REQUEST:
            one.then = "requested"
        else:
            one.then = "stop"
            if incident is not None:
                seen_at, late, *_ = self._opened[incident]
                fault_at = seen_at - late
        floor = one.marks[-1][0] if one.marks else self._since(now)
        if one.then != "stop" and one.marks and one.reached <= one.marks[-1][1]:
            fault_at = seen_at = floor
        one.closed_at = now
        one.fault_at = min(now, max(floor, fault_at))
        one.seen_at = min(now, max(one.fault_at, seen_at))

    def _since(self, now: float) -> float:
        """When what the run does just before `now` began."""
        moments = [at for at in self._moments(now) if at < now]
        what = self.label((moments[-1] + now) / 2) if moments else ""
        for earlier, later in zip(reversed(moments), reversed([*moments[1:], now]), strict=True):
            if self.label((earlier + later) / 2) != what:
                return later
        return self.admitted_at

    # ---- asking -------------------------------------------------------------------------------------------------------

    def label(self, at: float) -> str:
        """Say what the run did at a moment at which nothing happened."""
        begun = [one for one in self.attempts if one.planned_at < at]
        for one in begun:
            if one.first < at < one.fault_at:
                return "step"
            if one.fault_at < at < one.seen_at:
                return "detect"
            if one.seen_at < at < one.gone_at and one.then == "stop":
                return "stop"
        last = begun[-1] if begun else None
        if last is not None and last.closed_at < at and last.then == "finish":
            return "finish"
        if last is not None and last.seen_at < at < last.gone_at:
            return last.then
        state_at, state = max(
            ((when, state) for when, state in self.states if when < at), default=(0.0, "active")
        )
        if state in ("waiting", "paused") and (last is None or last.planned_at < state_at):
            return state
        broken = [one for one in begun if one.fault_at < at]
        if not broken:
            return "initial_start"
        if broken[-1].then == "requested":
            return "requested"
        is_launched = last is not None and last is not broken[-1] and last.launched_at < at
        idle_since = max((when for when, state in self.states if when < at), default=0.0)
        is_later = is_launched and last is not None and last.launched_at >= idle_since
        return "start" if is_later else "prepare"

    def _moments(self, until: float) -> list[float]:
        own = (
            at
            for one in self.attempts
            for at in (
                one.planned_at,
                one.launched_at,
                one.first,
                one.fault_at,
                one.seen_at,
                one.closed_at,
                one.gone_at,
            )
        )
        every = {self.admitted_at, *own, *(at for at, _ in self.states)}
        return sorted(at for at in every if self.admitted_at <= at < until)

    def seconds(self, now: float) -> dict[str, float]:
        """Return productive and lost seconds until `now`, or until the run's end, by what they went into."""
        end = min(now, self.ended_at)
        moments = [*self._moments(end), end]
        found: dict[str, float] = {}
        for begin, then in itertools.pairwise(moments):
            what = self.label((begin + then) / 2)
            found[what] = found.get(what, 0.0) + then - begin
        stepping = found.pop("step", 0.0)
        found["productive"] = self._productive(end)
        found["rework"] = max(0.0, stepping - found["productive"])
        return found

    def _productive(self, end: float) -> float:
        head = next((one for one in reversed(self.attempts) if one.base is not None), None)
        if head is None:
            return 0.0
        if head.marks and head.closed_at == float("inf") and head is self.attempts[-1]:
            if self.ended_at != float("inf"):
                return head.productive(head.reached)
            inherited = head.parent.productive(head.base or 0) if head.parent is not None else 0.0
            return inherited + end - head.first
        return head.productive(head.reached)

    def productive_within(self, start: float, end: float) -> float:
        """Return the productive seconds between two moments, the later of which is now: of steps that count as things are now."""
        one = next((one for one in reversed(self.attempts) if one.base is not None), None)
        found, until = 0.0, self._productive(end)
        while one is not None:
            inherited = one.parent.productive(one.base or 0) if one.parent is not None else 0.0
            if one.marks:
                last = min(end, one.first + max(0.0, until - inherited))
                found += max(0.0, last - max(one.first, start))
            one, until = one.parent, inherited
        return found
