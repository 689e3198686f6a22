"""An attacker with the store's password and without the cluster's token: nothing of theirs is executed, and all action stops."""

import json
import sys
import time

import pytest

from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import JOURNAL, STATUS
from runner.serve.status_reader import read_status
from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.scripts import STEPPING

pytestmark = pytest.mark.timeout(600)


def forge(harness: ClusterHarness) -> int:
    """Append an entry that admits a run with a command of the attacker's; return its number."""
    number = harness.store.last(JOURNAL) + 1
    command = ("touch", str(harness.folder / "executed"))
    admitted = r.RunAdmitted(run=99, spec=RunSpec(name="theirs", command=command), user="")
    entry = r.JournalEntry(
        sequence=number, now=time.time() + 60.0, input=r.Settle(), records=(admitted,)
    )
    assert harness.store.append(JOURNAL, wire.encode(entry)) == number
    return number


def test_a_forged_run_is_executed_by_no_supervisor(harness: ClusterHarness) -> None:
    """Neither by the leader, nor by its standby, nor by the next one: each ends with 5 and names the entry; ranks go on."""
    harness.write_cluster(nodes=1, slots=1, spares=1, limits={"checks": []})
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", python=sys.executable)
    leader = harness.start("supervise")
    harness.until(harness.view, "a first View")
    assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
    before = harness.training(past_step=1)
    standby = harness.start("supervise", "--standby")
    harness.until(lambda: "followed its journal" in harness.output() or None, "a standby")
    number = forge(harness)
    code, output = harness.finish(standby)
    assert code == 5, output
    assert f"journal entry {number} carries no code" in output
    # Its next decision would have that number.
    harness.stoker("lr", "train", "x0.5", "--timeout", "3")
    code, output = harness.finish(leader)
    assert code == 5, output
    code, output = harness.finish(harness.start("supervise"))
    assert code == 5, output
    doctor = harness.stoker("store", "doctor", "--json")
    assert doctor.returncode == 1
    entries = next(x for x in json.loads(doctor.stdout)["checks"] if x["check"] == "entries")
    assert f"journal entry {number} carries no code" in entries["reason"]
    story = harness.stoker("story")
    assert story.returncode == 5
    assert f"journal entry {number}" in story.stderr
    assert not (harness.folder / "executed").exists()
    assert harness.observer.starts() == {str(before.attempt): 1}
    harness.kill_everything()


def test_a_forged_status_is_shown_as_not_verified(harness: ClusterHarness) -> None:
    """By every command that shows it; what a supervisor of this cluster wrote is shown without a note."""
    harness.write_cluster(nodes=1, slots=1)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    shown = harness.stoker("status")
    assert "NOT VERIFIED" not in shown.stderr + shown.stdout
    supervisor.kill()
    supervisor.wait()
    status = read_status(harness.store)
    assert status is not None
    harness.store.put(STATUS, wire.encode(status))
    for command in ("status", "nodes", "runs", "incidents"):
        shown = harness.stoker(command)
        assert "NOT VERIFIED" in shown.stderr, command
    assert "\nstoker_up 0\n" in harness.stoker("metrics").stdout
    harness.kill_everything()
