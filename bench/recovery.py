"""From SIGKILL to a rank to the first new step, split by phase: what Stoker takes, and what the ranks take to come up.

Everything is timed by one clock outside Stoker: the kill here, then signals and assignments as another reader of the store
sees them. The ranks' own phases are what they report, the slowest rank's.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.clusters import NUM_NODES, RANKS_PER_NODE, running, speaker
from bench.report import Report
from runner.facts import wire
from runner.facts.assignments import Assignment
from runner.facts.ids import AttemptId
from runner.facts.signals import Progress, RankExited, RanksGone, RanksStarted
from runner.facts.view import RunView, View
from runner.store.sqlite import SqliteStore
from runner.store.store import Store
from tests.e2e.stand import Stand, newest_run

NUM_KILLS = 8
WAIT_SECONDS = 120.0
BEFORE_START_LIMIT_MS = 150.0
OBSERVER_PRIORITY = -10  # the unit of nice(2); chosen, not measured
# What Stoker does, in order: each phase ends when the last node has done it.
PHASES = {
    "detect": "kill -> the rank's exit in the store",
    "decide": "-> its gang's nodes assigned idle",
    "stop": "-> no rank of the gang left",
    "plan": "-> new attempt assigned, its checkpoint verified",
    "start": "-> all new processes started",
}
OWN_PHASES = ("import", "connect", "build", "load", "first_step")
TRAINER = {"recipe": "tiny_cpu", "steps": 100_000, "checkpoint_every": 4, "validate_every": 0}
RUNS: dict[str, dict[str, Any]] = {
    "plain script": {"command": speaker(0.05)},
    "tiny_cpu": {"trainer": TRAINER, "environment": {"OMP_NUM_THREADS": "1"}},
}


@dataclass(slots=True)
class Seen:
    """When each node was first seen to have done its part in a phase, in seconds of the monotonic clock."""

    nodes: frozenset[str]
    killed_at: float = 0.0
    ended_at: float | None = None  # the kernel has taken the killed process down
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    first_step: float | None = None
    timings: dict[str, float] = field(default_factory=dict)

    def note(self, phase: str, node: str, now: float) -> None:
        """Note a node's part; the first time counts."""
        self.phases.setdefault(phase, {}).setdefault(node, now)

    def is_over(self, phase: str) -> bool:
        """Whether the phase is done: one node sees the death, one tells of steps, all else happens on every node."""
        needed = 1 if phase in ("detect", "first_step") else len(self.nodes)
        return len(self.phases.get(phase, {})) >= needed


class Reader:
    """Follows signals and assignments of a cluster from outside, and remembers who runs where."""

    def __init__(self, store: Store, nodes: Sequence[str]) -> None:
        self._store = store
        self._signals = 0
        self._versions = {f"assignment/{node}": 0 for node in nodes}
        self.pids: dict[AttemptId, dict[int, int]] = {}

    def read(self, timeout_seconds: float) -> list[Any]:
        """Return the facts that are new, once there are any."""
        batch = self._store.read(
            streams={"signals": self._signals},
            registers=self._versions,
            timeout_seconds=timeout_seconds,
        )
        facts: list[Any] = []
        for item in batch.items.get("signals", ()):
            self._signals = item.number
            facts.append(wire.decode(item.payload))
        for name, register in batch.registers.items():
            self._versions[name] = register.version
            facts.append(wire.decode(register.payload))
        for fact in facts:
            if isinstance(fact, RanksStarted):
                pids = {int(rank): pid for rank, pid in fact.pids.items()}
                self.pids.setdefault(fact.attempt, {}).update(pids)
        return facts

    def catch_up(self) -> None:
        """Read all there is."""
        while self.read(0.0):
            pass


def note_fact(seen: Seen, fact: Any, now: float, *, killed: AttemptId) -> None:
    """Note what a fact says of the recovery from the death in `killed`."""
    if isinstance(fact, Assignment) and fact.node in seen.nodes:
        is_newer = fact.plan is not None and fact.plan.attempt > killed
        if fact.plan is None or is_newer:
            seen.note("decide", fact.node, now)
        if is_newer:
            seen.note("plan", fact.node, now)
    elif isinstance(fact, RankExited) and fact.attempt == killed:
        seen.note("detect", fact.node, now)
    elif isinstance(fact, RanksGone) and fact.attempt == killed:
        seen.note("stop", fact.node, now)
    elif isinstance(fact, RanksStarted) and fact.attempt > killed:
        seen.note("start", fact.node, now)
    elif isinstance(fact, Progress) and fact.attempt > killed:
        seen.first_step = seen.first_step or now
        seen.note("first_step", fact.node, now)
        for name, seconds in fact.timings.items():
            seen.timings[name] = max(seconds, seen.timings.get(name, 0.0))


def kill(pid: int, seen: Seen) -> None:
    """Send SIGKILL; note when, and, from a thread, when the process has ended: freeing its memory takes the kernel a while."""
    watched = os.pidfd_open(pid)

    def watch() -> None:
        select.select([watched], [], [], WAIT_SECONDS)
        seen.ended_at = time.monotonic()
        os.close(watched)

    threading.Thread(target=watch, daemon=True).start()
    seen.killed_at = time.monotonic()
    os.kill(pid, signal.SIGKILL)


@contextmanager
def first_in_line() -> Iterator[None]:
    """Let this process, which only looks, run before all others where that is allowed: its own waiting is not measured then."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, OBSERVER_PRIORITY)
    try:
        yield
    finally:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, 0)


def one_kill(stand: Stand, reader: Reader, *, rank: int) -> Seen:
    """Kill a rank once nothing is amiss, and watch until the first new step."""
    reader.catch_up()
    newest = max(reader.pids, default=None)
    run = stand.wait(
        lambda view: _healthy_run(view, newest), "a run whose incidents are all resolved"
    )
    assert run.attempt is not None
    attempt = run.attempt
    reader.catch_up()
    seen = Seen(frozenset(run.nodes))
    kill(reader.pids[attempt][rank], seen)
    while not seen.is_over("first_step"):
        if time.monotonic() > seen.killed_at + WAIT_SECONDS:
            raise RuntimeError(f"no recovery within {WAIT_SECONDS:g} s:\n{stand.report()}")
        facts = reader.read(1.0)
        now = time.monotonic()
        for fact in facts:
            note_fact(seen, fact, now, killed=attempt)
    return seen


def split_ms(seen: Seen) -> dict[str, float]:
    """Return the milliseconds of each phase, of all of them before the start of processes, and of the whole."""
    taken_ms, since = {}, seen.killed_at
    for phase in PHASES:
        stamps = seen.phases[phase].values()
        until = max(since, min(stamps) if phase == "detect" else max(stamps))
        taken_ms[phase], since = (until - since) * 1e3, until
    assert seen.first_step is not None
    assert seen.ended_at is not None
    taken_ms["kernel"] = (seen.ended_at - seen.killed_at) * 1e3
    taken_ms["until started"] = (since - seen.killed_at) * 1e3
    taken_ms |= {name: seconds * 1e3 for name, seconds in seen.timings.items()}
    up_ms = (seen.first_step - since) * 1e3
    taken_ms["rest"] = up_ms - sum(seen.timings.values()) * 1e3
    taken_ms["whole"] = (seen.first_step - seen.killed_at) * 1e3
    return taken_ms


def measure(report: Report, name: str, num_kills: int) -> None:
    """Kill ranks in turn, one after each recovery, and print every phase."""
    kills: list[dict[str, float]] = []
    with ExitStack() as stack:
        stand = stack.enter_context(running(spares=0, **RUNS[name]))
        store = stack.enter_context(closing(SqliteStore(stand.state / "store", create=False)))
        reader = Reader(store, [f"n{index + 1}" for index in range(NUM_NODES)])
        stack.enter_context(first_in_line())
        for number in range(num_kills):
            rank = number % (NUM_NODES * RANKS_PER_NODE)
            kills.append(split_ms(one_kill(stand, reader, rank=rank)))

    def figure(key: str, text: str, at_most: float | None = None) -> None:
        values = [kill[key] for kill in kills if key in kill]
        if values:
            report.figure_of(f"{name}: {text}", values, "ms", at_most=at_most)

    figure("kernel", "floor: kill -> the kernel has ended the process")
    for phase, text in PHASES.items():
        figure(phase, f"{phase} ({text})")
    figure("until started", "all before the start of the new processes", BEFORE_START_LIMIT_MS)
    for phase in OWN_PHASES:
        figure(phase, phase.replace("_", " "))
    figure("rest", "rest (interpreters; less what ranks waited for one another)")
    figure("whole", "kill -> first new step")


def _healthy_run(view: View, attempt: AttemptId | None) -> RunView | None:
    """Return the run once `attempt`, or the first one, has gone further than any before; the View may still lag behind it."""
    run = newest_run(view)
    if run is None or run.attempt_state != "running" or not run.step:
        return None
    is_known = attempt is None or run.attempt == attempt
    return run if is_known and all(i.state == "resolved" for i in view.incidents) else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when the limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.recovery", description=__doc__)
    parser.add_argument("--kills", type=int, default=NUM_KILLS, help="of each kind of run")
    parser.add_argument("--run", choices=sorted(RUNS), action="append", help="only this one")
    given = parser.parse_args(arguments)
    report = Report(
        "recovery from kill -9 of a rank",
        f"{NUM_NODES} nodes x {RANKS_PER_NODE} ranks on one machine, no spare; {given.kills} kills of ranks in turn, each after "
        f"the last one's incident was resolved; median (smallest to largest); seen from outside through the store, so "
        f"each phase includes a reader's wake-up; import to first step: as the ranks report, the slowest rank",
    )
    for name in given.run or RUNS:
        measure(report, name, given.kills)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
