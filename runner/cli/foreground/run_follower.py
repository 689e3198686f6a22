"""The loop that follows a run: it keeps a supervisor running, updates the screen, and handles Ctrl-C."""

import contextlib
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Self

from runner.cli import exit_codes, output
from runner.cli.clusters import LIVE_STATES, leader_of, status_in
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.leftovers import Leftover, kill_all, kill_ranks, processes_of
from runner.cli.foreground.presence import Presence, is_attended
from runner.cli.foreground.screen import PlainScreen, screen_for
from runner.cli.foreground.status_feed import StatusFeed, is_over
from runner.cli.foreground.summary import Summary, summarize
from runner.cli.foreground.supervisor_child import SupervisorChild
from runner.cli.request_client import ask, new_request_id, requester, send, submitting_user
from runner.decide.placement.topology import describe_torn_groups
from runner.errors import StokerError, StoreUnavailable, TemporaryError, UserError
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.messages.requests import ShutDown, StartRun, StopRun
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.store.protocol import Store

# Chosen, not measured. A supervisor answers at once, except while it starts its agents.
SUPERVISOR_CHECK_SECONDS = 0.5
START_ANSWER_SECONDS = 60.0
REPEAT_STOP_SECONDS = 2.0
SHUTDOWN_SECONDS = 90.0


class KilledByUser(StokerError):
    """A second Ctrl-C: everything was killed."""


class Interrupts(contextlib.ExitStack):
    """Counts Ctrl-C and SIGTERM while entered, and wakes the store's reader so that they take effect at once."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.count = 0
        self._store = store

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self.callback(signal.signal, number, signal.signal(number, self._count))
        return self

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._store.wake()


def start_run(
    store: Store, cluster: ClusterSpec, spec: RunSpec, *, accepts_drift: bool = False
) -> int:
    """Request the start of a run, or of the same one that is live already; return its number.

    `accepts_drift`: it may run with other code, packages or variables than the run of this name before it.
    An earlier run of this name that is being stopped is waited for. Raises UserError with the reason of a refusal.
    """
    live = {run.run for run in _live_runs(store, cluster) if run.name == spec.name}
    deadline = time.monotonic() + START_ANSWER_SECONDS
    while True:
        request = StartRun(
            id=new_request_id(),
            by=requester(),
            spec=spec,
            user=submitting_user(),
            accepts_drift=accepts_drift,
        )
        answer = ask(store, cluster, request, timeout_seconds=START_ANSWER_SECONDS)
        if answer.state != "refused" or answer.run is None or time.monotonic() > deadline:
            break
        time.sleep(REPEAT_STOP_SECONDS)
    if answer.run in live and answer.state == "done":
        output.print_note(
            f"run {answer.run} {spec.name} is live already, and goes on from where it is"
        )
    elif answer.state == "done" and (torn := describe_torn_groups(spec)):
        output.print_note(torn)
    if answer.state != "done" or answer.run is None:
        raise UserError(f"run {spec.name!r} was {answer.state}: {answer.message}")
    return answer.run


def _live_runs(store: Store, cluster: ClusterSpec) -> list[RunStatus]:
    status = status_in(store, cluster)
    return [] if status is None else [run for run in status.runs if run.state in LIVE_STATES]


class Foreground:
    """One run in the foreground, and the supervisor that it needs. `presence`: among the commands of the cluster."""

    def __init__(
        self, store: Store, cluster: ClusterSpec, interrupts: Interrupts, presence: Presence
    ) -> None:
        self.store, self.cluster, self.interrupts = store, cluster, interrupts
        self._presence = presence
        self.child = SupervisorChild(cluster, store, log=output.print_note)
        self.screen = PlainScreen(-1)
        self.run = -1
        # The run may differ from the one of its name before it.
        self.accepts_drift = False
        # Gets the run's number once it is admitted.
        self.on_started: Callable[[int], None] = lambda run: None
        self._stop_asked_at = 0.0

    def follow(
        self,
        spec: RunSpec,
        *,
        as_json: bool,
        on_status: Callable[[ClusterStatus], None] = lambda status: None,
    ) -> ClusterStatus:
        """Start a run and show it until it has ended; return the last status. Raises SupervisorLost and KilledByUser.

        `on_status` gets each status after the screen; it may send requests, and must not block.
        """
        self.child.start()
        self._presence.started()
        self.run = start_run(self.store, self.cluster, spec, accepts_drift=self.accepts_drift)
        self.on_started(self.run)
        self.screen = screen_for(self.run, as_json=as_json)
        with self.screen:
            self.child.log = self.screen.log
            try:
                return self._follow(on_status)
            finally:
                self.child.log = output.print_note

    def outcome(self, status: ClusterStatus) -> tuple[int, Summary]:
        """Return the exit code and the summary of the run that has ended."""
        ended = find_run(status, self.run)
        assert ended is not None
        code = exit_codes.INTERRUPTED if self.interrupts.count else exit_codes.of_run(ended.state)
        return code, summarize(status, ended)

    def other_live_runs(self) -> list[str]:
        """Return the names of the cluster's other runs that have not ended."""
        return [run.name for run in _live_runs(self.store, self.cluster) if run.run != self.run]

    def is_alone(self) -> bool:
        """Whether nothing else needs the cluster: neither a live run nor another command, of which none comes from then on."""
        return self._presence.is_last() and not self.other_live_runs()

    def is_last(self) -> bool:
        """Whether no other command in the foreground follows a run of the cluster."""
        return self._presence.is_last()

    @property
    def has_attended_supervisor(self) -> bool:
        """Whether the supervisor is one that commands in the foreground started, and end."""
        return self.child.is_ours or is_attended(self.store, self.cluster)

    def shut_down(self) -> tuple[list[Leftover], list[Leftover]]:
        """Shut the cluster down in order; kill what does not end within SHUTDOWN_SECONDS, or at a second Ctrl-C.

        Returns the processes that were killed, and those that survived.
        """
        before = self.interrupts.count
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        asked = False
        while time.monotonic() < deadline and self.interrupts.count < max(2, before + 1):
            if not asked:
                with contextlib.suppress(TemporaryError):
                    send(self.store, self.cluster, ShutDown(id=new_request_id(), by=requester()))
                    asked = True
            if self._is_ended() and asked:
                break
            with contextlib.suppress(StokerError):
                self.child.restart_if_needed()
        remaining = processes_of(self.cluster)
        return remaining, self.kill() if remaining else []

    def _is_ended(self) -> bool:
        """Wait a moment for the supervisor, ours or another command's; return whether it has ended."""
        if not self.child.is_ours:
            time.sleep(0.1)
        with contextlib.suppress(StoreUnavailable):
            return self.child.wait(0.1) and not leader_of(self.store).alive
        return False

    def kill(self) -> list[Leftover]:
        """Kill supervisor, agents, keepers and ranks at once; return the processes that survive SIGKILL."""
        self.child.kill()
        return kill_all(self.cluster)

    def kill_ranks(self) -> list[Leftover]:
        """Kill the ranks of this run at once, whose stop was requested; return the processes that survive SIGKILL."""
        return kill_ranks(self.cluster, self.run)

    def _follow(self, on_status: Callable[[ClusterStatus], None]) -> ClusterStatus:
        feed = StatusFeed(self.store, self.cluster, self.screen.log)
        status: ClusterStatus | None = None
        while status is None or not is_over(find_run(status, self.run)):
            fresh = feed.next(SUPERVISOR_CHECK_SECONDS)
            if fresh is not None:
                status = fresh
                self.screen.update(status)
                on_status(status)
            self.child.restart_if_needed()
            self._handle_interrupts()
        return status

    def _handle_interrupts(self) -> None:
        if self.interrupts.count == 0:
            return
        if self.interrupts.count > 1:
            raise KilledByUser("interrupted twice")
        now = time.monotonic()
        if self._stop_asked_at == 0.0:
            what = "its ranks" if self.other_live_runs() else "everything"
            self.screen.log(f"stopping the run; Ctrl-C again kills {what} at once")
        elif now - self._stop_asked_at < REPEAT_STOP_SECONDS:
            return
        # Repeated: a supervisor may have died before it processed the first request.
        self._stop_asked_at = now
        request = StopRun(id=new_request_id(), by=requester(), run=str(self.run))
        with contextlib.suppress(TemporaryError):
            send(self.store, self.cluster, request)
