"""What a full heartbeat costs to encode and to decode, now and as of an earlier commit: `python -m bench.heartbeat [COMMIT]`."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Report
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


def microseconds(call: Callable[[], object]) -> list[float]:
    """Return the microseconds of one call, the mean of each round."""
    found = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        for _ in range(NUM_CALLS):
            call()
        found.append((time.perf_counter() - started) * 1e6 / NUM_CALLS)
    # The first round warms up.
    return found[1:]


def measure(name: str) -> None:
    """Print what this process's codec takes."""
    heartbeat = full_heartbeat()
    data = wire.encode(heartbeat)
    assert wire.decode(data) == heartbeat
    report = Report(
        f"full heartbeat, {name}",
        f"{len(data)} bytes, 8 ranks; median of {ROUNDS} rounds of {NUM_CALLS} calls each (least to most), after one to warm up",
    )
    report.figure_of("encode", microseconds(lambda: wire.encode(heartbeat)), "us")
    report.figure_of("decode", microseconds(lambda: wire.decode(data)), "us")
    both = microseconds(lambda: wire.decode(wire.encode(heartbeat)))
    report.figure_of("encode and decode", both, "us")


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
