"""What a training step costs beside a plain DeepSpeed loop of the same shape: tensor 2 x pipeline 2 x data 2 on this machine.

The peer is a script that builds the same model on the same engine and does nothing besides: no reports, no agreement on
requests, no watch on gradients, no split vocabulary. It is in a folder beside this checkout, or in the one that `--peer` names.
"""

import argparse
import importlib
import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.forks import RankMain, stamps_of
from bench.report import Report, median_interval

PEER = Path("..", "shared", "prototypes", "trainer")
NUM_PAIRS = 10
NUM_STEPS = 30
# Steps that still fill caches and open connections.
NUM_WARM_UPS = 4
NUM_RANKS = 8
RUN_SECONDS = 240.0
RATIO_LIMIT = 1.05
SETTINGS: dict[str, Any] = {
    "recipe": "tiny_3d",
    "model": {
        "positions": "learned",
        "norm": "layernorm",
        "mlp": "gelu",
        "bias": True,
        "ffn_width": 512,
    },
    "checkpoint_every": 0,
    "validate_every": 0,
}
PEER_ARGUMENTS = ("--pp", "2", "--tp", "2", "--zero", "1", "--dtype", "fp32", "--clip", "1.0")


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the comparison: what a rank runs, and how the packet begins that rank 0 sends after each step."""

    rank_main: RankMain
    step_prefix: bytes


def trainer_side(num_steps: int) -> Side:
    """Return the built-in trainer, all of it, with a reader of its reports."""
    from trainer.cli import main

    # Modules that each rank would import after the fork.
    importlib.import_module("trainer.loop")
    settings = json.dumps({**SETTINGS, "steps": num_steps})

    def rank_main(_number: int, connection: socket.socket) -> int:
        os.environ.update(STOKER_CONTRACT="1", STOKER_CHANNEL=str(connection.detach()))
        return main(["--settings-json", settings])

    return Side(rank_main, b'{"kind":"step"')


def peer_side(folder: Path, num_steps: int, more: Sequence[str] = ()) -> Side:
    """Return the peer found in `folder`; its first rank prints a line of JSON a step, here into the socket."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    peer = importlib.import_module("ds_train")

    def rank_main(number: int, connection: socket.socket) -> int:
        if number == 0:
            os.dup2(connection.fileno(), 1)
        sys.argv = ["ds_train.py", *PEER_ARGUMENTS, "--steps", str(num_steps), *more]
        peer.main()
        return 0

    return Side(rank_main, b'{"step"')


def step_ms(side: Side, folder: Path) -> float:
    """Run one side once; return the median time from one step to the next, in milliseconds, the first ones left out."""
    stamps = stamps_of(
        side.rank_main,
        num_ranks=NUM_RANKS,
        is_step=lambda packet: packet.startswith(side.step_prefix),
        folder=folder,
        timeout_seconds=RUN_SECONDS,
    )
    steady = stamps[NUM_WARM_UPS - 1 :]
    return statistics.median((b - a) * 1e3 for a, b in pairwise(steady))


def measure(sides: dict[str, Side], num_pairs: int) -> dict[str, list[float]]:
    """Run all sides in turn, each time in the opposite order; return the milliseconds of each side's runs."""
    taken_ms: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        for number in range(num_pairs):
            names = list(sides) if number % 2 == 0 else list(reversed(sides))
            for name in names:
                taken_ms[name].append(step_ms(sides[name], Path(folder)))
    return taken_ms


def compare(
    report: Report,
    name: str,
    *,
    ours_ms: list[float],
    peer_ms: list[float],
    at_most: float | None = None,
) -> None:
    """Print the median ratio of runs that were neighbours in time, and the interval it lies in."""
    ratios = [ours / peer for ours, peer in zip(ours_ms, peer_ms, strict=True)]
    low, high, coverage_ratio = median_interval(ratios)
    name = f"{name}, median ({coverage_ratio:.0%} interval)"
    report.figure(name, statistics.median(ratios), "x", at_most=at_most, spread=(low, high))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when the trainer is slower than its limit allows."""
    parser = argparse.ArgumentParser(prog="python -m bench.step_time", description=__doc__)
    parser.add_argument("--peer", type=Path, default=PEER, help="folder with ds_train.py")
    parser.add_argument("--pairs", type=int, default=NUM_PAIRS)
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    given = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    cores = len(os.sched_getaffinity(0))
    report = Report(
        "step time, tensor 2 x pipeline 2 x data 2",
        f"{given.pairs} alternating rounds of {given.steps} steps, {NUM_RANKS} ranks on {cores} cores, forked from one process "
        f"that imported everything; a run counts by its median time between two steps of rank 0, as observed from outside, "
        f"the first {NUM_WARM_UPS} left out; a ratio is of neighbouring runs; floor: spread of the peer's own runs",
    )
    if not (given.peer / "ds_train.py").is_file():
        print(f"  skipped: no ds_train.py in {given.peer}; name its folder with --peer")
        return 0
    sides = {
        "trainer": trainer_side(given.steps),
        "peer": peer_side(given.peer, given.steps),
        "peer, whole activations": peer_side(given.peer, given.steps, ("--pipe_part", "0")),
    }
    taken_ms = measure(sides, given.pairs)
    for name, values in taken_ms.items():
        report.figure_of(f"{name}, step", values, "ms")
    ours_ms, peer_ms, whole_ms = taken_ms.values()
    report.figure("floor: peer, slowest run to fastest", max(peer_ms) / min(peer_ms), "x")
    compare(report, "trainer to peer", ours_ms=ours_ms, peer_ms=peer_ms, at_most=RATIO_LIMIT)
    # By default the peer cuts what it sends between stages over the tensor ranks; the trainer never does.
    compare(report, "trainer to peer, whole activations", ours_ms=ours_ms, peer_ms=whole_ms)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
