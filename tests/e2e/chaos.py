"""Faults drawn from one seed against everything that keeps a run going, and what must hold after them.

The driver does what a service manager does (start a supervisor that ended again), and what Stoker tells a person to do. It
reads from the ranks' own stamps how far the run is, and what lives from /proc.
"""

import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.clock import WHOSE, JumpingClock
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, newest_run, run_of
from tests.e2e.fleet_harness import HostHarness, write_redis_cluster
from tests.e2e.observer import environment_of, is_same_process, stat_of
from tests.e2e.soak import check_chain, kind_of, write_chain
from tests.store.redis_server import RedisServer
from tests.suite.share import current

# A run that makes no new step for so long, with no fault in force, has stalled. Far above what is usual, for a loaded machine.
STALL_SECONDS = 90.0
# After so long without a new step the driver does what Stoker tells a person to do.
PATIENCE_SECONDS = 10.0
LOOK_SECONDS = 0.5
NODES = ("n1", "n2", "n3")
HOURS = (-26, -3, -1, 1, 2, 25)
# How often each is drawn; chosen.
FAULTS: Mapping[str, int] = {
    "kill rank": 3,
    "pause rank": 2,
    "kill warm": 2,
    "pause warm": 1,
    "kill agent": 3,
    "pause agent": 2,
    "kill keeper": 2,
    "pause keeper": 1,
    "kill node": 3,
    "pause node": 2,
    "kill leader": 2,
    "pause leader": 2,
    "kill standby": 1,
    "pause standby": 1,
    "kill supervisors": 2,
    "pause supervisors": 2,
    "kill two nodes, supervisors paused": 2,
    "kill agent after a jump": 2,
    "jump of supervisors": 1,
    "jump of nodes": 1,
    "jump of all": 1,
    "restart machine": 2,
}
ON_REDIS: Mapping[str, int] = {"kill redis": 4, "pause redis": 3}
SUPERVISORS = ("c1", "c2")
CUTS = ("both ways", "outbound, all", "outbound, store", "inbound, all", "inbound, store")
LIMITS: Mapping[str, float] = {
    "heartbeat_timeout_seconds": 2.0,
    "stopped_seconds": 0.2,
    "lease_seconds": 1.0,
    "fence_seconds": 2.0,
}


@dataclass(slots=True)
class Lengths:
    """Of pauses, seconds: short ones most often, drawn from an exponential with this mean, and never longer than the longest."""

    mean: float
    longest: float


# Two sequences that once ended in a stall are struck first.
FIRST = ("kill two nodes, supervisors paused", "kill agent after a jump")
IS_SOAK = "STOKER_SOAK" in os.environ
NUM_FAULTS = int(os.environ.get("STOKER_SOAK_FAULTS", "300" if IS_SOAK else "30"))
NUM_PARTITIONS = int(os.environ.get("STOKER_SOAK_PARTITIONS", "100" if IS_SOAK else "30"))
LENGTHS = Lengths(3.0, 30.0) if IS_SOAK else Lengths(0.5, 2.0)


@dataclass(slots=True)
class Tally:
    """What was done, and what came of it."""

    faults: list[str] = field(default_factory=list)
    exits: Counter[int] = field(default_factory=Counter)
    readmits: int = 0
    longest_seconds: float = 0.0


class Progress:
    """How far the ranks are, by their own stamps."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / f"chain.{rank}" for rank in (0, 1)]
        self.step = 0

    def look(self) -> bool:
        """Whether there are new steps since the last look."""
        newest = max(map(_last_step, self._files))
        if newest <= self.step:
            return False
        self.step = newest
        return True


class Trial:
    """Faults, one or a few at a time, and after them a run that has to go on. Subclasses say which, and tend the programs."""

    def __init__(self, harness: ClusterHarness, seed: int, lengths: Lengths) -> None:
        self.harness, self.seed, self.lengths = harness, seed, lengths
        self.rng, self.tally = random.Random(seed), Tally()
        self.progress = Progress(harness.folder)
        self.is_out_of_reach = False
        # What ends a fault that is in force, and when.
        self._due: list[tuple[float, Callable[[], object]]] = []
        # Of commands, beside the usual one.
        self.environment: Mapping[str, str] = {}
        self._read_to = 0

    def draw(self) -> str:
        """Draw a fault."""
        raise NotImplementedError

    def inject(self, what: str, seconds: float) -> str:
        """Let a fault happen, or begin for so long; return where it struck."""
        raise NotImplementedError

    def tend(self) -> None:
        """Start programs that ended again, as a service manager does."""
        raise NotImplementedError

    def run(self, num_faults: int, first: Iterable[str] = ()) -> None:
        """Strike so often, sometimes before the run has recovered; each time, wait until it goes on.

        A burst of faults depends on the seed and its own number only, so that a commit can play its share of them.
        """
        begun = list(first)
        for burst, size in enumerate(burst_sizes(self.seed, num_faults, num_single=len(begun))):
            if not current().has(burst):
                continue
            self.rng = random.Random(f"{self.seed} {burst}")
            for _ in range(size):
                what = begun[burst] if burst < len(begun) else self.draw()
                seconds = min(self.lengths.longest, self.rng.expovariate(1 / self.lengths.mean))
                self.tally.faults.append(what)
                number, step = len(self.tally.faults), self.progress.step
                where = self.inject(what, seconds)
                print(f"{number} step {step}: {what} ({where}, {seconds:.1f} s)", flush=True)
                self._tend_for(self.rng.expovariate(4.0))
            self.go_on()

    def go_on(self) -> None:
        """Wait until no fault is in force and the run has made new steps since; check what was observed."""
        while self._due:
            self._tend_for(0.1)
        self.progress.look()
        began = looked = time.monotonic()
        asked = began + PATIENCE_SECONDS
        while not self.progress.look():
            now = time.monotonic()
            assert now < began + STALL_SECONDS, f"a stall: {self.tally}\n{self.harness.report()}"
            if now > looked + LOOK_SECONDS:
                looked = now
                self._check_run()
            if now > asked:
                asked = now + PATIENCE_SECONDS
                self._obey_pages()
            self._tend_for(0.05)
        self.tally.longest_seconds = max(self.tally.longest_seconds, time.monotonic() - began)
        self.harness.observer.check(out_of_reach=self.is_out_of_reach)

    def later(self, seconds: float, what: Callable[[], object]) -> None:
        """End a fault in so many seconds."""
        self._due.append((time.monotonic() + seconds, what))

    def ended(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether a program has ended so that a service manager starts it again.

        Killed; a leader without its lease (1); one that began while the store was away (4).
        """
        if (code := process.poll()) is None:
            return False
        self.tally.exits[code] += 1
        assert code in (-signal.SIGKILL, 1, 4), f"ended with {code}: {self.harness.report()}"
        return True

    def summary(self) -> str:
        """Check every step, and return what was done and what came of it."""
        last = check_chain(self.harness.folder)
        # Spares may be given up; no fault of the run is.
        incidents = [each for each in incidents_of(self.harness.view()) if each.run is not None]
        assert {each.state for each in incidents} <= {"resolved"}, self.harness.report()
        self.harness.observer.check(out_of_reach=self.is_out_of_reach)
        kinds, attempts = Counter(self.tally.faults), self.harness.observer.attempts()
        return (
            f"{len(self.tally.faults)} faults: {dict(sorted(kinds.items()))}\n"
            f"{len(attempts)} attempts, {last} steps, steps missing: 0, two gangs: 0, longest time to the next new step: "
            f"{self.tally.longest_seconds:.1f} s, readmits that Stoker asked for: {self.tally.readmits}, "
            f"exit codes of programs started again: {dict(self.tally.exits)}, looks at a rank of a node that was paused and "
            f"given up beside the next gang: {len(self.harness.observer.overlaps)}"
        )

    def _tend_for(self, seconds: float) -> None:
        """Lift faults whose time is over, and tend the programs, for so long."""
        until = time.monotonic() + seconds
        while True:
            for item in [item for item in self._due if item[0] <= time.monotonic()]:
                self._due.remove(item)
                item[1]()
            self.tend()
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def _check_run(self) -> None:
        view = self.harness.view()
        run = newest_run(view) if view is not None else None
        assert run is None or run.state in ("active", "waiting"), f"{run}\n{self.harness.report()}"

    def _obey_pages(self) -> None:
        """Do what the newest pages and the run's reason tell a person to do."""
        view, output = self.harness.view(), self.harness.output()
        pages, self._read_to = output[self._read_to :], len(output)
        runs = view.runs if view is not None else ()
        text = " ".join([pages, *(run.reason for run in runs)])
        for node in dict.fromkeys(re.findall(r"`stoker readmit (\w+)`", text)):
            done = self.stoker("readmit", node)
            print(f"stoker readmit {node}: {done.stdout.strip()} {done.stderr.strip()}", flush=True)
            self.tally.readmits += done.returncode == 0

    def stoker(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the cluster."""
        return self.harness.stoker(
            *words, "--cluster", "cluster.yaml", environment=self.environment
        )


def burst_sizes(seed: int, num_faults: int, *, num_single: int) -> list[int]:
    """Split a series of faults into bursts of up to three, the first ones of one."""
    rng, sizes = random.Random(seed), [1] * min(num_single, num_faults)
    while (left := num_faults - sum(sizes)) > 0:
        sizes.append(min(left, rng.choices((1, 2, 3), (4, 2, 1))[0]))
    return sizes


class Chaos(Trial):
    """A cluster of three local nodes with a leader and a standby, and a run on two of the nodes."""

    def __init__(
        self,
        harness: ClusterHarness,
        seed: int,
        lengths: Lengths,
        *,
        redis: RedisServer | None = None,
    ) -> None:
        super().__init__(harness, seed, lengths)
        self.redis = redis
        self.clock = JumpingClock(harness.folder / "clock")
        self.environment = self.clock.environment
        self.weights = {**FAULTS, **(ON_REDIS if redis is not None else {})}
        self.supervisors: list[subprocess.Popen[bytes]] = []
        self._paused: set[int] = set()
        # By which all clocks are ahead.
        self._hours = 0

    def begin(self) -> None:
        """Start cluster and run."""
        local = {"nodes": 2, "slots": 1, "spares": 1}
        if self.redis is not None:
            write_redis_cluster(self.harness, self.redis, local=local)
        else:
            self.harness.write_cluster(nodes=2, slots=1, spares=1, limits=LIMITS)
        write_chain(self.harness)
        self._supervise()
        self.harness.until(self.harness.view, "a first status")
        self._supervise()
        handed = self.stoker("run", "run.yaml", "--detach")
        assert handed.returncode == 0, handed
        self.harness.training(past_step=1)

    def end(self) -> str:
        """End the run and the cluster; return a summary."""
        (self.harness.folder / "enough").touch()
        self.harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
        summary = self.summary()
        shut = self.stoker("shutdown")
        assert shut.returncode == 0, shut
        for process in self.supervisors:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        return summary

    def draw(self) -> str:
        """Draw a fault."""
        return self.rng.choices(list(self.weights), list(self.weights.values()))[0]

    def inject(self, what: str, seconds: float) -> str:
        """Let a fault happen, or begin for so long; return the node and the jump it may have struck with."""
        verb, _, target = what.partition(" ")
        node, hours = self.rng.choice(NODES), self.rng.choice(HOURS)
        if what == "restart machine":
            self._restart_machine()
        elif what == "kill two nodes, supervisors paused":
            self._pause(self._pids_of("supervisors", node), seconds)
            for name in self.rng.sample(NODES, 2):
                self._kill(self._pids_of("node", name))
        elif what == "kill agent after a jump":
            self._jump(hours)
            self._kill(self._pids_of("agent", node))
        elif what == "jump of all":
            self._jump(hours)
        elif verb == "jump":
            self.clock.set(target.removeprefix("of "), hours * 3600)
            # Machines whose clocks are hours apart may not join: a person has to set them right.
            self.later(seconds, lambda: self._jump(self._hours))
        elif what == "kill redis" and self.redis is not None:
            self.redis.kill()
            self.later(seconds, self._start_redis)
        elif what == "pause redis" and self.redis is not None:
            self._pause([] if self.redis.has_ended() else [self.redis.pid], seconds)
        elif verb == "kill":
            self._kill(self._pids_of(target, node))
        else:
            pids = self._pids_of(target, node)
            if target == "node":
                self.harness.observer.paused.update(pids)
            self._pause(pids, seconds)
        return f"{node}, {hours:+d} h"

    def _jump(self, hours: int) -> None:
        self._hours = hours
        for whose in WHOSE:
            self.clock.set(whose, hours * 3600)

    def _start_redis(self) -> None:
        if self.redis is not None and self.redis.has_ended():
            self.redis.start()

    def _restart_machine(self) -> None:
        """Kill everything at once; then only what a service manager starts comes back."""
        if self.redis is not None:
            self.redis.kill()
        for process in self.supervisors:
            process.kill()
        self.harness.kill_everything()
        self._due.clear()
        self._paused.clear()
        self._jump(self._hours)
        self._start_redis()

    def _kill(self, pids: Iterable[int]) -> None:
        for pid in pids:
            kill(pid)

    def _pause(self, pids: Iterable[int], seconds: float) -> None:
        """Stop processes, and let those that are still there go on later."""
        stopped = {}
        for pid in pids:
            stat = stat_of(pid)
            if stat is not None and pid not in self._paused:
                kill(pid, signal.SIGSTOP)
                stopped[pid] = stat[2]
        self._paused.update(stopped)

        def go_on() -> None:
            self._paused.difference_update(stopped)
            for pid, start_ticks in stopped.items():
                if is_same_process(pid, start_ticks):
                    kill(pid, signal.SIGCONT)

        self.later(seconds, go_on)

    def _pids_of(self, target: str, node: str) -> list[int]:
        """Find the processes of a target: of a node, of both supervisors, or the leader or standby."""
        if target in ("leader", "standby", "supervisors"):
            alive = [p.pid for p in self.supervisors if p.poll() is None]
            view = self.harness.view() if target != "supervisors" else None
            leading = [pid for pid in alive if view is not None and f":{pid}:" in view.holder]
            if target == "leader":
                return leading or alive[:1]
            return alive if target == "supervisors" else [p for p in alive if p not in leading]
        found: dict[str, list[int]] = {}
        for process in self.harness.processes():
            name = node_of_process(process.pid, process.command)
            if name and (target == "node" or kind_of(process) == target):
                found.setdefault(name, []).append(process.pid)
        # Another node where this one has none.
        return found.get(node) or next(iter(found.values()), [])

    def tend(self) -> None:
        """Keep two supervisors."""
        self.supervisors = [process for process in self.supervisors if not self.ended(process)]
        while len(self.supervisors) < 2 and (self.redis is None or not self.redis.has_ended()):
            self._supervise()

    def _supervise(self) -> None:
        words = ("supervise", "--standby", "--cluster", "cluster.yaml")
        self.supervisors.append(self.harness.start(*words, environment=self.environment))


def node_of_process(pid: int, command: str) -> str:
    """Return the node that a process belongs to; "" for none."""
    named = re.search(r"--node (\w+)|/nodes/(\w+)", command)
    found = next((part for part in named.groups() if part), "") if named else ""
    return found or environment_of(pid).get("STOKER_NODE", "")


def _last_step(path: Path) -> int:
    """Return the step in the last whole line of a rank's stamps."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 512))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    return int(lines[-2].split()[1]) if len(lines) >= 2 else 0


class Partitions(Trial):
    """Hosts are cut off, both ways or one way, from all others or from the store alone; up to three at once."""

    def __init__(self, harness: HostHarness, seed: int, lengths: Lengths) -> None:
        super().__init__(harness, seed, lengths)
        self.hosts, self.is_out_of_reach = harness, True
        # Host -> its one program, a supervisor or an agent.
        self._programs = {name: host.program for name, host in harness.network.hosts.items()}
        self._cuts: Counter[str] = Counter()

    def draw(self) -> str:
        """Draw a way to cut."""
        return self.rng.choice(CUTS)

    def inject(self, what: str, seconds: float) -> str:
        """Cut a host off for so long, a run's twice as often as another; return its name."""
        view = self.hosts.view()
        serving = list(run_of(view).nodes) if view is not None else []
        name = self.rng.choice([*self.hosts.network.hosts, *serving])
        host, how = self.hosts.host(name), what.partition(", ")
        peer = self.hosts.network.address if how[2] == "store" else self.hosts.network.subnet
        if how[0] == "both ways":
            host.cut()
        elif how[0] == "outbound":
            host.drop_outbound(destination=peer)
        else:
            host.drop_inbound(source=peer)
        self._cuts[name] += 1

        def reconnect() -> None:
            self._cuts[name] -= 1
            if not self._cuts[name]:
                host.reconnect()

        self.later(seconds, reconnect)
        return name

    def tend(self) -> None:
        """Keep a program on each host."""
        for name, process in self._programs.items():
            if self.ended(process):
                start = self.hosts.supervise if name in SUPERVISORS else self.hosts.agent
                self._programs[name] = start(name)
