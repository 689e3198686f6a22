"""A program that may write into a run's folder for checkpoints cannot have the run resume from numbers of its own."""

import sys
from pathlib import Path

from runner import checkpoints
from runner.signer import load_signer
from tests.act.test_checkpoint_actions import sealed
from tests.e2e.cluster_harness import ClusterHarness, kill, run_of

# Seals a checkpoint at once, then steps until the file `enough` appears; a start that resumes checks what it is to load.
SEALING = """
import json, os, pathlib, socket, time
from runner import checkpoints
from runner.facts.ids import AttemptId
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))

def report(**fields):
    channel.send(json.dumps(fields).encode())

report(kind="hello", requests=[], remedies=[])
attempt, resume = AttemptId.parse(os.environ["STOKER_ATTEMPT"]), os.environ["STOKER_RESUME"]
step = checkpoints.read_manifest(resume).step if resume else 0
generation = int(os.environ["STOKER_GENERATION"])
step += 1
folder = checkpoints.checkpoint_folder(os.environ["STOKER_CHECKPOINTS"], attempt, step)
folder.mkdir(parents=True)
(folder / "shard").write_bytes(b"%d" % step)
files = {"shard": checkpoints.flush_and_hash(folder / "shard")}
manifest = checkpoints.Manifest(
    run=os.environ["STOKER_RUN"], attempt=attempt, generation=generation, step=step, files=files
)
checkpoints.seal(folder, manifest, generation=generation)
report(kind="checkpoint", step=step, path=str(folder))
while not os.path.exists("enough"):
    time.sleep(0.02)
    step += 1
    report(kind="step", step=step, loss=1.0 / step)
"""


def test_a_run_resumes_from_its_own_newest_checkpoint(harness: ClusterHarness) -> None:
    """One of made-up numbers is passed over and stays; the story names it, and the way out."""
    harness.write_cluster(nodes=1, slots=1)
    harness.write_script(SEALING)
    fields = {"command": "{python} train.py", "python": sys.executable, "checkpoints": "ck"}
    harness.write_run(**fields)
    run = harness.start("run", "run.yaml")
    before = harness.training(past_step=3)
    root = Path(run_of(harness.view()).checkpoints)
    (own,) = harness.until(lambda: checkpoints.list_sealed(root), "a checkpoint")
    keys = load_signer(str(harness.state / "cluster.token")).seal_keys(harness.name, harness.name)
    assert checkpoints.read_manifest(own, keys).has_code
    generation = checkpoints.current_generation(root)
    made_up = sealed(root, 9000, run=harness.name, attempt="9.1.0", generation=generation)
    kill(before.pids[0])
    after = harness.training(past_step=3, after=before.attempt)
    assert harness.observer.resumes()[str(after.attempt)] == own.name
    (harness.folder / "enough").touch()
    code, output = harness.finish(run)
    assert code == 0, output
    checkpoints.verify(made_up)
    story = harness.stoker("story").stdout
    assert f"{made_up} carries no code of this run's secret: `stoker adopt` it" in story
