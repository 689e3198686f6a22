"""An operator's actions on a live run: inspect it, change its learning rate, stop, restart and interrupt it."""

import hashlib
import json
import signal
import socket
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from runner import checkpoints
from tests.e2e.cluster_harness import ClusterHarness, kill, run_of
from tests.e2e.reference import NODES, RANKS, TRAINER
from tests.e2e.scripts import STEPPING


@pytest.mark.trainer
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_takes_a_learning_rate_stops_with_a_checkpoint_and_is_started_again(
    harness: ClusterHarness,
) -> None:
    """`lr x0.9` is answered with the value read back; `stop` seals; a second start goes on there; Ctrl-C leaves nothing."""
    harness.write_cluster(nodes=NODES, slots=RANKS)
    trainer = {**TRAINER, "steps": 5000, "checkpoint_every": 0}
    harness.write_run(trainer=trainer, nodes=NODES, ranks_per_node=RANKS)
    run = harness.start("run", "run.yaml")
    first = harness.training(past_step=2)

    assert_lr_changes(harness)
    second = harness.training(past_step=first.step, after=first.attempt)
    assert str(second.attempt) == "1.2.0"

    stopped = harness.stoker("stop", seconds=150)
    assert stopped.returncode == 0, stopped
    code, output = harness.finish(run)
    assert code == 3, output
    ended = run_of(harness.view())
    newest = checkpoints.list_sealed(ended.checkpoints)[0]
    print(f"stopped after step {ended.step}: {stopped.stdout.strip()}; newest is {newest.name}")
    assert newest.name == f"1.2.0-{ended.step:08d}"

    before = bytes_of(Path(ended.checkpoints))
    again = harness.start("run", "run.yaml")
    harness.wait(lambda view: len(view.runs) == 2 or None, "a second run")
    third = harness.training(past_step=ended.step)
    print(f"{third.attempt} resumed from {harness.observer.resumes()[str(third.attempt)]}")
    assert third.attempt.run == 2
    assert harness.observer.resumes()[str(third.attempt)] == newest.name
    now = bytes_of(Path(ended.checkpoints))
    assert {name: now.get(name) for name in before} == before

    kill(again.pid, signal.SIGINT)
    code, output = harness.finish(again)
    print(output)
    assert code == 130
    harness.until(lambda: not harness.processes() or None, "the end of every process")
    final = checkpoints.list_sealed(ended.checkpoints)[0]
    assert final.name == f"{third.attempt}-{run_of(harness.view()).step:08d}"


def test_a_detached_run_can_be_inspected_by_programs_and_people(harness: ClusterHarness) -> None:
    """Every read-only command answers while it runs, as tables and as JSON; `/metrics` has the step and the nodes."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    harness.write_cluster(nodes=2, slots=1, spares=1, limits={"metrics_port": port})
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    detached = harness.stoker("run", "run.yaml", "--detach", "--json")
    assert detached.returncode == 0, detached
    assert json.loads(detached.stdout)["run"] == 1
    before = harness.training(past_step=1)
    kill(before.pids[1])
    after = harness.training(past_step=before.step + 50, after=before.attempt)

    plain = {command: look(harness, command) for command in COMMANDS}
    assert plain["status"]["status"]["runs"][0]["attempt"] == str(after.attempt)
    assert plain["status"]["status"]["runs"][0]["step"] >= after.step
    assert [node["node"] for node in plain["nodes"]] == ["n1", "n2", "n3"]
    assert [incident["fault"] for incident in plain["incidents"]] == ["rank_crash"]
    assert [row["attempt"] for row in plain["lineage"]] == ["1.1.0", "1.1.1"]
    assert plain["story"]
    story = harness.stoker("story", "i1")
    assert story.returncode == 0
    assert "rank 1" in story.stdout

    metrics = scrape(port)
    (step,) = (line for line in metrics.splitlines() if line.startswith("stoker_run_step{"))
    print(step)
    assert float(step.split()[-1]) >= after.step
    assert 'state="active"' in metrics
    assert harness.stoker("metrics").returncode == 0

    stopped = harness.stoker("stop")
    assert stopped.returncode == 0, stopped
    ended = harness.stoker("shutdown")
    assert ended.returncode == 0, ended
    harness.until(lambda: not harness.processes() or None, "the end of every process")
    assert look(harness, "status")["status"]["runs"][0]["state"] == "stopped"


COMMANDS = ("status", "runs", "nodes", "incidents", "story", "lineage")


def assert_lr_changes(harness: ClusterHarness) -> None:
    """Ask for nine tenths of the learning rate; the trainer's own reading of it comes back."""
    bare = harness.stoker("lr", "0.9")
    assert bare.returncode == 2
    assert "x0.9" in bare.stderr
    changed = harness.stoker("lr", "x0.9", seconds=320)
    print(changed.stdout, changed.stderr)
    assert changed.returncode == 0, changed
    assert "1.2.0" in changed.stdout
    assert "factor 0.9" in changed.stdout
    # The status is published after the answer.
    harness.wait(lambda view: dict(run_of(view).remedies) == {"lr_factor": 0.9} or None, "the rate")
    status = look(harness, "status")["status"]["runs"][0]
    assert status["remedies"] == {"lr_factor": 0.9}
    assert status["settings"]["lr_factor"] == 0.9
    assert status["settings"]["lr_peak"] == 1e-3


def look(harness: ClusterHarness, command: str) -> Any:
    """Run a read-only command, as a table and as JSON; return the JSON."""
    shown = harness.stoker(command)
    assert shown.returncode == 0, shown
    assert shown.stdout.strip()
    answered = harness.stoker(command, "--json")
    assert answered.returncode == 0, answered
    return json.loads(answered.stdout)


def scrape(port: int) -> str:
    """Read the metrics page as Prometheus does."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return str(page.read().decode())


def bytes_of(root: Path) -> dict[str, str]:
    """Hash every file of every sealed checkpoint."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in checkpoints.list_sealed(root)
        for path in sorted(folder.iterdir())
    }
