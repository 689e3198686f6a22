"""On a machine with a GPU: a disturbed run equals the undisturbed one; how fast it recovers, and what supervision costs.

One rank on one GPU, NCCL, bf16: the built-in trainer as it would train. Skipped with a note where there is no GPU.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.clusters import Shape, ended, running
from bench.forks import free_port
from bench.recovery.ours import Ours, run_of_ours
from bench.recovery.rounds import one_round
from bench.recovery.series import Draw, Series
from bench.report import Report
from runner.agent.checks.hardware_parts import find
from runner.agent.event_loop import EventLoop
from runner.agent.launch.devices import Devices
from runner.facts.messages.cluster_status import RunStatus
from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.reference import outcome_of

NUM_STEPS = 400
NUM_ROUNDS = 5
NUM_PAIRS = 3
PAIR_STEPS = 60
# Steps in which kernels are still being chosen and memory allocated.
NUM_WARM_UPS = 10
# How long another process holds memory of the GPU during a restart.
HELD_SECONDS = 5.0
# From its end to the launch: the longest pause between two polls, and one call of nvidia-smi.
RELEASE_LIMIT_SECONDS = 2.0
# Step time, relative to the same trainer without Stoker.
SUPERVISED_LIMIT = 1.02
WAIT_SECONDS = 300.0
SHAPE = Shape(nodes=1, ranks_per_node=1, spares=0)
TRAINER: dict[str, Any] = {
    "recipe": "gpt_125m",
    "model": {"sequence": 1024},
    "layout": {"data": 1},
    "batch": {"global_batch": 32, "micro_batch": 8},
    "checkpoint_every": 20,
    "validate_every": 0,
    "log_every": 1,
}
# A process that Stoker does not know; it holds memory of the first GPU until its input ends.
OTHER_PROCESS = """
import sys, torch
held = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
print("holds", flush=True)
sys.stdin.read()
"""
LINE = re.compile(r"^step (\d+)/\d+ .* (\d+) tokens/s", re.MULTILINE)
# Of a step.
TOKENS: int = TRAINER["batch"]["global_batch"] * TRAINER["model"]["sequence"]


def query_gpus(query: str) -> list[str]:
    """Return the answer of nvidia-smi, one line for each GPU; empty where there is none."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


# ---- hardware parts


def report_hardware(report: Report) -> None:
    """Read the parts of this machine as an agent does."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        devices = Devices("n1", EventLoop(lambda seconds: None), lambda: None)
        found = find(Path(folder), shares_machine=False, gpus=devices.uuids)
    kinds = [part.split(":")[0] for part in found.parts]
    named = {part for part in found.parts if part.startswith("gpu:")}
    listed = {f"gpu:{uuid}" for uuid in query_gpus("uuid")}
    report.note(f"known by its {kinds[0]}; parts: {', '.join(kinds)}")
    report.figure(
        "GPUs that nvidia-smi lists and are no part of it", len(listed - named), "GPUs", at_most=0
    )


# ---- disturbed and not


def finished(harness: ClusterHarness) -> RunStatus:
    """Wait for the run's end. Raises RuntimeError when it has not reached its goal."""
    run = harness.wait(ended, "the end of the run", seconds=WAIT_SECONDS)
    if run.state != "finished":
        raise RuntimeError(f"the run is {run.state}: {run.reason}\n{harness.report()}")
    return run


def compare_disturbed(report: Report, num_steps: int, num_rounds: int, seed: int) -> None:
    """Train once undisturbed and once with kills; during one of the restarts another process holds the GPU."""
    trainer = {**TRAINER, "steps": num_steps, "repeatable": True}
    with running(SHAPE, trainer=trainer) as harness:
        run = finished(harness)
        expected = outcome_of(harness, steps=num_steps, ranks=1)
        repeatable_ms = step_ms(output_of(run))
    series = Series("kill -9 of the rank")
    with run_of_ours(SHAPE, trainer=trainer) as ours:
        for number in range(num_rounds):
            one_round(ours, series, "kill-rank", Draw(seed, "gpu", number))
        held, released = held_up(ours)
        finished(ours.harness)
        again = outcome_of(ours.harness, steps=num_steps, ranks=1)
    series.print(report)
    series.print_phases(report)
    report.figure("GPU memory in use by another process: ranks launched", held, "ranks", at_most=0)
    report.figure("  from its end to the launch", released, "s", at_most=RELEASE_LIMIT_SECONDS)
    report.note(
        f"last loss: undisturbed {expected.loss!r}, after {num_rounds + 1} kills {again.loss!r}"
    )
    differing = {*expected.shards.items()} ^ {*again.shards.items()}
    report.figure("difference of the last loss", abs(again.loss - expected.loss), "nats", at_most=0)
    report.figure(
        "files of weights and moments that differ",
        len({name for name, _ in differing}),
        "files",
        at_most=0,
    )
    report.figure("step, undisturbed and repeatable", repeatable_ms, "ms")


def held_up(ours: Ours) -> tuple[int, float]:
    """Kill the rank while another process holds memory of its GPU.

    Return how many ranks were launched meanwhile, and the seconds from that process's end to the launch.
    """
    run = ours.settled()
    assert run.attempt is not None
    pids = ours.observer.pids
    with gpu_holder() as holding:
        os.kill(ours.pid_of(run, 0), signal.SIGKILL)
        until = time.monotonic() + HELD_SECONDS
        while time.monotonic() < until:
            ours.observer.read(0.2)
        launched = sum(len(ranks) for attempt, ranks in pids.items() if attempt > run.attempt)
        holding.kill()
        holding.wait()
        ended = time.monotonic()
    while max(pids) <= run.attempt:
        if time.monotonic() > ended + WAIT_SECONDS:
            raise RuntimeError(f"no launch within {WAIT_SECONDS:g} s:\n{ours.harness.report()}")
        ours.observer.read(1.0)
    return launched, time.monotonic() - ended


@contextmanager
def gpu_holder() -> Iterator[subprocess.Popen[str]]:
    """Have a process hold memory of the GPU."""
    with subprocess.Popen(
        [sys.executable, "-c", OTHER_PROCESS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "holds\n":
                raise RuntimeError("a process could not get 4 GiB of the GPU")
            yield process
        finally:
            process.kill()


# ---- what being supervised costs


def step_ms(output: str) -> float:
    """Return the median milliseconds of a step, by the trainer's own lines, the first ones left out."""
    rates = [int(rate) for step, rate in LINE.findall(output) if int(step) > NUM_WARM_UPS]
    if not rates:
        raise RuntimeError(f"the trainer reported no step after {NUM_WARM_UPS}: {output[-2000:]}")
    return statistics.median(TOKENS / rate * 1e3 for rate in rates)


def output_of(run: RunStatus) -> str:
    """Return what the first attempt of a run wrote."""
    return Path(run.folder, "attempts", "1.1.0", "rank0.out").read_text()


def bare_ms(settings: dict[str, Any]) -> float:
    """Run the trainer as torchrun would, without Stoker."""
    here = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "--settings-json", json.dumps(settings)],
        env={**os.environ, **here, **where, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the bare trainer ended with {done.returncode}: {done.stderr[-2000:]}")
    return step_ms(done.stdout)


def supervised_ms(settings: dict[str, Any]) -> float:
    """Run the same under Stoker."""
    with running(SHAPE, trainer=settings) as harness:
        return step_ms(output_of(finished(harness)))


def compare_supervised(report: Report, num_pairs: int) -> None:
    """Run bare and supervised in turn, each time in the opposite order."""
    settings = {**TRAINER, "checkpoint_every": 0, "steps": PAIR_STEPS}
    taken_ms: dict[str, list[float]] = {"bare": [], "supervised": []}
    for number in range(num_pairs):
        sides = [("bare", bare_ms), ("supervised", supervised_ms)]
        for name, side in sides if number % 2 == 0 else reversed(sides):
            taken_ms[name].append(side(settings))
    for name, values in taken_ms.items():
        report.figure_of(f"{name}, step", values, "ms")
    report.figure(
        "floor: bare, slowest run to fastest", max(taken_ms["bare"]) / min(taken_ms["bare"]), "x"
    )
    ratios = [
        ours / bare for ours, bare in zip(taken_ms["supervised"], taken_ms["bare"], strict=True)
    ]
    report.figure_of("supervised to bare", ratios, "x", at_most=SUPERVISED_LIMIT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("--steps", type=int, default=NUM_STEPS, help="of the run that is disturbed")
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="kills")
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS, help="of bare and supervised runs")
    parser.add_argument("--seed", type=int, default=3, help="of the pauses before kills")
    given = parser.parse_args(arguments)
    gpus = query_gpus("name,driver_version")
    if not gpus:
        print("gpu\n  skipped: nvidia-smi finds no GPU here")
        return 0
    report = Report(
        "gpu: one rank on one GPU",
        f"{gpus[0]}, torch {version('torch')}, deepspeed {version('deepspeed')}; gpt_125m, sequence 1024, 32 sequences a step, "
        f"bf16; {given.steps} steps undisturbed, the same with {given.rounds} kills (seed {given.seed}) and one more while "
        f"another process holds 4 GiB of the GPU for {HELD_SECONDS:g} s; {given.pairs} alternating pairs of {PAIR_STEPS} steps for "
        f"what being supervised costs, the first {NUM_WARM_UPS} left out",
    )
    report_hardware(report)
    compare_disturbed(report, given.steps, given.rounds, given.seed)
    compare_supervised(report, given.pairs)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
