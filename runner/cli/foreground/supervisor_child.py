"""The supervisor as a child process: started if no supervisor holds the lease, restarted when it dies, within a budget."""

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runner.cli import exit_codes
from runner.cli.clusters import leader_of
from runner.cli.foreground.presence import mark_attended
from runner.errors import StokerError, StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.programs import module_command
from runner.store.protocol import Store

# Chosen, not measured.
START_SECONDS = 30.0
LOG = "supervisor.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How often a supervisor is restarted; one that dies more often needs a person. Chosen, not measured."""

    max_restarts: int = 5
    window_seconds: float = 600.0
    # After the first restart; doubles with each in the window.
    cooldown_seconds: float = 0.25


class SupervisorLost(StokerError):
    """The supervisor died too often, or could not be started."""


class SupervisorRefused(UserError):
    """The supervisor refused this cluster's settings, with a reason, and started nothing."""


class SupervisorChild:
    """Keeps a supervisor running for the cluster. `log` gets lines for a person.

    `attended`: the last `stoker run` to leave the cluster ends it.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        store: Store,
        *,
        log: Callable[[str], None],
        budget: Budget = Budget(),
        attended: bool = True,
    ) -> None:
        self._is_attended = attended
        self._cluster, self._store, self.log, self._budget = cluster, store, log, budget
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts: list[float] = []
        self._not_before = 0.0
        self._gave_up = False
        self._is_marked = False

    @property
    def is_ours(self) -> bool:
        """Whether the present or last supervisor is our child."""
        return self._process is not None

    @property
    def exit_code(self) -> int | None:
        """The exit code of our last supervisor; None: it lives, or none was ours."""
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        """Start a supervisor if none holds the lease, and wait until it does.

        Raises SupervisorRefused with its message if it refuses the cluster's settings,
        SupervisorLost if it fails to start for another reason.
        """
        from runner.supervisor.lease import holder_pid

        if leader_of(self._store).alive:
            return
        self._spawn()
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            leader = leader_of(self._store)
            if leader.alive:
                if holder_pid(leader.holder) != self._process.pid:
                    # Another supervisor was faster: ours ends, and that one is not ours to end.
                    self._process.wait(START_SECONDS)
                    self._process = None
                self._mark_leader()
                return
            code = self._process.poll()
            if code == exit_codes.BAD_INPUT:
                raise SupervisorRefused(last_words(self._cluster).removeprefix("stoker: "))
            if code is not None:
                raise SupervisorLost(
                    f"the supervisor ended with {code} at its start: {last_words(self._cluster)}"
                )
            time.sleep(0.02)
        self.kill()
        raise SupervisorLost(
            f"the supervisor did not get the lease within {START_SECONDS:g} s: {last_words(self._cluster)}"
        )

    def restart_if_needed(self) -> None:
        """Start another supervisor if none holds the lease. Raises SupervisorLost once the budget is spent."""
        now, budget = time.monotonic(), self._budget
        if self._process is not None and self._process.poll() is None:
            self._mark_leader()
            return
        if now < self._not_before or self._leads():
            return
        if self._process is not None and self._process.returncode == exit_codes.STORE_ROLLED_BACK:
            raise SupervisorLost(
                f"{last_words(self._cluster).removeprefix('stoker: ')}; the ranks go on without it"
            )
        if self._gave_up:
            raise SupervisorLost(
                f"the supervisor died again after {budget.max_restarts} restarts within {budget.window_seconds / 60:g} minutes: "
                f"{last_words(self._cluster)}; the ranks may go on without it; find the cause, then run `stoker supervise`"
            )
        self._restarts = [at for at in self._restarts if now - at < budget.window_seconds]
        if len(self._restarts) >= budget.max_restarts:
            self._gave_up = True
            return
        nth = len(self._restarts) + 1
        code = "" if self._process is None else f" (exit code {self._process.returncode})"
        self.log(
            f"no supervisor holds the lease{code}: starting one, {nth} of at most {budget.max_restarts} restarts"
        )
        self._restarts.append(now)
        self._not_before = now + budget.cooldown_seconds * 2 ** (nth - 1)
        self._spawn()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the supervisor ends; False if it is still running."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the supervisor at once, if it is ours."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _leads(self) -> bool:
        try:
            return leader_of(self._store).alive
        except StoreUnavailable:
            # The holder is unknown, so nothing is started.
            return True

    def _spawn(self) -> None:
        command = module_command("runner.cli.main", "supervise", "--cluster", self._cluster.state)
        with opened_log(self._cluster) as log:
            # A session of its own: Ctrl-C is handled here, and ends it in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._is_marked = False

    def _mark_leader(self) -> None:
        """Note once that our supervisor leads: of two that were started at the same moment one does not, and ends."""
        from runner.supervisor.lease import holder_pid

        if self._process is None or self._is_marked or not self._is_attended:
            return
        with contextlib.suppress(StoreUnavailable):
            if holder_pid(leader_of(self._store).holder) == self._process.pid:
                mark_attended(self._cluster, self._process.pid)
                self._is_marked = True


def opened_log(cluster: ClusterSpec) -> BinaryIO:
    """Open the file that supervisors of this cluster write to, at its end."""
    path = Path(cluster.state) / LOG
    path.touch(mode=0o644)
    return path.open("ab")


def last_words(cluster: ClusterSpec) -> str:
    """Return the last line that a supervisor of this cluster wrote, and where the others are."""
    path = Path(cluster.state) / LOG
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return f"{lines[-1][:500]} (all of it in {path})" if lines else f"{path} is empty"
