"""A store that comes back with less than it acknowledged, under a real cluster: action stops, ranks go on, an operator decides."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness, kill
from tests.e2e.scripts import STEPPING

pytestmark = pytest.mark.timeout(600)


def prepared(harness: ClusterHarness) -> subprocess.Popen[bytes]:
    """Start a supervisor of one node, and write a run for it."""
    harness.write_cluster(nodes=1, slots=1)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", python=sys.executable)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    harness.wait(lambda view: view.nodes[0].state == "spare" or None, "a node that has joined")
    return supervisor


def hand_in(harness: ClusterHarness) -> None:
    """Start the run."""
    handed = harness.stoker("run", "run.yaml", "--detach")
    assert handed.returncode == 0, handed


def copy(harness: ClusterHarness) -> Path:
    """Copy the living store, as a backup does."""
    to = harness.folder / "copy.db"
    with (
        closing(sqlite3.connect(harness.state / "store" / "store.db")) as source,
        closing(sqlite3.connect(to)) as target,
    ):
        source.backup(target)
    return to


def put_back(harness: ClusterHarness, taken: Path) -> None:
    """Put the copy in the store's place, as an operator who restores a backup does."""
    store = harness.state / "store" / "store.db"
    fresh = store.with_name("fresh.db")
    shutil.copy(taken, fresh)
    for name in ("store.db-wal", "store.db-shm"):
        store.with_name(name).unlink(missing_ok=True)
    fresh.rename(store)


def loss_report(harness: ClusterHarness) -> dict[str, object]:
    """Return what `stoker store accept` would accept."""
    shown = harness.stoker("store", "accept", "--json")
    assert shown.returncode == 0, shown
    found: dict[str, object] = json.loads(shown.stdout)
    return found


def accept(harness: ClusterHarness) -> subprocess.Popen[bytes]:
    """Accept the store as it is, and lead it again."""
    done = harness.stoker("store", "accept", "--yes")
    assert done.returncode == 0, done
    assert loss_report(harness)["is_any"] is False
    return harness.start("supervise")


def runs(harness: ClusterHarness) -> list[dict[str, object]]:
    """Return the runs as an operator sees them; the harness's own handle is of the store before."""
    listed = harness.stoker("runs", "--json")
    found: list[dict[str, object]] = json.loads(listed.stdout) if listed.returncode == 0 else []
    return found


def close(harness: ClusterHarness) -> None:
    """Let the ranks reach their goal, and end the cluster in order."""
    (harness.folder / "enough").touch()
    harness.until(
        lambda: [each["state"] for each in runs(harness)][-1:] == ["finished"] or None,
        "the end of the run",
    )
    ended = harness.stoker("shutdown")
    assert ended.returncode == 0, ended


def test_action_stops_and_the_ranks_go_on_until_an_operator_accepts(
    harness: ClusterHarness,
) -> None:
    """The leader exits with 5, and so does its successor; the same processes train throughout, and are led again."""
    leader = prepared(harness)
    hand_in(harness)
    before = harness.training(past_step=3)
    taken = copy(harness)
    # A starting supervisor writes entries.
    leader.send_signal(15)
    leader.wait(60)
    leader = harness.start("supervise")
    harness.wait(lambda view: f":{leader.pid}:" in view.holder or None, "the next supervisor leads")
    put_back(harness, taken)
    code, output = harness.finish(leader)
    assert code == 5, output
    assert output.count("ALL ACTION HAS STOPPED") == 1
    for words in (("supervise",), ("supervise", "--standby")):
        again = harness.stoker(*words)
        assert again.returncode == 5, again
        assert "store" in again.stderr
    lost = loss_report(harness)["lost"]
    assert isinstance(lost, int)
    assert lost > 0
    refused = harness.stoker("store", "accept")
    assert refused.returncode == 2
    assert f"{lost} entries are known to be missing" in refused.stdout
    assert "--yes" in refused.stderr
    accept(harness)
    harness.until(lambda: runs(harness) or None, "the run is seen again")
    assert harness.observer.gang() == before.pids
    close(harness)
    assert harness.observer.starts() == {"1.1.0": 1}
    assert "accepted the store as it is" in harness.stoker("story").stdout


def test_ranks_of_a_lost_run_are_ended_once_the_store_is_accepted(
    harness: ClusterHarness,
) -> None:
    """The leader died before the store came back: its high-water mark stops the next one. No number is used twice."""
    leader = prepared(harness)
    taken = copy(harness)
    hand_in(harness)
    before = harness.training(past_step=3)
    kill(leader.pid)
    leader.wait(60)
    put_back(harness, taken)
    code, output = harness.finish(harness.start("supervise"))
    assert code == 5, output
    assert "journal.high_water_mark" in output
    assert harness.observer.gang() == before.pids
    accept(harness)
    harness.until(lambda: not harness.observer.gang() or None, "the lost gang is ended")
    assert runs(harness) == []
    hand_in(harness)
    harness.until(lambda: harness.observer.gang() or None, "the run is restarted")
    assert list(harness.observer.starts()) == ["1.1.0", "2.1.0"]
    close(harness)
