"""The loop that follows a run: it keeps a supervisor running, updates the screen, and handles Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Self

from runner.cli import output
from runner.cli.clusters import LIVE_STATES
from runner.cli.foreground.changes import find_run
from runner.cli.foreground.leftovers import Leftover, kill_all, processes_of
from runner.cli.foreground.screen import Screen
from runner.cli.foreground.supervisor_child import SupervisorChild
from runner.cli.request_client import await_answer, new_request_id, requester, send, submitting_user
from runner.errors import StokerError, StoreUnavailable, TemporaryError, UserError
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.messages.requests import ShutDown, StartRun, StopRun
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import STATUS
from runner.serve.status_reader import decode_status
from runner.store.protocol import Store

# Between two checks of the supervisor while no status arrives.
LOOK_SECONDS = 0.5
# A supervisor answers at once, except while it starts its agents. Chosen.
START_ANSWER_SECONDS = 60.0
# Between two attempts to request the stop that Ctrl-C asks for.
ASK_AGAIN_SECONDS = 2.0
# Of an orderly shutdown; after that everything is killed. Chosen.
SHUTDOWN_SECONDS = 90.0


class KilledByUser(StokerError):
    """A second Ctrl-C: everything was killed."""


class Interrupts:
    """Counts Ctrl-C and SIGTERM while entered, and wakes the store's reader so that they take effect at once."""

    def __init__(self, store: Store) -> None:
        self.count = 0
        self._store = store
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        """Install the handlers."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous handlers."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._store.wake()


def start_run(store: Store, cluster: ClusterSpec, spec: RunSpec) -> int:
    """Request the start of a run; return its number. Raises UserError with the reason of a refusal."""
    request = StartRun(id=new_request_id(), by=requester(), spec=spec, user=submitting_user())
    send(store, cluster, request)
    answer = await_answer(store, cluster, request.id, timeout_seconds=START_ANSWER_SECONDS)
    if answer.state != "done" or answer.run is None:
        raise UserError(f"run {spec.name!r} was {answer.state}: {answer.message}")
    return answer.run


@dataclass(slots=True, kw_only=True)
class Foreground:
    """One run in the foreground. `on_status` gets each status after the screen; it may send requests, and must not block."""

    store: Store
    cluster: ClusterSpec
    child: SupervisorChild
    screen: Screen
    interrupts: Interrupts
    run: int
    on_status: Callable[[ClusterStatus], None] = lambda status: None
    _stop_asked_at: float = field(default=0.0, init=False)

    def follow(self) -> ClusterStatus:
        """Show the run until it has ended; return the last status. Raises SupervisorLost and KilledAtOnce."""
        with self.screen:
            self.child.redirect_log(self.screen.log)
            try:
                return self._follow()
            finally:
                self.child.redirect_log(output.print_note)

    def _follow(self) -> ClusterStatus:
        version, status = 0, None
        while status is None or not _is_over(find_run(status, self.run)):
            fresh = self._read(version)
            if fresh is not None:
                version, status = fresh
                self.screen.update(status)
                self.on_status(status)
            self.child.restart_if_needed()
            self._handle_interrupts()
        return status

    def _read(self, version: int) -> tuple[int, ClusterStatus] | None:
        try:
            batch = self.store.read(
                streams={}, registers={STATUS: version}, timeout_seconds=LOOK_SECONDS
            )
        except StoreUnavailable as error:
            self.screen.log(f"the store does not answer: {error}")
            time.sleep(min(error.delay_seconds, LOOK_SECONDS))
            return None
        register = batch.registers.get(STATUS)
        return None if register is None else (register.version, decode_status(register.payload))

    def _handle_interrupts(self) -> None:
        if self.interrupts.count == 0:
            return
        if self.interrupts.count > 1:
            raise KilledByUser("interrupted twice")
        now = time.monotonic()
        if self._stop_asked_at == 0.0:
            self.screen.log(
                "stopping at the next step boundary; Ctrl-C again kills everything at once"
            )
        elif now - self._stop_asked_at < ASK_AGAIN_SECONDS:
            return
        # Repeated while the run goes on: a supervisor may have died before it processed the first
        # request.
        self._stop_asked_at = now
        request = StopRun(id=new_request_id(), by=requester(), run=str(self.run))
        with contextlib.suppress(TemporaryError):
            send(self.store, self.cluster, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownResult:
    """How the cluster ended."""

    in_order: bool
    killed: tuple[Leftover, ...] = ()
    left: tuple[Leftover, ...] = ()


def end_cluster(
    store: Store, cluster: ClusterSpec, child: SupervisorChild, *, interrupts: Interrupts
) -> ShutdownResult:
    """Shut the cluster down in order; kill what does not end within SHUTDOWN_SECONDS, or at a second Ctrl-C."""
    before = interrupts.count
    deadline = time.monotonic() + SHUTDOWN_SECONDS
    asked = False
    while time.monotonic() < deadline and interrupts.count < max(2, before + 1):
        if not asked:
            with contextlib.suppress(TemporaryError):
                send(store, cluster, ShutDown(id=new_request_id(), by=requester()))
                asked = True
        if child.wait(0.1) and asked:
            break
        with contextlib.suppress(StokerError):
            child.restart_if_needed()
    remaining = tuple(processes_of(cluster))
    if not remaining:
        return ShutdownResult(in_order=True)
    child.kill()
    return ShutdownResult(in_order=False, killed=remaining, left=tuple(kill_all(cluster)))


def kill_cluster(cluster: ClusterSpec, child: SupervisorChild) -> tuple[Leftover, ...]:
    """Kill supervisor, agents, keepers and ranks at once; return the processes that survive SIGKILL."""
    child.kill()
    return tuple(kill_all(cluster))


def other_live_runs(status: ClusterStatus, run: int) -> list[str]:
    """Return the names of the cluster's other runs that have not ended."""
    return [known.name for known in status.runs if known.run != run and known.state in LIVE_STATES]


def _is_over(run: RunStatus | None) -> bool:
    """Whether a run has ended and none of its ranks is left."""
    return run is not None and run.state not in LIVE_STATES and run.attempt_state in ("", "ended")
