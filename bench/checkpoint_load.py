"""What it costs that a rank compares what it loads with the manifest: beside loading without, and beside sha256 alone.

One rank loads 1 GB of fp32 tensors as the trainer does, from files that lie in the page cache: with a slower disk, hashing hides
behind reading. What comes on top may be one sha256 pass over the same bytes; where a core is free, most of it hides behind
reading and decoding. Processor time has no limit of its own: it holds a second copy of the bytes as well, for the memory that
is hashed is the memory that is used.
"""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from bench.report import Report
from runner import checkpoints
from trainer.checkpoint_metadata import read_state

# As the layers of a GPT: 16 MiB each.
NUM_TENSORS = 60
TENSOR_ELEMENTS = 4 * 1024 * 1024
NUM_ROUNDS = 5
# Passes of sha256 over what is read.
LIMIT_PASSES = 1.0

State = dict[str, torch.Tensor]
# Seconds that passed, and of processor time.
Cost = tuple[float, float]


def cost(work: Callable[[], object]) -> Cost:
    """Measure one call."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - used


def main(parent: str | None = None) -> int:
    """Measure on the disk of `parent` (default: where temporary files go); return the number of misses."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    # As in a rank beside others.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=parent) as name:
        return measure(Path(name) / "checkpoint")


def measure(folder: Path) -> int:
    """Write a checkpoint and load it in turns; return the number of misses."""
    state = {f"master/{number}": torch.randn(TENSOR_ELEMENTS) for number in range(NUM_TENSORS)}
    save(state, storage_writer=FileSystemWriter(folder, sync_files=False))
    files = {path.name: checkpoints.hash_file(path) for path in folder.iterdir()}
    num_bytes = sum(seal.size_bytes for seal in files.values())
    loaded: State = {name: torch.empty_like(value) for name, value in state.items()}

    def load_unchecked() -> None:
        load(loaded, storage_reader=FileSystemReader(folder), no_dist=True)

    def load_checked() -> None:
        read_state(folder, files, loaded)

    def hash_all() -> None:
        for name in files:
            checkpoints.hash_file(folder / name)

    works = {
        "loading, without": load_unchecked,
        "loading, with hashing": load_checked,
        "sha256 alone": hash_all,
    }
    costs: dict[str, list[Cost]] = {name: [] for name in works}
    for number in range(NUM_ROUNDS + 1):
        for name, work in works.items():
            measured = cost(work)
            # The first round fills the page cache and the allocator.
            if number:
                costs[name].append(measured)
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    return report(costs, num_bytes)


def report(costs: dict[str, list[Cost]], num_bytes: int) -> int:
    """Print the figures; return the number of misses."""
    found = Report(
        "checkpoint load",
        f"one rank loads {num_bytes / 1e9:.2f} GB in {NUM_TENSORS} tensors, {NUM_ROUNDS} rounds in turns with the same files "
        f"unchecked and with sha256 alone, page cache warm, {len(os.sched_getaffinity(0))} cores; "
        "what hashing adds is counted round by round, in passes of sha256 over the same bytes",
    )
    for index, unit in enumerate(("s", "s of processor time")):
        for name, measured in costs.items():
            found.figure_of(name, [each[index] for each in measured], unit)
    for index, name, limit in (
        (0, "hashing adds", LIMIT_PASSES),
        (1, "hashing adds, processor time", None),
    ):
        rounds = zip(*costs.values(), strict=True)
        passes = [(ours[index] - plain[index]) / sha[index] for plain, ours, sha in rounds]
        found.figure_of(name, passes, "passes", at_most=limit)
    return found.num_missed


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:2]) else 0)
