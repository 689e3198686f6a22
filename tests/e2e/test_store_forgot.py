"""A store that comes back with less than it acknowledged, under a real cluster: action stops, ranks go on, a person decides."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.scripts import STEPPING
from tests.e2e.stand import RankStack, kill

pytestmark = pytest.mark.timeout(600)


def prepared(stand: RankStack) -> subprocess.Popen[bytes]:
    """Start a supervisor of one node, and write a run for it."""
    stand.write_cluster(nodes=1, slots=1)
    stand.write_script(STEPPING)
    stand.write_run(command="{python} train.py", python=sys.executable)
    supervisor = stand.start("supervise")
    stand.until(stand.view, "a first View")
    stand.wait(lambda view: view.nodes[0].state == "spare" or None, "a node that has joined")
    return supervisor


def hand_in(stand: RankStack) -> None:
    """Start the run."""
    handed = stand.stoker("run", "run.yaml", "--detach")
    assert handed.returncode == 0, handed


def copy(stand: RankStack) -> Path:
    """Copy the living store, as a backup does."""
    to = stand.folder / "copy.db"
    with (
        closing(sqlite3.connect(stand.state / "store" / "store.db")) as source,
        closing(sqlite3.connect(to)) as target,
    ):
        source.backup(target)
    return to


def put_back(stand: RankStack, taken: Path) -> None:
    """Put the copy in the store's place, as somebody does who restores a backup."""
    store = stand.state / "store" / "store.db"
    fresh = store.with_name("fresh.db")
    shutil.copy(taken, fresh)
    for name in ("store.db-wal", "store.db-shm"):
        store.with_name(name).unlink(missing_ok=True)
    fresh.rename(store)


def told(stand: RankStack) -> dict[str, object]:
    """Return what `stoker store accept` would have accepted."""
    shown = stand.stoker("store", "accept", "--json")
    assert shown.returncode == 0, shown
    found: dict[str, object] = json.loads(shown.stdout)
    return found


def accept(stand: RankStack) -> subprocess.Popen[bytes]:
    """Accept the store as it is, and lead it again."""
    done = stand.stoker("store", "accept", "--yes")
    assert done.returncode == 0, done
    assert told(stand)["is_any"] is False
    return stand.start("supervise")


def runs(stand: RankStack) -> list[dict[str, object]]:
    """Return the runs as a person sees them; the stand's own handle remembers the store that was."""
    listed = stand.stoker("runs", "--json")
    found: list[dict[str, object]] = json.loads(listed.stdout) if listed.returncode == 0 else []
    return found


def close(stand: RankStack) -> None:
    """Let the ranks reach their goal, and end the cluster in order."""
    (stand.folder / "enough").touch()
    stand.until(lambda: runs(stand)[-1]["state"] == "finished" or None, "the end of the run")
    ended = stand.stoker("shutdown")
    assert ended.returncode == 0, ended


def test_action_stops_and_the_ranks_go_on_until_a_person_accepts(stand: RankStack) -> None:
    """The leader ends with 5 and so does whoever follows; the same processes train through it all, and are led again."""
    leader = prepared(stand)
    hand_in(stand)
    before = stand.training(past_step=3)
    taken = copy(stand)
    # a supervisor that starts writes entries
    leader.send_signal(15)
    leader.wait(60)
    leader = stand.start("supervise")
    stand.wait(lambda view: f":{leader.pid}:" in view.holder or None, "the next supervisor leads")
    put_back(stand, taken)
    code, said = stand.finish(leader)
    assert code == 5, said
    assert said.count("ALL ACTION HAS STOPPED") == 1
    for words in (("supervise",), ("supervise", "--standby")):
        again = stand.stoker(*words)
        assert again.returncode == 5, again
        assert "store" in again.stderr
    lost = told(stand)["lost"]
    assert isinstance(lost, int)
    assert lost > 0
    refused = stand.stoker("store", "accept")
    assert refused.returncode == 2
    assert f"{lost} entries are known to be missing" in refused.stdout
    assert "--yes" in refused.stderr
    accept(stand)
    stand.until(lambda: runs(stand) or None, "the run is seen again")
    assert stand.observer.gang() == before.pids
    close(stand)
    assert stand.observer.starts() == {"1.1.0": 1}
    assert "took the store as it is for the truth" in stand.stoker("story").stdout


def test_ranks_of_a_run_that_was_forgotten_are_ended_once_the_store_is_accepted(
    stand: RankStack,
) -> None:
    """The leader died before the store came back: its mark tells the next one. No number that was given out is used again."""
    leader = prepared(stand)
    taken = copy(stand)
    hand_in(stand)
    before = stand.training(past_step=3)
    kill(leader.pid)
    leader.wait(60)
    put_back(stand, taken)
    code, said = stand.finish(stand.start("supervise"))
    assert code == 5, said
    assert "journal.mark" in said
    assert stand.observer.gang() == before.pids
    accept(stand)
    stand.until(lambda: not stand.observer.gang() or None, "the forgotten gang is ended")
    assert runs(stand) == []
    hand_in(stand)
    stand.until(lambda: stand.observer.gang() or None, "the run is started anew")
    assert list(stand.observer.starts()) == ["1.1.0", "2.1.0"]
    close(stand)
