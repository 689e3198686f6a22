"""Real faults in the built-in trainer, drawn by a seed: Stoker names the right fault, rank or node, and none in healthy runs.

Only the trainer gets the plan of faults. The test reads the diagnosis from the status, as an operator does, and then compares.
"""

import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus
from tests.control_groups import memory_limit
from tests.e2e.cluster_harness import ClusterHarness
from tests.small_disk import fill, small_disk
from tests.suite.share import current
from trainer.faults.injection_plan import VARIABLE

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(1500)]

NUM_HEALTHY = 10
FAULT_STEP = 25
RANKS_PER_NODE, NUM_NODES = 2, 2
TRAINER = {
    "recipe": "tiny_cpu",
    "steps": 100_000,
    "checkpoint_every": 0,
    "validate_every": 0,
    "batch": {"global_batch": 4},
}
# Beyond a rank's time when it enters the group.
MEMORY_BYTES = 256 << 20
DISK_BYTES = 48 << 20
DIAGNOSIS_SECONDS = 90.0

# A healthy foreign run: it logs its steps as nanoGPT does, and learns.
HEALTHY = """
import random, sys, time
noise = random.Random(sys.argv[1])
for step in range(1, 100_000):
    time.sleep(0.05)
    loss = 2.0 + 8.0 / (1 + step) ** 0.3 + noise.gauss(0, 0.02)
    print(f"iter {step}: loss {loss:.4f}, time {50 + noise.gauss(0, 2):.2f}ms, mfu {12 + noise.gauss(0, 0.1):.2f}%", flush=True)
    if step % 100 == 0:
        print(f"step {step}: train loss {loss:.4f}, val loss {loss + 0.1:.4f}", flush=True)
"""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The diagnosis of a run's incident: its fault, its cause if known, and its node and rank."""

    fault: str
    cause: str
    node: str | None
    rank: int | None
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """One way to break a run. `plan`: the trainer's fault, without rank and step. `accepts` judges the diagnosis."""

    name: str
    plan: dict[str, object] | None
    accepts: Callable[[Diagnosis, str, int], bool]


def _crash(*causes: str) -> Callable[[Diagnosis, str, int], bool]:
    def accepts(diagnosis: Diagnosis, node: str, rank: int) -> bool:
        is_known = not causes or diagnosis.cause in causes
        return (
            diagnosis.fault == "rank_crash"
            and is_known
            and (diagnosis.node, diagnosis.rank) == (node, rank)
        )

    return accepts


def _named(*faults: str) -> Callable[[Diagnosis, str, int], bool]:
    return lambda diagnosis, node, rank: (
        diagnosis.fault in faults and (diagnosis.node, diagnosis.rank) == (node, rank)
    )


def _hung(diagnosis: Diagnosis, node: str, rank: int) -> bool:
    """Whether the diagnosis names the missing rank, and the collective that the others wait in."""
    return _named("no_progress")(diagnosis, node, rank) and " of group " in diagnosis.evidence[-1]


def _loader_died(diagnosis: Diagnosis, node: str, rank: int) -> bool:
    """Whether the diagnosis names the rank and shows what is known: that a worker ended, and not why."""
    is_shown = re.search(r"DataLoader worker \(pid(\(s\))? \d+\) exited", diagnosis.evidence[-1])
    return is_shown is not None and _crash("unknown")(diagnosis, node, rank)


DEEDS = (
    Deed(name="SIGKILL", plan={"kind": "kill"}, accepts=_crash()),
    Deed(name="SIGSTOP", plan={"kind": "stop"}, accepts=_named("rank_stopped")),
    Deed(
        name="a rank sleeps inside a step",
        plan={"kind": "sleep", "seconds": 1000.0},
        accepts=_hung,
    ),
    Deed(name="a rank spins", plan={"kind": "spin"}, accepts=_hung),
    Deed(
        name="a rank is absent from a collective",
        plan={"kind": "absent"},
        accepts=_hung,
    ),
    # It does not say why, and the rank's error says that it ended.
    Deed(name="a loader dies", plan={"kind": "loader"}, accepts=_loader_died),
    Deed(name="a shard is cut off", plan={"kind": "shard"}, accepts=_crash("data_error")),
    Deed(
        name="the kernel kills for memory",
        plan={"kind": "hoard", "most_bytes": 4 << 30},
        accepts=_crash("host_oom"),
    ),
    Deed(
        # It skips one step, which is no incident.
        name="NaN in one rank's gradient",
        plan={"kind": "nan", "first": FAULT_STEP, "last": 99_000},
        accepts=_named("nan_loss", "skipped_steps"),
    ),
    Deed(
        name="a full disk",
        plan=None,
        accepts=lambda diagnosis, _node, _rank: (
            diagnosis.fault == "rank_crash" and diagnosis.cause in ("checkpoint_io", "filesystem")
        ),
    ),
    Deed(
        name="a GPU falls off the bus",
        plan=None,
        accepts=lambda diagnosis, node, _rank: (
            (diagnosis.fault, diagnosis.node) == ("gpu_lost", node)
        ),
    ),
)


class Range:
    """The cluster on which runs are broken, one after the other, beside healthy ones."""

    def __init__(self, harness: ClusterHarness, plans: Path) -> None:
        self.harness, self.plan_path = harness, plans
        self.num_runs = 0

    def kernel_of(self, node: str) -> Path:
        """Return the file that replaces a node's kernel log."""
        return self.harness.folder / f"kernel-{node}.log"

    def view_of(self, name: str, *, state: str) -> Callable[[ClusterStatus], ClusterStatus | None]:
        """Return a check whether a run is in a state of its attempt."""

        def look(view: ClusterStatus) -> ClusterStatus | None:
            runs = [run for run in view.runs if run.name == name]
            return view if runs and runs[-1].attempt_state == state else None

        return look

    def start(self, name: str, **fields: object) -> None:
        """Start a run, detached."""
        path = self.harness.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "python": sys.executable, **fields}))
        done = self.harness.stoker("run", path.name, "--detach")
        assert done.returncode == 0, done

    def inject(self, deed: Deed, rank: int) -> tuple[Diagnosis, str]:
        """Break a new run in this way; return its diagnosis, and the node of the rank."""
        self.num_runs += 1
        name, harness = f"broken{self.num_runs}", self.harness
        # No incident in time.
        plan = {"kind": "sleep", "rank": rank, "step": 90_000, "seconds": 1.0}
        if deed.plan is not None:
            once = str(harness.folder / f"{name}.done")
            plan = {**deed.plan, "rank": rank}
            if "last" not in plan:
                plan |= {"step": FAULT_STEP, "once": once}
        self.plan_path.write_text(json.dumps({"faults": [plan]}))
        trainer = dict(TRAINER)
        fields: dict[str, object] = {"nodes": NUM_NODES, "ranks_per_node": RANKS_PER_NODE}
        fields["progress_seconds"] = 15.0
        with ExitStack() as stack:
            if deed.name == "a full disk":
                disk = stack.enter_context(small_disk(harness.folder / name, size_bytes=DISK_BYTES))
                trainer |= {"checkpoint_every": 20}
                fields["checkpoints"] = str(disk)
            self.start(name, trainer=trainer, **fields)
            view = harness.wait(self.view_of(name, state="running"), f"{name} is up")
            run = next(one for one in view.runs if one.name == name)
            node = run.nodes[rank // RANKS_PER_NODE]
            if deed.name == "the kernel kills for memory":
                group = stack.enter_context(memory_limit(MEMORY_BYTES))
                pid = harness.until(harness.observer.gang, "its ranks")[rank]
                kernel = stack.enter_context(open("/dev/kmsg", "rb", buffering=0, opener=_unwaited))
                kernel.seek(0, os.SEEK_END)
                group.write_text(str(pid))
                harness.until(lambda: self._relay(kernel, node, pid), "the kernel's word")
            if deed.name == "a full disk":
                fill(disk)
            if deed.name == "a GPU falls off the bus":
                self._write_gpu_lost(node)
            incident = harness.wait(
                lambda view: _diagnosed_incident(view, run.run),
                deed.name,
                seconds=DIAGNOSIS_SECONDS,
            )
            stopped = harness.stoker("stop", name, seconds=150)
            assert stopped.returncode in (0, 3), stopped
        cause = incident.cause.fault if incident.cause is not None else ""
        return Diagnosis(
            incident.fault, cause, incident.node, incident.rank, incident.evidence
        ), node

    def _relay(self, kernel: FileIO, node: str, pid: int) -> bool:
        """Copy the real kernel's messages to the node's file; return whether the kernel killed the process."""
        has_killed = False
        # None: there are no more.
        while record := kernel.read(8192):
            text = record.decode(errors="replace").partition(";")[2].partition("\n")[0]
            with self.kernel_of(node).open("a") as log:
                log.write(f"[{time.monotonic():.6f}] {text}\n")
            has_killed = has_killed or f"Killed process {pid} " in text
        return has_killed

    def _write_gpu_lost(self, node: str) -> None:
        words = "NVRM: Xid (PCI:0000:a1:00): 79, GPU has fallen off the bus."
        with self.kernel_of(node).open("a") as log:
            log.write(f"[{time.monotonic() + 1.0:.6f}] {words}\n")


def _unwaited(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _diagnosed_incident(view: ClusterStatus, run: int) -> IncidentStatus | None:
    """Return the first incident of a run once its diagnosis is complete: a moment after it was opened."""
    found = [incident for incident in view.incidents if incident.run == run]
    if not found:
        return None
    # The newest comes first.
    first = found[-1]
    is_diagnosed = first.cause is not None or first.rank is not None
    return first if is_diagnosed and view.now - first.opened_at > 4.0 else None


@pytest.fixture
def range_(
    harness: ClusterHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Range]:
    """Give a cluster with ten healthy runs."""
    plans = tmp_path / "plan.json"
    plans.write_text('{"faults": []}')
    monkeypatch.setenv(VARIABLE, str(plans))
    harness.write_cluster(
        nodes=NUM_NODES + NUM_HEALTHY,
        slots=RANKS_PER_NODE,
        limits={"kernel_log": str(harness.folder / "kernel-{node}.log"), "checks": []},
    )
    harness.write_script(HEALTHY, "healthy.py")
    for index in range(1, NUM_NODES + NUM_HEALTHY + 1):
        (harness.folder / f"kernel-n{index}.log").write_text("")
    yield Range(harness, plans)
    done = harness.stoker("shutdown", seconds=120)
    assert done.returncode == 0, done


@pytest.mark.alone
def test_faults_are_diagnosed_correctly_and_healthy_runs_have_none(range_: Range) -> None:
    """Each fault of a commit's share is injected into a rank drawn by a seed; ten healthy runs beside show no incident."""
    share, name = current(), os.environ.get("STOKER_DEED")
    seed = int(os.environ.get("STOKER_SEED", share.dice("diagnosis").randrange(10**6)))
    print(f"STOKER_SEED={seed}")
    dice = random.Random(seed)
    drawn = [deed for deed in DEEDS if deed.name == name] if name else share.of(DEEDS)
    for index in range(NUM_HEALTHY):
        range_.start(f"healthy{index}", command=["{python}", "healthy.py", str(index)])
    answers = [
        (deed, rank, *range_.inject(deed, rank)) for deed in drawn for rank in [dice.randrange(4)]
    ]
    wrong = []
    for deed, rank, diagnosis, node in answers:
        is_right = deed.accepts(diagnosis, node, rank)
        print(
            f"{'right' if is_right else 'WRONG'}: {deed.name}, rank {rank} on {node}: {diagnosis}"
        )
        wrong += [] if is_right else [deed.name]
    view = range_.harness.view()
    assert view is not None
    healthy = {run.run: run for run in view.runs if run.name.startswith("healthy")}
    alarms = [incident for incident in view.incidents if incident.run in healthy]
    assert len(healthy) == NUM_HEALTHY
    assert {run.attempt_state for run in healthy.values()} == {"running"}
    assert not wrong, wrong
    assert alarms == []
