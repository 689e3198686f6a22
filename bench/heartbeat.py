"""What a heartbeat costs to encode and to decode, now and as of an earlier commit: `python -m bench.heartbeat [COMMIT]`."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, microseconds
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import (
    Heartbeat,
    RankCompute,
    RankResources,
    StartPhase,
    StepRecord,
)

ROUNDS = 7
NUM_CALLS = 3000
ROOT = Path(__file__).parents[1]


def full_heartbeat() -> Heartbeat:
    """Return what an agent with eight ranks sends when all it measures is due, as in bench/fleet/agents.py."""
    ranks = range(8, 16)
    step = StepRecord(
        step=1200,
        loss=2.51,
        grad_norm=0.71,
        lr=1e-4,
        loss_scale=65536.0,
        tokens_per_second=1e5,
        model_tflops_per_second=150.0,
        mfu_ratio=0.48,
        compute_seconds_max=0.71,
        compute_seconds_max_rank=15,
        step_seconds_max=1.0,
        local_grad_norm_max=0.91,
        local_grad_norm_max_rank=8,
        num_nonfinite=0,
        data_wait_seconds_max=0.001,
        peak_memory_bytes_max=70_000_000_000,
    )
    phases = (("import", 0.1), ("rendezvous", 1.5), ("model", 4.0), ("load", 20.0))
    return Heartbeat(
        node="n2",
        incarnation=1,
        sequence=1300,
        instance_id="0123456789abcdef",
        generation=7,
        attempt=AttemptId(12, 45, 2),
        ranks_alive=tuple(ranks),
        phases={str(rank): "step" for rank in ranks},
        steps=(step,),
        last_step=1200,
        start_phases={phase: StartPhase(seconds=seconds, rank=8) for phase, seconds in phases},
        rank_computes=tuple(
            RankCompute(rank=r, seconds=0.7 + 0.001 * r, stage=r % 4) for r in ranks
        ),
        rank_resources=tuple(
            RankResources(
                rank=rank,
                memory_bytes=4_000_000_000 + 4096 * rank,
                descriptors=80,
                descriptors_limit=1024,
            )
            for rank in ranks
        ),
        memory_free_bytes=500_000_000_000,
        agent_resident_bytes=50_000_000,
        warm="ready",
        warm_resident_bytes=400_000_000,
        warm_versions={"python": "3.11.2", "torch": "2.13.0", "deepspeed": "0.19.8"},
    )


def usual_heartbeat() -> Heartbeat:
    """Return what such an agent sends in nearly all seconds: without what rarely changes or is measured now and then."""
    return replace(
        full_heartbeat(), start_phases={}, warm_versions={}, rank_computes=(), rank_resources=()
    )


def measure_call(report: Report, name: str, call: Callable[[], object]) -> None:
    """Print what one call takes: the median of rounds of many, in turns with the reference loop."""
    loop, taken_us = ReferenceLoop(is_hot=True), list[float]()
    for _ in range(ROUNDS + 1):
        loop.sample()
        started = time.thread_time()
        for _ in range(NUM_CALLS):
            call()
        taken_us.append((time.thread_time() - started) * 1e6 / NUM_CALLS)
    # The first round warms up.
    report.cost(name, microseconds(statistics.median(taken_us[1:])), loop)


def measure(name: str) -> None:
    """Print what this process's codec takes."""
    for kind, heartbeat in (("full", full_heartbeat()), ("usual", usual_heartbeat())):
        data = wire.encode(heartbeat)
        assert wire.decode(data) == heartbeat
        report = Report(
            f"{kind} heartbeat, {name}",
            f"{len(data)} bytes, 8 ranks; median of {ROUNDS} rounds of {NUM_CALLS} calls each, after one to warm up; {SCALE}",
        )
        measure_call(report, "encode", partial(wire.encode, heartbeat))
        measure_call(report, "decode", partial(wire.decode, data))


def measure_commit(commit: str) -> None:
    """Measure the codec of an earlier commit with this very file, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        archive = ["git", "-C", str(ROOT), "archive", commit, "runner"]
        packed = subprocess.run(archive, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=packed, check=True)
        (Path(folder) / "bench").symlink_to(ROOT / "bench")
        done = subprocess.run(
            [sys.executable, "-c", f"import bench.heartbeat as b; b.measure('commit {commit}')"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            check=False,
        )
    if done.returncode != 0:
        sys.exit(f"commit {commit} cannot make today's heartbeat; name one with today's fields")


if __name__ == "__main__":
    for earlier in sys.argv[1:]:
        measure_commit(earlier)
    measure("now")
