"""The story: from the first signal to the last effect, in words, with the reason of each decision.

A line is an input that led to something worth showing: what came in, and what was decided. Routine is left out (marks
of steps after the first of an attempt, checkpoints that verify, nodes that are as expected), so that an incident fits a screen.
"""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from runner.facts.actions import ActionResult
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.isolation import IsolationWanted
from runner.facts.wording import printable_words
from runner.history.phrases import hardware_name, input_phrase, record_phrase, slowest_phase

# A node's move to or from one of these has a line; so has the check that follows.
_OUT = ("suspect", "lost", "quarantined", "maintenance", "left", "retired")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineLine:
    """One input and all that followed from it at once. `now` is the controller's clock (seconds since the epoch),
    `offset_seconds` counts from the first line shown, `sequence` is the journal entry of the input.

    `input_text` is "" for what followed from the state alone. `incidents` are those that the decisions belong to.
    """

    sequence: int
    now: float
    offset_seconds: float
    input_text: str
    decided: tuple[str, ...]
    incidents: tuple[str, ...] = ()
    run: int | None = None


# Inputs worth a line though nothing was decided about them.
_SELF_EXPLANATORY = (r.SupervisorStarted, r.SupervisorPaused, r.MessageUnreadable)


def story(
    entries: Iterable[r.JournalEntry],
    *,
    run: int | None = None,
    incident: str | None = None,
    since: float | None = None,
) -> list[TimelineLine]:
    """Return the lines of all entries, or of one run or one incident, from `since` (controller's clock) on."""
    threads, lines = _Threads(), list[TimelineLine]()
    for entry in entries:
        texts = [
            (words, thread)
            for words, thread in threads.follow(entry)
            if (run is None or thread.run == run)
            and (incident is None or thread.incident == incident)
        ]
        explains_itself = (
            isinstance(entry.input, _SELF_EXPLANATORY) and run is None and incident is None
        )
        if not (texts or explains_itself) or (since is not None and entry.now < since):
            continue
        line = TimelineLine(
            sequence=entry.sequence,
            now=entry.now,
            offset_seconds=entry.now - lines[0].now if lines else 0.0,
            input_text=input_phrase(entry.input) + threads.name_of(entry.input),
            decided=tuple(words for words, _ in texts),
            incidents=tuple(dict.fromkeys(t.incident for _, t in texts if t.incident is not None)),
            run=next((thread.run for _, thread in texts if thread.run is not None), None),
        )
        if lines and isinstance(entry.input, r.Settle) and entry.now == lines[-1].now:
            lines[-1] = _joined(lines[-1], line)
        else:
            lines.append(line)
    return lines


def _joined(before: TimelineLine, after: TimelineLine) -> TimelineLine:
    """Put what follows from a turn at once into its line."""
    return dataclasses.replace(
        before,
        decided=before.decided + after.decided,
        incidents=tuple(dict.fromkeys(before.incidents + after.incidents)),
        run=before.run if before.run is not None else after.run,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Thread:
    """What a record belongs to."""

    run: int | None = None
    incident: str | None = None


@dataclass(slots=True)
class _Threads:
    """Ties records to runs and incidents, since most name only an attempt, a node or an action."""

    # Id -> kind, thread.
    actions: dict[str, tuple[str, _Thread]] = field(default_factory=dict)
    isolations: dict[str, _Thread] = field(default_factory=dict)
    run_of_incident: dict[str, int] = field(default_factory=dict)
    # The one that an attempt is part of now.
    incident_of: dict[AttemptId, str] = field(default_factory=dict)
    attempt_of_node: dict[str, AttemptId] = field(default_factory=dict)
    state_of_node: dict[str, str] = field(default_factory=dict)
    # Nodes that are checked for having been out.
    returning: set[str] = field(default_factory=set)
    hardware_of_node: dict[str, str] = field(default_factory=dict)
    newest_name_of_hardware: dict[str, str] = field(default_factory=dict)
    launched_at: dict[AttemptId, float] = field(default_factory=dict)
    has_stepped: set[AttemptId] = field(default_factory=set)
    # Of each run, the least step with which an attempt without a checkpoint of Stoker's began to print.
    first_printed: dict[int, int] = field(default_factory=dict)
    has_resumed: set[AttemptId] = field(default_factory=set)
    # The last one with a line that its ranks were not forked.
    not_forked: AttemptId | None = None

    def follow(self, entry: r.JournalEntry) -> list[tuple[str, _Thread]]:
        """Return the texts of an entry's records, each with what it belongs to."""
        for record in entry.records:
            self._note(record)
        idle = [d.node for d in entry.records if isinstance(d, r.Assigned) and d.attempt is None]
        evidence = [
            d.evidence for d in entry.records if isinstance(d, r.IncidentOpened | r.IncidentAmended)
        ]
        texts: list[tuple[str, _Thread]] = []
        for record in entry.records:
            if isinstance(record, r.RungTaken) and record.reason in evidence:
                # The evidence has just been shown.
                record = replace(record, reason="")
            words = self._words(record, entry, idle=idle)
            if words:
                texts.append((words, self._thread(record, entry.input)))
        # After its resolution an incident has no part in what its attempts do.
        resolved = [
            record.incident
            for record in entry.records
            if isinstance(record, r.IncidentChanged) and record.state == "resolved"
        ]
        if resolved:
            self.incident_of = {a: i for a, i in self.incident_of.items() if i not in resolved}
        return texts

    def name_of(self, fact: object) -> str:
        """Return the kind of the action whose result this is: its id alone says nothing."""
        if isinstance(fact, ActionResult) and fact.id in self.actions:
            return f" ({self.actions[fact.id][0]})"
        return ""

    def _note(self, record: object) -> None:
        if isinstance(record, r.IncidentOpened | r.IncidentAmended) and record.attempt is not None:
            self.incident_of[record.attempt] = record.incident
            self.run_of_incident[record.incident] = record.attempt.run
        elif isinstance(record, r.IncidentOpened) and record.run is not None:
            self.run_of_incident[record.incident] = record.run
        elif isinstance(record, r.AttemptPlanned):
            self.attempt_of_node |= dict.fromkeys(record.nodes, record.attempt)
            if record.incident is not None:
                self.incident_of[record.attempt] = record.incident
        elif isinstance(record, r.ActionIssued):
            action = record.action
            of_incident = self.run_of_incident.get(action.incident or "")
            run = of_incident if action.run is None else action.run
            self.actions[action.id] = action.action, _Thread(run=run, incident=action.incident)
        elif isinstance(record, IsolationWanted):
            thread = _Thread(run=record.run, incident=record.incident)
            self.isolations[record.isolation] = thread
        elif isinstance(record, r.Assigned) and record.attempt is not None:
            self.attempt_of_node[record.node] = record.attempt

    def _thread(self, record: object, fact: object) -> _Thread:
        if isinstance(record, r.ActionIssued):
            return self.actions[record.action.id][1]
        if isinstance(record, r.CheckpointRecorded) and isinstance(fact, ActionResult):
            return self.actions.get(fact.id, ("", _Thread(run=record.run)))[1]
        if isinstance(record, r.ActionEnded):
            return self.actions.get(record.id, ("", _Thread()))[1]
        if (of_isolation := self.isolations.get(getattr(record, "isolation", ""))) is not None:
            return of_isolation
        incident: str | None = getattr(record, "incident", None)
        attempt: AttemptId | None = getattr(record, "attempt", None)
        node: str | None = getattr(record, "node", None)
        run: int | None = getattr(record, "run", None)
        if attempt is None and node is not None:
            attempt = self.attempt_of_node.get(node)
        if incident is None and attempt is not None:
            incident = self.incident_of.get(attempt)
        if run is None:
            run = attempt.run if attempt is not None else self.run_of_incident.get(incident or "")
        return _Thread(run=run, incident=incident)

    def _words(self, record: object, entry: r.JournalEntry, *, idle: list[str]) -> str:
        match record:
            case r.StepsAdvanced():
                return self._first_step(record, entry.now)
            case r.NodeLaunched():
                return self._fresh(record)
            case r.NodeChanged():
                return self._node_changed(record)
            case r.HardwareSeen():
                return self._hardware_seen(record)
            case r.AttemptPrepared() if record.resume:
                self.has_resumed.add(record.attempt)
            case r.AttemptChanged(state="launching"):
                self.launched_at.setdefault(record.attempt, entry.now)
            case r.Assigned(attempt=None) if record.node == idle[0]:
                grace, stacks = record.grace_seconds, record.stacks_seconds
                how = f"SIGTERM, SIGKILL after {grace:g} s" if grace else "SIGKILL, without grace"
                how += f", their stacks first, for {stacks:g} s at most" if stacks else ""
                return f"ranks on {printable_words(idle)} are ended ({how})"
            case r.ActionEnded() if not isinstance(entry.input, ActionResult):
                kind = self.actions.get(record.id, ("an action", _Thread()))[0]
                return f"action {record.id} ({kind}) ended: {record.outcome}: {record.message}"
        return record_phrase(record)

    def _node_changed(self, record: r.NodeChanged) -> str:
        before = self.state_of_node.get(record.node, "")
        self.state_of_node[record.node] = record.state
        is_shown = record.state in _OUT or before in _OUT
        if before == "checking" and record.node in self.returning:
            self.returning.remove(record.node)
            is_shown = True
        if record.state == "checking" and is_shown:
            self.returning.add(record.node)
        return record_phrase(record) if is_shown else ""

    def _hardware_seen(self, record: r.HardwareSeen) -> str:
        """A node seen for the first time is routine; another name, or other hardware, is not."""
        earlier = self.hardware_of_node.get(record.node, record.hardware)
        was = self.newest_name_of_hardware.get(record.hardware, record.node)
        self.hardware_of_node[record.node], self.newest_name_of_hardware[record.hardware] = (
            record.hardware,
            record.node,
        )
        news = f", which was {was} before" if was != record.node else ""
        news += f"; until now it was {hardware_name(earlier)}" if earlier != record.hardware else ""
        return f"{record_phrase(record)}{news}" if news else ""

    def _first_step(self, record: r.StepsAdvanced, now: float) -> str:
        if record.attempt in self.has_stepped:
            return ""
        self.has_stepped.add(record.attempt)
        words = f"first step of {record.attempt}: step {record.step}"
        if record.loss is not None:
            words += f", loss {record.loss:.4g}"
        if record.attempt in self.launched_at:
            words += f", {now - self.launched_at[record.attempt]:.1f} s after its launch"
        words += self._own_resume(record)
        slowest = slowest_phase(record.timings)
        return f"{words}; slowest start phase: {slowest}" if slowest else words

    def _own_resume(self, record: r.StepsAdvanced) -> str:
        """Say whether a script that got no checkpoint from Stoker resumed: its first printed step shows it, beside earlier ones."""
        attempt = record.attempt
        if record.printed_by is None or attempt in self.has_resumed:
            return ""
        earlier = self.first_printed.get(attempt.run)
        self.first_printed[attempt.run] = min(record.step, earlier or record.step)
        if earlier is None:
            return ""
        if record.step > earlier:
            return "; the script resumed from its own checkpoint"
        return "; the script began again from its start"

    def _fresh(self, record: r.NodeLaunched) -> str:
        """Once an attempt: of many nodes with one and the same trouble, the first is shown."""
        if not record.not_forked_reason or record.attempt == self.not_forked:
            return ""
        self.not_forked = record.attempt
        return record_phrase(record)
