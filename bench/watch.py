"""What `stoker watch` costs: `python -m bench.watch`. A fleet whose status is published twice a second, on a terminal."""

import argparse
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from bench.clusters import cpu_seconds, memory_mb
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, percent_of_core
from runner.cli.made_clusters import write_spec
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    RunForecast,
    RunSpending,
    RunStatus,
)
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.store_names import STATUS
from runner.store.sqlite.store import SqliteStore

MEASURED_SECONDS, SETTLE_SECONDS = 30.0, 5.0
# As often as a supervisor publishes at most.
PUBLISH_SECONDS = 0.5
# Nodes of the fleet, and columns and lines of the terminal.
SIZES = ((8, 80, 24), (2000, 80, 24), (2000, 200, 60))
# On the first machine.
CPU_LIMIT_PERCENT = 3.0


def fleet(num_nodes: int, step: int) -> ClusterStatus:
    """Make the status of one run on all nodes but the last eight, of which some are not well."""
    attempt, now = AttemptId(1, 1, 3), time.time()
    states = ("active",) * (num_nodes - 8) + ("spare",) * 5 + ("lost", "quarantined", "suspect")
    nodes = tuple(
        NodeStatus(
            node=f"n{i:04d}",
            state=state,
            since=now - 1000,
            hardware=f"board:{i:012x}",
            slots=8,
            address=f"10.0.{i // 256}.{i % 256}",
            attempt=attempt if state == "active" else None,
            ranks_alive=tuple(range(8 * i, 8 * i + 8)) if state == "active" else (),
            last_heartbeat_seconds_ago=0.4,
            agent_resident_bytes=40_000_000,
            reason="" if state == "active" else "no heartbeat for 9 s",
        )
        for i, state in enumerate(states)
    )
    run = RunStatus(
        run=1,
        name="train",
        state="active",
        attempt=attempt,
        attempt_state="running",
        nodes=tuple(node.node for node in nodes[:-8]),
        step=step,
        total_steps=1_000_000,
        last=StepRecord(step=step, loss=2.5, lr=1e-3, tokens_per_second=3e6, grad_norm=0.7),
        recent_losses=tuple(4.0 / (1 + i) for i in range(120)),
        first_loss=11.0,
        ettr_ratio=0.95,
        forecast=RunForecast(ends_at=now + 1e6, earliest=now + 9e5, latest=now + 2e6),
        spending=RunSpending(rank_hours=1e5, useful_rank_hours=9.5e4, lost_rank_hours=5e3),
    )
    incidents = tuple(
        IncidentStatus(incident=f"i{i}", state="resolved", fault="rank_crash", run=1, node="n0001")
        for i in range(100, 0, -1)
    )
    return ClusterStatus(
        cluster="fleet", now=now, wall=now, nodes=nodes, runs=(run,), incidents=incidents
    )


@contextmanager
def publishing(store: SqliteStore, num_nodes: int) -> Iterator[None]:
    """Publish a new status twice a second until the end."""
    is_over = threading.Event()
    first = fleet(num_nodes, 1)

    def publish() -> None:
        step = 1
        while not is_over.wait(PUBLISH_SECONDS):
            step, now = step + 1, time.time()
            run = replace(first.runs[0], step=step)
            view = replace(first, now=now, wall=now, runs=(run,))
            store.put(STATUS, wire.encode(view))

    store.put(STATUS, wire.encode(first))
    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def read_all(terminal: int, count: list[int]) -> None:
    """Read what is drawn, as a terminal does, until it is closed."""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:
            return
        if not data:
            return
        count[0] += len(data)


def measure(
    report: Report, size: tuple[int, int, int], *, settle_seconds: float, seconds: float
) -> None:
    """Watch a fleet for so long, after it has settled."""
    num_nodes, columns, lines = size
    with tempfile.TemporaryDirectory() as folder:
        spec = ClusterSpec(name="fleet", state=folder, local=LocalNodes(nodes=1))
        write_spec(spec)
        store = SqliteStore(Path(folder) / "store")
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        command = [sys.executable, "-m", "runner.cli.main", "watch", "--cluster", folder]
        with publishing(store, num_nodes):
            watch = subprocess.Popen(
                command,
                stdin=theirs,
                stdout=theirs,
                env={**os.environ, "TERM": "xterm-256color"},
                start_new_session=True,
            )
            os.close(theirs)
            drawn = [0]
            reader = threading.Thread(target=read_all, args=(ours, drawn))
            reader.start()
            try:
                time.sleep(settle_seconds)
                begun, before, drawn_before = time.monotonic(), cpu_seconds(watch.pid), drawn[0]
                loop = ReferenceLoop()
                loop.sleep(seconds)
                took = time.monotonic() - begun
                used = (cpu_seconds(watch.pid) - before) / took
                rate = (drawn[0] - drawn_before) / took
                memory = memory_mb(watch.pid)[0]
            finally:
                watch.send_signal(signal.SIGTERM)
                watch.wait()
                os.close(ours)
                reader.join()
        store.close()
    name = f"{num_nodes} nodes, {columns}x{lines}"
    report.cost(name, percent_of_core(100 * used), loop, at_most=CPU_LIMIT_PERCENT)
    report.figure(f"{name}: memory", memory, "MB")
    report.figure(f"{name}: sent to the terminal", rate / 1e3, "kB/s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.watch", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURED_SECONDS)
    parser.add_argument("--settle-seconds", type=float, default=SETTLE_SECONDS)
    given = parser.parse_args(arguments)
    report = Report(
        "stoker watch",
        f"one run on a fleet, whose status is published every {PUBLISH_SECONDS:g} s to an SQLite store; processor time of `stoker "
        f"watch` on a pseudo-terminal from /proc over {given.seconds:g} s, after {given.settle_seconds:g} s; {SCALE}",
    )
    for size in SIZES:
        measure(report, size, settle_seconds=given.settle_seconds, seconds=given.seconds)
    return int(report.num_missed > 0)


if __name__ == "__main__":
    sys.exit(main())
