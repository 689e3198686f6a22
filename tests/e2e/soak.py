"""A gang whose every step can be computed in advance, rounds of kills against it, and records of Stoker's resources."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.facts.messages.cluster_status import ClusterStatus
from tests.e2e.cluster_harness import ClusterHarness, Process, Training, kill, node_of
from tests.e2e.observer import environment_of, stat_of

# Two ranks that need each other in every step, as in training: the state after a step hangs on both and on all steps before.
# Rank 0 saves for itself, in one move, every fifth step; each start goes on from there. They end when the file `enough` is there.
CHAIN = """
import hashlib, json, os, socket, time
rank, attempt = int(os.environ["RANK"]), os.environ["STOKER_ATTEMPT"]
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))
channel.setblocking(False)

def report(**fields):
    try:
        channel.send(json.dumps(fields).encode())
    except BlockingIOError:
        pass

def peer():
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(address) as listener:
            listener.settimeout(60)
            return listener.accept()[0]
    while True:
        try:
            return socket.create_connection(address, timeout=60)
        except ConnectionRefusedError:
            time.sleep(0.005)

def exchange(mine):
    other.sendall(mine)
    theirs = b""
    while len(theirs) < len(mine):
        part = other.recv(len(mine) - len(theirs))
        if not part:
            raise ConnectionError("the peer is gone")
        theirs += part
    return theirs

report(kind="hello", requests=[], remedies=[])
other = peer()
other.settimeout(60)
step, state = 0, "begin"
if os.path.exists("saved.json"):
    with open("saved.json") as saved:
        step, state = json.load(saved)
to_save = None
with open(f"chain.{rank}", "a") as chain:
    while True:
        ends = b"1" if rank == 0 and os.path.exists("enough") else b"0"
        mine = hashlib.sha256(f"{state} {step + 1} {rank}".encode()).hexdigest().encode()
        theirs = exchange(mine + ends)
        if to_save is not None:  # the peer, which has gone on, has written that step down as well
            with open("saved.part", "w") as part:
                json.dump(to_save, part)
            os.replace("saved.part", "saved.json")
            to_save = None
        if b"1" in (ends, theirs[-1:]):
            break
        step += 1
        both = (mine, theirs[:-1]) if rank == 0 else (theirs[:-1], mine)
        state = hashlib.sha256(b" ".join(both)).hexdigest()
        chain.write(f"{attempt} {step} {state}\\n")
        chain.flush()
        if rank == 0 and step % 5 == 0:
            to_save = [step, state]
        report(kind="step", step=step, loss=int(state[:8], 16) / 2**32)
        time.sleep(0.01)
"""
# How often each is killed in one pack of rounds: ranks often, whole programs less so. Chosen, not measured.
TARGETS: Mapping[str, int] = {
    "rank": 4,
    "stop": 3,
    "warm": 2,
    "keeper": 2,
    "agent": 2,
    "supervisor": 1,
}
PYTHON_IMPORTS = ("hashlib", "json", "socket")


def write_chain(harness: ClusterHarness) -> None:
    """Write the script, and a run of it with one rank on each of two nodes, forked from warm processes."""
    harness.write_script(CHAIN)
    harness.write_run(
        command="{python} train.py",
        nodes=2,
        python=sys.executable,
        preload=list(PYTHON_IMPORTS),
        working_directory=str(harness.folder),
    )


def expected_state(state: str, step: int) -> str:
    """Return the state after `step` from the one before: both ranks must reach it."""
    parts = [hashlib.sha256(f"{state} {step} {rank}".encode()).hexdigest() for rank in (0, 1)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def check_chain(folder: Path) -> int:
    """Check that every step of every attempt, on both ranks, has the expected state, without a gap; return the last step.

    A rank that was cut off may still write down a step, once it is reached again, after a later attempt has begun: that one goes on
    from where its own attempt was.
    """
    expected = ["begin"]
    last = 0
    for rank in (0, 1):
        lines = (folder / f"chain.{rank}").read_text().split("\n")[:-1]
        before: tuple[str, int] = ("", 0)
        # Earlier attempts -> their last step.
        ended: dict[str, int] = {}
        for attempt, number, state in (line.split() for line in lines):
            step = int(number)
            while len(expected) <= step:
                expected.append(expected_state(expected[-1], len(expected)))
            assert state == expected[step], f"rank {rank}, {attempt}: step {step} came to {state}"
            if attempt in ended:
                assert step == ended[attempt] + 1, (
                    f"rank {rank}, {attempt}: {ended[attempt]}, then {step}"
                )
                ended[attempt] = step
                continue
            if attempt == before[0]:
                assert step == before[1] + 1, f"rank {rank}, {attempt}: {before[1]}, then {step}"
            else:
                assert step <= before[1] + 1, f"rank {rank}, {attempt} left out steps: {step}"
            if attempt != before[0] and before[0]:
                ended[before[0]] = before[1]
            before = (attempt, step)
        last = max(last, before[1])
    return last


@dataclass(frozen=True, slots=True)
class ProcessResources:
    """The resources of a process at a quiet moment."""

    num_descriptors: int
    resident_bytes: int


@dataclass(slots=True)
class Books:
    """Resources of each of Stoker's processes over the rounds, by kind and pid."""

    held: dict[tuple[str, int], list[ProcessResources]] = field(default_factory=dict)

    def note(self, harness: ClusterHarness) -> None:
        """Read every process."""
        for process in harness.processes():
            kind = kind_of(process)
            if kind != "rank":
                self.held.setdefault((kind, process.pid), []).append(resources_of(process.pid))

    def growth(self, *, warm_up: int) -> dict[str, tuple[int, int, int]]:
        """Return by kind the largest growth of one process past its first rounds: rounds, descriptors, bytes."""
        grown: dict[str, tuple[int, int, int]] = {}
        for (kind, _), held in self.held.items():
            if len(held) <= warm_up:
                continue
            first, last = held[warm_up], held[-1]
            rounds, descriptors, size = grown.get(kind, (0, 0, 0))
            grown[kind] = (
                max(rounds, len(held) - warm_up),
                max(descriptors, last.num_descriptors - first.num_descriptors),
                max(size, last.resident_bytes - first.resident_bytes),
            )
        return grown


def resources_of(pid: int) -> ProcessResources:
    """Read the resources of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return ProcessResources(len(os.listdir(f"/proc/{pid}/fd")), pages * os.sysconf("SC_PAGE_SIZE"))


def kind_of(process: Process) -> str:
    """Return the kind of a process of a harness."""
    if "RANK" in environment_of(process.pid):
        return "rank"
    for part, kind in (
        ("runner.agent", "agent"),
        ("runner.collect", "reader"),
        ("runner/keeper --folder", "keeper"),
        ("warm process:", "warm"),
    ):
        if part in process.command:
            return kind
    return "supervisor" if "supervise" in process.command else "other"


def zombies_below(pids: list[int]) -> list[int]:
    """Return the zombies that some of these processes have not reaped."""
    found = []
    for name in os.listdir("/proc"):
        stat = stat_of(int(name)) if name.isdecimal() else None
        if stat is not None and stat[0] == "Z" and stat[1] in pids:
            found.append(int(name))
    return found


class Rounds:
    """Kills, one a round, and what must hold after each. Node n1's own processes are spared, so that a leak in them shows."""

    def __init__(self, harness: ClusterHarness, seed: int) -> None:
        self.harness = harness
        self.books = Books()
        self.rng = random.Random(seed)
        self.pack: list[str] = []
        self.done: list[str] = []
        self.targets = TARGETS
        self.wanted = {"supervisor": 1, "agent": 2, "reader": 2, "keeper": 2, "warm": 2, "rank": 2}
        self.supervisor: subprocess.Popen[bytes]

    def begin(self) -> None:
        """Start a cluster of two nodes with one rank each, forked from warm processes."""
        limits = {"heartbeat_timeout_seconds": 2.0, "stopped_seconds": 0.2, "lease_seconds": 1.0}
        self.harness.write_cluster(nodes=2, slots=1, limits=limits)
        write_chain(self.harness)
        self.supervisor = self.harness.start("supervise")
        self.harness.until(self.harness.view, "a first View")
        handed = self.harness.stoker("run", "run.yaml", "--detach")
        assert handed.returncode == 0, handed
        self.settle(self.harness.training(past_step=1))

    def round(self, *, may_restart_supervisor: bool) -> None:
        """Kill one process, wait until all is as before and the gang has gone on, and record all resources."""
        what = self._draw()
        while what == "supervisor" and not may_restart_supervisor:
            what = self._draw()
        before = self.harness.training(past_step=1)
        self.done.append(what)
        if what in ("rank", "stop"):
            rank = self.rng.randrange(2)
            kill(before.pids[rank], signal.SIGSTOP if what == "stop" else signal.SIGKILL)
            self.settle(self.harness.training(past_step=before.step, after=before.attempt))
        elif what == "keeper":
            # Its ranks die with it.
            kill(self.pid_on_n2("keeper"))
            self.settle(self.harness.training(past_step=before.step, after=before.attempt))
        elif what == "supervisor":
            self.supervisor.kill()
            self.supervisor.wait()
            self.supervisor = self.harness.start("supervise")
            self.goes_on(before)
        else:
            kill(self.pid_on_n2(what))
            self.goes_on(before)

    def _draw(self) -> str:
        """Draw from a shuffled pack, so that each kind comes up as often as it should also in few rounds."""
        if not self.pack:
            self.pack = [name for name, times in self.targets.items() for _ in range(times)]
            self.rng.shuffle(self.pack)
        return self.pack.pop()

    def goes_on(self, before: Training) -> None:
        """Wait until all is as before with the same ranks, and check that they made progress."""
        self.settle(before)
        after = self.harness.training(past_step=before.step)
        assert after.pids == before.pids

    def settle(self, now: Training) -> None:
        """Wait until every process exists once and nodes are healthy and warm, and record their resources."""

        def is_whole() -> bool:
            view = self.harness.view()
            if view is None or not self.leads(view):
                return False
            nodes = [node_of(view, name) for name in ("n1", "n2")]
            found = [kind_of(process) for process in self.harness.processes()]
            return (
                {kind: found.count(kind) for kind in dict.fromkeys(found)} == self.wanted
                and all(node.state == "active" and node.warm == "ready" for node in nodes)
                and {node.agent_pid for node in nodes} <= {p.pid for p in self.harness.processes()}
            )

        self.harness.until(is_whole, f"all processes once, after {self.done[-1:]}")
        pids = [process.pid for process in self.harness.processes()]
        self.harness.until(lambda: not zombies_below(pids), "all zombies reaped")
        self.books.note(self.harness)

    def leads(self, view: ClusterStatus) -> bool:
        """Whether a living supervisor published this status."""
        return f":{self.supervisor.pid}:" in view.holder

    def pid_on_n2(self, kind: str) -> int:
        """Find a process of node n2."""
        view = self.harness.view()
        folder = self.harness.state / "nodes" / "n2"
        keeper = int(json.loads((folder / "keeper.json").read_text())["pid"])
        if kind == "keeper":
            return keeper
        if kind == "agent":
            return node_of(view, "n2").agent_pid
        return next(
            process.pid
            for process in self.harness.processes()
            if kind_of(process) == "warm" and _parent_of(process.pid) == keeper
        )


def _parent_of(pid: int) -> int:
    stat = stat_of(pid)
    return stat[1] if stat is not None else 0
