"""`python -m bench.recovery`: all cases, or those that `--case` names; a plot beside the figures with `--plot`."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import bench.recovery
from bench.recovery.cases import CASES, KILLS_PER_LAUNCH, SCRIPT_PRELOAD, Plan, beside_peer
from bench.recovery.peer import (
    NAME,
    SETTINGS,
    TORCHRUN_ENVIRONMENT,
    TORCHRUN_SETTINGS,
    VERSION,
    torch_version,
)
from bench.recovery.plot import plot
from bench.recovery.series import Series
from bench.report import Report

NUM_ROUNDS = 10
SEED = 3
PEER_CASE = "rank"


def method(plan: Plan) -> str:
    """Describe how everything is measured."""
    warm = f"preload: {SCRIPT_PRELOAD}" if plan.warm else "nothing preloaded"
    return (
        f"{plan.rounds} rounds of each case, seed {plan.seed} draws rank or node and a pause before the fault; a round begins when "
        f"the gang has made its steps, every incident is resolved and all warm processes are up; seconds from the fault to the "
        f"first step of a new process, median (smallest to largest); scripts stamp their steps themselves, the trainer's first "
        f"step is seen through the store; phases as another reader of the store sees them. Script: two-rank DDP under gloo, "
        f"steps of 20 ms, its own checkpoint every 10 steps, {warm}. Peers: {NAME} {VERSION}, torch {torch_version()}, the same "
        f"script, ranks and pauses, {KILLS_PER_LAUNCH} kills a launch, then it is the other's turn; "
        f"ft_launcher {' '.join(SETTINGS)}; torchrun of the same torch {' '.join(TORCHRUN_SETTINGS)} with "
        f"{' '.join(f'{name}={value}' for name, value in TORCHRUN_ENVIRONMENT.items())}; "
        f"{len(os.sched_getaffinity(0))} cores, OMP_NUM_THREADS=1, load at the start {os.getloadavg()[0]:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.recovery", description=bench.recovery.__doc__
    )
    names = [PEER_CASE, *CASES]
    parser.add_argument("--rounds", type=int, default=NUM_ROUNDS, help="of each case")
    parser.add_argument("--case", choices=names, action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=SEED, help="of ranks, nodes and pauses")
    parser.add_argument("--plain", action="store_true", help="without warm processes")
    parser.add_argument("--plot", type=Path, help="write a plot, as SVG, to this file")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: at least 1")
    plan = Plan(rounds=given.rounds, seed=given.seed, warm=not given.plain)
    report = Report("recovery: from a fault to the first new step", method(plan))
    signal.signal(signal.SIGTERM, _interrupt)
    measured: list[Series] = []
    for name in given.case or names:
        started = time.monotonic()
        case = CASES.get(name)
        measured += case.measure(report, plan) if case else beside_peer(report, plan)
        print(f"  case {name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    if given.plot and measured:
        given.plot.write_text(plot(measured))
    return min(report.num_missed, 1)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """End as with Ctrl-C, so that everything started is ended."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
