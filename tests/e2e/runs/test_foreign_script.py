"""A script that knows nothing of Stoker, from a run.yaml of five lines."""

import sys
from collections.abc import Callable

import pytest

from tests.e2e.cluster_harness import ClusterHarness, kill
from tests.e2e.scripts import DDP

pytestmark = [pytest.mark.trainer, pytest.mark.slow, pytest.mark.timeout(300)]


def test_an_unchanged_ddp_script_survives_the_loss_of_each_of_its_ranks(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """SIGKILL to rank 1, then to rank 0: the script reaches its last step with the loss of an undisturbed run."""
    quiet, disturbed = make_cluster(), make_cluster()
    assert train(quiet) == 0, quiet.report()
    assert train(disturbed, victims=(1, 0)) == 0, disturbed.report()
    print(f"result {(disturbed.folder / 'result').read_text()}")
    assert (disturbed.folder / "result").read_text() == (quiet.folder / "result").read_text()
    assert quiet.observer.starts() == {"1.1.0": 2}
    assert disturbed.observer.starts() == {"1.1.0": 2, "1.1.1": 2, "1.1.2": 2}


def train(harness: ClusterHarness, *, victims: tuple[int, ...] = ()) -> int:
    """Run the script, and kill ranks after its next checkpoints; return the exit code."""
    harness.write_script(DDP)
    lines = [f"name: {harness.name}", 'command: "{python} train.py"', f"python: {sys.executable}"]
    lines += ["nodes: 1", "ranks_per_node: 2"]
    (harness.folder / "run.yaml").write_text("\n".join(lines) + "\n")
    run = harness.start("run", "run.yaml")
    checkpoint, seen = harness.folder / "checkpoint.pt", 0
    for rank in victims:

        def is_newer(before: int = seen) -> bool:
            is_there = checkpoint.exists() and checkpoint.stat().st_mtime_ns > before
            return is_there and bool(harness.observer.gang())

        harness.until(is_newer, "a checkpoint of the script's own")
        seen = checkpoint.stat().st_mtime_ns
        attempt = harness.observer.attempts()[-1]
        print(f"SIGKILL to rank {rank} of {attempt}")
        kill(harness.observer.gang()[rank])
        harness.until(
            lambda: harness.observer.attempts()[-1] != attempt and harness.observer.gang(),  # noqa: B023 - called at once
            "another gang",
        )
    return harness.finish(run)[0]
