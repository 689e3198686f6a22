"""From a kill to the first new step of the examples with the client, forked, beside a plain DDP loop and torchrun.

`python -m bench.client_restart [--rounds N]`
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.report import Report
from tests.e2e.cluster_harness import ClusterHarness, kill

EXAMPLES = Path(__file__).parents[1] / "examples"
ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "OMP_NUM_THREADS": "1",
}
# torchrun keeps one store for all restarts: in it new ranks find the gloo addresses of those before them, and some wait for ever.
# By this switch of its own each restart gets a new store.
TORCHRUN_ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
PLAIN = "client_pytorch"
WITH_TRAINER = ("client_huggingface", "client_lightning")
# A trainer's restart to that of the plain loop.
LIMIT_RATIO = 1.5
# Before each kill, so that the new warm process is up.
STEPS_BETWEEN = 40
WAIT_SECONDS = 120.0


@contextmanager
def copy_of(example: str) -> Iterator[Path]:
    """Yield a copy of an example's folder."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        yield Path(shutil.copytree(EXAMPLES / example, Path(folder) / example))


def under_stoker(example: str, rounds: int) -> list[float]:
    """Kill rank 1 of an example again and again; return the seconds until the first step of the next attempt."""
    with copy_of(example) as folder:
        harness = ClusterHarness(folder)
        harness.observer.__enter__()
        killed_at: list[float] = []
        try:
            harness.start("run", "run.yaml", environment=ENVIRONMENT)
            training = harness.training(past_step=STEPS_BETWEEN)
            for _ in range(rounds):
                killed_at.append(time.time())
                kill(training.pids[1])
                after = training.attempt
                begun = harness.training(after=after)
                training = harness.training(past_step=begun.step + STEPS_BETWEEN, after=after)
            rows = json.loads(harness.stoker("lineage", "--json").stdout)
        finally:
            harness.end()
            harness.observer.__exit__(None, None, None)
    return [row["first_step_at"] - at for row, at in zip(rows[1:], killed_at, strict=True)]


def under_torchrun(rounds: int) -> list[float]:
    """Kill rank 1 of the plain loop under torchrun; return the seconds until a step that a new process printed."""
    with copy_of(PLAIN) as folder, (folder / "out").open("w+") as output:
        words = ["--standalone", "--nproc-per-node=2", "--max-restarts=1000"]
        command = [sys.executable, "-m", "torch.distributed.run", *words, "--monitor-interval=0.1"]
        launcher = subprocess.Popen(
            [*command, "train.py"],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, **TORCHRUN_ENVIRONMENT},
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        try:
            return [_round_of_torchrun(launcher.pid, folder / "out") for _ in range(rounds)]
        finally:
            for process in psutil.Process(launcher.pid).children(recursive=True):
                process.kill()
            launcher.kill()
            launcher.wait()


def _round_of_torchrun(launcher: int, output: Path) -> float:
    known = len(_printed(output))
    _wait(lambda: len(_printed(output)) > known + STEPS_BETWEEN)
    ranks = psutil.Process(launcher).children()
    killed_at = time.monotonic()
    os.kill(ranks[1].pid, signal.SIGKILL)
    _wait(lambda: not any(rank.is_running() for rank in ranks))
    known = len(_printed(output))
    _wait(lambda: len(_printed(output)) > known)
    return time.monotonic() - killed_at


def _printed(output: Path) -> list[str]:
    return re.findall(r"^step \d+: loss .*$", output.read_text(), re.MULTILINE)


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing within {WAIT_SECONDS:g} s")
        time.sleep(0.01)


def main() -> int:
    """Measure and print; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.client_restart", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="kills of each")
    rounds = parser.parse_args().rounds
    report = Report(
        "client: from a kill to the first new step",
        f"SIGKILL of rank 1 of 2, {rounds} times each, after {STEPS_BETWEEN} steps; median seconds; examples/ with the "
        f"preload of their run.yaml; torchrun runs {PLAIN} with --monitor-interval=0.1 and a new store for each restart; "
        f"load at the start {os.getloadavg()[0]:.1f}",
    )
    plain = statistics.median(under_stoker(PLAIN, rounds))
    report.figure(PLAIN, plain, "s")
    for example in WITH_TRAINER:
        seconds = statistics.median(under_stoker(example, rounds))
        report.figure(example, seconds, "s")
        report.figure(f"{example} to {PLAIN}", seconds / plain, "x", at_most=LIMIT_RATIO)
    report.figure(f"{PLAIN} under torchrun", statistics.median(under_torchrun(rounds)), "s")
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
