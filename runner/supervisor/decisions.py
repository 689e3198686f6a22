"""The decision log: the one way in which an input becomes a journal entry, a new state, and records to act on.

decide -> apply -> append (fenced, durable) -> return the records. Inputs of one batch are appended in one step, and no effect
starts before that: a state that never became durable dies with its process. Only the supervisor and the simulator call a
controller and write the journal, and both do it here.
"""

import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import field

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wire import Value, encode
from runner.history.ledger import Ledger
from runner.journal.journal import Journal
from runner.load.runbooks import load_runbooks
from runner.supervisor.compactor import StateImage

# An input that leads to more is an endless loop in the decisions. Chosen, not measured.
MAX_SETTLE_ROUNDS = 1000

# Journalled even without records. A Tick moves the state's clock past its deadline, so that it is not due again.
_ALWAYS_JOURNALLED = (r.SupervisorStarted, r.SupervisorPaused, r.Tick, r.MessageUnreadable)

# A snapshot is due once the entries after the last one are this many times its size (the second:
# while inputs wait for a decision), which bounds both what a take-over reads and what snapshots
# cost; never before SNAPSHOT_ENTRIES. Chosen, not measured.
SNAPSHOT_SHARE, OVERDUE_SHARE = 2.0, 4.0
SNAPSHOT_ENTRIES = 500

# Stream and number of an input, and that of one which no stream brought.
Source = tuple[str, int]
UNREAD: Source = ("", 0)

_LOG = logging.getLogger("stoker")


class Recovery(Value, kind="recovery"):
    """What a snapshot holds: the controller's state and the ledger's accounts, both after the same entry."""

    state: object
    ledger: Mapping[str, Any] = field(default_factory=dict)


def policy_of(cluster: ClusterSpec) -> Policy:
    """Return the policy that decisions about a cluster follow; raise SpecError if a page of its site is wrong."""
    books = load_runbooks(site=cluster.runbooks_folder)
    return Policy(cluster=cluster, runbooks=tuple(books.values()))


def _raise(error: StoreUnavailable) -> None:
    raise error


class DecisionLog:
    """Owns a controller, its journal and the ledger that follows it; one thread calls it."""

    def __init__(
        self,
        controller: Controller,
        journal: Journal,
        *,
        on_entry: Callable[[r.JournalEntry], None] = lambda entry: None,
        on_outage: Callable[[StoreUnavailable], None] = _raise,
    ) -> None:
        """`on_entry` gets each entry once it is durable and applied, replayed ones included; `on_outage` waits before a retry."""
        self.controller, self._journal = controller, journal
        self.ledger = Ledger(bounded=True)
        self._on_entry, self._on_outage = on_entry, on_outage
        # Of this process, for metrics: steps of the store that appended entries, and how long they took.
        self.num_appends, self.append_seconds = 0, 0.0
        # The entry of the last state image, and the bytes of entries seen until then.
        self._imaged, self._imaged_bytes = 0, 0
        self._is_mark_failing = False
        # Applied, not durable yet; None outside a batch.
        self._pending: list[r.JournalEntry] | None = None

    @contextlib.contextmanager
    def batch(self) -> Iterator[Callable[[], None]]:
        """Append the inputs processed inside in few steps of the store: at the end, and when the yielded function is called.

        Their records may be acted on only after that. Each input is decided on the state after the one before it. If an input
        raises, the rest is not appended: the state is then ahead of the journal, and the process must end.
        """
        self._pending = []
        yield self._commit
        self._commit()
        self._pending = None

    def _commit(self) -> None:
        if self._pending:
            self._make_durable(self._pending)
            self._pending = []
            self._persist_high_water()

    @property
    def durable_sequence(self) -> int:
        """Number of the newest entry that the journal is known to hold."""
        return self.controller.state.sequence - len(self._pending or ())

    def recover(self, *, at_most: int | None = None, unsigned_through: int = 0) -> int:
        """Bring the controller to the journal's end, by applying alone; return the number of entries applied.

        A controller without any entry starts from a snapshot, any other from its own state: called
        repeatedly, this follows a journal that another process writes. `at_most`: skip snapshots
        that contain later entries. `unsigned_through`: entries up to this one may lack a code.
        """
        if self.controller.state.sequence == 0:
            snapshot = self._journal.latest_snapshot(at_most=at_most)
            if isinstance(snapshot.state, Recovery) and isinstance(snapshot.state.state, State):
                self.controller.state = snapshot.state.state
                self.ledger = Ledger.load(snapshot.state.ledger, bounded=True)
                self._imaged = snapshot.through
        begun_at = self.controller.state.sequence
        apply, on_durable = self.controller.apply, self._on_durable
        for entry in self._journal.replay(begun_at + 1, unsigned_through=unsigned_through):
            apply(entry)
            on_durable(entry)
        return self.controller.state.sequence - begun_at

    def adopt(self, standby: "DecisionLog") -> None:
        """Continue with the state and ledger of a log that has followed the journal; `recover` reads the rest."""
        self.controller.state, self.ledger = standby.controller.state, standby.ledger

    def process(
        self, fact: object, now: float, *, stream: str = "", cursor: int = 0
    ) -> list[object]:
        """Decide on one input, and on what follows from the state after it; return all records, to be acted on in order.

        They are appended in one step: here, or with the `batch` that is open. An item at or before
        its stream's cursor was processed before and leads to nothing.
        """
        if stream and cursor <= self.controller.state.cursors.get(stream, 0):
            return []
        with self.batch() if self._pending is None else contextlib.nullcontext():
            return self._decide(fact, now, (stream, cursor)) + self._settle(fact, now)

    def _settle(self, fact: object, now: float) -> list[object]:
        """Ask what follows from the state until nothing more does."""
        records: list[object] = []
        if self.controller.is_settled:
            return records
        for _ in range(MAX_SETTLE_ROUNDS):
            more = self._decide(r.Settle(), now)
            records += more
            if not more or any(isinstance(record, r.DecisionFailed) for record in more):
                return records
        error = f"deciding does not come to rest: {MAX_SETTLE_ROUNDS} rounds after {type(fact).__name__}"
        return records + self._write(r.Settle(), (r.DecisionFailed(error=error),), now)

    def _persist_high_water(self) -> None:
        """Record how far the store got before any effect starts; a failure is logged once and stops nothing."""
        try:
            self._journal.persist_high_water(next_generation=self.controller.state.next_generation)
            self._is_mark_failing = False
        except StoreUnavailable as error:
            if not self._is_mark_failing:
                what = (
                    "a rollback of the store may go undetected, the high-water mark is not written"
                )
                _LOG.warning("%s: %s", what, error)
            self._is_mark_failing = True

    def _decide(self, fact: object, now: float, source: Source = UNREAD) -> list[object]:
        try:
            decided = self.controller.decide(fact, now)
        except Exception:  # noqa: BLE001 - bulkhead: the failure is journalled, the input is skipped
            decided = (r.DecisionFailed(error=traceback.format_exc(limit=-4)[-2000:]),)
        if not decided and source == UNREAD and not isinstance(fact, _ALWAYS_JOURNALLED):
            return []
        return self._write(fact, decided, now, source)

    def _write(
        self, fact: object, decided: tuple[object, ...], now: float, source: Source = UNREAD
    ) -> list[object]:
        entry = r.JournalEntry(
            sequence=self.controller.state.sequence + 1,
            now=max(now, self.controller.state.now),
            input=fact,
            stream=source[0],
            cursor=source[1],
            records=decided,
        )
        assert self._pending is not None
        self.controller.apply(entry)
        self._pending.append(entry)
        return list(decided)

    def _make_durable(self, entries: list[r.JournalEntry]) -> None:
        while True:
            begun_at = time.monotonic()
            try:
                self._journal.append_many(entries)
                self.num_appends += 1
                self.append_seconds += time.monotonic() - begun_at
                break
            except StoreUnavailable as error:
                # It may have succeeded without an acknowledgement: to append again is idempotent.
                self._on_outage(error)
        for entry in entries:
            self._on_durable(entry)

    def _on_durable(self, entry: r.JournalEntry) -> None:
        self.ledger.apply(entry)
        self._on_entry(entry)

    def is_snapshot_due(self, *, is_quiet: bool) -> bool:
        """Whether a take-over would have to read too many entries after the last snapshot.

        Copying the state of a large fleet takes a tenth of a second: it is put off while inputs wait for a decision.
        """
        if self.controller.state.sequence - self._imaged < SNAPSHOT_ENTRIES:
            return False
        tail_bytes = self._journal.passed_bytes - self._imaged_bytes
        share = SNAPSHOT_SHARE if is_quiet else OVERDUE_SHARE
        return tail_bytes >= share * self._journal.snapshot_bytes

    def state_image(self) -> StateImage:
        """Copy the present state, to be written as a snapshot by another thread."""
        state = self.controller.state
        body = encode(Recovery(state=state, ledger=self.ledger.dump()))
        self._imaged, self._imaged_bytes = state.sequence, self._journal.passed_bytes
        return StateImage(body=body, through=state.sequence, cursors=dict(state.cursors))

    def snapshot(self) -> None:
        """Write a snapshot of the present state, so that the next recovery starts here."""
        image = self.state_image()
        self._journal.write_encoded_snapshot(image.body, image.through)
