"""What the client costs a training loop in each step: with a channel, and where no Stoker started the process."""

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, microseconds
from stoker.channel import Channel
from stoker.run import Run

ROUNDS = 7
NUM_STEPS = 20_000
LIMIT_US = 10.0
LIMIT_ALONE_US = 0.2


def supervised_run() -> tuple[Run, int]:
    """Return a run whose reports a child reads as an agent would, and the child's process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent = os.fork()
    if agent == 0:
        ours.close()
        while theirs.recv(65536):
            pass
        os._exit(0)
    theirs.close()
    return Run(Channel(ours), fallback=Path("checkpoints")), agent


def measure(report: Report, name: str, step: Callable[..., None], limit_us: float) -> None:
    """Time steps as a loop makes them: the median of rounds, after one to warm up."""
    loop, taken_us = ReferenceLoop(is_hot=True), list[float]()
    for _ in range(ROUNDS + 1):
        loop.sample()
        started = time.thread_time()
        for number in range(1, NUM_STEPS + 1):
            step(number, loss=2.5, grad_norm=1.25, lr=3e-4)
        taken_us.append((time.thread_time() - started) * 1e6 / NUM_STEPS)
    report.cost(name, microseconds(statistics.median(taken_us[1:])), loop, at_most=limit_us)


def main() -> int:
    """Measure both; return 1 if one is slower than its limit."""
    report = Report(
        "client",
        f"run.step with loss, gradient norm and rate; median of {ROUNDS} rounds of {NUM_STEPS:,} steps; {SCALE}",
    )
    run, agent = supervised_run()
    measure(report, "step with a channel", run.step, LIMIT_US)
    run._channel.close()
    os.waitpid(agent, 0)
    alone = Run(Channel(), fallback=Path("checkpoints"))
    measure(report, "step without Stoker", alone.step, LIMIT_ALONE_US)
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
