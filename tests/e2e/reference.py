"""The undisturbed run of the built-in trainer, and the comparison of another run with it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import checkpoints
from tests.e2e.cluster_harness import ClusterHarness, run_of

# Enough for all faults on a machine whose steps take a twentieth of a second.
STEPS = 130
# So that they take so long on a large machine, and not ten times as long on a small one, where four ranks share two cores.
GLOBAL_BATCH = 4 if (os.cpu_count() or 1) <= 4 else 16
CHECKPOINT_EVERY = 4
TRAINER = {
    "recipe": "tiny_cpu",
    "steps": STEPS,
    "checkpoint_every": CHECKPOINT_EVERY,
    "validate_every": 0,
    "batch": {"global_batch": GLOBAL_BATCH},
}
NODES, RANKS = 2, 2


@dataclass(frozen=True, slots=True)
class Reference:
    """The end of an undisturbed run. `metrics`: loss and gradient norm of the last steps, as the trainer logged them.
    `shards`: sizes and hashes of every rank's weights and moments.
    """

    loss: float
    metrics: tuple[Any, ...]
    shards: dict[str, checkpoints.FileSeal]


def undisturbed_run(folder: Path) -> Reference:
    """Run it in a folder of its own; raise AssertionError if it was disturbed."""
    harness = ClusterHarness(folder)
    with harness.observer:
        prepare(harness)
        try:
            code, output = harness.finish(harness.start("run", "run.yaml"))
            assert code == 0, output
            ended = outcome_of(harness)
            assert harness.observer.starts() == {"1.1.0": NODES * RANKS}
        finally:
            left = harness.end()
    assert not left, f"left behind: {left}"
    harness.observer.check()
    return ended


def prepare(harness: ClusterHarness, *, spares: int = 0, **fields: Any) -> None:
    """Write the files that every run on this layout shares."""
    harness.write_cluster(nodes=NODES, slots=RANKS, spares=spares)
    harness.write_run(trainer=TRAINER, nodes=NODES, ranks_per_node=RANKS, **fields)


def outcome_of(
    harness: ClusterHarness, *, steps: int = STEPS, ranks: int = NODES * RANKS
) -> Reference:
    """Return the end of a finished run of so many ranks: the last step's loss as published, and its last checkpoint."""
    run = run_of(harness.view())
    assert run.state == "finished", harness.report()
    assert run.last is not None
    assert run.last.step == run.step == steps
    assert run.last.loss is not None
    newest = checkpoints.list_sealed(Path(run.checkpoints))[0]
    manifest = checkpoints.verify(newest)
    assert manifest.step == steps
    shards = {name: seal for name, seal in manifest.files.items() if name.endswith(".distcp")}
    assert len(shards) == ranks
    return Reference(run.last.loss, tuple(manifest.metrics), shards)


def assert_equal(harness: ClusterHarness, undisturbed: Reference) -> None:
    """Compare a run's end with the undisturbed one's: not nearly equal, equal."""
    ended = outcome_of(harness)
    assert ended.loss == undisturbed.loss
    shared = min(len(ended.metrics), len(undisturbed.metrics))
    assert shared > 0
    assert ended.metrics[-shared:] == undisturbed.metrics[-shared:]
    # Every weight and every moment, bit for bit.
    assert ended.shards == undisturbed.shards
