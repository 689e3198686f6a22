"""One node for a test: a real agent process, its keeper and ranks, a SQLite store, and its own view of /proc."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Assignment, LaunchPlan, PreloadPlan, Task
from runner.facts.messages.signals import Heartbeat
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.wire import decode, encode
from runner.store.sqlite.store import SqliteStore
from tests.plans import launch_plan

# for anything a test expects; far above what it takes, for a loaded machine
WAIT_SECONDS = 60.0

T = TypeVar("T")

# A rank that reports by the channel. ARGV: JSON: {"pause": seconds a step, "steps": n, "exit": code, "messages": [...]}
REPORTER = """
import json, os, socket, sys, time
do = json.loads(sys.argv[1])
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))
def emit(**fields):
    channel.send(json.dumps(fields).encode())
emit(kind="hello", requests=["stop", "checkpoint"], remedies=["lr_factor"], checks_checkpoints=True)
for fields in do.get("messages", []):
    emit(**fields)
for step in range(1, do.get("steps", 10**9) + 1):
    time.sleep(do.get("pause", 0.05))
    emit(kind="step", step=step, loss=1.0 / step, compute_seconds=0.01 * (1 + int(os.environ["RANK"])))
sys.stderr.write(do.get("last_words", ""))
sys.stderr.flush()
os._exit(do.get("exit", 0))
"""
SILENT = "import time; time.sleep(1000)"


class Node:
    """Drives one node. `cluster` may be given other limits before the agent starts."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self.name = "n1"
        self.cluster = ClusterSpec(
            name=f"test-{uuid.uuid4().hex[:12]}",
            state=str(self.state),
            local=LocalNodes(nodes=1, slots=4),
            **{"heartbeat_seconds": 0.2, "stopped_seconds": 0.3, **limits},
        )
        self.folder = self.state / "nodes" / self.name
        self.store = SqliteStore(self.state / "store")
        self.agents: list[subprocess.Popen[bytes]] = []
        self._cursors = {"signals": 0, "heartbeats": 0}
        self.received: list[Any] = []
        self.num_tasks = 0
        # The last one that `programs.both` used.
        self.generation = 0

    # -- the agent

    def start_agent(
        self, *, wait: bool = True, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start an agent, as a provider would; `environment` overrides ours."""
        spec_path = self.state / "cluster.json"
        spec_path.write_bytes(encode(self.cluster))
        command = [sys.executable, "-P", "-m", "runner.agent"]
        command += ["--cluster", str(spec_path), "--node", self.name]
        with (self.state / "agent.log").open("ab") as log:
            agent = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        self.agents.append(agent)
        if wait:
            joined = self.wait_for("NodeJoined", lambda fact: fact.pid == agent.pid)
            assert joined.node == self.name
        return agent

    def kill_agent(self) -> None:
        """SIGKILL the newest agent."""
        self.agents[-1].kill()
        self.agents[-1].wait()

    def end(self) -> None:
        """End everything that is still there, by its id."""
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGCONT)
                agent.terminate()
        for agent in self.agents:
            try:
                agent.wait(WAIT_SECONDS)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        for pid in self.marked():
            os.kill(pid, signal.SIGKILL)
        self.store.close()

    @property
    def keeper(self) -> int:
        """The keeper's pid, as in its pid file."""
        return int(json.loads((self.folder / "keeper.json").read_text())["pid"])

    # -- what it is to run

    def plan(self, script: str, do: Mapping[str, Any] | None = None, **fields: Any) -> LaunchPlan:
        """Return a plan that runs a Python script on two ranks."""
        command: tuple[str, ...] = (
            "{python}",
            "-S",
            "-c",
            script.replace("{", "{{").replace("}", "}}"),
        )
        if do is not None:
            command += (json.dumps(do).replace("{", "{{").replace("}", "}}"),)
        given = {
            "command": command,
            "working_directory": str(self.state),
            "output_folder": str(self.state / "attempts" / "1.1.0"),
            "output_limit_bytes": 1 << 20,
        }
        return launch_plan(**{**given, **fields})

    def assign(
        self,
        plan: LaunchPlan | None,
        generation: int,
        *,
        grace_seconds: float = 0.0,
        warm: PreloadPlan | None = None,
        instance_id: str = "",
    ) -> None:
        """Put an assignment into the node's register."""
        assignment = Assignment(
            node=self.name,
            generation=generation,
            plan=plan,
            grace_seconds=grace_seconds,
            warm=warm,
            instance_id=instance_id,
        )
        self.store.put(f"assignment/{self.name}", encode(assignment))

    def check(
        self, *names: str, level: str = "", deadline_seconds: float = 60.0, **expected: Any
    ) -> str:
        """Send a task to run health checks, by name or all of a level; return its id."""
        self.num_tasks += 1
        id_ = f"a{self.num_tasks}"
        task = Task(
            id=id_,
            node=self.name,
            task="check",
            args={"checks": list(names), "level": level, "expected": expected},
            deadline_seconds=deadline_seconds,
        )
        self.store.append(f"tasks/{self.name}", encode(task))
        return id_

    def warm(self, plan: LaunchPlan, preload: tuple[str, ...]) -> PreloadPlan:
        """Return what the node is to have warm for this plan."""
        return PreloadPlan(
            command=plan.command,
            preload=preload,
            environment=plan.environment,
            working_directory=plan.working_directory,
            python=plan.python,
            ranks_per_node=plan.ranks_per_node,
            user=plan.user,
        )

    def launch(
        self, plan: LaunchPlan, generation: int, *, preload: tuple[str, ...] = ()
    ) -> dict[int, int]:
        """Assign a plan and wait for its ranks; return their pids by rank. With `preload` they are to be forked."""
        self.assign(plan, generation, warm=self.warm(plan, preload) if preload else None)
        started = self.wait_for("RanksStarted", lambda fact: fact.generation == generation)
        return {int(rank): pid for rank, pid in started.pids.items()}

    def ask(self, kind: Any, **args: Any) -> str:
        """Send a task; return its id."""
        self.num_tasks += 1
        task = Task(id=f"a{self.num_tasks}", node=self.name, task=kind, args=args)
        self.store.append(f"tasks/{self.name}", encode(task))
        return task.id

    def answer_of_listening_agent(self, kind: Any) -> ActionResult:
        """Send a task again as long as it came before the newest agent listened; return the answer of that agent."""
        while (answer := self.answer(self.ask(kind))).message.endswith("; ask again"):
            pass
        return answer

    def answer(self, id_: str) -> ActionResult:
        """Wait for a task's answer."""
        found: ActionResult = self.wait_for("ActionResult", lambda fact: fact.id == id_)
        return found

    # -- what the agent sent

    def wait_for(
        self,
        kind: str,
        holds: Callable[[Any], bool] = lambda _: True,
        *,
        seconds: float = WAIT_SECONDS,
    ) -> Any:
        """Return the first durable signal of this class that holds, among those received and those to come."""
        deadline = time.monotonic() + seconds
        while True:
            for fact in self.received:
                if type(fact).__name__ == kind and holds(fact):
                    return fact
            left = deadline - time.monotonic()
            assert left > 0, f"no {kind} came; received {self.received}; log:\n{self.log()}"
            self.listen(left)

    def listen(self, seconds: float) -> None:
        """Take what durable signals there are, waiting at most so long for the first."""
        batch = self.store.read(
            streams={"signals": self._cursors["signals"]}, registers={}, timeout_seconds=seconds
        )
        for item in batch.items.get("signals", ()):
            self._cursors["signals"] = item.number
            self.received.append(decode(item.payload))

    def signals(self, kind: str) -> list[Any]:
        """Return all durable signals of this class that the store has by now."""
        self.listen(0.0)
        return [fact for fact in self.received if type(fact).__name__ == kind]

    def heartbeats(self) -> Iterator[Heartbeat]:
        """Give heartbeats as they come."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            cursors = {"heartbeats": self._cursors["heartbeats"]}
            batch = self.store.read(streams=cursors, registers={}, timeout_seconds=1.0)
            for item in batch.items.get("heartbeats", ()):
                self._cursors["heartbeats"] = item.number
                yield decode(item.payload)
        raise AssertionError(f"no such heartbeat; log:\n{self.log()}")

    def log(self) -> str:
        """Return what the agents logged."""
        return (self.state / "agent.log").read_text()

    # -- what /proc shows, without asking Stoker

    def marked(self) -> list[int]:
        """Return the processes that carry this cluster's name and are no zombies."""
        wanted = f"STOKER_CLUSTER={self.cluster.name}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return [pid for pid in found if is_alive(pid)]


def is_of(rank: int, fact: Any) -> bool:
    """Whether a signal is about this rank."""
    return bool(fact.rank == rank)


def is_in(generation: int, fact: Any, *, rank: int | None = None) -> bool:
    """Whether a signal is about this generation, and this rank of it."""
    return bool(fact.generation == generation and (rank is None or fact.rank == rank))


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    return not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    return state_of(pid) not in ("", "Z", "X")


def state_of(pid: int) -> str:
    """Return a process's state letter; "" when there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def wait_until(holds: Callable[[], T], what: str) -> T:
    """Wait for something that announces itself in no other way."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"never: {what}")
