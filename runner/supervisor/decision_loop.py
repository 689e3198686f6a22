"""What the loop around the controller does with inputs, records and store outages; the supervisor and the simulator share it.

They differ in where inputs come from, how they wait for the store, and how actions are executed (`LoopEnv`).
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from runner.act.registers import Registers
from runner.decide.controller import Controller
from runner.detect.registry import DetectorRegistry
from runner.errors import StoreUnavailable
from runner.facts.actions import Action
from runner.facts.messages import records as r
from runner.facts.watch import StepsWanted
from runner.journal.journal import Journal
from runner.supervisor.decisions import DecisionLog

_LOG = logging.getLogger("stoker")

STORE_OUTAGE = "the store was out of reach"
SUPERVISOR_STALL = "the supervisor stood still"


class LoopEnv(Protocol):
    """Where a decision loop runs. Times are seconds on the controller's clock."""

    def now(self) -> float:
        """Return the time."""

    def submit(self, action: Action) -> None:
        """Start an action; its outcome comes back as an input."""

    def put_many(self, values: Mapping[str, bytes]) -> None:
        """Write registers under the lease."""

    def probe_store(self) -> None:
        """Raise StoreUnavailable unless the store accepts writes."""

    def wait_for_store(self, error: StoreUnavailable) -> float:
        """Wait before a retry; return how long, in seconds. May raise to end the loop."""

    def on_entry(self, entry: r.JournalEntry) -> None:
        """React to an entry that is durable and applied, replayed ones included; by default not at all."""
        return

    def recall_steps(self, wanted: StepsWanted) -> None:
        """Read these steps of a run's history, and hand them to the detectors; by default not at all."""
        return

    def on_executed(self) -> None:
        """React to records whose effects were started."""

    def on_unwritten(self, error: StoreUnavailable) -> None:
        """React to registers that could not be written and stay due."""


class DecisionLoop:
    """Owns the decision log, the detectors and the registers of one supervisor; one thread calls it."""

    def __init__(
        self, controller: Controller, journal: Journal, registers: Registers, env: LoopEnv
    ) -> None:
        self.log = DecisionLog(
            controller, journal, on_entry=env.on_entry, on_outage=self.wait_for_store
        )
        self.detectors = DetectorRegistry(controller.policy.cluster.heartbeat_timeout_seconds)
        self.registers, self._env = registers, env
        # Waited in the middle of a decision; the controller does not know of it yet.
        self._outage_seconds = 0.0
        # The last probe failed.
        self.is_store_suspect = False
        # The entry after which the controller was asked when to wake, and its answer.
        self._refreshed_at, self._wake_at = -1, math.inf

    def take_over(self, started: r.SupervisorStarted) -> None:
        """Journal that this supervisor leads, write every assignment, and execute open actions again.

        An open action may or may not have been executed before: every kind of action is idempotent.
        """
        state = self.log.controller.state
        open_before = [item.action for item in state.actions.values()]
        self.process(started)
        self.registers.queue_all(state)
        self.write_registers()
        for action in open_before:
            if action.id in state.actions:
                self._env.submit(action)

    def process(self, fact: object) -> None:
        """Decide on an input and execute what follows."""
        self.execute(self.log.process(fact, self._env.now()))

    def execute(self, records: Sequence[object]) -> None:
        """Carry out the effects of records that are durable and applied: actions first, then registers."""
        for record in records:
            if isinstance(record, r.ActionIssued):
                self._env.submit(record.action)
            elif isinstance(record, r.DecisionFailed):
                _LOG.error("DECISION FAILED, the input was skipped: %s", record.error)
        self.registers.queue_changes(records, self.log.controller.state)
        self.write_registers()
        if records:
            self._env.on_executed()

    def write_registers(self) -> None:
        """Write the registers that are due; those that cannot be written stay due."""
        try:
            self.registers.write(self._env.put_many)
        except StoreUnavailable as error:
            self._env.on_unwritten(error)

    def pause(self, seconds: float, reason: str) -> list[object]:
        """Extend every deadline by a time in which no signal could arrive; return the records."""
        self.detectors.shift(seconds)
        return self.log.process(r.SupervisorPaused(seconds=seconds, reason=reason), self._env.now())

    def wait_for_store(self, error: StoreUnavailable) -> None:
        """Wait in the middle of a decision; silence in that time is not attributed to nodes."""
        seconds = self._env.wait_for_store(error)
        self._outage_seconds += seconds
        self.detectors.shift(seconds)

    def report_outage(self) -> None:
        """Report to the controller how long the loop waited for the store, so that no deadline passes in that time."""
        while self._outage_seconds > 0:
            seconds, self._outage_seconds = self._outage_seconds, 0.0
            self.execute(self.pause(seconds, STORE_OUTAGE))

    def next_due(self) -> float:
        """Return when a detector or a deadline of the controller has something to say at the earliest; inf: never."""
        self.refresh()
        return min(self._wake_at, self._detectors_due())

    def refresh(self) -> None:
        """Bring what the detectors watch, and the controller's next deadline, up to the present state."""
        sequence = self.log.controller.state.sequence
        if sequence == self._refreshed_at:
            return
        self._refreshed_at = sequence
        self.detectors.watch(self.log.controller.watch())
        for wanted in self.detectors.wanted():
            self._env.recall_steps(wanted)
        wake_at = self.log.controller.wake_at()
        self._wake_at = math.inf if wake_at is None else wake_at

    def judge(
        self, observed_until: Callable[[], float | None], *, may_tick: Callable[[], bool]
    ) -> None:
        """Run the detectors on what was observed so far, and the controller's deadlines.

        `observed_until`: all that nodes sent before was processed; None: unknown, so nodes are not
        judged now.
        """
        self.refresh()
        until = observed_until()
        if until is not None and (
            self.is_store_suspect
            or until >= self._detectors_due()
            or self._env.now() >= self._wake_at
        ):
            self._confirm_store()
            until = observed_until()
        if until is not None:
            for finding in self.detectors.tick(until):
                self.process(finding)
        self.refresh()
        if self._env.now() >= self._wake_at and may_tick():
            self.process(r.Tick())

    def _detectors_due(self) -> float:
        due_at = self.detectors.due_at()
        return math.inf if due_at is None else due_at

    def _confirm_store(self) -> None:
        """Before declaring nodes silent, check that the store accepts writes.

        If it does not, heartbeats could not have arrived either. Their timeouts restart once a probe succeeds again.
        """
        try:
            self._env.probe_store()
            if self.is_store_suspect:
                self.is_store_suspect = False
                self.detectors.shift(0.0)
        except StoreUnavailable as error:
            self.is_store_suspect = True
            self.wait_for_store(error)
            self.report_outage()
