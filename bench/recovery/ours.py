"""A run under Stoker and its repeated faults, of ranks and of nodes, each observed from outside until the first new step."""

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

from bench.clusters import Shape, running, team_of
from bench.recovery.phases import Watermarks
from bench.recovery.stamps import (
    POLL_SECONDS,
    SCRIPT,
    Stamp,
    first_new_step,
    gang_of,
    is_settled,
    wait_until,
)
from bench.recovery.store_observer import StoreObserver, high_priority
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.signer import load_signer
from runner.store.sqlite.store import SqliteStore
from tests.e2e.cluster_harness import ClusterHarness, newest_run

WAIT_SECONDS = 120.0
WARM_STATES_TO_WAIT_FOR = ("", "importing")


@dataclass(slots=True)
class Ours:
    """One run on a cluster of `shape`: of `train_ddp.py`, which leaves stamps, or else of the trainer, which reports."""

    harness: ClusterHarness
    observer: StoreObserver
    shape: Shape
    is_script: bool
    wants_warm: bool
    _agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def settled(self) -> RunStatus:
        """Wait until the gang, the warm processes and the spares are ready, and every incident is resolved."""
        self.observer.catch_up()
        run = self.harness.wait(self._healthy_run, "a run whose incidents are all resolved")
        if self.is_script:
            wait_until(
                lambda: is_settled(self.harness.folder, len(self.shape.ranks)),
                "steps of the script",
                seconds=WAIT_SECONDS,
            )
        wait_until(self._is_warm, f"warm processes: {self.observer.warm}", seconds=WAIT_SECONDS)
        return run

    def break_and_watch(self, run: RunStatus, fault: Callable[[Watermarks], None]) -> Watermarks:
        """Let `fault` break the run, and watch until the first new step."""
        assert run.attempt is not None
        self.observer.catch_up()
        seen = Watermarks(frozenset(run.nodes), run.attempt)
        before = gang_of(self.harness.folder, len(self.shape.ranks)) if self.is_script else ()
        with high_priority():
            fault(seen)
            self._watch(seen, before)
        return seen

    def _watch(self, seen: Watermarks, before: tuple[Stamp, ...]) -> None:
        """Poll until the first new step, and until all new processes were reported as started."""
        while seen.first_step is None or not seen.is_started():
            if time.monotonic() > seen.broken_at + WAIT_SECONDS:
                raise RuntimeError(
                    f"no recovery within {WAIT_SECONDS:g} s:\n{self.harness.report()}"
                )
            facts = self.observer.read(POLL_SECONDS if self.is_script else 1.0)
            now = time.monotonic()
            for fact in facts:
                seen.note(fact, now)
            if self.is_script and seen.first_step is None:
                stamp = first_new_step(self.harness.folder, before)
                seen.first_step = stamp.at if stamp is not None else None

    def pid_of(self, run: RunStatus, rank: int) -> int:
        """Return a rank's process id."""
        assert run.attempt is not None
        return self.observer.pids[run.attempt][rank]

    def kill_node(self, node: str, seen: Watermarks) -> None:
        """SIGKILL everything that a node consists of: agent, keeper, warm process, ranks and whatever they started."""
        status = self.harness.view()
        assert status is not None
        team = team_of(self.harness, status)
        heads = [team.agents[node], team.keepers[node]]
        pids = dict.fromkeys(heads)
        for head in heads:
            pids |= dict.fromkeys(c.pid for c in psutil.Process(head).children(recursive=True))
        seen.broken_at = time.monotonic()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        if node in self._agents:
            # Otherwise it would remain as a zombie of this process.
            self._agents.pop(node).wait(WAIT_SECONDS)

    def bring_back(self, node: str) -> None:
        """Start an agent on a node that was killed, as after a reboot, and wait until it is a spare."""
        command = ("agent", "--cluster", str(self.harness.state), "--node", node)
        self.observer.warm[node] = ""
        self._agents[node] = self.harness.start(*command)

        def is_spare(status: ClusterStatus) -> bool:
            return any(n.node == node and n.state == "spare" for n in status.nodes)

        self.harness.wait(is_spare, f"{node} as a spare")

    def _is_warm(self) -> bool:
        self.observer.catch_up()
        states = (self.observer.warm.get(node, "") for node in self.shape.names)
        return not self.wants_warm or all(s not in WARM_STATES_TO_WAIT_FOR for s in states)

    def _healthy_run(self, status: ClusterStatus) -> RunStatus | None:
        """Return the run once its newest attempt runs and all incidents are resolved; the status may lag behind both."""
        run = newest_run(status)
        newest = max(self.observer.pids, default=None)
        if run is None or run.attempt_state != "running" or run.attempt is None:
            return None
        has_stepped = self.is_script or (run.step and run.checkpoint_step is not None)
        is_known = newest is None or run.attempt == newest
        is_quiet = all(incident.state == "resolved" for incident in status.incidents)
        return run if has_stepped and is_known and is_quiet else None


@contextmanager
def run_of_ours(shape: Shape, **fields: Any) -> Iterator[Ours]:
    """Run run.yaml's `fields`, `train_ddp.py` beside it, on a cluster of its own."""
    with ExitStack() as stack:
        scripts = {SCRIPT.name: SCRIPT.read_text()}
        harness = stack.enter_context(running(shape, scripts=scripts, **fields))
        store = stack.enter_context(closing(SqliteStore(harness.state / "store", create=False)))
        is_script = "command" in fields
        wants_warm = bool(fields.get("preload", not is_script))
        observer = StoreObserver(
            store, shape.names, load_signer(str(harness.state / "cluster.token"))
        )
        yield Ours(harness, observer, shape, is_script, wants_warm)


def send(pid: int, number: signal.Signals, seen: Watermarks) -> None:
    """Send a signal; record when, and, from a thread, when the process has ended: the kernel needs time to free its memory."""
    watched = os.pidfd_open(pid)

    def watch() -> None:
        select.select([watched], [], [], WAIT_SECONDS)
        seen.ended_at = time.monotonic()
        os.close(watched)

    threading.Thread(target=watch, daemon=True).start()
    seen.broken_at = time.monotonic()
    os.kill(pid, number)


def script_command(pause_seconds: float) -> dict[str, Any]:
    """Return run.yaml's fields for the script; `steady_seconds`: a gang that ran so long proves no crash loop."""
    return {
        "command": f"{{python}} {SCRIPT.name} {pause_seconds}",
        "python": sys.executable,
        "environment": {"OMP_NUM_THREADS": "1"},
        "steady_seconds": 0.5,
    }
