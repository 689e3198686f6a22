"""The costs on a rank: a report, a poll for requests, a batch, and the seal of a checkpoint."""

import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, microseconds, quantile
from runner import checkpoints
from runner.facts.ids import AttemptId
from stoker.channel import Channel
from trainer.config.settings import load_settings
from trainer.data.batches import open_data

NUM_CALLS = 3000
# On the first machine.
REPORT_LIMIT_US = 100.0
CHECKPOINT_FILES = 8
FILE_BYTES = 32 * 1024 * 1024
STEP = {
    "step": 123,
    "loss": 2.345678,
    "grad_norm": 0.98765,
    "local_grad_norm": 0.12345,
    "compute_seconds": 0.123456,
    "data_wait_seconds": 0.000123,
    "step_seconds": 0.23456,
    "lr": 0.000987,
    "skipped": False,
    "tokens_per_second": 4321.5,
    "model_tflops_per_second": 0.0234,
    "peak_memory_bytes": 123456789,
}


def timed_us(
    act: Callable[[int], object], after: Callable[[], object] = lambda: None
) -> list[float]:
    """Return the microseconds of processor time of each call; `after` runs between calls, untimed."""
    taken_us = []
    for number in range(1, NUM_CALLS + 1):
        started = time.thread_time()
        act(number)
        taken_us.append((time.thread_time() - started) * 1e6)
        after()
    return taken_us


def measure_channel(report: Report) -> None:
    """Time reports with a reader, reports that are dropped, and polls without requests."""
    rank, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel, loop = Channel(rank), ReferenceLoop(is_hot=True)
    with peer:
        loop.sample()
        read = timed_us(lambda _: channel.report("step", **STEP), lambda: peer.recv(65536))
        loop.sample()
        polled = timed_us(lambda _: channel.requests())
        loop.sample()
        while not channel.dropped:
            channel.report("step", **STEP)
        dropped = timed_us(lambda _: channel.report("step", **STEP))
    for name, taken_us in (("report", read), ("report that finds no room", dropped)):
        median, slow = (microseconds(quantile(taken_us, ratio)) for ratio in (0.5, 0.99))
        report.cost(f"{name}, median", median, loop, at_most=REPORT_LIMIT_US)
        report.cost(f"{name}, p99", slow, loop)
    report.cost("look for requests, median", microseconds(quantile(polled, 0.5)), loop)


def measure_data(report: Report) -> None:
    """Time opening the standard library as text, and the global batch of a step."""
    started = time.perf_counter()
    corpus = open_data(load_settings("tiny_cpu"))
    report.figure("open and fingerprint the text", (time.perf_counter() - started) * 1e3, "ms")
    report.figure("batch, median", quantile(timed_us(corpus.batch), 0.5), "us")


def measure_sealing(report: Report) -> None:
    """Time settling, sealing and verifying a checkpoint on the disk of the temporary folder."""
    attempt = AttemptId(run=1, configuration=1, restart=0)
    with tempfile.TemporaryDirectory() as root:
        folder = checkpoints.checkpoint_folder(root, attempt, 1)
        folder.mkdir()
        names = [f"__{number}_0.distcp" for number in range(CHECKPOINT_FILES)]
        for name in names:
            Path(folder, name).write_bytes(os.urandom(FILE_BYTES))
        started = time.perf_counter()
        files = {name: checkpoints.flush_and_hash(folder / name) for name in names}
        settled = time.perf_counter()
        manifest = checkpoints.Manifest(
            run="bench", attempt=attempt, generation=0, step=1, files=files
        )
        checkpoints.seal(folder, manifest, generation=0)
        sealed = time.perf_counter()
        checkpoints.verify(folder)
        verified = time.perf_counter()
    size_mb = CHECKPOINT_FILES * FILE_BYTES / 1e6
    report.figure("flush and hash", size_mb / (settled - started), "MB/s")
    report.figure("seal, files flushed before", (sealed - settled) * 1e3, "ms")
    report.figure("verify, from cache", size_mb / (verified - sealed), "MB/s")


def main() -> int:
    """Print all figures; return 1 when a report costs more than its limit."""
    report = Report(
        "edges of a rank",
        f"one process, {NUM_CALLS} calls each; a report has {len(STEP)} fields and is read between two calls; "
        f"the checkpoint has {CHECKPOINT_FILES} files of {FILE_BYTES // 2**20} MiB; {SCALE}",
    )
    measure_channel(report)
    measure_data(report)
    measure_sealing(report)
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
