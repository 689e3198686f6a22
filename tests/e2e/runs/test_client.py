"""The client's five lines in a script: through a kill, an orderly stop, and a run that goes on."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from runner import checkpoints
from tests.e2e.cluster_harness import ClusterHarness, kill

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(180)]

NUM_STEPS = 120
DOCUMENT = Path(__file__).parents[3] / "docs/client.md"
# What the loop of docs/client.md needs around it. `state.pt` is text here, for the test needs no torch.
BEFORE = f"""
import json, time

total, torch = {NUM_STEPS}, None

class torch:
    save = staticmethod(lambda state, path: path.write_text(json.dumps(state)))

def train_step():
    time.sleep(0.05)
    return 1.0
"""


def script() -> str:
    """Return the documented loop, with checkpoints every ten steps, as a script."""
    found = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    loop = (
        found[1]
        .replace("step % 500", "step % 10")
        .replace("torch.save(state,", 'torch.save({"step": step},')
    )
    return BEFORE + loop


def test_the_documented_lines_stop_in_order_and_go_on_from_sealed_checkpoints(
    make_cluster: Callable[[], ClusterHarness],
) -> None:
    """Every byte of docs/client.md's loop runs: killed, stopped with a checkpoint, and finished by the next run."""
    harness = make_cluster()
    harness.write_script(script())
    where = {"python": sys.executable, "checkpoints": "saved"}
    harness.write_run(command="{python} train.py", nodes=1, ranks_per_node=1, **where)
    run = harness.start("run", "run.yaml")
    first = harness.training(past_step=25)
    kill(first.pids[0])
    harness.training(past_step=30, after=first.attempt)
    assert harness.stoker("stop", harness.name).returncode == 0
    assert harness.finish(run)[0] != 1, harness.report()
    sealed = checkpoints.list_sealed(harness.folder / "saved")
    stopped_at = checkpoints.verify(sealed[0]).step
    assert json.loads((sealed[0] / "state.pt").read_text()) == {"step": stopped_at}
    assert 30 < stopped_at < NUM_STEPS
    code, output = harness.finish(harness.start("run", "run.yaml"))
    assert code == 0, harness.report()
    assert f"steps       {NUM_STEPS} in 1 attempt" in output
    lineage = json.loads(harness.stoker("lineage", "2", "--json").stdout)
    assert [one["first_step"] for one in lineage] == [stopped_at + 1]
