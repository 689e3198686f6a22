"""A test harness: a folder with run.yaml and cluster.yaml, the `stoker` command as operators use it, and an observer."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from runner.cli.clusters import OWN, find_cluster
from runner.cli.made_clusters import folder_name
from runner.errors import StokerError
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    RunStatus,
)
from runner.facts.messages.requests import Answer, Request
from runner.facts.specs.cluster import ClusterSpec
from runner.load.specs import load_cluster
from runner.serve.status_reader import read_status
from runner.store.protocol import Store
from runner.store.registry import open_store
from tests.e2e.corpus import false_alarms
from tests.e2e.observer import Observer, environment_of, stat_of

STOKER = str(Path(sys.executable).parent / "stoker")
# Between two polls of a run's progress.
LOOK_SECONDS = 1.0
# For anything a test expects; far above the usual time, for a loaded machine.
WAIT_SECONDS = 120.0
# For ended processes to be gone.
LEFT_SECONDS = 15.0
SHARED_MEMORY = Path("/dev/shm")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the harness; its start time distinguishes it from later ones with its pid."""

    pid: int
    start_ticks: int
    command: str


class ClusterHarness:
    """One cluster in a folder of its own. `name` is the cluster's name and, unless said otherwise, the run's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        # As `stoker run` makes them where there is no cluster.yaml.
        self.state = self.folder / ".stoker" / OWN
        self.name = folder_name(self.state)
        self.observer = Observer(self.name)
        # A person's request had ranks get SIGTERM: what they write about that is no false alarm.
        self.sent_sigterm = False
        self._last_view: ClusterStatus | None = None
        self._started: list[subprocess.Popen[bytes]] = []
        self._shared_memory = set(os.listdir(SHARED_MEMORY))
        self._store: Store | None = None

    # -- files that operators write

    def write_run(self, **fields: Any) -> Path:
        """Write run.yaml."""
        path = self.folder / "run.yaml"
        path.write_text(yaml.safe_dump({"name": self.name, **fields}, sort_keys=False))
        return path

    def write_cluster(
        self, *, nodes: int, slots: int, spares: int = 0, limits: Mapping[str, Any] | None = None
    ) -> Path:
        """Write cluster.yaml, with short heartbeats, so that tests need not wait."""
        local = {"nodes": nodes, "slots": slots, "spares": spares}
        fields: dict[str, Any] = {"name": self.name, "state": str(self.state), "local": local}
        fields |= {"heartbeat_seconds": 0.2, **(limits or {})}
        path = self.folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(fields))
        return path

    def write_script(self, text: str, name: str = "train.py") -> Path:
        """Write a user's script."""
        path = self.folder / name
        path.write_text(text)
        return path

    # -- commands that operators type

    def stoker(
        self, *words: str, seconds: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and wait for its end."""
        return subprocess.run(
            [STOKER, *words],
            cwd=self.folder,
            env={**_environment(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def start(
        self, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a long-running command; its output goes to `output`."""
        with (self.folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [STOKER, *words],
                cwd=self.folder,
                env={**_environment(), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def finish(
        self, process: subprocess.Popen[bytes], *, seconds: float = WAIT_SECONDS
    ) -> tuple[int, str]:
        """Wait for a long-running command; return its exit code and the output of all such commands.

        The wait fails when nothing has moved for so long: the machine's speed is not under test.
        """
        step, deadline = -1, time.monotonic() + seconds
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(LOOK_SECONDS), self.output()
            view = self.view()
            newest = max((run.best_step for run in view.runs), default=-1) if view else -1
            if newest > step:
                step, deadline = newest, time.monotonic() + seconds
            if time.monotonic() > deadline:
                what = f"not over, and no step after {step}, for {seconds:g} s"
                raise AssertionError(f"{what}:\n{self.report()}")

    def output(self) -> str:
        """Return the output of the long-running commands."""
        path = self.folder / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- the status that Stoker publishes

    @property
    def spec(self) -> ClusterSpec:
        """The cluster, as read-only commands and requests need it."""
        written = self.folder / "cluster.yaml"
        return load_cluster(written) if written.exists() else find_cluster(str(self.state))

    @property
    def store(self) -> Store:
        """The cluster's store, once there is one."""
        if self._store is None:
            self._store = open_store(self.spec, create=False)
        return self._store

    def view(self) -> ClusterStatus | None:
        """Return the status that the supervisor published last."""
        try:
            self._last_view = read_status(self.store)
        except StokerError:
            return None
        return self._last_view

    def wait(
        self,
        holds: Callable[[ClusterStatus], T | None],
        what: str,
        *,
        seconds: float = WAIT_SECONDS,
    ) -> T:
        """Wait until `look` finds something in the status; return it."""

        def look() -> T | None:
            view = self.view()
            return holds(view) if view is not None else None

        return self.until(look, what, seconds=seconds)

    def until(
        self, holds: Callable[[], T | None], what: str, *, seconds: float = WAIT_SECONDS
    ) -> T:
        """Poll until a condition holds that no status shows; return its value."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = holds()
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"never: {what}\n{self.report()}")

    def training(self, *, past_step: int = 0, after: AttemptId | None = None) -> "Training":
        """Wait for a whole gang, newer than `after`, that has made more than `past_step` steps."""

        def look(view: ClusterStatus) -> Training | None:
            run = newest_run(view)
            gang = self.observer.gang()
            assert run is None or run.state in ("active", "waiting"), self.report()
            if run is None or run.attempt is None or not gang or run.last is None:
                return None
            is_new = run.attempt == self.observer.attempts()[-1] and run.attempt != after
            is_far = run.step > past_step and run.last.step > past_step
            return (
                Training(run.attempt, run.step, gang)
                if is_new and is_far and run.attempt_state == "running"
                else None
            )

        return self.wait(look, f"a gang after {after} past step {past_step}")

    def ask(self, request: Request, *, seconds: float = 30.0) -> Answer:
        """Send a request that no command makes, and wait for its final answer."""
        from runner.cli.request_client import ask

        return ask(self.store, self.spec, request, timeout_seconds=seconds)

    def report(self) -> str:
        """Describe the state of the cluster for a test that failed."""
        parts = [f"observer: {self.observer.starts()} living {self.observer.gang()}", self.output()]
        view = self.view()
        if view is not None:
            parts += [str(part) for part in (*view.runs, *view.nodes, *view.incidents)]
        for log in [self.state / "supervisor.log", *sorted(self.state.glob("nodes/*/agent.log"))]:
            if log.exists():
                parts.append(f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}")
        for log in sorted(self.state.glob("runs/*/attempts/*/rank*.err"))[-4:]:
            parts.append(
                f"--- {log.parent.name}/{log.name}\n{log.read_text(errors='replace')[-800:]}"
            )
        return "\n".join(parts)

    # -- the end

    def end(self) -> list[str]:
        """Close, and kill all processes left; return those, and the findings in the logs of healthy runs."""
        if self._store is not None:
            with contextlib.suppress(StokerError):
                self._last_view = read_status(self._store) or self._last_view
        alarms = false_alarms(self._last_view, self.state)
        if self.sent_sigterm:
            alarms = [alarm for alarm in alarms if ": preemption: " not in alarm]
        if self._store is not None:
            self._store.close()
        deadline = time.monotonic() + LEFT_SECONDS
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = [f"{process.pid} {process.command}" for process in self.processes()]
        # What comes from now on is another test's.
        shared = set(self.new_shared_memory())
        while shared and time.monotonic() < deadline:
            time.sleep(0.05)
            shared &= set(self.new_shared_memory())
        left += [str(SHARED_MEMORY / name) for name in sorted(shared)]
        self.kill_everything()
        for process in self._started:
            process.wait()
        return left + alarms

    def kill_everything(self) -> None:
        """SIGKILL every process of this harness, again until none is found."""
        for _ in range(100):
            processes = self.processes()
            if not processes:
                return
            for process in processes:
                kill(process.pid, signal.SIGKILL)
            time.sleep(0.02)

    def processes(self) -> list[Process]:
        """Find the harness's processes: they carry its name or its folder in environment, command, or working directory."""
        ours = {os.getpid(), os.getppid()}
        found = []
        for name in os.listdir("/proc"):
            if not name.isdecimal() or int(name) in ours:
                continue
            pid = int(name)
            stat = stat_of(pid)
            if stat is None or stat[0] in "ZX":
                continue
            command = _command_of(pid)
            if self._is_ours(pid, command):
                found.append(Process(pid, stat[2], command[:200]))
        return found

    def _is_ours(self, pid: int, command: str) -> bool:
        folder = f"{self.folder}/"
        environment = environment_of(pid)
        if environment.get("STOKER_CLUSTER") == self.name or folder in f"{command}/":
            return True
        if any(f"{value}/".startswith(folder) for value in environment.values()):
            return True
        try:
            return f"{os.readlink(f'/proc/{pid}/cwd')}/".startswith(folder)
        except OSError:
            return False

    def new_shared_memory(self) -> list[str]:
        """Name files that came into shared memory and that no living process uses."""
        new = set(os.listdir(SHARED_MEMORY)) - self._shared_memory
        return sorted(name for name in new if new and not _is_used(SHARED_MEMORY / name))


@dataclass(frozen=True, slots=True)
class Training:
    """A gang that trains: its attempt, the step it has reached, pid by rank."""

    attempt: AttemptId
    step: int
    pids: dict[int, int]


def newest_run(view: ClusterStatus) -> RunStatus | None:
    """Return the newest run."""
    return view.runs[-1] if view.runs else None


def run_of(view: ClusterStatus | None) -> RunStatus:
    """Return the newest run, which must be there."""
    assert view is not None
    run = newest_run(view)
    assert run is not None
    return run


def node_of(view: ClusterStatus | None, name: str) -> NodeStatus:
    """Return a node, which must be there."""
    assert view is not None
    return next(node for node in view.nodes if node.node == name)


def incidents_of(view: ClusterStatus | None) -> tuple[IncidentStatus, ...]:
    """Return the incidents, oldest first."""
    assert view is not None
    return tuple(reversed(view.incidents))


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may have ended by itself."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


def _command_of(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    except OSError:
        return ""


def _is_used(path: Path) -> bool:
    """Whether any living process has the file open or mapped."""
    if not path.exists():
        return True
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(path) in (process / "maps").read_text(errors="replace"):
                return True
            if any(os.readlink(link) == str(path) for link in (process / "fd").iterdir()):
                return True
        except OSError:
            continue
    return False
