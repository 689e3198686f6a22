"""What the web page costs with 2,000 nodes and ten readers: `python -m bench.web`.

A status is published five times a second, in which heartbeats, the step of a run and a few nodes change; `stoker web` serves it to
ten readers, each a connection to its events. No supervisor leads: the cost is that of the page's process alone.
"""

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from bench.clusters import cpu_seconds, memory_mb
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, percent_of_core
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus, RunStatus
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import STATUS
from runner.signer import CLUSTER_NAME, Signer
from runner.store.sqlite.store import SqliteStore
from runner.token_file import default_token_file, make_token, web_token_file

NUM_NODES, NUM_READERS = 2000, 10
MEASURED_SECONDS, SETTLE_SECONDS = 30.0, 1.0
UPDATES_PER_SECOND = 5.0
# On the first machine: with all readers, and the memory of the page's process.
CPU_LIMIT_PERCENT, MEMORY_LIMIT_MB = 5.0, 100.0
# From the request for the page to its first state.
FIRST_LIMIT_SECONDS = 1.0
NUM_FIRST = 20
# Nodes whose state changes with each update; a fleet of this size has far fewer. Chosen.
NUM_CHANGED = 5


def status_of(update: int, num_nodes: int) -> ClusterStatus:
    """Make the status of one update."""
    attempt, now = AttemptId(1, 1, 0), 1_700_000_000.0 + update / UPDATES_PER_SECOND
    nodes = [
        NodeStatus(
            node=f"n{number}",
            state="active",
            since=1.7e9,
            hardware=f"pci:{number:012x}",
            domain=f"switch s{number // 16}",
            slots=8,
            address=f"10.0.{number // 250}.{number % 250}",
            attempt=attempt,
            ranks_alive=tuple(range(number * 8, number * 8 + 8)),
            last_heartbeat_seconds_ago=(number + update) % 10 / 10,
            agent_pid=1000 + number,
            agent_resident_bytes=60_000_000 + update,
            warm="ready",
        )
        for number in range(num_nodes)
    ]
    for number in range(NUM_CHANGED):
        place = (update * NUM_CHANGED + number) % num_nodes
        nodes[place] = replace(nodes[place], state="suspect", reason="silent for 5.0 s")
    run = RunStatus(
        run=1,
        name="large",
        state="active",
        attempt=attempt,
        attempt_state="running",
        num_attempts=1,
        nodes=tuple(node.node for node in nodes),
        step=update,
        total_steps=1_000_000,
        last=StepRecord(step=update, loss=2.0 + update % 7 / 10, grad_norm=1.0, lr=3e-4),
        ettr_ratio=0.97,
    )
    return ClusterStatus(
        cluster="large", now=now, wall=time.time(), nodes=tuple(nodes), runs=(run,)
    )


class Publisher(threading.Thread):
    """Publishes signed statuses at a fixed rate, encoded before, so that this process disturbs little."""

    def __init__(self, store: SqliteStore, signer: Signer, num_nodes: int) -> None:
        super().__init__(daemon=True)
        self._store, self._over = store, threading.Event()
        updates = (wire.encode(status_of(update, num_nodes)) for update in range(25))
        self._payloads = [signer.sign(STATUS, each) for each in updates]
        self.num_published = 0
        self.publish()

    def publish(self) -> None:
        """Publish the next one."""
        self._store.put(STATUS, self._payloads[self.num_published % len(self._payloads)])
        self.num_published += 1

    def run(self) -> None:
        """Publish until it is stopped."""
        due = time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            self.publish()
            due += 1 / UPDATES_PER_SECOND

    def stop(self) -> None:
        """Publish no more."""
        self._over.set()
        self.join()


@dataclass(slots=True)
class Visitor:
    """One reader: its events are counted, not kept."""

    port: int
    token: str
    num_events: int = 0
    num_bytes: int = 0
    connection: http.client.HTTPConnection = field(init=False)

    def open(self) -> tuple[float, http.client.HTTPResponse]:
        """Ask for the page, its parts and its first state; return how long that took, and the stream."""
        headers, begun = {"Authorization": f"Bearer {self.token}"}, time.monotonic()
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        for path in ("/", "/static/page.css", "/static/uplot/uPlot.iife.min.js", "/static/page.js"):
            self.connection.request("GET", path, headers=headers)
            assert self.connection.getresponse().read()
        self.connection.request("GET", "/api/events", headers=headers)
        events = self.connection.getresponse()
        first = json.loads(events.readline().removeprefix(b"data: "))
        assert first["whole"]
        assert first["set"]["nodes"]
        return time.monotonic() - begun, events

    def follow(self, events: http.client.HTTPResponse) -> None:
        """Count what comes until the connection ends."""
        # When the connection is closed from here, http.client fails in one of several ways.
        with suppress(OSError, ValueError, AttributeError):
            while line := events.readline():
                self.num_bytes += len(line)
                self.num_events += line.startswith(b"data: ")


@contextmanager
def page_of(cluster: ClusterSpec) -> Iterator[tuple[int, int]]:
    """Start `stoker web` on a free port; yield its pid and the port once it answers."""
    Path(cluster.state, CLUSTER_NAME).write_bytes(wire.encode(cluster))
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["web", "--port", str(port), "--cluster", cluster.state]
    process = subprocess.Popen(
        [sys.executable, "-m", "runner.cli.main", *words], stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "serving" in (line := process.stderr.readline()), line
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()


def measure(report: Report, seconds: float, num_nodes: int) -> None:
    """Measure the first content one after the other, then the cost of all readers at once."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = ClusterSpec(name="large", state=folder, token_file=default_token_file(folder))
        for path in (cluster.token_file, web_token_file(cluster, "viewer")):
            make_token(path)
        token = Path(web_token_file(cluster, "viewer")).read_text().strip()
        with closing(SqliteStore(Path(folder, "store"))) as store:
            publisher = Publisher(store, Signer(Path(cluster.token_file)), num_nodes)
            with page_of(cluster) as (pid, port):
                publisher.start()
                report.figure_of(
                    f"{num_nodes} nodes: from the request to the first state, median of {NUM_FIRST}",
                    list(first_contents(port, token)),
                    "s",
                    at_most=FIRST_LIMIT_SECONDS,
                )
                _follow(report, pid, (port, token), seconds)
            publisher.stop()


def first_contents(port: int, token: str) -> Iterator[float]:
    """Yield how long the page takes, for one visitor after the other."""
    for _ in range(NUM_FIRST):
        visitor = Visitor(port, token)
        took, _ = visitor.open()
        visitor.connection.close()
        yield took


def _follow(report: Report, pid: int, address: tuple[int, str], seconds: float) -> None:
    visitors = [Visitor(*address) for _ in range(NUM_READERS)]
    streams = [visitor.open()[1] for visitor in visitors]
    for visitor, stream in zip(visitors, streams, strict=True):
        threading.Thread(target=visitor.follow, args=(stream,), daemon=True).start()
    time.sleep(SETTLE_SECONDS)
    events, begun, before = _events(visitors), time.monotonic(), cpu_seconds(pid)
    loop = ReferenceLoop()
    loop.sleep(seconds)
    took = time.monotonic() - begun
    used, fewest = (cpu_seconds(pid) - before) / took, min(_events(visitors, events)) / took
    name = f"{NUM_READERS} readers, {UPDATES_PER_SECOND:g} updates a second"
    report.cost(name, percent_of_core(100 * used), loop, at_most=CPU_LIMIT_PERCENT)
    report.figure(f"{name}: of each reader, at least", fewest, "updates/s")
    sent = sum(visitor.num_bytes for visitor in visitors) / sum(_events(visitors))
    report.figure(f"{name}: one update", sent / 1000, "kB")
    report.figure(f"{name}: memory", memory_mb(pid)[0], "MB", at_most=MEMORY_LIMIT_MB)
    for visitor in visitors:
        visitor.connection.close()


def _events(visitors: Sequence[Visitor], before: Sequence[int] = ()) -> list[int]:
    counts = [visitor.num_events for visitor in visitors]
    return [now - then for now, then in zip(counts, before or [0] * len(counts), strict=True)]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURED_SECONDS)
    parser.add_argument("--nodes", type=int, default=NUM_NODES)
    given = parser.parse_args()
    report = Report(
        "the web page",
        f"a status of {given.nodes} nodes, published {UPDATES_PER_SECOND:g} times a second, of which {NUM_CHANGED} nodes and a run "
        f"change; processor time of the page's process from /proc over {given.seconds:g} s, with {NUM_READERS} readers on "
        f"connections of their own, after {SETTLE_SECONDS:g} s; {SCALE}",
    )
    measure(report, given.seconds, given.nodes)
    return int(report.num_missed > 0)


if __name__ == "__main__":
    sys.exit(main())
