"""Clusters to measure: `stoker run --detach` in a folder of its own, its processes by what they are, and what each costs.

Nothing is left behind: what outlives `stoker shutdown` is an error, and is killed.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.keeper.protocol import PID_FILE_NAME
from tests.e2e.cluster_harness import SHARED_MEMORY, ClusterHarness, newest_run

NUM_NODES, RANKS_PER_NODE, NUM_SPARES = 2, 2, 1
# The default.
HEARTBEAT_SECONDS = 1.0
SHUTDOWN_SECONDS = 120.0

# A rank that follows the contract: a step is a pause, its report has the fields of a real trainer's. It continues from the step
# that it had reached.
SPEAKER = """
import json, os, socket, sys, time
pause_seconds = float(sys.argv[1])
rank = int(os.environ["RANK"])
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))
channel.setblocking(False)

def report(**fields):
    try:
        channel.send(json.dumps(fields).encode() + b"\\n")
    except BlockingIOError:
        pass

report(kind="hello", requests=[], remedies=[])
report(kind="phase", phase="step")
with open(f"reached.{rank}", "a+") as reached:
    reached.seek(0)
    step = len(reached.read())
while True:
    time.sleep(pause_seconds)
    step += 1
    with open(f"reached.{rank}", "a") as reached:
        reached.write(".")
    report(kind="step", step=step, loss=1.0 / step, grad_norm=0.98765, local_grad_norm=0.12345,
        compute_seconds=0.9 + rank / 1000, data_wait_seconds=0.000123, step_seconds=pause_seconds, lr=0.000987,
        loss_scale=1.0, skipped=False, tokens_per_second=4321.5, model_tflops_per_second=0.0234,
        peak_memory_bytes=123456789)
"""


@dataclass(frozen=True, slots=True)
class Team:
    """The processes of Stoker itself: pid of the supervisor, pids of agents, keepers and readers of logs by node."""

    supervisor: int
    agents: dict[str, int]
    keepers: dict[str, int]
    readers: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a cluster consists of; `limits` are further fields of cluster.yaml, on top of what is as shipped."""

    nodes: int = NUM_NODES
    ranks_per_node: int = RANKS_PER_NODE
    spares: int = NUM_SPARES
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def ranks(self) -> range:
        """Ranks of a run that takes all nodes but the spares."""
        return range(self.nodes * self.ranks_per_node)

    @property
    def names(self) -> list[str]:
        """All nodes, spares last."""
        return [f"n{index + 1}" for index in range(self.nodes + self.spares)]


SHIPPED = Shape()


@contextmanager
def running(
    shape: Shape = SHIPPED, *, scripts: Mapping[str, str] | None = None, **run: Any
) -> Iterator[ClusterHarness]:
    """Run run.yaml on all nodes except the spares; yield the harness, then end everything. Raises RuntimeError for leftovers.

    `scripts` are laid beside run.yaml, by name.
    """
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        harness = ClusterHarness(Path(folder))
        try:
            for name, text in {"speaker.py": SPEAKER, **(scripts or {})}.items():
                harness.write_script(text, name)
            harness.write_cluster(
                nodes=shape.nodes,
                slots=shape.ranks_per_node,
                spares=shape.spares,
                limits={"heartbeat_seconds": HEARTBEAT_SECONDS, **shape.limits},
            )
            harness.write_run(nodes=shape.nodes, ranks_per_node=shape.ranks_per_node, **run)
            _typed(harness, "run", "run.yaml", "--detach")
            yield harness
            _typed(harness, "shutdown")
        finally:
            left = harness.end()
        # A file in shared memory may belong to another user of the machine; tests check for leftovers.
        shared = [name for name in left if name.startswith(str(SHARED_MEMORY))]
        if shared:
            print(
                f"  shared memory that no process uses any more, of this run or not: {shared}",
                file=sys.stderr,
            )
        if len(left) > len(shared):
            raise RuntimeError(f"left behind by the cluster: {sorted({*left} - {*shared})}")


def speaker(pause_seconds: float) -> str:
    """Return the command of ranks that make a step every so often."""
    return f"{{python}} speaker.py {pause_seconds}"


def ended(status: ClusterStatus) -> RunStatus | None:
    """Return the newest run once it is over."""
    run = newest_run(status)
    return run if run is not None and run.state in ("finished", "stopped", "failed") else None


def team_of(harness: ClusterHarness, status: ClusterStatus) -> Team:
    """Find Stoker's own processes; nodes without a keeper, or a reader, have no rank yet."""
    keepers = {}
    for node in status.nodes:
        note = harness.state / "nodes" / node.node / PID_FILE_NAME
        if note.exists():
            keepers[node.node] = int(json.loads(note.read_text())["pid"])
    agents = {node.node: node.agent_pid for node in status.nodes}
    found = {node: reader_of(pid) for node, pid in agents.items()}
    readers = {node: pid for node, pid in found.items() if pid is not None}
    return Team(int(status.holder.split(":")[1]), agents, keepers, readers)


def reader_of(agent: int) -> int | None:
    """Return the process that reads logs for an agent; None: it has had no ranks yet."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            continue
        if parent == agent and b"runner.collect" in arguments:
            return int(folder.name)
    return None


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads a process has and had, in steps of a clock tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> tuple[float, float]:
    """Return resident memory, and the part of it that is the process's own share (pages shared by n count 1/n)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: line.split()[1] for line in lines[1:]}
    return int(sizes["Rss"]) * 1024 / 1e6, int(sizes["Pss"]) * 1024 / 1e6


def _typed(harness: ClusterHarness, *arguments: str) -> None:
    done = harness.stoker(*arguments, seconds=SHUTDOWN_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(
            f"stoker {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}\n{harness.report()}"
        )
