"""What is measured of a fleet: what it costs when all is well, how soon decisions are made, and how soon a death is known."""

import queue
import random
import time
from dataclasses import dataclass, field

from bench.fleet.stage import Event, Stage
from bench.reference_loop import ReferenceLoop
from runner.facts import wire
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.messages.records import IncidentOpened
from runner.facts.messages.requests import StartRun
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL
from runner.journal.chain import split
from runner.journal.kept_entries import decode_entry
from runner.signer import signer_of
from runner.store.protocol import MAX_LARGE_BYTES

NODES_PER_RUN, RANKS_PER_NODE = 8, 8
# Of all nodes: those without a run.
SPARES_RATIO = 0.02
# For one round of a crash; far above what it takes.
ROUND_SECONDS = 60.0
# After the last gang is up.
SETTLE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """What each part cost while nothing happened: cores (1.0 is one core in full), and the heartbeats that got through."""

    seconds: float
    # As measured here, beside this loop.
    cores: dict[str, float]
    loop: ReferenceLoop
    # Heartbeats that the store received, of those that were due.
    heartbeats_ratio: float
    peak_mb: float
    # Used by other processes of the machine: if it is much, no figure is reliable.
    others_cores: float


@dataclass(slots=True, kw_only=True)
class Decisions:
    """Milliseconds from a signal that the store had acknowledged to the last register written because of it."""

    # A rank's death -> its gang's idle assignments.
    idle_ms: list[float] = field(default_factory=list)
    # Last node clear, and its lines read where they are waited for -> its gang's launch.
    launch_ms: list[float] = field(default_factory=list)
    # A rank's death -> its gang's launch, what its nodes do in between included.
    whole_ms: list[float] = field(default_factory=list)

    @property
    def all_ms(self) -> list[float]:
        """Both kinds."""
        return self.idle_ms + self.launch_ms

    @property
    def both_ms(self) -> list[float]:
        """Both decisions about one death, one after the other: all that is the supervisor's in its answer."""
        return [sum(pair) for pair in zip(self.idle_ms, self.launch_ms, strict=True)]


def busy_cores() -> float:
    """Return the processor seconds that the whole machine has used so far, time stolen by its host included."""
    fields = [int(word) for word in open("/proc/stat").readline().split()[1:]]  # noqa: SIM115
    return (sum(fields[:3]) + sum(fields[5:8])) / 100.0


def steady(stage: Stage, seconds: float) -> Steady:
    """Watch a fleet at work for a while, and the reference loop meanwhile."""
    begun, before = time.monotonic(), stage.cpu()
    heartbeats, busy = stage.store.last("heartbeats"), busy_cores()
    loop = ReferenceLoop()
    loop.sleep(seconds)
    after, took = stage.cpu(), time.monotonic() - begun
    cores = {part: (after[part] - before[part]) / took for part in after}
    due = stage.count * took / stage.cluster.heartbeat_seconds
    return Steady(
        seconds=took,
        cores=cores,
        loop=loop,
        heartbeats_ratio=(stage.store.last("heartbeats") - heartbeats) / due,
        peak_mb=stage.peak_mb(),
        others_cores=max(0.0, (busy_cores() - busy) / took - sum(cores.values())),
    )


def start_runs(stage: Stage, *, nodes_per_run: int = NODES_PER_RUN) -> float:
    """Put all nodes but the spares to work; return the seconds until every gang has made its first step."""
    begun = time.monotonic()
    num = max(1, int(stage.count * (1 - SPARES_RATIO)) // nodes_per_run)
    for number in range(1, num + 1):
        spec = RunSpec(
            name=f"r{number}",
            nodes=nodes_per_run,
            ranks_per_node=RANKS_PER_NODE,
            command=("true",),
            working_directory="/",
            # A gang that crashes repeatedly, and makes a step each time, must be launched each time.
            max_attempts_without_progress=1000,
        )
        stage.ask(StartRun(id=f"q{number}", by="bench", spec=spec))
    stage.wait_for(lambda status: _are_up(status, num), f"{num} gangs up")
    return time.monotonic() - begun


def crash_rounds(stage: Stage, rounds: int, *, seed: int = 1, loss: str = "kill") -> Decisions:
    """Lose a rank of some gang repeatedly; measure when its nodes get idle assignments, and when the next launch.

    `loss`: in which of the agents' ways.
    """
    dice, found = random.Random(seed), Decisions()
    status = stage.view()
    assert status is not None
    runs = [run.run for run in status.runs]
    dice.shuffle(runs)
    for place in range(rounds):
        number = runs[place % len(runs)]
        nodes = _recovered(stage, number).nodes
        registers = {f"assignment/{name}": 0 for name in nodes}
        _read(stage, registers)
        victim = dice.choice(nodes)
        _drain(stage)
        stage.order(victim, loss)
        idle_at, launch_at = _reassigned(stage, registers)
        exited_at, others = _event(stage, "RankExited", [victim])
        ready_at, others = _event(stage, "RanksTerminated", list(nodes), seen=others)
        if loss == "fail":
            read_at, others = _event(stage, "LinesMatched", [victim], seen=others)
            ready_at = max(ready_at, read_at)
        # Otherwise the next loss would find no rank.
        _event(stage, "RanksStarted", list(nodes), seen=others)
        found.idle_ms.append((idle_at - exited_at) * 1e3)
        found.launch_ms.append((launch_at - ready_at) * 1e3)
        found.whole_ms.append((launch_at - exited_at) * 1e3)
    return found


def _recovered(stage: Stage, number: int) -> RunStatus:
    """Wait until the attempt that the nodes of a run are assigned to runs, and the run's incidents are resolved; return the run.

    A loss before that is the same failure again, which waits before it is answered.
    """

    def run_in(status: ClusterStatus) -> RunStatus:
        return next(run for run in status.runs if run.run == number)

    def has_recovered(status: ClusterStatus) -> bool:
        run = run_in(status)
        register = f"assignment/{run.nodes[0]}"
        plan = _read(stage, {register: 0})[register].plan
        is_calm = all(each.state == "resolved" for each in status.incidents if each.run == number)
        is_newest = plan is not None and plan.attempt == run.attempt
        return is_calm and is_newest and run.attempt_state == "running"

    return run_in(stage.wait_for(has_recovered, f"recovery of run {number}"))


def deaths(stage: Stage, count: int, *, seed: int = 2) -> list[float]:
    """Silence spares, one by one; return the seconds from the last heartbeat of each to its incident."""
    status = stage.wait_for(
        lambda status: all(run.attempt_state == "running" for run in status.runs),
        "all gangs up again",
    )
    at_work = {name for run in status.runs for name in run.nodes}
    names = [node.node for node in status.nodes if node.node not in at_work][:count]
    found = []
    for name in names:
        cursor = stage.store.last(JOURNAL)
        stage.order(name, "hang")
        hung_at = _event(stage, "hung", [name])[0]
        found.append(_incident_at(stage, name, cursor) - hung_at)
        time.sleep(random.Random(f"{seed} {name}").random() * stage.cluster.heartbeat_seconds)
    return found


def _are_up(status: ClusterStatus, num: int) -> bool:
    up = sum(run.attempt_state == "running" and run.step > 0 for run in status.runs)
    return up == num


def _read(stage: Stage, registers: dict[str, int]) -> dict[str, Assignment]:
    """Wait for news of these registers; note their versions, and return what they hold."""
    batch = stage.store.read(streams={}, registers=registers, timeout_seconds=ROUND_SECONDS)
    if not batch:
        events = [stage.events.get() for _ in range(min(10, stage.events.qsize()))]
        raise RuntimeError(
            f"{len(registers)} registers, {next(iter(registers))} among them: nothing written within {ROUND_SECONDS:g} s; "
            f"messages of agents: {events}\n{stage.report()}"
        )
    found, signer = {}, signer_of(stage.cluster)
    for name, register in batch.registers.items():
        registers[name] = register.version
        payload = signer.verify(name, register.payload)
        found[name] = wire.decode(payload, limit_bytes=MAX_LARGE_BYTES)
    return found


def _reassigned(stage: Stage, registers: dict[str, int]) -> tuple[float, float]:
    """Wait until all of these registers hold a launch; return when the last idle assignment was read, and the last launch.

    An idle assignment that was replaced before it could be read counts as read with the launch.
    """
    idle_at: dict[str, float] = {}
    launched_at: dict[str, float] = {}
    while len(launched_at) < len(registers):
        found, now = _read(stage, registers), time.monotonic()
        for name, assignment in found.items():
            idle_at.setdefault(name, now)
            if assignment.plan is not None:
                launched_at[name] = now
    return max(idle_at.values()), max(launched_at.values())


def _event(
    stage: Stage, what: str, nodes: list[str], *, seen: list[Event] | None = None
) -> tuple[float, list[Event]]:
    """Wait for a message of each of these nodes; return when the last came, and all other messages until then."""
    left: dict[str, None] = dict.fromkeys(nodes)
    others: list[Event] = []
    at = 0.0
    for event in seen or []:
        if event["what"] == what and event["node"] in left:
            del left[event["node"]]
            at = max(at, event["at"])
    while left:
        try:
            event = stage.events.get(timeout=ROUND_SECONDS)
        except queue.Empty:
            raise RuntimeError(f"{what}: nothing from {list(left)[:5]}\n{stage.report()}") from None
        if event["what"] == what and event["node"] in left:
            del left[event["node"]]
            at = max(at, event["at"])
        else:
            others.append(event)
    return at, others


def _drain(stage: Stage) -> None:
    while not stage.events.empty():
        stage.events.get()


def _incident_at(stage: Stage, node: str, cursor: int) -> float:
    """Return when the journal was seen to hold the incident of a silent node."""
    until = time.monotonic() + ROUND_SECONDS
    while time.monotonic() < until:
        batch = stage.store.read(streams={JOURNAL: cursor}, registers={}, timeout_seconds=1.0)
        now = time.monotonic()
        for item in batch.items.get(JOURNAL, ()):
            cursor = item.number
            for record in decode_entry(item.number, split(item.payload)[0]).records:
                if isinstance(record, IncidentOpened) and record.node == node:
                    return now
    raise RuntimeError(f"no incident of {node}\n{stage.report()}")
