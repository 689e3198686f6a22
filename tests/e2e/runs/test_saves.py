"""An unchanged script of torch.distributed.checkpoint whose newest checkpoint is torn, while its own marker points to it."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import checkpoints
from tests.e2e.cluster_harness import ClusterHarness, kill

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.trainer,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

# Saves every ten steps, and writes the newest one's name to a marker, as many scripts do.
SCRIPT = """
import argparse, os, time
import torch, torch.distributed.checkpoint as dcp

parser = argparse.ArgumentParser()
parser.add_argument("--resume", default="")
options = parser.parse_args()
torch.manual_seed(1)
model = torch.nn.Linear(8, 8)
state = {"model": model.state_dict(), "step": 0}
if options.resume:
    dcp.load(state, checkpoint_id=options.resume)
    model.load_state_dict(state["model"])
step = state["step"]
print(f"begins after {step} from {options.resume or 'nothing'}", flush=True)
while step < 120:
    time.sleep(0.05)
    step += 1
    print(f"step {step} loss {1 / step:.4f}", flush=True)
    if step % 10 == 0:
        folder = f"out/weights-{step}"
        dcp.save({"model": model.state_dict(), "step": step}, checkpoint_id=folder)
        with open("out/newest", "w") as marker:
            marker.write(folder)
"""


def test_a_script_goes_on_from_the_checkpoint_before_a_torn_one(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """The newest is cut off as its rank dies: its step is not sealed, lineage names the one before, and nothing was changed."""
    harness = make_cluster()
    harness.write_script(SCRIPT)
    out, saved = harness.folder / "out", harness.folder / "saved"
    harness.write_run(
        command="{python} train.py {resume_arguments}",
        python=sys.executable,
        checkpoints="saved",
        saves="out",
    )
    run = harness.start("run", "run.yaml")
    torn = harness.until(lambda: unsealed(out, saved), "a whole checkpoint after a sealed one")
    with (torn / "__0_0.distcp").open("r+b") as file:
        file.truncate(os.fstat(file.fileno()).st_size // 2)
    kill(harness.observer.gang()[0])
    before = {path.name for path in torn.iterdir()}
    assert harness.finish(run)[0] == 0, harness.report()
    assert "step 120" in rank_output(harness, "1.1.1")
    sealed = [checkpoints.verify(each, ()).step for each in checkpoints.list_sealed(saved)]
    assert sealed[0] == 120
    step = int(torn.name.rpartition("-")[2])
    lineage = json.loads(harness.stoker("lineage", "1", "--json").stdout)
    resumed = lineage[-1]["first_step"] - 1
    # Its copy, and those before it, were sealed; the newest that a node had verified by then is taken.
    assert 0 < resumed < step
    begin = rank_output(harness, "1.1.1").splitlines()[0]
    assert begin == f"begins after {resumed} from {saved}/1.1.0-{resumed:08d}"
    assert {path.name for path in torn.iterdir()} == before
    assert sorted(path.name for path in out.iterdir() if "weights" not in path.name) == ["newest"]
    story = harness.stoker("story").stdout
    newer = re.search(
        rf"resume from step {resumed}; newer in {re.escape(str(out))}, and not sealed: ([\w, -]+) ",
        story,
    )
    assert newer is not None, story
    # The torn one is the newest; of those before it some may not have been copied by then.
    unsealed_steps = [int(name.rpartition("-")[2]) for name in newer[1].split(", ")]
    assert unsealed_steps == sorted(unsealed_steps)
    assert unsealed_steps[-1] == step
    assert unsealed_steps[0] > resumed
    log = next(harness.state.glob("nodes/*/agent.log")).read_text()
    assert f"{torn} is not sealed: __0_0.distcp: " in log


def unsealed(out: Path, saved: Path) -> Path | None:
    """Return the newest checkpoint of the script once it is whole, not sealed yet, and one before it is."""
    whole = sorted(out.glob("weights-*/.metadata"), key=lambda path: path.stat().st_mtime_ns)
    sealed = [checkpoints.read_folder_name(each.name) for each in checkpoints.list_sealed(saved)]
    newest = whole[-1].parent if whole else None
    if newest is None or not sealed:
        return None
    step = int(newest.name.rpartition("-")[2])
    return newest if step not in [each[1] for each in sealed if each] and step > 10 else None


def rank_output(harness: ClusterHarness, attempt: str) -> str:
    """Return what rank 0 of an attempt printed."""
    (path,) = harness.state.glob(f"runs/*/attempts/{attempt}/rank0.out")
    return path.read_text()
