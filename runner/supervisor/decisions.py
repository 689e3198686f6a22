"""Turns: the one way an input becomes a journal entry, a new state, and effects.

decide -> apply -> append (fenced, durable) -> hand the records out. What is taken in together is appended in one step, and nothing
is done before that: a state that never became durable dies with its process. The supervisor and the simulator take turns; nobody
else touches a controller's doors or writes the journal.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.decide.controller import Controller
from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts.messages import records as r
from runner.facts.wire import message, to_message
from runner.history.ledger import Ledger
from runner.journal.journal import Journal
from runner.journal.snapshots import Snapshot
from runner.supervisor.compactor import StateImage

# An input that leads to more is a loop in the decisions; chosen, not measured.
MAX_SETTLE_ROUNDS = 1000

# Inputs that are kept even if they lead to nothing. A Tick moves the state's clock past its deadline, which is due no more.
_ALWAYS_WRITTEN = (r.SupervisorStarted, r.SupervisorPaused, r.Tick, r.MessageUnreadable)

# A snapshot is due once the entries after the last one are as large as this many of it: what a take-over reads stays bounded, and
# so does what is written again and again; and never sooner than after so many entries. Both chosen, not measured.
SNAPSHOT_SHARE = 2.0
# likewise, however much is going on; chosen
OVERDUE_SHARE = 4.0
SNAPSHOT_ENTRIES = 500

_LOG = logging.getLogger("stoker")

Observer = Callable[[r.JournalEntry], None]


@message("recovery")
@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a snapshot holds: the controller's state and the ledger's books, both as after the same entry."""

    state: object
    ledger: Mapping[str, Any] = field(default_factory=dict)


class DecisionLog:
    """Owns a controller, its journal and the ledger that follows it; one thread calls it."""

    def __init__(
        self,
        controller: Controller,
        journal: Journal,
        *,
        on_entry: Observer = lambda entry: None,
        on_outage: Callable[[StoreUnavailable], None],
    ) -> None:
        """`on_entry` sees each entry once it is durable and applied (replayed ones too); `on_outage` waits before a retry."""
        self.controller = controller
        self.ledger = Ledger(bounded=True)
        self._journal = journal
        self._on_entry = on_entry
        self._on_outage = on_outage
        # entry after which the last picture was taken
        self._pictured = 0
        # of entries until then, as far as they passed through our hands
        self._pictured_bytes = 0
        self._is_unmarked = False
        # applied, not durable yet
        self._written_together: list[r.JournalEntry] | None = None

    @contextlib.contextmanager
    def together(self) -> Iterator[Callable[[], None]]:
        """Write what is taken in here in few steps of the store: at the end, and whenever what is yielded is called.

        Until then nothing of it may be acted on. Each is decided on the state that those before it led to, as ever. If taking
        fails, the rest is not written: this state is ahead of the journal then, and whoever has it must end.
        """
        self._written_together = []
        yield self._commit
        self._commit()
        self._written_together = None

    def _commit(self) -> None:
        if self._written_together:
            self._make_durable(self._written_together)
            self._written_together = []
            self._keep_mark()

    @property
    def durable_sequence(self) -> int:
        """Number of the newest entry that the journal is known to hold."""
        return self.controller.state.sequence - len(self._written_together or ())

    def recover(self, *, at_most: int | None = None) -> int:
        """Bring the controller to where the journal ends, by applying alone; return the number of entries applied.

        It goes on from where the controller is, and from a snapshot only where it is at the very beginning: called again and
        again, it follows a journal that somebody else writes. `at_most`: pass over snapshots that contain later entries.
        """
        at_the_beginning = self.controller.state.sequence == 0
        snapshot = Snapshot()
        if at_the_beginning:
            snapshot = self._journal.latest_snapshot(at_most=at_most)
        if isinstance(snapshot.state, Recovery) and isinstance(snapshot.state.state, State):
            self.controller.state = snapshot.state.state
            self.ledger = Ledger.load(snapshot.state.ledger, bounded=True)
            self._pictured = snapshot.through
        applied = 0
        for entry in self._journal.replay(self.controller.state.sequence + 1):
            self.controller.apply(entry)
            self._note(entry)
            applied += 1
        return applied

    def go_on_from(self, followed: DecisionLog) -> None:
        """Take over the controller's state and the books of one that has followed the journal; `recover` reads the rest."""
        self.controller.state = followed.controller.state
        self.ledger = followed.ledger

    def take(self, fact: object, now: float, *, stream: str = "", cursor: int = 0) -> list[object]:
        """Take one input in, and whatever follows from the state after it; return all records, to be acted on in order.

        All of it is written in one step, here or, if words are taken `together`, with theirs.
        An input read from a stream that is behind the inbox cursor was taken before: it leads to nothing.
        """
        if stream and cursor <= self.controller.state.cursors.get(stream, 0):
            return []
        if self._written_together is None:
            with self.together():
                return self._turn(fact, now, stream=stream, cursor=cursor) + self._settled(
                    fact, now
                )
        return self._turn(fact, now, stream=stream, cursor=cursor) + self._settled(fact, now)

    def _settled(self, fact: object, now: float) -> list[object]:
        """Ask what follows from the state until nothing more does."""
        records: list[object] = []
        if self.controller.is_settled:
            return records
        for _ in range(MAX_SETTLE_ROUNDS):
            more = self._turn(r.Settle(), now)
            records += more
            if not more or any(isinstance(record, r.DecisionFailed) for record in more):
                return records
        error = f"deciding does not come to rest: {MAX_SETTLE_ROUNDS} rounds after {type(fact).__name__}"
        return records + self._write(r.Settle(), (r.DecisionFailed(error=error),), now=now)

    def _keep_mark(self) -> None:
        """Mark how far the store got before any effect goes out; a mark that cannot be kept stops nobody."""
        try:
            self._journal.keep_mark(next_epoch=self.controller.state.next_epoch)
            self._is_unmarked = False
        except StoreUnavailable as error:
            if not self._is_unmarked:
                _LOG.warning("a store that forgets might go unnoticed: %s", error)
            self._is_unmarked = True

    def _turn(self, fact: object, now: float, *, stream: str = "", cursor: int = 0) -> list[object]:
        try:
            decided = self.controller.decide(fact, now)
        except Exception:  # noqa: BLE001 - bulkhead: the failure is recorded, the input is passed over
            decided = (r.DecisionFailed(error=traceback.format_exc(limit=-4)[-2000:]),)
        if not decided and not stream and not isinstance(fact, _ALWAYS_WRITTEN):
            return []
        return self._write(fact, decided, now=now, stream=stream, cursor=cursor)

    def _write(
        self,
        fact: object,
        decided: tuple[object, ...],
        *,
        now: float,
        stream: str = "",
        cursor: int = 0,
    ) -> list[object]:
        entry = r.JournalEntry(
            sequence=self.controller.state.sequence + 1,
            now=max(now, self.controller.state.now),
            input=fact,
            stream=stream,
            cursor=cursor,
            records=decided,
        )
        assert self._written_together is not None
        self.controller.apply(entry)
        self._written_together.append(entry)
        return list(decided)

    def _make_durable(self, entries: list[r.JournalEntry]) -> None:
        while True:
            try:
                self._journal.append_many(entries)
                break
            except StoreUnavailable as error:
                # Not acknowledged is not "not done": the same entries again are written once.
                self._on_outage(error)
        for entry in entries:
            self._note(entry)

    def _note(self, entry: r.JournalEntry) -> None:
        self.ledger.apply(entry)
        self._on_entry(entry)

    def is_snapshot_due(self, *, is_quiet: bool) -> bool:
        """Whether so much was written since the last picture that a take-over would read too long a tail.

        A picture of a large fleet takes a tenth of a second: while somebody may wait for a decision, it is put off for a while.
        """
        if self.controller.state.sequence - self._pictured < SNAPSHOT_ENTRIES:
            return False
        tail_bytes = self._journal.passed_bytes - self._pictured_bytes
        share = SNAPSHOT_SHARE if is_quiet else OVERDUE_SHARE
        return tail_bytes >= share * self._journal.snapshot_bytes

    def picture(self) -> StateImage:
        """Take the state as it is now, for somebody else to write down."""
        state = self.controller.state
        plain = to_message(Recovery(state=state, ledger=self.ledger.dump()))
        self._pictured, self._pictured_bytes = state.sequence, self._journal.passed_bytes
        return StateImage(plain=plain, through=state.sequence, cursors=dict(state.cursors))

    def snapshot(self) -> None:
        """Write the state as it is now, so that the next recovery starts here."""
        picture = self.picture()
        self._journal.write_encoded_snapshot(picture.encoded(), picture.through)
