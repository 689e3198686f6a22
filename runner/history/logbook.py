"""The logbook: what a team that trains a large model writes by hand. One entry per incident, intervention, note, start and end:
when, which attempt, what happened, the evidence, what was done and who did it, what came of it, and what it cost.

A record belongs to the entry of the incident or the request that it names. Kinds are sorted into evidence, outcomes and what only
keeps the books; every other kind that has a phrase is something that was done, so that new kinds need no change here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from runner.facts.actions import ActionResult
from runner.facts.checkpoints import Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages.records_trials import TrialEnded
from runner.facts.wording import printable
from runner.history.ledger import Ledger
from runner.history.phrases import input_phrase, record_phrase

EntryKind = Literal["start", "incident", "request", "note", "checkpoint", "supervisor", "end"]
PieceList = Literal["evidence", "done", "came_of_it"]

# Who did what no person asked for.
STOKER = "Stoker"
# Pieces of a list of an entry, half of them its first and half its last: a crash loop's entry does not grow beyond. Chosen, not
# measured: a ladder of a dozen rungs has some seventy.
MAX_PIECES = 200
# Actions that are an answer to something. The others prepare or look.
_SHOWN_ACTIONS = ("page", "start_agent", "stop_agent")
# They say again what the entry says already, or keep the books.
_UNSHOWN = (
    r.HardwareFaultRecorded,
    r.IncidentOpened,
    r.ActionEnded,
    r.NodeCleared,
    p.NoteAdded,
    p.IncidentAcknowledged,
)
# They begin an entry.
_BEGIN = (r.RunAdmitted, r.IncidentOpened, r.RequestRecorded)
_ENDS = ("finished", "stopped", "failed")
_ASKED = ("stopped", "reconfigured", "moved", "rewound", "paused", "restarted")
_STOPS = ("stop_requested", "stopping")
# Their words are in entries of their own.
_ELSEWHERE = ("start_run", "add_note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """Something that was done: when (controller's clock, seconds), who did it, and what."""

    at: float
    by: str
    what: str


@dataclass(slots=True, kw_only=True)
class LogbookEntry:
    """One entry. `id`: of the incident or request, "" for others. Times are the controller's clock, in seconds.

    `lost_seconds` is what the ledger counts as lost from the entry's beginning to the first step after it; None: it ended no
    attempt, or no step has followed yet. `lost_steps`: made, and overwritten. Entries that ended the same attempt have its cost
    each: they do not add up. `left_out`: of a list that was too long, by its name, how many pieces between its first and last half.
    """

    kind: EntryKind
    id: str = ""
    at: float
    by: str = STOKER
    run: int | None = None
    attempt: AttemptId | None = None
    what: str
    evidence: list[str] = field(default_factory=list)
    done: list[Deed] = field(default_factory=list)
    came_of_it: list[str] = field(default_factory=list)
    # The last that is known of an incident or a request: "resolved", "refused", ...
    state: str = ""
    lost_seconds: float | None = None
    lost_steps: int | None = None
    left_out: dict[PieceList, int] = field(default_factory=dict)

    def add(self, name: PieceList, piece: str | Deed) -> None:
        """Add a piece that is not there yet; of a list that is full, the oldest of the last half goes."""
        pieces: list[Any] = getattr(self, name)
        if piece in pieces:
            return
        pieces.append(piece)
        if len(pieces) > MAX_PIECES:
            del pieces[MAX_PIECES // 2]
            self.left_out[name] = self.left_out.get(name, 0) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChapter:
    """A run's part of the logbook: its figures by the ledger, and incidents that are open though it ended."""

    run: int
    name: str
    state: str
    num_attempts: int
    begun_at: float
    wall_seconds: float
    lost_seconds: float
    ettr_ratio: float | None
    open_incidents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Logbook:
    """The entries of a journal in order of time, and a chapter per run."""

    runs: tuple[RunChapter, ...]
    entries: tuple[LogbookEntry, ...]


def logbook(entries: Iterable[r.JournalEntry], *, run: str | None = None) -> Logbook:
    """Fold a journal into its logbook, of all runs or of the newest one with this name or number.

    Entries about no run (a supervisor that takes over, a node that is drained) are in every logbook. Raises KeyError for an
    unknown run, with the names of those that there are.
    """
    writer = _Writer()
    for entry in entries:
        writer.take(entry)
    chapters = writer.chapters()
    if run is None:
        return Logbook(runs=chapters, entries=tuple(writer.written))
    named = [chapter for chapter in chapters if run in (chapter.name, str(chapter.run))]
    if not named:
        raise KeyError(*[chapter.name for chapter in chapters])
    picked = named[-1]
    chosen = [each for each in writer.written if each.run in (None, picked.run)]
    return Logbook(runs=(picked,), entries=tuple(chosen))


@dataclass(slots=True)
class _Writer:
    """Writes entries as the journal goes by."""

    ledger: Ledger = field(default_factory=Ledger)
    written: list[LogbookEntry] = field(default_factory=list)
    by_id: dict[str, LogbookEntry] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    has_supervisor: bool = False
    # Action, and remedy of a run -> the entry that it belongs to.
    of_action: dict[str, str] = field(default_factory=dict)
    of_remedy: dict[tuple[int, str], str] = field(default_factory=dict)
    # Attempt -> the entry that planned it, or ended the one before.
    of_attempt: dict[AttemptId, str] = field(default_factory=dict)
    attempt_of_node: dict[str, AttemptId] = field(default_factory=dict)
    newest: dict[int, AttemptId] = field(default_factory=dict)
    stepped: set[AttemptId] = field(default_factory=set)
    # Requests that are open, by run: one of them may end its attempt.
    asked: dict[int, list[str]] = field(default_factory=dict)
    # Entries that ended an attempt, by run, with the seconds that were lost before them.
    pending: dict[int, dict[str, float]] = field(default_factory=dict)

    def take(self, entry: r.JournalEntry) -> None:
        """Write down what an entry of the journal says."""
        before = self._lost_before(entry)
        self.ledger.apply(entry)
        self._input(entry)
        # What others of the entry belong to comes first.
        for record in sorted(entry.records, key=lambda record: not isinstance(record, _BEGIN)):
            self._record(record, entry, before)

    def chapters(self) -> tuple[RunChapter, ...]:
        """Return the figures of all runs as of the last entry."""
        return tuple(self._chapter(run) for run in self.ledger.runs)

    # ---- figures, which are the ledger's --------------------------------------------------------------------------

    def _lost_before(self, entry: r.JournalEntry) -> Mapping[int, float]:
        """The lost seconds of the runs with an attempt that this entry ends."""
        runs = {
            record.attempt.run
            for record in entry.records
            if isinstance(record, r.AttemptChanged) and record.state in _STOPS
        }
        known = [run for run in self.ledger.runs if run in runs]
        return {run: self._lost(run, entry.now) for run in known}

    def _lost(self, run: int, now: float) -> float:
        return sum(self.ledger.summary(run, now).lost_seconds.values())

    def _chapter(self, run: int) -> RunChapter:
        summary = self.ledger.summary(run, 0.0)
        state = self.states.get(run, "active")
        sick = self._open_incidents(run) if state in _ENDS else ()
        return RunChapter(
            run=run,
            name=summary.name,
            state=state,
            num_attempts=summary.num_attempts,
            begun_at=self.ledger.account(run).admitted_at,
            wall_seconds=summary.wall_seconds,
            lost_seconds=sum(summary.lost_seconds.values()),
            ettr_ratio=summary.ettr_ratio,
            open_incidents=sick,
        )

    def _open_incidents(self, run: int) -> tuple[str, ...]:
        return tuple(
            each.id
            for each in self.written
            if each.kind == "incident"
            and each.run == run
            and each.state not in ("resolved", "gave_up")
        )

    def _stops(self, record: r.AttemptChanged, before: Mapping[int, float]) -> None:
        """An attempt is to end: what it ends for has cost nothing yet."""
        run = record.attempt.run
        if record.state not in _STOPS or run not in before:
            return
        names = [record.incident] if record.incident else []
        if not names and record.outcome in _ASKED:
            names = list(self.asked.get(run, ()))
        if not names and record.outcome not in _ASKED:
            names = [self.of_attempt.get(record.attempt, "")]
        for name in names:
            if name in self.by_id:
                self.pending.setdefault(run, {}).setdefault(name, before[run])

    def _settle(self, run: int, now: float, attempt: AttemptId | None = None) -> None:
        """A first step of this attempt, or the run's end: what was pending has cost so much."""
        total = self._lost(run, now)
        for name, before in self.pending.pop(run, {}).items():
            entry = self.by_id[name]
            lost = (entry.lost_seconds or 0.0) + max(0.0, total - before)
            entry.lost_seconds = round(lost, 3)
            cost = self.ledger.incident(name)
            entry.lost_steps = self._redone(attempt) if cost is None else cost.steps_lost

    def _redone(self, attempt: AttemptId | None) -> int | None:
        """Steps that the attempts before had made, and that this one makes again."""
        if attempt is None:
            return None
        accounts = self.ledger.account(attempt.run).attempts
        own = accounts[attempt]
        others = [each.marks.reached for each in accounts.values() if each.number == own.number - 1]
        return max(0, max(others, default=0) - (own.base or 0))

    # ---- inputs and records ---------------------------------------------------------------------------------------

    def _write(self, entry: LogbookEntry) -> LogbookEntry:
        self.written.append(entry)
        if entry.id:
            self.by_id[entry.id] = entry
        return entry

    def _input(self, entry: r.JournalEntry) -> None:
        fact = entry.input
        if isinstance(fact, r.SupervisorStarted):
            if self.has_supervisor:
                self._write(LogbookEntry(kind="supervisor", at=entry.now, what=input_phrase(fact)))
            self.has_supervisor = True

    def _record(self, record: object, entry: r.JournalEntry, before: Mapping[int, float]) -> None:
        now = entry.now
        match record:
            case r.RunAdmitted():
                self._admitted(record, now)
            case r.IncidentOpened():
                self._opened(record, now)
            case r.RequestRecorded():
                self._requested(record, entry)
            case p.NoteAdded():
                self._note_added(record, now)
            case r.StepsAdvanced():
                self._advanced(record, now)
            case r.RunChanged():
                self._run_changed(record, now)
            case r.CheckpointRecorded() if record.checkpoint.trust is Trust.REFUSED:
                self._refused(record, entry)
            case r.ActionIssued():
                self._issued(record, now)
            case r.AttemptChanged():
                self._stops(record, before)
            case _:
                self._attempts(record)
                self._other(record, now)

    def _admitted(self, record: r.RunAdmitted, now: float) -> None:
        self.states[record.run] = "active"
        self._write(
            LogbookEntry(
                kind="start",
                at=now,
                by=record.user or STOKER,
                run=record.run,
                what=record_phrase(record),
            )
        )

    def _opened(self, record: r.IncidentOpened, now: float) -> None:
        if record.incident in self.by_id:
            return
        run = record.attempt.run if record.attempt is not None else record.run
        where = [record.node] if record.node else []
        where += [f"rank {record.rank}"] if record.rank is not None else []
        place = f" on {', '.join(where)}" if where else ""
        at_step = f", at step {record.step}" if record.step is not None else ""
        self._write(
            LogbookEntry(
                kind="incident",
                id=record.incident,
                at=now,
                run=run,
                attempt=record.attempt,
                what=f"{record.fault}{place}{at_step}",
                evidence=[printable(record.evidence)],
                state="open",
            )
        )
        if record.attempt is not None:
            self.of_attempt[record.attempt] = record.incident

    def _requested(self, record: r.RequestRecorded, entry: r.JournalEntry) -> None:
        """Of a person. It is section in the entry of the incident that it answers, if it names one."""
        if record.request in _ELSEWHERE:
            return
        section = self.by_id.get(record.id)
        if section is None:
            section = self._new_request(record, entry.input, entry.now)
            self.by_id[record.id] = section
        if record.run is not None:
            others = [name for name in self.asked.get(record.run, ()) if name != record.id]
            self.asked[record.run] = [*others, record.id] if record.state == "open" else others
        self._answered(section, record)

    def _new_request(self, record: r.RequestRecorded, fact: object, now: float) -> LogbookEntry:
        who = printable(record.by, 60) or "an unknown user"
        is_it = isinstance(fact, q.Request) and fact.id == record.id
        words = input_phrase(fact) if is_it else f"{who} asks for {record.request}"
        answered = self.by_id.get(record.incident)
        if answered is not None and answered.kind == "incident":
            answered.add("done", Deed(at=now, by=who, what=words))
            return answered
        run = record.run
        if run is None and record.node in self.attempt_of_node:
            run = self.attempt_of_node[record.node].run
        return self._write(
            LogbookEntry(
                kind="request",
                id=record.id,
                at=now,
                by=who,
                run=run,
                attempt=None if run is None else self.newest.get(run),
                what=words,
            )
        )

    def _answered(self, section: LogbookEntry, record: r.RequestRecorded) -> None:
        if section.kind == "request":
            section.state = record.state
        if record.state == "open" and not record.message:
            return
        state = "accepted" if record.state == "open" else record.state
        words = f"{state}: {printable(record.message)}" if record.message else state
        section.add("came_of_it", words)

    def _note_added(self, record: p.NoteAdded, now: float) -> None:
        run = record.run
        about = self.by_id.get(record.incident or "")
        run = about.run if about is not None and run is None else run
        self._write(
            LogbookEntry(
                kind="note",
                id="",
                at=now,
                by=printable(record.by, 60) or "an unknown user",
                run=run,
                attempt=None if run is None else self.newest.get(run),
                what=(f"about {record.incident}: " if record.incident else "")
                + printable(record.text, 2000),
            )
        )

    def _advanced(self, record: r.StepsAdvanced, now: float) -> None:
        attempt = record.attempt
        if attempt in self.stepped:
            return
        self.stepped.add(attempt)
        self._settle(attempt.run, now, attempt)
        section = self.by_id.get(self.of_attempt.get(attempt, ""))
        if section is None:
            return
        after = now - section.at
        section.add("came_of_it", f"{attempt} made step {record.step} {after:.1f} s later")

    def _run_changed(self, record: r.RunChanged, now: float) -> None:
        self.states[record.run] = record.state
        section = self.by_id.get(record.incident or "")
        if section is not None:
            section.add("came_of_it", record_phrase(record))
        if record.state not in _ENDS:
            return
        self._settle(record.run, now)
        open_ones = [self.by_id[name] for name in self._open_incidents(record.run)]
        self._write(
            LogbookEntry(
                kind="end",
                at=now,
                run=record.run,
                attempt=self.newest.get(record.run),
                what=record_phrase(record),
                state=record.state,
                evidence=[f"{each.id} is still open: {each.what}" for each in open_ones],
            )
        )

    def _refused(self, record: r.CheckpointRecorded, entry: r.JournalEntry) -> None:
        action = entry.input.id if isinstance(entry.input, ActionResult) else ""
        section = self.by_id.get(self.of_action.get(action, ""))
        if section is not None:
            section.add("evidence", record_phrase(record))
            return
        self._write(
            LogbookEntry(
                kind="checkpoint",
                at=entry.now,
                run=record.run,
                attempt=record.checkpoint.attempt,
                what=record_phrase(record),
            )
        )

    def _issued(self, record: r.ActionIssued, now: float) -> None:
        action = record.action
        name = action.incident or ""
        self.of_action[action.id] = name
        section = self.by_id.get(name)
        if section is not None and action.action in _SHOWN_ACTIONS:
            self._deed(section, record, now)

    def _attempts(self, record: object) -> None:
        """Which entry an attempt belongs to: the one that planned it, or the last that ended the attempt before."""
        match record:
            case r.AttemptPlanned():
                run = record.attempt.run
                name = record.incident or next(reversed(self.pending.get(run, {})), "")
                if name:
                    self.of_attempt[record.attempt] = name
                self.newest[run] = record.attempt
                self.attempt_of_node |= dict.fromkeys(record.nodes, record.attempt)
            case r.IncidentAmended(attempt=AttemptId() as attempt):
                self.of_attempt[attempt] = record.incident

    def _other(self, record: object, now: float) -> None:
        section = self.by_id.get(self._name_of(record))
        if section is None or isinstance(record, _UNSHOWN):
            return
        match record:
            case r.IncidentAmended():
                section.add("evidence", printable(record.evidence))
                section.what = (
                    f"{section.what}, then {record.fault}" if record.fault else section.what
                )
            case r.IncidentDiagnosed():
                section.add("evidence", record_phrase(record))
                for line in record.cause.lines:
                    section.add("evidence", printable(line))
            case r.IncidentChanged():
                section.state = record.state
                if record.state in ("resolved", "gave_up") or record.reason:
                    section.add("came_of_it", record_phrase(record))
            case TrialEnded() | r.RemedyChecked():
                section.add("came_of_it", record_phrase(record))
            case _:
                self._deed(section, record, now)

    def _name_of(self, record: object) -> str:
        """The entry that a record belongs to: it names an incident or a request, or an attempt or a remedy of one."""
        names: Sequence[object] = (getattr(record, "request", ""), getattr(record, "incident", ""))
        for name in names:
            if isinstance(name, str) and name in self.by_id:
                self._remember(record, name)
                return name
        if isinstance(record, r.RemedyChecked | r.RemedyReverted):
            return self.of_remedy.get((record.run, record.id), "")
        if isinstance(record, r.AttemptPrepared | r.AttemptPlanned):
            return self.of_attempt.get(record.attempt, "")
        return ""

    def _remember(self, record: object, name: str) -> None:
        if isinstance(record, r.RemedyAdded):
            self.of_remedy[record.run, record.id] = name

    def _deed(self, section: LogbookEntry, record: object, now: float) -> None:
        words = record_phrase(record)
        if words:
            is_asked = bool(getattr(record, "request", ""))
            by = printable(str(getattr(record, "by", "")), 60) if is_asked else ""
            section.add("done", Deed(at=now, by=by or STOKER, what=words))
