"""Bad input from outside: one message with field, value and remedy, before anything is started or overwritten."""

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.scripts import ENDING

pytestmark = pytest.mark.timeout(120)

TINY: dict[str, Any] = {"recipe": "tiny_cpu", "steps": 10}
FOUR_RANKS: dict[str, Any] = {"nodes": 2, "ranks_per_node": 2}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        pytest.param(
            {"trainer": TINY, "nodes": 2, "ranks_per_nod": 2},
            ("ranks_per_nod", "ranks_per_node"),
            id="misspelt key",
        ),
        pytest.param(
            {"trainer": {**TINY, "chekpoint_every": 5}, **FOUR_RANKS},
            ("chekpoint_every", "checkpoint_every"),
            id="misspelt key of the trainer",
        ),
        pytest.param(
            {"trainer": {**TINY, "model": {"heads": 3}}, **FOUR_RANKS},
            ("heads", "3"),
            id="heads that do not divide",
        ),
        pytest.param(
            {"trainer": {**TINY, "model": {"layers": 5}}, **FOUR_RANKS},
            ("layers", "5", "pipeline"),
            id="layers that do not divide",
        ),
        pytest.param(
            {"trainer": {**TINY, "batch": {"global_batch": 15}}, **FOUR_RANKS},
            ("global_batch", "15"),
            id="global batch that does not divide",
        ),
        pytest.param(
            {"trainer": {**TINY, "model": {"vocabulary": 257}}, **FOUR_RANKS},
            ("vocabulary", "257"),
            id="vocabulary that does not divide",
        ),
        pytest.param(
            {"trainer": TINY, "nodes": 1, "ranks_per_node": 2},
            ("nodes x ranks_per_node", "2", "4"),
            id="layout that does not fill the ranks",
        ),
        pytest.param(
            {"trainer": {**TINY, "data": {"source": "text", "path": "no-such-file"}}, **FOUR_RANKS},
            ("data.path", "no-such-file"),
            id="unreadable data",
        ),
        pytest.param(
            {"command": "{python} train.py {world}"},
            ("command", "{world}"),
            id="unknown placeholder",
        ),
    ],
)
def test_a_run_that_cannot_work_is_refused_before_anything_starts(
    harness: ClusterHarness, fields: dict[str, Any], words: tuple[str, ...]
) -> None:
    """Exit code 2 and one message that names field and value; no process, no cluster, no folder."""
    harness.write_run(**fields)
    refused = harness.stoker("run", "run.yaml")
    assert_refused(refused, *words)
    assert not (harness.folder / ".stoker").exists()
    assert harness.observer.attempts() == []


def test_paths_are_those_of_the_folder_of_run_yaml(harness: ClusterHarness) -> None:
    """The command finds data beside run.yaml from any working directory: it refuses only the missing node here."""
    harness.write_cluster(nodes=1, slots=2)
    path = harness.write_run(
        trainer={**TINY, "data": {"source": "text", "path": "text.txt"}}, **FOUR_RANKS
    )
    below = harness.folder / "below"
    below.mkdir()
    path.rename(below / "run.yaml")
    (below / "text.txt").write_text("to be or not to be\n" * 10_000)
    assert_refused(harness.stoker("run", "below/run.yaml"), "nodes x ranks_per_node", "2 x 2")


@pytest.mark.parametrize("place", ["a file in its place", "a file above it"])
def test_checkpoints_that_cannot_be_written_are_refused(
    harness: ClusterHarness, place: str
) -> None:
    """A folder for checkpoints that is none: field, path and reason, before anything starts."""
    (harness.folder / "taken").write_text("not a folder")
    folder = "taken" if place == "a file in its place" else "taken/below"
    harness.write_run(trainer=TINY, checkpoints=folder, **FOUR_RANKS)
    refused = harness.stoker("run", "run.yaml")
    assert_refused(refused, "checkpoints", str(harness.folder / "taken"))
    assert not (harness.folder / ".stoker").exists()
    assert (harness.folder / "taken").read_text() == "not a folder"


def test_too_few_slots_are_refused_and_nothing_stays(harness: ClusterHarness) -> None:
    """For a run that no node can hold the error has the request, the slots and the remedy; nothing is started."""
    harness.write_cluster(nodes=2, slots=1)
    harness.write_script(ENDING)
    harness.write_run(command="{python} train.py 0 0 done", nodes=2, ranks_per_node=2)
    refused = harness.stoker("run", "run.yaml")
    assert_refused(refused, "nodes x ranks_per_node", "2 x 2", "1 slot each", "local.slots")
    assert harness.observer.attempts() == []
    assert not (harness.state / "supervisor.log").exists()


def test_a_cluster_that_is_led_refuses_too_few_slots_too(harness: ClusterHarness) -> None:
    """The supervisor gives the same refusal, and the cluster goes on."""
    harness.write_cluster(nodes=2, slots=1)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    harness.write_script(ENDING)
    harness.write_run(command="{python} train.py 0 0 done", nodes=2, ranks_per_node=2)
    refused = harness.stoker("run", "run.yaml")
    assert_refused(refused, "nodes x ranks_per_node", "2 x 2", "largest node: 1")
    assert harness.observer.attempts() == []
    assert supervisor.poll() is None
    assert harness.stoker("shutdown").returncode == 0


def test_a_metrics_port_in_use_is_refused_before_anything_starts(harness: ClusterHarness) -> None:
    """The field, the port, and what to do about it; no agent, no rank."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        harness.write_cluster(nodes=1, slots=1, limits={"metrics_port": port})
        harness.write_script(ENDING)
        harness.write_run(command="{python} train.py 0 0 done")
        refused = harness.stoker("run", "run.yaml")
    assert_refused(refused, "metrics_port", str(port))
    assert harness.observer.attempts() == []
    assert not list(Path(harness.state).glob("nodes/*/agent.log"))


def assert_refused(refused: subprocess.CompletedProcess[str], *words: str) -> None:
    """One message for people on standard error, exit code 2, no traceback."""
    print(refused.stderr)
    assert refused.returncode == 2, refused
    # Other clusters of this machine may be named above it.
    assert any(line.startswith("stoker: ") for line in refused.stderr.splitlines())
    assert "Traceback" not in refused.stderr
    for word in words:
        assert word in refused.stderr
