"""Rules that bind the daemon, and no person: budgets of pages, attempts and remedies, and which checkpoint may be taken.

They fold the journal with books of their own and recompute each limit from what pages and specs say.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.incidents.rungs.going_back import PREFERRED
from runner.decide.nodes.checks import check_results
from runner.facts.actions import ActionResult
from runner.facts.checkpoints import Checkpoint, Rewind, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages.records_checkpoints import CheckpointJudged, RunRewound
from runner.facts.messages.records_checks import HardwareChecked
from runner.facts.remedies import REMEDIES
from runner.facts.specs.run import RunSpec
from runner.facts.specs.runbook import NUMERIC_VERBS, PASSIVE_VERBS, Runbook
from tests.decide.invariants import check

DAY_SECONDS = 86_400.0
# Requests after which a run starts afresh.
STARTS = ("resume_run", "restart_run", "rewind_run")
# What a ladder may order; the rest is a person's (docs/people.md).
AUTOMATIC = ("lr_factor", "lr_peak", "lr", "skip_steps")


@dataclass(slots=True, kw_only=True)
class AttemptNotes:
    """What an attempt came to."""

    best_before: int
    resume: str = ""
    resume_step: int = 0
    last_step: int | None = None
    outcome: str = ""
    up_at: float | None = None
    stopping_at: float | None = None


@dataclass(slots=True, kw_only=True)
class RunNotes:
    """What the journal says of a run."""

    spec: RunSpec
    best_step: int = 0
    # Its ranks sent a hello or a step, ever.
    has_reported: bool = False
    attempts: dict[AttemptId, AttemptNotes] = field(default_factory=dict)
    # Attempts in a row that died without a new step, since a person let the run go on.
    fruitless: int = 0
    # What people asked of the run that is not done; and whether they let it go on since its last attempt began.
    asked: dict[str, None] = field(default_factory=dict)
    was_let_go_on: bool = False
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    rewinds: list[Rewind] = field(default_factory=list)
    page_times: dict[str, list[float]] = field(default_factory=dict)
    settings: dict[str, object] = field(default_factory=dict)

    def is_usable(self, known: Checkpoint) -> bool:
        """Whether a checkpoint is neither refused nor set aside."""
        left = any(rewind.sets_aside(known.step, known.attempt) for rewind in self.rewinds)
        return known.trust is not Trust.REFUSED and not left

    def usable(self, before_step: float) -> list[Checkpoint]:
        """Return those that are, before a step, oldest first."""
        found = [c for c in self.checkpoints.values() if self.is_usable(c) and c.step < before_step]
        return sorted(found, key=lambda known: known.age)


@dataclass(slots=True, kw_only=True)
class Rules:
    """The runs of a journal so far."""

    policy: Policy
    runs: dict[int, RunNotes] = field(default_factory=dict)
    # Incident -> its record, and the rung that it took last.
    incidents: dict[str, r.IncidentOpened] = field(default_factory=dict)
    rungs: dict[str, r.RungTaken] = field(default_factory=dict)
    # Attempt -> what its survey may take.
    surveyed: dict[str, list[Checkpoint]] = field(default_factory=dict)
    # Hardware -> checks in a row in which a value was behind or below a floor; whether this entry is of checks that found no more.
    num_behind: dict[str, int] = field(default_factory=dict)
    is_weak: bool = False
    now: float = 0.0

    def take(self, entry: r.JournalEntry) -> None:
        """Fold an entry, and check what the daemon did in it."""
        self.now = entry.now
        found = check_results.read(entry.input) if isinstance(entry.input, ActionResult) else None
        self.is_weak = found is not None and (found.is_weak or found.outcome == "PASS")
        for record in entry.records:
            handler = _HANDLERS.get(type(record))
            if handler is not None:
                handler(self, record)

    # ---- hardware ---------------------------------------------------------------------------------------------------

    def _hardware_checked(self, record: HardwareChecked) -> None:
        before = self.num_behind.get(record.hardware, 0)
        self.num_behind[record.hardware] = before + 1 if record.behind else 0

    def _hardware_judged(self, record: r.HardwareJudged) -> None:
        is_alone = bool(record.verdict) and not record.by and self.is_weak
        num = self.num_behind.get(record.hardware, 0)
        check(not is_alone or num > 1, f"found bad by {num} weak sign: {record}")

    # ---- budgets ----------------------------------------------------------------------------------------------------

    def _rung_taken(self, record: r.RungTaken) -> None:
        self.rungs[record.incident] = record
        opened = self.incidents[record.incident]
        run = self.runs.get(opened.run or 0)
        if run is None or record.by or record.do in PASSIVE_VERBS:
            return
        book = self._page(record.runbook)
        mode = max(
            run.spec.mode or self.policy.cluster.mode,
            book.mode or "act",
            key=("act", "advise", "off").index,
        )
        check(mode != "off", f"mode off, and no person approved: {record}")
        check(
            mode == "act" or record.do not in NUMERIC_VERBS, f"mode {mode}, not approved: {record}"
        )
        times = run.page_times.setdefault(book.name, [])
        today = [at for at in times if at > self.now - DAY_SECONDS]
        limit, pause = book.limits.per_day, book.limits.cooldown_seconds
        check(not limit or len(today) < limit, f"{len(today)} rungs of {book.name} today: {record}")
        check(not today or self.now >= today[-1] + pause, f"{book.name} rests {pause} s: {record}")
        times.append(self.now)

    def _remedy_added(self, record: r.RemedyAdded) -> None:
        if record.incident is None:
            return
        run, kind = self.runs[record.run], REMEDIES[record.remedy]
        check(record.remedy in AUTOMATIC, f"a ladder ordered {record.remedy}: {record}")
        check(not kind.automatic_problem(record.value), f"out of a ladder's bounds: {record}")
        peak = run.settings.get("lr_peak")
        factor = run.settings.get("lr_factor", 1.0)
        if not isinstance(peak, float) or not isinstance(factor, float):
            return
        if record.remedy != "skip_steps":
            rate = peak * factor * record.value if record.remedy == "lr_factor" else record.value
            floor = run.spec.lr_floor
            check(rate >= floor, f"{rate} is below the floor {floor}: {record}")
            check(rate <= peak, f"{rate} is above the peak {peak}: {record}")

    def _attempt_changed(self, record: r.AttemptChanged) -> None:
        run = self.runs[record.attempt.run]
        notes = run.attempts[record.attempt]
        notes.outcome = record.outcome or notes.outcome
        if record.state == "running":
            notes.up_at = self.now
        elif record.state == "stopping":
            notes.stopping_at = self.now
        if record.state != "ended" or notes.outcome not in ("crashed", "hung", "lost"):
            return
        has_advanced = notes.last_step is not None and notes.last_step > notes.best_before
        # Of ranks that report nothing, living on is progress.
        up_seconds = (notes.stopping_at or self.now) - (notes.up_at or self.now)
        is_silent = not run.has_reported and not run.spec.trainer
        has_lasted = is_silent and notes.up_at is not None and up_seconds >= run.spec.steady_seconds
        run.fruitless = 0 if has_advanced or has_lasted else run.fruitless + 1

    def _planned(self, record: r.AttemptPlanned) -> None:
        run = self.runs[record.attempt.run]
        limit, is_asked = run.spec.max_attempts_without_progress, bool(run.asked)
        check(
            run.fruitless < limit or is_asked,
            f"{run.fruitless} attempts without progress, {limit} are the limit: {record}",
        )
        before = list(run.attempts.values())[-1:]
        has_died = any(one.outcome in ("crashed", "hung", "lost") for one in before)
        is_off = (run.spec.mode or self.policy.cluster.mode) == "off"
        check(
            not (is_off and has_died) or is_asked or run.was_let_go_on,
            f"mode off, and it goes on by itself: {record}",
        )
        run.was_let_go_on = False
        run.attempts[record.attempt] = AttemptNotes(best_before=run.best_step)

    def _greeted(self, record: r.RankCapabilitiesRecorded) -> None:
        self.runs[record.attempt.run].has_reported = True

    def _hold_ended(self, record: p.HoldEnded) -> None:
        run = self.runs[record.run]
        run.fruitless, run.was_let_go_on = 0, True

    def _requested(self, record: r.RequestRecorded) -> None:
        run = self.runs.get(record.run or 0)
        if run is None:
            return
        run.asked.pop(record.id, None)
        if record.state == "open":
            run.asked[record.id] = None
            # What failed before is no reason to give up.
            run.fruitless = 0 if record.request in STARTS else run.fruitless

    def _advanced(self, record: r.StepsAdvanced) -> None:
        run = self.runs[record.attempt.run]
        notes = run.attempts[record.attempt]
        notes.last_step, run.has_reported = max(record.step, notes.last_step or 0), True
        if not any(record.attempt <= rewind.until for rewind in run.rewinds):
            run.best_step = max(run.best_step, record.step)

    # ---- trust ------------------------------------------------------------------------------------------------------

    def _prepared(self, record: r.AttemptPrepared) -> None:
        run = self.runs[record.attempt.run]
        notes = run.attempts[record.attempt]
        notes.resume, notes.resume_step = record.resume, record.resume_step

    def _launched(self, record: r.AttemptChanged) -> None:
        """Check at its launch that an attempt resumes from nothing that is out, and from the newest that may be taken."""
        run = self.runs[record.attempt.run]
        notes = run.attempts[record.attempt]
        known = run.checkpoints.get(notes.resume)
        if known is not None:
            check(run.is_usable(known), f"{record.attempt} resumes from {known}, which is out")
        # As they were when the survey was asked for; one that was refused since is left out.
        surveyed = self.surveyed[str(record.attempt)]
        usable = [one for one in surveyed if run.is_usable(run.checkpoints.get(one.path, one))]
        verified = [one for one in usable if one.is_at_least(Trust.INTACT)]
        allowed = [each[-1].path for each in (usable, verified) if each]
        # A survey finds what no node has reported, too.
        is_new = notes.resume and all(one.path != notes.resume for one in surveyed)
        check(
            notes.resume in allowed or not allowed or bool(is_new),
            f"{record.attempt} resumes from {notes.resume or 'nothing'}, not {allowed}",
        )

    def _issued(self, record: r.ActionIssued) -> None:
        action = record.action
        if action.action == "prepare_attempt" and action.run is not None:
            usable = self.runs[action.run].usable(float("inf"))
            has_folder = bool(action.args["folder"])
            self.surveyed[str(action.args["attempt"])] = usable if has_folder else []

    def _checkpoint_recorded(self, record: r.CheckpointRecorded) -> None:
        self.runs[record.run].checkpoints[record.checkpoint.path] = record.checkpoint

    def _checkpoint_judged(self, record: CheckpointJudged) -> None:
        known = self.runs[record.run].checkpoints[record.path]
        if record.trust is not None:
            known = replace(known, trust=record.trust)
        self.runs[record.run].checkpoints[record.path] = known

    def _checkpoint_removed(self, record: r.CheckpointRemoved) -> None:
        self.runs[record.run].checkpoints.pop(record.path, None)

    def _rewound(self, record: RunRewound) -> None:
        """Check that a run goes back to the newest of those that are trusted most, before the onset; then set aside the rest."""
        run = self.runs[record.run]
        chosen = run.checkpoints[record.path]
        check(run.is_usable(chosen), f"{record.path} is out: {record}")
        check(chosen.step < record.before_step, f"step {chosen.step} is not before: {record}")
        taken = self.rungs.get(record.incident or "")
        if taken is not None and taken.do == "rewind":
            self._check_choice(run, chosen, taken)
        elif taken is None or taken.do == "older_checkpoint":
            newest = run.usable(record.before_step)[-1]
            check(chosen.path == newest.path, f"{newest.path} is newer: {record}")
        run.rewinds.append(record.rewind)
        run.best_step = min(run.best_step, max(1, record.rewind.step))
        attempts = [run.attempts[name] for name in run.attempts if name == record.rewind.until]
        if any((one.last_step or 0) > one.best_before for one in attempts):
            run.fruitless = 0

    def _check_choice(self, run: RunNotes, chosen: Checkpoint, taken: r.RungTaken) -> None:
        opened = self.incidents[taken.incident]
        args = self._page(taken.runbook).ladder[taken.rung].args
        # Of a finding that names no step, the furthest one counts.
        onset = max(1, opened.onset or opened.step or run.best_step)
        check(chosen.step < onset, f"back to step {chosen.step}, and it began at {onset}")
        if "scale_at_least" in args:
            return
        found = run.usable(max(1, onset - int(args.get("before", 0))))
        if not found:
            found = run.usable(onset)[:1]
        best = min(PREFERRED.index(one.trust) for one in found)
        due = [one for one in found if PREFERRED.index(one.trust) == best][-1]
        # Of one step, any attempt's.
        same = (chosen.step, chosen.trust) == (due.step, due.trust)
        check(same, f"back to {chosen}, due was {due}, for {opened.onset}")

    # ---- what there is ----------------------------------------------------------------------------------------------

    def _admitted(self, record: r.RunAdmitted) -> None:
        self.runs[record.run] = RunNotes(spec=record.spec)

    def _opened(self, record: r.IncidentOpened) -> None:
        self.incidents[record.incident] = record

    def _settings_read(self, record: r.SettingsRead) -> None:
        run = self.runs[record.attempt.run]
        if record.attempt == max(run.attempts):
            run.settings = dict(record.values)

    def _page(self, name: str) -> Runbook:
        return next(book for book in self.policy.runbooks if book.name == name)

    def on_attempt(self, record: r.AttemptChanged) -> None:
        """Check a launch, and count an end."""
        if record.state == "launching":
            self._launched(record)
        self._attempt_changed(record)


_HANDLERS: dict[type, Callable[[Rules, Any], None]] = {
    HardwareChecked: Rules._hardware_checked,
    r.HardwareJudged: Rules._hardware_judged,
    r.RungTaken: Rules._rung_taken,
    r.RemedyAdded: Rules._remedy_added,
    r.AttemptChanged: Rules.on_attempt,
    r.AttemptPlanned: Rules._planned,
    r.AttemptPrepared: Rules._prepared,
    r.StepsAdvanced: Rules._advanced,
    r.RankCapabilitiesRecorded: Rules._greeted,
    p.HoldEnded: Rules._hold_ended,
    r.RequestRecorded: Rules._requested,
    r.ActionIssued: Rules._issued,
    r.CheckpointRecorded: Rules._checkpoint_recorded,
    CheckpointJudged: Rules._checkpoint_judged,
    r.CheckpointRemoved: Rules._checkpoint_removed,
    RunRewound: Rules._rewound,
    r.RunAdmitted: Rules._admitted,
    r.IncidentOpened: Rules._opened,
    r.SettingsRead: Rules._settings_read,
}
