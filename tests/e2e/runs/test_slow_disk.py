"""A checkpoint that takes minutes to read holds up nothing: neither the steps, nor a restart, nor its verification."""

import os
import sys

import pytest

from tests.e2e.cluster_harness import ClusterHarness, kill
from tests.healthchecks.slow_folder import slow_folder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

BYTES_PER_SECOND = 1_000_000
# Three minutes of reading, or as many seconds as are far more than an action may take here.
READ_SECONDS = 180 if "STOKER_SOAK" in os.environ else 25
ACTION_SECONDS = 5

# Seals a checkpoint once, of a small file that it loads and of one that it does not need; then steps until `enough` appears.
SEALING = f"""
import hashlib, json, os, pathlib, socket, time
from runner import checkpoints
from runner.facts.ids import AttemptId
channel = socket.socket(fileno=int(os.environ["STOKER_CHANNEL"]))

def report(**fields):
    channel.send(json.dumps(fields).encode())

def write(path, content):
    path.write_bytes(content)
    return checkpoints.FileSeal(size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

report(kind="hello", requests=[], remedies=[], checks_checkpoints=True)
step, resume = 0, os.environ["STOKER_RESUME"]
if resume:
    files = checkpoints.read_manifest(resume).files
    with checkpoints.open_checked(resume, "step", files) as file:
        text = file.part().read()
    step = int(text)
while not os.path.exists("enough"):
    time.sleep(0.05)
    step += 1
    report(kind="step", step=step, loss=1.0 / step)
    if step == 5:
        attempt, generation = AttemptId.parse(os.environ["STOKER_ATTEMPT"]), int(os.environ["STOKER_GENERATION"])
        folder = checkpoints.checkpoint_folder(os.environ["STOKER_CHECKPOINTS"], attempt, step)
        folder.mkdir(parents=True)
        rest = os.urandom({READ_SECONDS * BYTES_PER_SECOND})
        files = {{"step": write(folder / "step", b"5"), "rest": write(folder / "rest", rest)}}
        manifest = checkpoints.Manifest(
            run=os.environ["STOKER_RUN"], attempt=attempt, generation=generation, step=step, files=files
        )
        checkpoints.seal(folder, manifest, generation=generation)
        report(kind="checkpoint", step=step, path=str(folder))
"""


def test_a_restart_does_not_wait_for_a_checkpoint_that_is_slow_to_read(
    harness: ClusterHarness,
) -> None:
    """Ranks resume from it while nodes still read it, for longer than any action may take; then it is intact."""
    with slow_folder(harness.folder / "disk", read_bytes_per_second=BYTES_PER_SECOND) as disk:
        harness.write_cluster(nodes=2, slots=1, limits={"action_deadline_seconds": ACTION_SECONDS})
        harness.write_script(SEALING)
        harness.observer.stored_at = lambda path: disk.backing / path.relative_to(disk.folder)
        harness.write_run(
            command="{python} train.py", python=sys.executable, checkpoints=str(disk.folder / "ck")
        )
        run = harness.start("run", "run.yaml")
        harness.until(lambda: list(disk.backing.glob("ck/*/manifest.json")), "a sealed checkpoint")
        before = harness.training(past_step=7)
        harness.wait(lambda view: view.open_actions or None, "the nodes to read it")
        kill(before.pids[0])
        after = harness.training(past_step=before.step, after=before.attempt)
        (sealed,) = (path.name for path in disk.backing.glob("ck/1.*"))
        assert harness.observer.resumes()[str(after.attempt)] == sealed
        harness.wait(
            lambda view: view.runs[-1].checkpoint_step == 5 or None,
            "a verified checkpoint",
            seconds=READ_SECONDS + 120,
        )
        (harness.folder / "enough").touch()
        code, output = harness.finish(run)
        assert code == 0, output
        story = harness.stoker("story").stdout
        resumed = f"resumes from step 5 (checkpoint {sealed}, which no node has verified)"
        assert resumed in " ".join(story.split())
