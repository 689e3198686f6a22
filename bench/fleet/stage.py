"""The set-up of a measurement: a store, a supervisor and the processes that simulate agents, all of them real processes."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import yaml
from msgspec.structs import replace

from bench.clusters import cpu_seconds
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.requests import Request
from runner.load.specs import load_cluster
from runner.serve.status_reader import read_status
from runner.signer import signer_of
from runner.store.registry import open_store
from tests.store.redis_server import RedisServer

STOKER = str(Path(sys.executable).parent / "stoker")
# Chosen: two processes for 2,000 agents, since there are two cores.
AGENTS_PER_PROCESS = 1000
# For the fleet to join, or a gang to be up; far above what it takes.
WAIT_SECONDS = 120.0
END_SECONDS = 20.0
# The default.
SILENT_HEARTBEATS = 5.0

Event = dict[str, Any]


class Stage:
    """A cluster of `count` nodes, n1, n2, ..., each with eight slots; with defaults except for its nodes and their heartbeats.

    `redis`: where its store is; None: in SQLite, its agents share a writer, and its nodes are not checked. `fields`: further
    ones of cluster.yaml.
    """

    def __init__(
        self,
        folder: Path,
        redis: RedisServer | None,
        count: int,
        *,
        heartbeat_seconds: float = 1.0,
        fields: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder, self.redis, self.count = folder, redis, count
        self.name = f"fleet-{uuid.uuid4().hex[:8]}"
        self.path = folder / "cluster.yaml"
        spec = {
            "name": self.name,
            "local": {"nodes": 0},
            **({"store": wire.to_plain(redis.spec())} if redis is not None else {"checks": []}),
            "spares_low": 0,
            "heartbeat_seconds": heartbeat_seconds,
            "heartbeat_timeout_seconds": SILENT_HEARTBEATS * heartbeat_seconds,
            **fields,
        }
        self.path.write_text(yaml.safe_dump(spec))
        self._run("token", "--cluster", str(self.path))
        self.cluster = load_cluster(self.path)
        self.events: queue.Queue[Event] = queue.Queue()
        self.supervisor = self._start(STOKER, "supervise", "--cluster", str(self.path))
        self.agents: list[subprocess.Popen[bytes]] = []
        self._agent_of: dict[str, IO[bytes]] = {}
        self.store = open_store(self.cluster)

    # ---- beginning and ending

    def join(self) -> float:
        """Start all agents; return the seconds until every node is a spare."""
        begun = time.monotonic()
        module = "bench.fleet.agents" if self.redis is not None else "bench.fleet.batched_agents"
        per_process = AGENTS_PER_PROCESS if self.redis is not None else self.count
        for first in range(1, self.count + 1, per_process):
            num = min(per_process, self.count + 1 - first)
            process = self._start(
                *(sys.executable, "-m", module, str(self.path), str(first), str(num)),
                is_talking=True,
            )
            assert process.stdin is not None
            self._agent_of |= {f"n{number}": process.stdin for number in range(first, first + num)}
            self.agents.append(process)
            threading.Thread(target=self._collect_events, args=(process,), daemon=True).start()
        self.wait_for(
            lambda status: sum(node.state == "spare" for node in status.nodes) == self.count,
            f"{self.count} spares",
        )
        return time.monotonic() - begun

    def end(self) -> None:
        """End all processes."""
        for process in (*self.agents, self.supervisor):
            process.terminate()
        for process in (*self.agents, self.supervisor):
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.store.close()

    # ---- orders and observations

    def order(self, node: str, what: str) -> None:
        """Have an agent do something."""
        pipe = self._agent_of[node]
        pipe.write(json.dumps({"do": what, "node": node}).encode() + b"\n")
        pipe.flush()

    def ask(self, request: Request) -> float:
        """Hand a request in; return when the store had it (monotonic seconds)."""
        message = wire.encode(replace(request, sent_at=time.time()))
        self.store.append("requests", signer_of(self.cluster).sign("requests", message))
        return time.monotonic()

    def view(self) -> ClusterStatus | None:
        """Return what the supervisor published last."""
        return read_status(self.store)

    def wait_for(self, holds: Callable[[ClusterStatus], bool], what: str) -> ClusterStatus:
        """Wait until the status shows something; raise RuntimeError with the last status when it does not."""
        until = time.monotonic() + WAIT_SECONDS
        status = self.view()
        while status is None or not holds(status):
            if time.monotonic() > until or self.supervisor.poll() is not None:
                raise RuntimeError(f"{what}: not within {WAIT_SECONDS:g} s\n{self.report()}")
            time.sleep(0.2)
            status = self.view()
        return status

    def report(self) -> str:
        """Return the supervisor's output."""
        return (self.folder / "output").read_text(errors="replace")[-3000:]

    def cpu(self) -> dict[str, float]:
        """Return processor seconds that each part has used so far."""
        return {
            "supervisor": cpu_seconds(self.supervisor.pid),
            **({"redis": cpu_seconds(self.redis.pid)} if self.redis is not None else {}),
            "agents": sum(cpu_seconds(process.pid) for process in self.agents),
        }

    def peak_mb(self) -> float:
        """Return the most memory the supervisor ever had resident, in 10^6 bytes."""
        for line in Path(f"/proc/{self.supervisor.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
        raise RuntimeError("no VmHWM: not a Linux process")

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([STOKER, *arguments], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"stoker {arguments[0]} ended with {done.returncode}: {done.stderr}")

    def _start(self, *command: str, is_talking: bool = False) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE if is_talking else subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_talking else output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def _collect_events(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.events.put(json.loads(line))


@contextmanager
def stage(
    count: int,
    *,
    heartbeat_seconds: float = 1.0,
    is_on_redis: bool = True,
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Stage]:
    """Set a stage with `count` nodes that are to join; end all of it. `fields`: further ones of cluster.yaml."""
    with ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-fleet-"))
        redis = RedisServer(Path(name) / "redis") if is_on_redis else None
        if redis is not None:
            stack.enter_context(redis)
        harness = Stage(
            Path(name), redis, count, heartbeat_seconds=heartbeat_seconds, fields=fields
        )
        try:
            yield harness
        finally:
            harness.end()
