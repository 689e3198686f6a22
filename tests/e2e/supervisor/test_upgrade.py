"""A newer supervisor takes over from the release before it while training goes on, with that release's agents and ranks at work."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from runner.facts.messages import records as r
from runner.facts.messages.requests import StopRun
from runner.journal.journal import Journal
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.scripts import STEPPING, steps_of

pytestmark = pytest.mark.timeout(900)

# The first commit with the names that journals have from now on: nothing older loads.
RELEASE = "853377d"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Give the code of the release before, in a folder of its own."""
    packed = subprocess.run(
        ["git", "archive", RELEASE, "runner", "runbooks", "healthchecks"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if packed.returncode != 0:
        pytest.skip(f"the history of {ROOT} does not reach back to {RELEASE}: {packed.stderr!r}")
    folder = tmp_path / "release"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def test_a_newer_supervisor_goes_on_where_the_release_before_it_was_killed(
    harness: ClusterHarness, release: Path
) -> None:
    """Old agents and ranks go on untouched; the supervisor answers a request and recovers a dead rank; both share one journal."""
    harness.write_cluster(nodes=2, slots=1)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    old = _older(harness, release, "supervise")
    harness.until(harness.view, "a first View")
    handed = subprocess.run(
        [sys.executable, "-P", "-m", "runner.cli.main", "run", "run.yaml", "--detach"],
        cwd=harness.folder,
        env={**os.environ, "PYTHONPATH": str(release)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert handed.returncode == 0, handed
    before = harness.training(past_step=1)
    view = harness.view()
    assert view is not None
    agents = {node.node: node.agent_pid for node in view.nodes}
    for pid in agents.values():
        assert f"PYTHONPATH={release}".encode() in Path(f"/proc/{pid}/environ").read_bytes()

    old.kill()
    old.wait()
    # That release made no codes for its entries: a person says once whose they are.
    refused = harness.start("supervise")
    code, output = harness.finish(refused)
    assert code == 5, output
    assert "journal entry 1 carries no code" in output
    shown = json.loads(harness.stoker("store", "accept", "--json").stdout)
    assert shown["unsigned_through"] > 0
    assert [line.rpartition(": ")[2] for line in shown["commands"]] == ["'{python}' train.py"]
    accepted = harness.stoker("store", "accept", "--yes")
    assert accepted.returncode == 0, accepted
    new = harness.start("supervise")
    harness.wait(lambda view: f":{new.pid}:" in view.holder or None, "a View of the new supervisor")
    view = harness.view()
    assert view is not None
    # Both releases sign with the cluster's token.
    assert not view.unsigned
    after = harness.training(past_step=run_of(harness.view()).step + 20)
    assert after.pids == before.pids
    answer = harness.ask(StopRun(id="q-unknown", by="ann", run="no such run"))
    assert answer.state == "refused"

    kill(after.pids[1])
    recovered = harness.training(past_step=run_of(harness.view()).best_step, after=before.attempt)
    assert recovered.pids.keys() == before.pids.keys()
    view = harness.view()
    assert view is not None
    assert {node.node: node.agent_pid for node in view.nodes} == agents

    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    assert harness.stoker("shutdown").returncode == 0
    assert new.wait(30) == 0
    assert harness.observer.starts() == {str(before.attempt): 2, str(recovered.attempt): 2}
    for rank in (0, 1):
        mine = [step for step in steps_of(harness.folder, rank) if step.pid == before.pids[rank]]
        assert [step.step for step in mine] == list(range(1, len(mine) + 1))
    assert [(i.fault, i.state) for i in incidents_of(harness.view())] == [
        ("rank_crash", "resolved")
    ]

    entries = list(Journal(harness.store).replay())
    assert [entry.sequence for entry in entries] == list(range(1, len(entries) + 1))
    led = [entry.input for entry in entries if isinstance(entry.input, r.SupervisorStarted)]
    assert [int(started.holder.split(":")[1]) for started in led] == [old.pid, new.pid]
    story = harness.stoker("story")
    assert story.returncode == 0, story


def _older(harness: ClusterHarness, release: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a command of the release before; its children are of that release, too."""
    with (harness.folder / "output").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "runner.cli.main", *words],
            cwd=harness.folder,
            env={**os.environ, "PYTHONPATH": str(release), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
