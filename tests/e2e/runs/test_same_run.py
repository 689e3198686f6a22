"""A restart that would go on with other code waits for a person: real ranks, a real repository."""

import subprocess
import sys
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.scripts import STEPPING

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def commit(folder: Path) -> None:
    """Commit the script."""
    git = ["git", "-c", "user.name=ann", "-c", "user.email=ann@example.org", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)


def test_a_changed_script_is_not_restarted_unless_a_person_approves(
    harness: ClusterHarness,
) -> None:
    """A rank is killed after the script was changed: the run waits and names it; `restart --accept-drift` goes on."""
    harness.write_cluster(nodes=1, slots=2)
    script = harness.write_script(STEPPING)
    commit(harness.folder)
    harness.write_run(command="{python} train.py", nodes=1, ranks_per_node=2, python=sys.executable)
    run = harness.start("run", "run.yaml")
    before = harness.training(past_step=1)
    harness.until(lambda: knows_conditions(harness), "the conditions of the first attempt")
    script.write_text(f"{STEPPING}\n# another version\n")
    kill(before.pids[0])
    harness.wait(is_held, "a run that waits")
    held = run_of(harness.view())
    assert "changes that are not committed: none ->" in held.reason
    assert "configuration_drift" in [one.fault for one in incidents_of(harness.view())]
    accepted = harness.stoker("restart", "--accept-drift", "--why", "a comment")
    assert accepted.returncode == 0, accepted
    harness.training(past_step=before.step, after=before.attempt)
    (harness.folder / "enough").touch()
    code, output = harness.finish(run)
    assert code == 0, output
    book = harness.stoker("logbook").stdout
    assert "configuration_drift" in book
    assert "may run with something else" in harness.stoker("story").stdout


def is_held(view: ClusterStatus) -> bool | None:
    """Whether the run waits for a person, its gang gone."""
    return run_of(view).state == "waiting" or None


def knows_conditions(harness: ClusterHarness) -> bool:
    """Whether the journal holds what an attempt runs with."""
    batch = harness.store.read(streams={"journal": 0}, registers={}, timeout_seconds=0)
    return any(b"conditions_recorded" in item.payload for item in batch.items.get("journal", ()))
